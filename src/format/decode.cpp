#include "format/decode.h"

#include "core/error.h"

namespace ridge {
namespace dialect {

const u32 table_words[TABLE_WORDS] = {
#include "format/tables.def"
};

}  // namespace dialect

namespace {

template <Format F>
constexpr DecodeFns fns_of() {
    using D = Decode<F>;
    DecodeFns fns = {};
    if constexpr (D::group == 0) {
        fns.value = D::value;
    } else {
        fns.scale = D::scale;
        fns.codes4 = D::codes4;
        if constexpr (D::has_bias) fns.bias = D::bias;
    }
    return fns;
}

struct Row {
    Format id;
    DecodeFns fns;
    std::span<const Field> fields;
};

constexpr Row kRows[] = {
#define FORMAT(NAME, prefix, id, block, bytes, group, bias) \
    {Format::NAME, fns_of<Format::NAME>(), Decode<Format::NAME>::fields},
#define FORMAT_FLOAT(NAME, prefix, id, bytes) {Format::NAME, fns_of<Format::NAME>(), Decode<Format::NAME>::fields},
#include "format/formats.def"
};

const Row &row(Format f) {
    const Row *found = nullptr;
    for (const Row &r : kRows)
        if (r.id == f) found = &r;
    RIDGE_ASSERT(found != nullptr);
    return *found;
}

}  // namespace

const DecodeFns &decoder(Format f) { return row(f).fns; }

std::span<const Field> fields(Format f) { return row(f).fields; }

void dequantize(Format f, const std::byte *src, float *dst, size_t n) { dequantize(f, decoder(f), src, dst, n); }

void dequantize(Format f, const DecodeFns &fns, const std::byte *src, float *dst, size_t n) {
    const FormatInfo &shape = info(f);
    RIDGE_ASSERT(n % shape.block == 0);
    if (shape.is_float()) {
        for (size_t i = 0; i < n; ++i) dst[i] = fns.value(src + i * shape.bytes, 0);
        return;
    }
    for (size_t at = 0; at < n; at += shape.block, src += shape.bytes) {
        // Groups are 16 weights or a multiple of 32, so four neighbours always share one.
        f32 scale = 0, bias = 0;
        for (u32 i = 0; i < shape.block; i += 4) {
            if (i % shape.group == 0) {
                scale = fns.scale(src, i / shape.group);
                if (fns.bias) bias = fns.bias(src, i / shape.group);
            }
            const u32 codes = fns.codes4(src, i / 32, i % 32 / 4);
            for (u32 k = 0; k < 4; ++k) {
                const f32 product = scale * static_cast<f32>(static_cast<int8_t>(codes >> (8 * k)));
                dst[at + i + k] = fns.bias ? product + bias : product;
            }
        }
    }
}

}  // namespace ridge
