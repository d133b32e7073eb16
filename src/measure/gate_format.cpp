// Compares decoders with src/oracle/decode.h, which shares no code with them.
#include "measure/gate_format.h"

#include <array>
#include <bit>
#include <cmath>
#include <random>

#include "core/error.h"
#include "oracle/decode.h"

namespace ridge {
namespace {

bool same_bits(float a, float b) {
    return (std::isnan(a) && std::isnan(b)) || std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

// What a decoder or the oracle says of one weight.
struct Said {
    float scale = 0, bias = 0, value = 0;
    int code = 0;

    bool operator==(const Said &o) const {
        return same_bits(scale, o.scale) && same_bits(bias, o.bias) && same_bits(value, o.value) && code == o.code;
    }
};

std::string text(const Said &s) {
    return fmt::format("scale {} ({:#010x}) code {} bias {} ({:#010x}) value {} ({:#010x})", s.scale,
                       std::bit_cast<uint32_t>(s.scale), s.code, s.bias, std::bit_cast<uint32_t>(s.bias), s.value,
                       std::bit_cast<uint32_t>(s.value));
}

Said oracle_says(uint32_t ggml_type, const std::byte *block, unsigned i) {
    const auto *bytes = reinterpret_cast<const unsigned char *>(block);
    const oracle::Element e = oracle::element(ggml_type, bytes, i);
    return {static_cast<float>(e.scale), static_cast<float>(e.bias), oracle::value(ggml_type, bytes, i), e.code};
}

// A float format has only a value; it counts as the scale of code 1, as in the oracle.
Said float_decoder_says(const DecodeFns &fns, const std::byte *data, size_t n) {
    const float v = fns.value(data, static_cast<uint32_t>(n));
    return {v, 0, v, 1};
}

Said decoder_says(const DecodeFns &fns, const FormatInfo &format, const std::byte *block, unsigned i) {
    const uint32_t codes = fns.codes4(block, i / 32, i % 32 / 4);
    Said s;
    s.code = static_cast<int8_t>(codes >> (8 * (i % 4)) & 255);
    s.scale = fns.scale(block, i / format.group);
    s.value = s.scale * static_cast<float>(s.code);
    if (fns.bias) {
        s.bias = fns.bias(block, i / format.group);
        s.value += s.bias;
    }
    return s;
}

bool complete(const DecodeFns &fns, const FormatInfo &format) {
    if (format.is_float()) return fns.value != nullptr;
    return fns.scale && fns.codes4 && (fns.bias != nullptr) == format.has_bias;
}

}  // namespace

GateResult gate_format(const DecodeFns &fns, Format f, std::span<const std::byte> blocks) {
    const FormatInfo &format = info(f);
    const uint32_t type = static_cast<uint32_t>(f);
    RIDGE_ASSERT(oracle::block_bytes(type) == format.bytes && oracle::block_weights(type) == format.block);
    RIDGE_ASSERT(blocks.size() % format.bytes == 0);
    const size_t count = blocks.size() / format.bytes;

    GateResult result;
    if (!complete(fns, format)) {
        result.checked = result.nbad = count * format.block;
        result.first_bad =
            fmt::format("{}: the decoder lacks a function or has a bias that the format has not", format.name);
        return result;
    }
    for (size_t n = 0; n < count; ++n) {
        const std::byte *block = blocks.data() + n * format.bytes;
        for (unsigned i = 0; i < format.block; ++i) {
            const Said want = oracle_says(type, block, i);
            const Said got =
                format.is_float() ? float_decoder_says(fns, blocks.data(), n) : decoder_says(fns, format, block, i);
            ++result.checked;
            if (got == want) continue;
            if (result.nbad++ == 0)
                result.first_bad =
                    fmt::format("{} block {} weight {}: {}; oracle: {}", format.name, n, i, text(got), text(want));
        }
    }
    return result;
}

std::vector<std::byte> random_blocks(Format f, size_t count, uint64_t seed) {
    // f16: +0 -0, subnormals, the largest and the smallest normal, infinities, NaNs, and an ordinary negative number
    constexpr std::array<uint16_t, 14> kExtreme = {0x0000, 0x8000, 0x0001, 0x03ff, 0x8001, 0x7bff, 0xfbff,
                                                   0x0400, 0x7c00, 0xfc00, 0x7e00, 0x7c01, 0xffff, 0xb800};
    const size_t bytes = info(f).bytes;
    std::mt19937_64 random(seed);
    std::vector<std::byte> blocks(count * bytes);
    for (std::byte &b : blocks) b = static_cast<std::byte>(random() >> 56);
    for (size_t n = 0; n < count; n += 4) {
        const size_t pair = n / 4;
        oracle::plant_scales(static_cast<uint32_t>(f), reinterpret_cast<unsigned char *>(blocks.data() + n * bytes),
                             kExtreme[pair % kExtreme.size()], kExtreme[pair / kExtreme.size() % kExtreme.size()]);
    }
    return blocks;
}

}  // namespace ridge
