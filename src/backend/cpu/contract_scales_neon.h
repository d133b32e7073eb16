// Scales and biases of sixteen rows side by side, four rows at a time: the stored words of four rows are transposed,
// and the format's arithmetic then runs on all four. Specialisations of Scales for the common formats; the values are
// those of Decode<F>, bit for bit, since every product in them is exact.
#pragma once

#include "backend/cpu/contract_unpack.h"

namespace ridge::cpu {
inline namespace RIDGE_ISA {

// Columns of four rows.
FN void transpose4(uint32x4_t (&w)[4]) {
    const auto wide = [](uint32x4_t v) __attribute__((always_inline)) { return vreinterpretq_u64_u32(v); };
    const uint64x2_t ab_even = wide(vtrn1q_u32(w[0], w[1])), ab_odd = wide(vtrn2q_u32(w[0], w[1]));
    const uint64x2_t cd_even = wide(vtrn1q_u32(w[2], w[3])), cd_odd = wide(vtrn2q_u32(w[2], w[3]));
    w[0] = vreinterpretq_u32_u64(vtrn1q_u64(ab_even, cd_even)),
    w[1] = vreinterpretq_u32_u64(vtrn1q_u64(ab_odd, cd_odd));
    w[2] = vreinterpretq_u32_u64(vtrn2q_u64(ab_even, cd_even)),
    w[3] = vreinterpretq_u32_u64(vtrn2q_u64(ab_odd, cd_odd));
}

// Four rows from row r on, each at `offset`.
struct FourRows {
    const std::byte *at[4];
    FN FourRows(const Rows &rows, uint32_t r, size_t offset) {
        for (uint32_t i = 0; i < 4; i++) at[i] = rows.row[r + i] + offset;
    }
    // Word i of the sixteen bytes from `from` on, a row per lane, in w[i].
    FN void words(size_t from, uint32x4_t (&w)[4]) const {
        for (uint32_t i = 0; i < 4; i++) w[i] = vreinterpretq_u32_u8(bytes16(at[i] + from));
        transpose4(w);
    }
    FN uint32x4_t word(size_t from) const {
        uint32_t w[4];
        for (uint32_t i = 0; i < 4; i++) w[i] = load_u32(at[i] + from);
        return vld1q_u32(w);
    }
    FN float32x4_t half(size_t from) const {
        uint16_t h[4];
        for (uint32_t i = 0; i < 4; i++) __builtin_memcpy(&h[i], at[i] + from, 2);
        return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(h)));
    }
};

// The lower and the upper 16 bits as f16.
FN float32x4_t low_half(uint32x4_t v) { return vcvt_f32_f16(vreinterpret_f16_u16(vmovn_u32(v))); }
FN float32x4_t high_half(uint32x4_t v) { return vcvt_f32_f16(vreinterpret_f16_u16(vshrn_n_u32(v, 16))); }

FN uint32x4_t and8(uint32x4_t v, uint8_t mask) { return vandq_u32(v, vdupq_n_u32(mask * 0x01010101u)); }
FN uint32x4_t shift_right(uint32x4_t v, u32 by) { return vshlq_u32(v, vdupq_n_s32(-static_cast<int32_t>(by))); }

// to[i][r ..] = d * byte i of the words, for the four bytes; signed bytes where kSigned.
template <bool kSigned>
FN void put_products(float32x4_t d, uint32x4_t words, float (*to)[kChunkRows], uint32_t r) {
#pragma GCC unroll 4
    for (uint32_t i = 0; i < 4; i++) {
        const uint32x4_t top = vshlq_u32(words, vdupq_n_s32(static_cast<int32_t>(24 - 8 * i)));
        float32x4_t value;
        if constexpr (kSigned)
            value = vcvtq_f32_s32(vshrq_n_s32(vreinterpretq_s32_u32(top), 24));
        else
            value = vcvtq_f32_u32(vshrq_n_u32(top, 24));
        vst1q_f32(to[i] + r, vmulq_f32(d, value));
    }
}
// Bytes minus 32, as signed ones.
FN uint32x4_t minus32(uint32x4_t v) { return vreinterpretq_u32_s8(vsubq_s8(vreinterpretq_s8_u32(v), vdupq_n_s8(32))); }

