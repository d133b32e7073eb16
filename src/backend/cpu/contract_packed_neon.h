// With NEON: the 32 codes of group g32 of a block at once, format by format, and sixteen floats from what is stored.
// Each says again what codes4 of its format says, for speed; the gate holds the two together bit by bit.
#pragma once

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

#include "backend/cpu/simd.h"
#include "format/decode.h"

namespace ridge::cpu {
inline namespace RIDGE_ISA {

// 32 bytes: weight i in byte i of a, weight 16 + i in byte i of b.
struct I8x32 {
    int8x16_t a, b;
};
struct U8x32 {
    uint8x16_t a, b;
};

// load(block, g32): signed bytes, weight 32 * g32 + i in byte i.
template <Format F>
struct Packed {};

// Where a field named in a format header begins.
constexpr u32 offset_of(u32 offset, u32, u32) { return offset; }

FN uint8x16_t bytes16(const std::byte *p) { return vld1q_u8(reinterpret_cast<const uint8_t *>(p)); }
FN U8x32 bytes32(const std::byte *p) { return {bytes16(p), bytes16(p + 16)}; }
FN U8x32 operator|(U8x32 x, U8x32 y) { return {vorrq_u8(x.a, y.a), vorrq_u8(x.b, y.b)}; }
FN I8x32 as_signed(U8x32 v) { return {vreinterpretq_s8_u8(v.a), vreinterpretq_s8_u8(v.b)}; }
FN I8x32 minus(U8x32 v, int8_t by) {
    const int8x16_t all = vdupq_n_s8(by);
    return {vsubq_s8(vreinterpretq_s8_u8(v.a), all), vsubq_s8(vreinterpretq_s8_u8(v.b), all)};
}
// The bits of every byte from bit `shift` on, `mask` of them, `up` bits higher.
FN U8x32 field8(U8x32 v, u32 shift, uint8_t mask, u32 up = 0) {
    const int8x16_t by = vdupq_n_s8(static_cast<int8_t>(up - shift));
    const uint8x16_t m = vdupq_n_u8(static_cast<uint8_t>(mask << up));
    return {vandq_u8(vshlq_u8(v.a, by), m), vandq_u8(vshlq_u8(v.b, by), m)};
}
// Sixteen bytes: the low nibbles, then the high ones.
FN U8x32 nibbles(const std::byte *p) {
    const uint8x16_t v = bytes16(p);
    return {vandq_u8(v, vdupq_n_u8(15)), vshrq_n_u8(v, 4)};
}
// 255 where bit i is set.
FN U8x32 bits_to_bytes(u32 bits) {
    const uint8x16_t v = vreinterpretq_u8_u32(vdupq_n_u32(bits));
    const uint8x16_t bit = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201ull));
    const uint8x16_t low = vcombine_u8(vdup_n_u8(0), vdup_n_u8(1)), high = vcombine_u8(vdup_n_u8(2), vdup_n_u8(3));
    return {vtstq_u8(vqtbl1q_u8(v, low), bit), vtstq_u8(vqtbl1q_u8(v, high), bit)};
}
FN u32 load_u32(const std::byte *p) {
    u32 v;
    __builtin_memcpy(&v, p, 4);
    return v;
}
// 16 where bit i of the four bytes is set.
FN U8x32 fifth_bits(const std::byte *p) {
    const U8x32 v = bits_to_bytes(load_u32(p));
    return {vandq_u8(v.a, vdupq_n_u8(16)), vandq_u8(v.b, vdupq_n_u8(16))};
}
// The signed bytes that nibbles name in a table of 16.
FN I8x32 levels(u32 first_word, u32, U8x32 nibble) {
    const int8x16_t table = vreinterpretq_s8_u32(vld1q_u32(dialect::table_words + first_word));
    return {vqtbl1q_s8(table, nibble.a), vqtbl1q_s8(table, nibble.b)};
}
// Two bits per weight: 32 bytes for 128 weights, weight 32 p + i in pair p of byte i.
FN U8x32 pairs(const std::byte *p, u32 g32, u32 up = 0) {
    return field8(bytes32(p + 32 * (g32 / 4)), 2 * (g32 % 4), 3, up);
}
// A nibble per weight: 32 bytes for 64 weights, the low nibbles first.
FN U8x32 halves(const std::byte *p, u32 g32) { return field8(bytes32(p + 32 * (g32 / 2)), 4 * (g32 % 2), 15); }

