// The decoders. A block is read as a string of bits: bit n is bit n % 8 of byte n / 8, and every field is named by
// where its first bit lies. No words are loaded and no masks used; compare with the packed forms of src/format.
#include "oracle/decode.h"

#include <cmath>
#include <limits>

#include "core/error.h"
#include "oracle/tables.h"

namespace ridge::oracle {
namespace {

using Bytes = const unsigned char *;

// `count` bits from bit `first` on, the first one lowest.
unsigned bits(Bytes b, unsigned first, unsigned count) {
    unsigned r = 0;
    for (unsigned n = 0; n < count; ++n) r |= ((b[(first + n) / 8] >> ((first + n) % 8)) & 1u) << n;
    return r;
}

// `count` bits of byte `byte`, from bit `shift` of that byte on; may run into the bytes behind it.
unsigned field(Bytes b, unsigned byte, unsigned shift, unsigned count) { return bits(b, 8 * byte + shift, count); }

int signed_byte(Bytes b, unsigned byte) { return b[byte] < 128 ? b[byte] : b[byte] - 256; }

// A binary float of 1 sign bit, `exponent_bits` and `mantissa_bits`, as IEEE 754 defines its value.
double ieee(uint32_t pattern, int exponent_bits, int mantissa_bits) {
    const int mantissa = static_cast<int>(pattern & ((1u << mantissa_bits) - 1));
    const int exponent = static_cast<int>((pattern >> mantissa_bits) & ((1u << exponent_bits) - 1));
    const bool negative = (pattern >> (mantissa_bits + exponent_bits)) & 1;
    const int largest = (1 << exponent_bits) - 1;
    const int one = largest / 2;  // exponent of 1.0
    double magnitude;
    if (exponent == largest)
        magnitude = mantissa ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
    else if (exponent == 0)
        magnitude = std::ldexp(mantissa, 1 - one - mantissa_bits);
    else
        magnitude = std::ldexp(mantissa + (1 << mantissa_bits), exponent - one - mantissa_bits);
    return negative ? -magnitude : magnitude;
}

double f16_bits(unsigned pattern) { return ieee(pattern, 5, 10); }
double f16(Bytes b, unsigned byte) { return f16_bits(field(b, byte, 0, 16)); }

// The three float formats.
Element f32_at(Bytes b, unsigned) { return {ieee(bits(b, 0, 32), 8, 23), 1}; }
Element f16_at(Bytes b, unsigned) { return {f16(b, 0), 1}; }
Element bf16_at(Bytes b, unsigned) { return {ieee(bits(b, 0, 16), 8, 7), 1}; }

Element with_bias(double scale, unsigned code, double bias) { return {scale, static_cast<int>(code), bias, true}; }

// Blocks of 32. Weights 0..15 are the low nibbles of 16 bytes, weights 16..31 the high ones.
unsigned nibble32(Bytes b, unsigned byte, unsigned i) { return field(b, byte + i % 16, i < 16 ? 0 : 4, 4); }

// d f16 | 16 bytes of nibbles
Element q4_0(Bytes b, unsigned i) { return {f16(b, 0), static_cast<int>(nibble32(b, 2, i)) - 8}; }

// d f16 | m f16 | 16 bytes of nibbles
Element q4_1(Bytes b, unsigned i) { return with_bias(f16(b, 0), nibble32(b, 4, i), f16(b, 2)); }

// d f16 | fifth bits, one per weight, 4 bytes | 16 bytes of nibbles
Element q5_0(Bytes b, unsigned i) {
    const unsigned q = nibble32(b, 6, i) + 16 * field(b, 2, i, 1);
    return {f16(b, 0), static_cast<int>(q) - 16};
}

// d f16 | m f16 | fifth bits | 16 bytes of nibbles
Element q5_1(Bytes b, unsigned i) {
    return with_bias(f16(b, 0), nibble32(b, 8, i) + 16 * field(b, 4, i, 1), f16(b, 2));
}

// d f16 | 32 int8
Element q8_0(Bytes b, unsigned i) { return {f16(b, 0), signed_byte(b, 2 + i)}; }

// Magnitudes of the 4-bit floats 0, 0.5, 1, 1.5, 2, 3, 4, 6 (OCP Microscaling 1.0), doubled to be integers.
constexpr int kE2m1Doubled[8] = {0, 1, 2, 3, 4, 6, 8, 12};

// exponent byte e | 16 bytes of nibbles, bit 3 the sign. The block's scale is 2^(e-127), halved as the codes are
// doubled. e = 255 is an ordinary exponent in GGUF files, not the NaN of the OCP text.
Element mxfp4(Bytes b, unsigned i) {
    const unsigned q = nibble32(b, 1, i);
    const int magnitude = kE2m1Doubled[q % 8];
    return {std::ldexp(1.0, b[0] - 128), q < 8 ? magnitude : -magnitude};
}

// Non-linear levels of IQ4_NL and IQ4_XS (data of the format).
constexpr int kLevels4[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

// d f16 | 16 bytes of nibbles
Element iq4_nl(Bytes b, unsigned i) { return {f16(b, 0), kLevels4[nibble32(b, 2, i)]}; }

// Blocks of 256 with two-bit fields: each half of 128 weights has 32 bytes; weight 32 p + r of the half is pair p of
// byte r.
unsigned pair256(Bytes b, unsigned byte, unsigned i) {
    return field(b, byte + 32 * (i / 128) + i % 32, 2 * (i % 128 / 32), 2);
}

// 16 x (4-bit scale, 4-bit min) | 64 bytes of pairs | d f16 | dmin f16
Element q2_K(Bytes b, unsigned i) {
    const unsigned g = i / 16;
    return with_bias(f16(b, 80) * field(b, g, 0, 4), pair256(b, 16, i), -(f16(b, 82) * field(b, g, 4, 4)));
}

// 32 bytes of third bits (bit p of byte r: weight 32 p + r; clear means minus 4) | 64 bytes of pairs
// | 16 six-bit scales in 12 bytes | d f16
Element q3_K(Bytes b, unsigned i) {
    const unsigned g = i / 16;
    const unsigned low = field(b, 96 + g % 8, g < 8 ? 0 : 4, 4);
    const unsigned high = field(b, 104 + g % 4, 2 * (g / 4), 2);
    const int scale = static_cast<int>(low + 16 * high) - 32;
    const int code = static_cast<int>(pair256(b, 32, i)) - (field(b, i % 32, i / 32, 1) ? 0 : 4);
    return {f16(b, 108) * scale, code};
}

// The eight six-bit scales and mins of Q4_K and Q5_K, in 12 bytes. Groups 0..3: the low six bits of bytes g (scale) and
// g + 4 (min). Groups 4..7: the nibbles of byte g + 4, completed by the top pairs of bytes g - 4 and g.
struct ScaleMin {
    unsigned scale, min;
};
ScaleMin scale_min(Bytes s, unsigned g) {
    if (g < 4) return {field(s, g, 0, 6), field(s, g + 4, 0, 6)};
    return {field(s, g + 4, 0, 4) + 16 * field(s, g - 4, 6, 2), field(s, g + 4, 4, 4) + 16 * field(s, g, 6, 2)};
}

// Each 64 weights: 32 bytes, low nibbles first.
unsigned nibble256(Bytes b, unsigned byte, unsigned i) {
    return field(b, byte + 32 * (i / 64) + i % 32, i % 64 < 32 ? 0 : 4, 4);
}

// d f16 | dmin f16 | 12 bytes of scales and mins | 128 bytes of nibbles
Element q4_K(Bytes b, unsigned i) {
    const ScaleMin s = scale_min(b + 4, i / 32);
    return with_bias(f16(b, 0) * s.scale, nibble256(b, 16, i), -(f16(b, 2) * s.min));
}

// d f16 | dmin f16 | 12 bytes of scales and mins | 32 bytes of fifth bits (bit p of byte r: weight 32 p + r)
// | 128 bytes of nibbles
Element q5_K(Bytes b, unsigned i) {
    const ScaleMin s = scale_min(b + 4, i / 32);
    const unsigned q = nibble256(b, 48, i) + 16 * field(b, 16 + i % 32, i / 32, 1);
    return with_bias(f16(b, 0) * s.scale, q, -(f16(b, 2) * s.min));
}

// 128 bytes of nibbles (each 128 weights: 64 bytes, low nibbles first) | 64 bytes of pairs | 16 int8 scales | d f16
Element q6_K(Bytes b, unsigned i) {
    const unsigned low = field(b, 64 * (i / 128) + i % 64, i % 128 < 64 ? 0 : 4, 4);
    const int code = static_cast<int>(low + 16 * pair256(b, 128, i)) - 32;
    return {f16(b, 208) * signed_byte(b, 192 + i / 16), code};
}

// d f16 | 6-bit scales' high pairs, 2 bytes | their low nibbles, 4 bytes | per 32 weights 16 bytes of nibbles
Element iq4_xs(Bytes b, unsigned i) {
    const unsigned g = i / 32;
    const int scale = static_cast<int>(field(b, 4, 4 * g, 4) + 16 * field(b, 2, 2 * g, 2)) - 32;
    return {f16(b, 0) * scale, kLevels4[nibble32(b, 8 + 16 * g, i % 32)]};
}

int with_sign(int magnitude, unsigned negative) { return negative ? -magnitude : magnitude; }

// Sign of weight i, the pattern named by the seven bits from bit `first` on.
unsigned named_sign(Bytes b, unsigned first, unsigned i) { return (kSigns[bits(b, first, 7)] >> (i % 8)) & 1u; }

// d f16 | per 32 weights 8 bytes: four grid numbers, four 7-bit sign patterns, a 4-bit scale
Element iq2_xxs(Bytes b, unsigned i) {
    const unsigned byte = 2 + 8 * (i / 32), eight = i % 32 / 8;
    const int code = with_sign(kGridIq2Xxs.at(b[byte + eight], i % 8), named_sign(b, 8 * (byte + 4) + 7 * eight, i));
    return {f16(b, 0) * (0.5 + field(b, byte + 7, 4, 4)) / 4, code};
}

// d f16 | per 8 weights 2 bytes: a 9-bit grid number, a 7-bit sign pattern | 16 four-bit scales
Element iq2_xs(Bytes b, unsigned i) {
    const unsigned byte = 2 + 2 * (i / 8);
    const int code = with_sign(kGridIq2Xs.at(field(b, byte, 0, 9), i % 8), named_sign(b, 8 * byte + 9, i));
    return {f16(b, 0) * (0.5 + field(b, 66, 4 * (i / 16), 4)) / 4, code};
}

// d f16 | grid numbers, low 8 bits, 32 bytes | signs, 32 bytes | grid numbers, high 2 bits, 8 bytes
// | 16 four-bit scales
Element iq2_s(Bytes b, unsigned i) {
    const unsigned eight = i / 8;
    const unsigned point = b[2 + eight] + 256 * field(b, 66, 2 * eight, 2);
    return {f16(b, 0) * (0.5 + field(b, 74, 4 * (i / 16), 4)) / 4,
            with_sign(kGridIq2S.at(point, i % 8), field(b, 34, i, 1))};
}

// d f16 | grid number per 4 weights, 64 bytes | per 32 weights 4 bytes: four 7-bit sign patterns, a 4-bit scale
Element iq3_xxs(Bytes b, unsigned i) {
    const unsigned byte = 66 + 4 * (i / 32);
    const int code = with_sign(kGridIq3Xxs.at(b[2 + i / 4], i % 4), named_sign(b, 8 * byte + 7 * (i % 32 / 8), i));
    return {f16(b, 0) * (0.5 + field(b, byte + 3, 4, 4)) / 2, code};
}

// d f16 | grid numbers, low 8 bits, 64 bytes | their ninth bits, 8 bytes | signs, 32 bytes | 8 four-bit scales
Element iq3_s(Bytes b, unsigned i) {
    const unsigned point = b[2 + i / 4] + 256 * field(b, 66, i / 4, 1);
    return {f16(b, 0) * (1 + 2 * field(b, 106, 4 * (i / 32), 4)),
            with_sign(kGridIq3S.at(point, i % 4), field(b, 74, i, 1))};
}

// IQ1: weight = dl * (coordinate +- 1/8) = dl/8 * (8 * coordinate +- 1).
Element iq1(double dl, unsigned point, unsigned j, unsigned minus) {
    return {dl / 8, 8 * kGridIq1.at(point, j) + (minus ? -1 : 1)};
}

// d f16 | grid numbers, low 8 bits, 32 bytes | per 32 weights 2 bytes: four times the high 3 bits, a 3-bit scale, and
// the sign of the eighth
Element iq1_s(Bytes b, unsigned i) {
    const unsigned byte = 34 + 2 * (i / 32);
    const unsigned point = b[2 + i / 8] + 256 * field(b, byte, 3 * (i % 32 / 8), 3);
    return iq1(f16(b, 0) * (2 * field(b, byte, 12, 3) + 1), point, i % 8, field(b, byte, 15, 1));
}

// grid numbers, low 8 bits, 32 bytes | per 8 weights a nibble: high 3 bits and the sign of the eighth, 16 bytes
// | four 16-bit words: four 3-bit scales and four bits of d each, the lowest first
Element iq1_m(Bytes b, unsigned i) {
    const unsigned eight = i / 8, g = i / 16;
    unsigned d = 0;
    for (unsigned word = 0; word < 4; ++word) d += field(b, 48 + 2 * word, 12, 4) << (4 * word);
    const unsigned point = b[eight] + 256 * field(b, 32, 4 * eight, 3);
    const unsigned scale = field(b, 48 + 2 * (g / 4), 3 * (g % 4), 3);
    return iq1(f16_bits(d) * (2 * scale + 1), point, i % 8, field(b, 32, 4 * eight + 3, 1));
}

// Digit n of the fraction q / 256 written in base 3.
unsigned ternary_digit(unsigned q, unsigned n) {
    double fraction = q / 256.0;
    for (; n > 0; --n) fraction = 3 * fraction - std::floor(3 * fraction);
    return static_cast<unsigned>(std::floor(3 * fraction));
}

// 48 bytes of five digits, 4 bytes of four | d f16. Digit n of byte r: weight 32 n + r in the first 32 bytes,
// 160 + 16 n + r in the next 16, 240 + 4 n + r in the last four.
Element tq1_0(Bytes b, unsigned i) {
    unsigned digit;
    if (i < 160)
        digit = ternary_digit(b[i % 32], i / 32);
    else if (i < 240)
        digit = ternary_digit(b[32 + i % 16], (i - 160) / 16);
    else
        digit = ternary_digit(b[48 + i % 4], (i - 240) / 4);
    return {f16(b, 52), static_cast<int>(digit) - 1};
}

// 64 bytes of pairs | d f16
Element tq2_0(Bytes b, unsigned i) { return {f16(b, 64), static_cast<int>(pair256(b, 0, i)) - 1}; }

constexpr int kNone = -1;

struct Type {
    uint32_t id;
    unsigned weights, bytes;  // of a block
    int d, m;                 // bytes where the f16 scales lie
    Element (*at)(Bytes, unsigned);
};

constexpr Type kTypes[] = {
    {0, 1, 4, kNone, kNone, f32_at},   {1, 1, 2, 0, kNone, f16_at},      {2, 32, 18, 0, kNone, q4_0},
    {3, 32, 20, 0, 2, q4_1},           {6, 32, 22, 0, kNone, q5_0},      {7, 32, 24, 0, 2, q5_1},
    {8, 32, 34, 0, kNone, q8_0},       {10, 256, 84, 80, 82, q2_K},      {11, 256, 110, 108, kNone, q3_K},
    {12, 256, 144, 0, 2, q4_K},        {13, 256, 176, 0, 2, q5_K},       {14, 256, 210, 208, kNone, q6_K},
    {16, 256, 66, 0, kNone, iq2_xxs},  {17, 256, 74, 0, kNone, iq2_xs},  {18, 256, 98, 0, kNone, iq3_xxs},
    {19, 256, 50, 0, kNone, iq1_s},    {20, 32, 18, 0, kNone, iq4_nl},   {21, 256, 110, 0, kNone, iq3_s},
    {22, 256, 82, 0, kNone, iq2_s},    {23, 256, 136, 0, kNone, iq4_xs}, {29, 256, 56, kNone, kNone, iq1_m},
    {30, 1, 2, 0, kNone, bf16_at},     {34, 256, 54, 52, kNone, tq1_0},  {35, 256, 66, 64, kNone, tq2_0},
    {39, 32, 17, kNone, kNone, mxfp4},
};

const Type &find(uint32_t ggml_type) {
    for (const Type &t : kTypes)
        if (t.id == ggml_type) return t;
    fail(ErrorKind::unsupported, "the oracle knows no tensor type {}; it knows F32, F16, BF16 and the 22 block formats",
         ggml_type);
}

double exact(const Element &e) { return e.has_bias ? e.scale * e.code + e.bias : e.scale * e.code; }

void store16(unsigned char *at, unsigned pattern) {
    at[0] = static_cast<unsigned char>(pattern % 256);
    at[1] = static_cast<unsigned char>(pattern / 256);
}

}  // namespace

std::span<const uint32_t> types() {
    static const std::vector<uint32_t> ids = [] {
        std::vector<uint32_t> list;
        for (const Type &t : kTypes) list.push_back(t.id);
        return list;
    }();
    return ids;
}

unsigned block_weights(uint32_t ggml_type) { return find(ggml_type).weights; }
unsigned block_bytes(uint32_t ggml_type) { return find(ggml_type).bytes; }

Element element(uint32_t ggml_type, const unsigned char *block, unsigned i) {
    const Type &t = find(ggml_type);
    RIDGE_ASSERT(i < t.weights);
    return t.at(block, i);
}

float value(uint32_t ggml_type, const unsigned char *block, unsigned i) {
    return static_cast<float>(exact(element(ggml_type, block, i)));
}

std::vector<double> decode(uint32_t ggml_type, const unsigned char *data, size_t n) {
    const Type &t = find(ggml_type);
    RIDGE_ASSERT(n % t.weights == 0);
    std::vector<double> out;
    out.reserve(n);
    for (size_t block = 0; block < n / t.weights; ++block)
        for (unsigned i = 0; i < t.weights; ++i) out.push_back(exact(t.at(data + block * t.bytes, i)));
    return out;
}

void plant_scales(uint32_t ggml_type, unsigned char *block, uint16_t d, uint16_t m) {
    const Type &t = find(ggml_type);
    if (t.d != kNone) store16(block + t.d, d);
    if (t.m != kNone) store16(block + t.m, m);
    if (t.at == mxfp4) block[0] = static_cast<unsigned char>(d % 256);
    if (t.at == f32_at) store16(block + 2, d);
    if (t.at == iq1_m)  // four bits of d on top of each of the last four words
        for (unsigned word = 0; word < 4; ++word) {
            unsigned char &top = block[49 + 2 * word];
            top = static_cast<unsigned char>(top % 16 + 16 * ((d >> (4 * word)) % 16));
        }
}

}  // namespace ridge::oracle