// Blocks of 32 that begin with d f16.
template <Format F>
struct ScalesD {
    static FN void load(const Rows &rows, uint32_t first, uint32_t blocks, GroupScales &c) {
        for (uint32_t r = 0; r < kChunkRows; r += 4) {
            const FourRows four(rows, r, first * size_t{Decode<F>::bytes});
            for (uint32_t b = 0; b < blocks; b++) vst1q_f32(c.scale[b] + r, four.half(b * size_t{Decode<F>::bytes}));
        }
    }
};
template <>
struct Scales<Format::Q4_0> : ScalesD<Format::Q4_0> {};
template <>
struct Scales<Format::Q5_0> : ScalesD<Format::Q5_0> {};
template <>
struct Scales<Format::Q8_0> : ScalesD<Format::Q8_0> {};
template <>
struct Scales<Format::IQ4_NL> : ScalesD<Format::IQ4_NL> {};

// Blocks of 32 that begin with d f16 | m f16.
template <Format F>
struct ScalesDM {
    static FN void load(const Rows &rows, uint32_t first, uint32_t blocks, GroupScales &c) {
        for (uint32_t r = 0; r < kChunkRows; r += 4) {
            const FourRows four(rows, r, first * size_t{Decode<F>::bytes});
            for (uint32_t b = 0; b < blocks; b++) {
                const uint32x4_t dm = four.word(b * size_t{Decode<F>::bytes});
                vst1q_f32(c.scale[b] + r, low_half(dm));
                vst1q_f32(c.bias[b] + r, high_half(dm));
            }
        }
    }
};
template <>
struct Scales<Format::Q4_1> : ScalesDM<Format::Q4_1> {};
template <>
struct Scales<Format::Q5_1> : ScalesDM<Format::Q5_1> {};

// Of the rows' block of 256 that begins with weight 32 * first.
template <Format F>
FN FourRows four_blocks(const Rows &rows, uint32_t r, uint32_t first) {
    return FourRows(rows, r, first / kChunkBlocks * size_t{Decode<F>::bytes});
}

// d f16 | dmin f16 | 12 bytes: eight scales and eight minima of 6 bits. A dword's four bytes are those of four groups.
template <Format F>
struct ScalesPacked6 {
    static FN void load(const Rows &rows, uint32_t first, uint32_t, GroupScales &c) {
        for (uint32_t r = 0; r < kChunkRows; r += 4) {
            uint32x4_t w[4];
            four_blocks<F>(rows, r, first).words(0, w);
            const float32x4_t d = low_half(w[0]), minus_dmin = vnegq_f32(high_half(w[0]));
            const auto high = [](uint32x4_t v, uint32x4_t nibble) __attribute__((always_inline)) {
                return vorrq_u32(and8(nibble, 15), and8(vshrq_n_u32(v, 2), 0x30));
            };
            put_products<false>(d, and8(w[1], 63), c.scale, r);
            put_products<false>(d, high(w[1], w[3]), c.scale + 4, r);
            put_products<false>(minus_dmin, and8(w[2], 63), c.bias, r);
            put_products<false>(minus_dmin, high(w[2], vshrq_n_u32(w[3], 4)), c.bias + 4, r);
        }
    }
};
template <>
struct Scales<Format::Q4_K> : ScalesPacked6<Format::Q4_K> {};
template <>
struct Scales<Format::Q5_K> : ScalesPacked6<Format::Q5_K> {};