#define RIDGE_PACKED(NAME)                                                \
    template <>                                                           \
    struct Packed<Format::NAME> {                                         \
        static FN I8x32 load(const std::byte *b, [[maybe_unused]] u32 g); \
    };                                                                    \
    FN I8x32 Packed<Format::NAME>::load(const std::byte *b, [[maybe_unused]] u32 g)

RIDGE_PACKED(Q4_0) { return minus(nibbles(b + offset_of(q4_0_qs)), 8); }
RIDGE_PACKED(Q4_1) { return as_signed(nibbles(b + offset_of(q4_1_qs))); }
RIDGE_PACKED(Q5_0) { return minus(nibbles(b + offset_of(q5_0_qs)) | fifth_bits(b + offset_of(q5_0_qh)), 16); }
RIDGE_PACKED(Q5_1) { return as_signed(nibbles(b + offset_of(q5_1_qs)) | fifth_bits(b + offset_of(q5_1_qh))); }
RIDGE_PACKED(Q8_0) { return as_signed(bytes32(b + offset_of(q8_0_qs))); }
RIDGE_PACKED(IQ4_NL) { return levels(iq4nl_values, nibbles(b + offset_of(iq4_nl_qs))); }
RIDGE_PACKED(MXFP4) { return levels(mxfp4_values, nibbles(b + offset_of(mxfp4_qs))); }
RIDGE_PACKED(IQ4_XS) { return levels(iq4nl_values, nibbles(b + offset_of(iq4_xs_qs) + 16 * g)); }
RIDGE_PACKED(TQ2_0) { return minus(pairs(b + offset_of(tq2_0_qs), g), 1); }
RIDGE_PACKED(Q2_K) { return as_signed(pairs(b + offset_of(q2_K_qs), g)); }
RIDGE_PACKED(Q3_K) {
    const U8x32 third = field8(bytes32(b + offset_of(q3_K_hmask)), g, 1, 2);
    return minus(pairs(b + offset_of(q3_K_qs), g) | third, 4);
}
RIDGE_PACKED(Q4_K) { return as_signed(halves(b + offset_of(q4_K_qs), g)); }
RIDGE_PACKED(Q5_K) {
    const U8x32 fifth = field8(bytes32(b + offset_of(q5_K_qh)), g, 1, 4);
    return as_signed(halves(b + offset_of(q5_K_qs), g) | fifth);
}
RIDGE_PACKED(Q6_K) {
    const U8x32 low = field8(bytes32(b + offset_of(q6_K_ql) + 64 * (g / 4) + 32 * (g % 2)), 4 * (g / 2 % 2), 15);
    return minus(low | pairs(b + offset_of(q6_K_qh), g, 4), 32);
}

// ---- Grids: an index names four or eight magnitudes, signs come apart.

FN uint64_t load_u64(const void *p) {
    uint64_t v;
    __builtin_memcpy(&v, p, 8);
    return v;
}
FN u32 word(u32 first_word, u32, u32 i) { return dialect::table_words[first_word + i]; }
FN u32 byte_at(const std::byte *p, u32 i) { return static_cast<u32>(p[i]); }
FN int8x16_t two_u64(uint64_t low, uint64_t high) {
    return vreinterpretq_s8_u64(vcombine_u64(vcreate_u64(low), vcreate_u64(high)));
}
// Bytes from the four entries, or eight half as long, that `index(l)` names.
template <class Index>
FN I8x32 entries8(u32 first_word, u32, Index index) {
    const auto entry = [&](u32 l) __attribute__((always_inline)) {
        return load_u64(dialect::table_words + first_word + 2 * index(l));
    };
    return {two_u64(entry(0), entry(1)), two_u64(entry(2), entry(3))};
}
template <class Index>
FN I8x32 entries4(u32 first_word, u32, Index index) {
    const auto two = [&](u32 j) __attribute__((always_inline)) {
        const u32 *table = dialect::table_words + first_word;
        return table[index(j)] | uint64_t{table[index(j + 1)]} << 32;
    };
    return {two_u64(two(0), two(2)), two_u64(two(4), two(6))};
}

