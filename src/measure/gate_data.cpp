#include "measure/gate_data.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <new>

#include "core/error.h"
#include "oracle/decode.h"

namespace ridge::gate {
namespace {

constexpr size_t kAlign = 32;
constexpr size_t kCharacters = 6;

double f32(double x) { return static_cast<float>(x); }

// The f32 formats' pattern of x. A BF16 is cut off, which is as good a random number as any.
uint32_t float_pattern(Format f, double x) {
    const auto bits = std::bit_cast<uint32_t>(static_cast<float>(x));
    if (f == Format::F16) return to_f16(x);
    return f == Format::BF16 ? bits >> 16 : bits;
}

// Root mean square of the weights of random blocks whose stored scales are 1 (MXFP4: exponent 127).
double unit_rms(Format f) {
    static std::map<Format, double> known;
    const auto found = known.find(f);
    if (found != known.end()) return found->second;
    constexpr size_t kBlocks = 8;
    Random random(99);
    const FormatInfo &format = info(f);
    const auto type = static_cast<uint32_t>(f);
    std::vector<unsigned char> blocks(kBlocks * format.bytes);
    for (unsigned char &b : blocks) b = static_cast<unsigned char>(random.bits() >> 56);
    for (size_t i = 0; i < kBlocks; i++)
        oracle::plant_scales(type, &blocks[i * format.bytes], f == Format::MXFP4 ? 127 : 0x3c00, 0x3c00);
    double squares = 0;
    for (const double w : oracle::decode(type, blocks.data(), kBlocks * format.block)) squares += w * w;
    return known[f] = std::sqrt(squares / static_cast<double>(kBlocks * format.block));
}

// Scales of one block: about `scale` times what makes its weights' size 1.
void plant(Random &random, Format f, std::byte *block, double scale, bool extreme) {
    constexpr uint16_t kExtreme[] = {0x0000, 0x8000, 0x0001, 0x03ff, 0x8002};
    const double unit = scale / unit_rms(f);
    uint16_t d = to_f16(unit * (0.5 + random.uniform()));
    uint16_t m = to_f16(unit * (0.5 + random.uniform()) * (random.below(2) ? 1 : -1));
    const uint32_t kind = extreme ? random.below(4) : 3;
    if (f == Format::MXFP4) {
        const auto exponent = static_cast<uint16_t>(std::lround(127 + std::log2(unit)) + random.below(3) - 1);
        d = kind == 0 ? static_cast<uint16_t>(random.below(2)) : exponent;  // 0 and 1: subnormal scales
        if (kind == 2) d = static_cast<uint16_t>(d + 7);
    } else if (kind < 2) {
        d = kExtreme[random.below(5)], m = kExtreme[random.below(5)];
    } else if (kind == 2) {
        d = to_f16(from_f16(d) * 100), m = to_f16(from_f16(m) * 100);
    }
    oracle::plant_scales(static_cast<uint32_t>(f), reinterpret_cast<unsigned char *>(block), d, m);
}

void fill_floats(Random &random, Format f, std::byte *row, size_t k, double scale, bool extreme) {
    const size_t bytes = info(f).bytes;
    for (size_t j = 0; j < k; j++) {
        double x = scale * random.normal();
        const uint32_t kind = extreme ? random.below(4) : 3;
        if (kind == 0) x = random.below(2) ? 0.0 : -0.0;
        if (kind == 1) x *= f == Format::F16 ? 0x1p-20 : 0x1p-125;
        if (kind == 2) x *= 100;
        const uint32_t pattern = float_pattern(f, x);
        std::memcpy(row + j * bytes, &pattern, bytes);
    }
}

}  // namespace

double Random::normal() {
    const double radius = std::sqrt(-2 * std::log(1 - uniform()));
    return radius * std::cos(6.283185307179586 * uniform());
}

void fill(Random &random, Character character, std::span<double> row) {
    for (double &x : row) x = f32(random.normal());
    const auto hot = random.below(static_cast<uint32_t>(row.size()));
    for (size_t j = 0; j < row.size(); j++) {
        const bool odd_run = j / 32 % 2 == 1 || (row.size() <= 32 && j % 2 == 1);
        switch (character) {
            case Character::normal:
                break;
            case Character::outliers:
                if (j == hot || random.below(64) == 0) row[j] = f32(row[j] * 10000);
                break;
            case Character::zeros:
                if (odd_run) row[j] = 0;
                break;
            case Character::subnormal:
                if (odd_run || row.size() <= 32) row[j] = std::trunc(row[j] * 300) * 0x1p-149;
                break;
            case Character::one_hot:
                row[j] = j == hot;
                break;
            case Character::negative_zero:
                if (odd_run || random.below(4) == 0) row[j] = -0.0;
                break;
        }
    }
}

Reals activations(Random &random, size_t rows, size_t cols, size_t first) {
    Reals x(rows * cols);
    for (size_t i = 0; i < rows; i++)
        fill(random, static_cast<Character>((i + first) % kCharacters), std::span(x).subspan(i * cols, cols));
    return x;
}

Reals normals(Random &random, size_t count, double scale) {
    Reals x(count);
    for (double &v : x) v = f32(scale * random.normal());
    return x;
}

Bytes::Bytes(size_t size)
    : data_(static_cast<std::byte *>(::operator new[](size, std::align_val_t{kAlign}))), size_(size) {}
void Bytes::Free::operator()(std::byte *p) const { ::operator delete[](p, std::align_val_t{kAlign}); }

Bytes random_weight(Random &random, const Weight &w) {
    const FormatInfo &format = info(w.format);
    const size_t stride = row_bytes(w.format, w.k);
    const double scale = 1 / std::sqrt(static_cast<double>(w.k));
    Bytes bytes(w.bytes());
    for (size_t i = 0; i < bytes.size(); i++) bytes.data()[i] = static_cast<std::byte>(random.bits() >> 56);
    for (size_t row = 0; row < size_t{w.n} * w.experts; row++) {
        std::byte *at = bytes.data() + row * stride;
        const bool extreme = row % w.n % 5 == 4;
        if (format.is_float()) {
            fill_floats(random, w.format, at, w.k, scale, extreme);
            continue;
        }
        for (size_t b = 0; b < stride; b += format.bytes) plant(random, w.format, at + b, scale, extreme);
    }
    return bytes;
}

Bytes f32_weight(RealSpan values) {
    Bytes bytes(values.size() * sizeof(float));
    for (size_t i = 0; i < values.size(); i++) {
        const auto v = static_cast<float>(values[i]);
        std::memcpy(bytes.data() + i * sizeof v, &v, sizeof v);
    }
    return bytes;
}

DecodedWeight decode(const Weight &w) {
    const FormatInfo &format = info(w.format);
    const auto type = static_cast<uint32_t>(w.format);
    const auto *data = reinterpret_cast<const unsigned char *>(w.data);
    const size_t count = size_t{w.experts} * w.n * w.k;
    DecodedWeight d;
    d.has_bias = format.has_bias;
    d.group = format.is_float() ? 1 : std::min<size_t>(format.group, 32);
    d.value.resize(count), d.scale.resize(count), d.bias.resize(count), d.code.resize(count);
    for (size_t i = 0; i < count; i++) {
        const unsigned char *block = data + i / format.block * format.bytes;
        const oracle::Element e = oracle::element(type, block, static_cast<unsigned>(i % format.block));
        d.scale[i] = e.scale, d.code[i] = e.code, d.bias[i] = e.bias;
        d.value[i] = f32(e.has_bias ? e.scale * e.code + e.bias : e.scale * e.code);
    }
    return d;
}

size_t width(DType type, uint32_t cols) {
    if (type == DType::q8_0) return cols + cols / 32;
    return type == DType::q8 ? cols + cols / 32 + cols / 16 : cols;
}

namespace {

template <class T>
T get(std::span<const std::byte> bytes, size_t i) {
    RIDGE_ASSERT((i + 1) * sizeof(T) <= bytes.size());
    T v;
    std::memcpy(&v, bytes.data() + i * sizeof(T), sizeof(T));
    return v;
}

template <class T>
void put(std::span<std::byte> bytes, size_t i, double v) {
    RIDGE_ASSERT((i + 1) * sizeof(T) <= bytes.size());
    const T t = static_cast<T>(v);
    std::memcpy(bytes.data() + i * sizeof(T), &t, sizeof(T));
}

// Calls use(plane, index in the plane, index in the numbers) for all of q8: planes codes, scales, sums.
template <class F>
void each_q8(size_t rows, size_t cols, F &&use) {
    const size_t w = width(DType::q8, static_cast<uint32_t>(cols));
    const size_t lengths[3] = {cols, cols / 32, cols / 16};
    for (size_t r = 0; r < rows; r++) {
        size_t at = r * w;
        for (int plane = 0; plane < 3; plane++)
            for (size_t j = 0; j < lengths[plane]; j++) use(plane, r * lengths[plane] + j, at++);
    }
}

// Calls use(byte in the row, index in the row's numbers, whether it is a scale) for every number of a row of q8_0.
template <class F>
void each_q8_0(size_t cols, F &&use) {
    for (size_t b = 0; b < cols / 32; b++) {
        use(b * 34, cols + b, true);
        for (size_t j = 0; j < 32; j++) use(b * 34 + 2 + j, b * 32 + j, false);
    }
}

}  // namespace

Reals unpack(DType type, uint32_t cols, size_t rows, std::span<const std::byte> bytes) {
    Reals x(rows * width(type, cols));
    if (type == DType::q8) {
        const auto scales = bytes.subspan(rows * cols), sums = scales.subspan(rows * (cols / 32) * sizeof(float));
        each_q8(rows, cols, [&](int plane, size_t i, size_t at) {
            x[at] = plane == 0 ? get<int8_t>(bytes, i) : plane == 1 ? get<float>(scales, i) : get<int16_t>(sums, i);
        });
        return x;
    }
    if (type == DType::q8_0) {
        for (size_t r = 0; r < rows; r++) {
            const auto row = bytes.subspan(r * row_bytes(type, cols), row_bytes(type, cols));
            double *numbers = &x[r * width(type, cols)];
            each_q8_0(cols, [&](size_t byte, size_t at, bool scale) {
                numbers[at] = scale ? from_f16(get<uint16_t>(row, byte / 2)) : get<int8_t>(row, byte);
            });
        }
        return x;
    }
    for (size_t i = 0; i < x.size(); i++)
        x[i] = type == DType::f32   ? get<float>(bytes, i)
               : type == DType::f16 ? from_f16(get<uint16_t>(bytes, i))
                                    : get<int32_t>(bytes, i);
    return x;
}

std::vector<std::byte> pack(DType type, uint32_t cols, size_t rows, RealSpan x) {
    RIDGE_ASSERT(x.size() >= rows * width(type, cols));
    std::vector<std::byte> bytes(rows * row_bytes(type, cols));
    const std::span<std::byte> all(bytes);
    if (type == DType::q8) {
        const auto scales = all.subspan(rows * cols), sums = scales.subspan(rows * (cols / 32) * sizeof(float));
        each_q8(rows, cols, [&](int plane, size_t i, size_t at) {
            if (plane == 0) put<int8_t>(all, i, x[at]);
            if (plane == 1) put<float>(scales, i, x[at]);
            if (plane == 2) put<int16_t>(sums, i, x[at]);
        });
        return bytes;
    }
    if (type == DType::q8_0) {
        for (size_t r = 0; r < rows; r++) {
            const auto row = all.subspan(r * row_bytes(type, cols), row_bytes(type, cols));
            const double *numbers = &x[r * width(type, cols)];
            each_q8_0(cols, [&](size_t byte, size_t at, bool scale) {
                if (scale)
                    put<uint16_t>(row, byte / 2, to_f16(numbers[at]));
                else
                    put<int8_t>(row, byte, numbers[at]);
            });
        }
        return bytes;
    }
    for (size_t i = 0; i < rows * cols; i++) {
        if (type == DType::f32) put<float>(all, i, x[i]);
        if (type == DType::f16) put<uint16_t>(all, i, to_f16(x[i]));
        if (type == DType::i32) put<int32_t>(all, i, x[i]);
    }
    return bytes;
}

Reals quantize(size_t rows, size_t k, RealSpan x) {
    const size_t w = width(DType::q8, static_cast<uint32_t>(k));
    Reals q(rows * w);
    for (size_t r = 0; r < rows; r++)
        for (size_t block = 0; block < k / 32; block++) {
            const RealSpan in = x.subspan(r * k + block * 32, 32);
            double *codes = &q[r * w + block * 32], *sums = &q[r * w + k + k / 32 + block * 2];
            double largest = 0;
            for (const double v : in) largest = std::max(largest, std::fabs(v));
            const float scale = static_cast<float>(largest) / 127.0f;
            q[r * w + k + block] = scale;
            for (size_t j = 0; j < 32 && scale > 0; j++) {
                // nearbyint: the rounding mode is to nearest, ties to even.
                const double code = std::nearbyint(static_cast<float>(in[j]) / scale);
                codes[j] = std::clamp(code, -127.0, 127.0) + 0.0;  // no -0 among integers
                sums[j / 16] += codes[j];
            }
        }
    return q;
}

Reals glu(GluKind kind, RealSpan gate, RealSpan up) {
    if (kind == GluKind::gelu) return oracle::gelu_mul(gate, up);
    return kind == GluKind::clamped ? oracle::clamped_mul(gate, up) : oracle::silu_mul(gate, up);
}

std::string_view name(GluKind kind) {
    return kind == GluKind::gelu ? "gelu" : kind == GluKind::clamped ? "clamped" : "silu";
}

uint16_t to_f16(double x) {
    const auto sign = static_cast<uint16_t>(std::signbit(x) ? 0x8000 : 0);
    const double size = std::fabs(x);
    if (std::isnan(x)) return 0x7e00;
    if (size == 0) return sign;
    // Steps of 2^(exponent - 10); below 2^-14 they stay at 2^-24.
    const int exponent = std::isinf(x) ? 16 : std::max(std::ilogb(size), -14);
    if (exponent > 15) return sign | 0x7c00;
    const auto steps = static_cast<int>(std::nearbyint(std::ldexp(size, 10 - exponent)));
    // Counting steps from 2^-14 (1024 steps of 2^-24) on, a carry into the next exponent is right by itself.
    return static_cast<uint16_t>(sign | (((exponent + 14) << 10) + steps));
}

double from_f16(uint16_t pattern) {
    const unsigned char bytes[2] = {static_cast<unsigned char>(pattern & 255),
                                    static_cast<unsigned char>(pattern >> 8)};
    return oracle::element(static_cast<uint32_t>(Format::F16), bytes, 0).scale;
}

}  // namespace ridge::gate