// Sixteen bytes, a scale and a minimum in each, and d f16 | dmin f16.
template <>
struct Scales<Format::Q2_K> {
    static FN void load(const Rows &rows, uint32_t first, uint32_t, GroupScales &c) {
        for (uint32_t r = 0; r < kChunkRows; r += 4) {
            const FourRows four = four_blocks<Format::Q2_K>(rows, r, first);
            uint32x4_t w[4];
            four.words(offset_of(q2_K_scales), w);
            const uint32x4_t dm = four.word(offset_of(q2_K_d));
            const float32x4_t d = low_half(dm), minus_dmin = vnegq_f32(high_half(dm));
            for (uint32_t i = 0; i < 4; i++) {
                put_products<false>(d, and8(w[i], 15), c.scale + 4 * i, r);
                put_products<false>(minus_dmin, and8(vshrq_n_u32(w[i], 4), 15), c.bias + 4 * i, r);
            }
        }
    }
};

// Twelve bytes: sixteen scales of 6 bits, of which the third word holds the upper two. The two bytes before them are
// read as well, since behind d the block ends.
template <>
struct Scales<Format::Q3_K> {
    static FN void load(const Rows &rows, uint32_t first, uint32_t, GroupScales &c) {
        for (uint32_t r = 0; r < kChunkRows; r += 4) {
            const FourRows four = four_blocks<Format::Q3_K>(rows, r, first);
            uint32x4_t w[4];
            for (uint32_t i = 0; i < 4; i++) {
                const uint8x16_t v = bytes16(four.at[i] + offset_of(q3_K_scales) - 2);
                w[i] = vreinterpretq_u32_u8(vextq_u8(v, v, 2));
            }
            transpose4(w);
            const float32x4_t d = low_half(w[3]);
#pragma GCC unroll 4
            for (uint32_t i = 0; i < 4; i++) {
                const uint32x4_t low = and8(shift_right(w[i % 2], i / 2 * 4), 15);
                const uint32x4_t high = vshlq_n_u32(and8(shift_right(w[2], 2 * i), 3), 4);
                put_products<true>(d, minus32(vorrq_u32(low, high)), c.scale + 4 * i, r);
            }
        }
    }
};

// d f16 | the upper two bits of eight scales, 16 bits | the lower four, 4 bytes.
template <>
struct Scales<Format::IQ4_XS> {
    static FN void load(const Rows &rows, uint32_t first, uint32_t, GroupScales &c) {
        const int32x4_t offset = vdupq_n_s32(32);
        for (uint32_t r = 0; r < kChunkRows; r += 4) {
            const FourRows four = four_blocks<Format::IQ4_XS>(rows, r, first);
            const uint32x4_t head = four.word(offset_of(iq4_xs_d)), lows = four.word(offset_of(iq4_xs_scales_l));
            const float32x4_t d = low_half(head);
#pragma GCC unroll 8
            for (uint32_t g = 0; g < 8; g++) {
                const uint32x4_t low = vandq_u32(shift_right(lows, 4 * g), vdupq_n_u32(15));
                const uint32x4_t high = vandq_u32(shift_right(head, 16 + 2 * g), vdupq_n_u32(3));
                const uint32x4_t six = vorrq_u32(low, vshlq_n_u32(high, 4));
                const int32x4_t scale = vsubq_s32(vreinterpretq_s32_u32(six), offset);
                vst1q_f32(c.scale[g] + r, vmulq_f32(d, vcvtq_f32_s32(scale)));
            }
        }
    }
};

// Sixteen signed bytes and d f16.
template <>
struct Scales<Format::Q6_K> {
    static FN void load(const Rows &rows, uint32_t first, uint32_t, GroupScales &c) {
        for (uint32_t r = 0; r < kChunkRows; r += 4) {
            const FourRows four = four_blocks<Format::Q6_K>(rows, r, first);
            uint32x4_t w[4];
            four.words(offset_of(q6_K_scales), w);
            const float32x4_t d = four.half(offset_of(q6_K_d));
            for (uint32_t i = 0; i < 4; i++) put_products<true>(d, w[i], c.scale + 4 * i, r);
        }
    }
};

}  // namespace RIDGE_ISA
}  // namespace ridge::cpu