// Minus v where bit i of `signs` is set.
FN I8x32 negate(I8x32 v, u32 signs) {
    const I8x32 m = as_signed(bits_to_bytes(signs));
    return {vsubq_s8(veorq_s8(v.a, m.a), m.a), vsubq_s8(veorq_s8(v.b, m.b), m.b)};
}
// Four bytes of seven signs each: the eighth makes their number even.
FN u32 even_signs(u32 v) {
    u32 parity = v ^ (v >> 4);
    parity ^= parity >> 2;
    parity ^= parity >> 1;
    return v | (parity & 0x01010101u) << 7;
}
// The low 28 bits as four bytes of seven.
FN u32 sevens(u32 v) { return (v & 0x7fu) | (v << 1 & 0x7f00u) | (v << 2 & 0x7f0000u) | (v << 3 & 0x7f000000u); }

RIDGE_PACKED(IQ2_XXS) {
    const std::byte *q = b + offset_of(iq2_xxs_qs) + 8 * g;
    const I8x32 v = entries8(iq2xxs_grid, [&](u32 l) { return byte_at(q, l); });
    return negate(v, even_signs(sevens(load_u32(q + 4))));
}
RIDGE_PACKED(IQ2_XS) {
    const uint64_t q = load_u64(b + offset_of(iq2_xs_qs) + 8 * g);
    const I8x32 v = entries8(iq2xs_grid, [&](u32 l) { return static_cast<u32>(q >> (16 * l)) & 511u; });
    uint64_t signs = q >> 9 & 0x007f007f007f007full;  // of 16 bits each, to bytes
    signs = (signs | signs >> 8) & 0x0000ffff0000ffffull;
    return negate(v, even_signs(static_cast<u32>(signs | signs >> 16)));
}
RIDGE_PACKED(IQ2_S) {
    const std::byte *q = b + offset_of(iq2_s_qs) + 4 * g;
    const u32 high = byte_at(b, offset_of(iq2_s_qh) + g);
    const I8x32 v = entries8(iq2s_grid, [&](u32 l) { return byte_at(q, l) | (high >> (2 * l) & 3u) << 8; });
    return negate(v, load_u32(b + offset_of(iq2_s_signs) + 4 * g));
}
RIDGE_PACKED(IQ3_XXS) {
    const std::byte *q = b + offset_of(iq3_xxs_qs) + 8 * g;
    const I8x32 v = entries4(iq3xxs_grid, [&](u32 j) { return byte_at(q, j); });
    return negate(v, even_signs(sevens(load_u32(b + offset_of(iq3_xxs_signs) + 4 * g))));
}
RIDGE_PACKED(IQ3_S) {
    const std::byte *q = b + offset_of(iq3_s_qs) + 8 * g;
    const u32 high = byte_at(b, offset_of(iq3_s_qh) + g);
    const I8x32 v = entries4(iq3s_grid, [&](u32 j) { return byte_at(q, j) | (high >> j & 1u) << 8; });
    return negate(v, load_u32(b + offset_of(iq3_s_signs) + 4 * g));
}

// IQ1: eight times the grid's values, from four words of eight nibbles (value + 1).
template <class Index>
FN I8x32 eight_times_iq1(Index index) {
    const auto two = [&](u32 l) __attribute__((always_inline)) {
        const uint64x2_t words =
            vreinterpretq_u64_s8(two_u64(word(iq1s_grid, index(l)), word(iq1s_grid, index(l + 1))));
        return vreinterpretq_u8_u64(vorrq_u64(words, vshlq_n_u64(words, 28)));  // values 4..7 to the upper half
    };
    return minus(field8(U8x32{two(0), two(2)}, 0, 3, 3), 8);
}
RIDGE_PACKED(IQ1_S) {
    const std::byte *q = b + offset_of(iq1_s_qs) + 4 * g;
    const u32 high = byte_at(b, offset_of(iq1_s_qh) + 2 * g) | byte_at(b, offset_of(iq1_s_qh) + 2 * g + 1) << 8;
    const I8x32 v = eight_times_iq1([&](u32 l) { return byte_at(q, l) | (high >> (3 * l) & 7u) << 8; });
    const int8x16_t delta = vdupq_n_s8((high & 0x8000u) != 0 ? -1 : 1);
    return {vaddq_s8(v.a, delta), vaddq_s8(v.b, delta)};
}
RIDGE_PACKED(IQ1_M) {
    const std::byte *q = b + offset_of(iq1_m_qs) + 4 * g;
    const std::byte *high = b + offset_of(iq1_m_qh) + 2 * g;
    const auto nibble_of = [&](u32 l) { return byte_at(high, l / 2) >> (4 * (l % 2)) & 15u; };
    const I8x32 v = eight_times_iq1([&](u32 l) { return byte_at(q, l) | (nibble_of(l) & 7u) << 8; });
    const auto delta = [&](u32 l) { return vdup_n_s8((nibble_of(l) & 8u) != 0 ? -1 : 1); };
    return {vaddq_s8(v.a, vcombine_s8(delta(0), delta(1))), vaddq_s8(v.b, vcombine_s8(delta(2), delta(3)))};
}

// ---- TQ1_0: digits of bytes in base 3. `power` is 3^n.
FN int8x16_t ternary_codes(uint8x16_t q, uint8x16_t power) {
    const uint8x16_t rest = vmulq_u8(q, power);
    const uint8x8_t low = vshrn_n_u16(vmull_u8(vget_low_u8(rest), vdup_n_u8(3)), 8);
    const uint8x16_t digit = vshrn_high_n_u16(low, vmull_high_u8(rest, vdupq_n_u8(3)), 8);
    return vsubq_s8(vreinterpretq_s8_u8(digit), vdupq_n_s8(1));
}
RIDGE_PACKED(TQ1_0) {
    constexpr uint8_t powers[5] = {1, 3, 9, 27, 81};
    const std::byte *qs = b + offset_of(tq1_0_qs);
    if (g < 5) {
        const uint8x16_t power = vdupq_n_u8(powers[g]);
        return {ternary_codes(bytes16(qs), power), ternary_codes(bytes16(qs + 16), power)};
    }
    const uint8x16_t q = bytes16(qs + 32);
    if (g < 7)
        return {ternary_codes(q, vdupq_n_u8(powers[2 * g - 10])), ternary_codes(q, vdupq_n_u8(powers[2 * g - 9]))};
    const uint8x16_t last = vreinterpretq_u8_u32(vdupq_n_u32(load_u32(b + offset_of(tq1_0_qh))));
    const uint8x16_t power =
        vreinterpretq_u8_s8(two_u64(0x0303030301010101ull, 0x1b1b1b1b09090909ull));  // 1 1 1 1 3 3 3 3 9 .. 27 ..
    return {ternary_codes(q, vdupq_n_u8(81)), ternary_codes(last, power)};
}
#undef RIDGE_PACKED

// ---- Sixteen floats

FN F32x16 load_i32(const int32_t *p) {
    return {vcvtq_f32_s32(vld1q_s32(p)), vcvtq_f32_s32(vld1q_s32(p + 4)), vcvtq_f32_s32(vld1q_s32(p + 8)),
            vcvtq_f32_s32(vld1q_s32(p + 12))};
}
FN F32x16 load_i32_plus(const int32_t *p, int32_t plus) {
    const int32x4_t all = vdupq_n_s32(plus);
    const auto four = [&](uint32_t i) __attribute__((always_inline)) {
        return vcvtq_f32_s32(vaddq_s32(vld1q_s32(p + i), all));
    };
    return {four(0), four(4), four(8), four(12)};
}
FN F32x16 load_codes(const int8_t *p) {
    const int8x16_t v = vld1q_s8(p);
    const int16x8_t low = vmovl_s8(vget_low_s8(v)), high = vmovl_high_s8(v);
    return {vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))), vcvtq_f32_s32(vmovl_high_s16(low)),
            vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))), vcvtq_f32_s32(vmovl_high_s16(high))};
}
FN F32x16 load_bf16(const std::byte *p) {
    const uint16x8_t low = vreinterpretq_u16_u8(bytes16(p)), high = vreinterpretq_u16_u8(bytes16(p + 16));
    return {vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(low), 16)), vreinterpretq_f32_u32(vshll_high_n_u16(low, 16)),
            vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(high), 16)),
            vreinterpretq_f32_u32(vshll_high_n_u16(high, 16))};
}

}  // namespace RIDGE_ISA
}  // namespace ridge::cpu
