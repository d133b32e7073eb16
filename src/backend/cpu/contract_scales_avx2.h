// With AVX2: scales and biases of sixteen rows as vectors, group by group. The stored words of eight rows are put side
// by side, and the format's arithmetic then runs on the eight at once. Specialisations of Scales for all block formats;
// the values are those of Decode<F>, bit for bit, since every product in them is exact, in any order.
#pragma once

#include "backend/cpu/contract_columns_avx2.h"

namespace ridge::cpu {
inline namespace RIDGE_ISA {

// ---- Words of eight rows side by side, from sixteen bytes of each at `at`

// Dwords 0 and 1, or 2 and 3.
struct TwoDwords {
    __m256i first, second;
};
FN TwoDwords first_dwords(Rows8 rows, size_t at) {
    const __m256i ab = _mm256_unpacklo_epi32(two_rows(rows, at, 0), two_rows(rows, at, 1));
    const __m256i cd = _mm256_unpacklo_epi32(two_rows(rows, at, 2), two_rows(rows, at, 3));
    return {_mm256_unpacklo_epi64(ab, cd), _mm256_unpackhi_epi64(ab, cd)};
}
FN TwoDwords last_dwords(Rows8 rows, size_t at) {
    const __m256i ab = _mm256_unpackhi_epi32(two_rows(rows, at, 0), two_rows(rows, at, 1));
    const __m256i cd = _mm256_unpackhi_epi32(two_rows(rows, at, 2), two_rows(rows, at, 3));
    return {_mm256_unpacklo_epi64(ab, cd), _mm256_unpackhi_epi64(ab, cd)};
}
// The f16 at byte 0 ...
FN __m256 first_f16(Rows8 rows, size_t at) {
    const auto two = [&](u32 i) __attribute__((always_inline)) {
        return _mm_unpacklo_epi16(load128(rows[i] + at), load128(rows[i + 1] + at));
    };
    return _mm256_cvtph_ps(_mm_unpacklo_epi64(_mm_unpacklo_epi32(two(0), two(2)), _mm_unpacklo_epi32(two(4), two(6))));
}
// ... or at byte 14.
FN __m256 last_f16(Rows8 rows, size_t at) {
    const auto two = [&](u32 i) __attribute__((always_inline)) {
        return _mm_unpackhi_epi16(load128(rows[i] + at), load128(rows[i + 1] + at));
    };
    return _mm256_cvtph_ps(_mm_unpackhi_epi64(_mm_unpackhi_epi32(two(0), two(2)), _mm_unpackhi_epi32(two(4), two(6))));
}
// The f16 that dwords hold, with nothing above them.
FN __m256 f16_of(__m256i dwords) {
    return _mm256_cvtph_ps(_mm_packus_epi32(_mm256_castsi256_si128(dwords), _mm256_extracti128_si256(dwords, 1)));
}
FN __m256 f16_low(__m256i v) { return f16_of(_mm256_and_si256(v, _mm256_set1_epi32(0xffff))); }
FN __m256 f16_high(__m256i v) { return f16_of(_mm256_srli_epi32(v, 16)); }
FN __m256 minus(__m256 v) { return _mm256_xor_ps(v, _mm256_set1_ps(-0.0f)); }

// Byte i of each dword as a number; for signed ones times 2^24, which kPerTop takes off a factor beforehand.
FN __m256 byte_value(__m256i v, u32 i) {
    const auto at = static_cast<int>(0x80808000u | i);
    const __m256i rows4 = _mm256_setr_epi32(0, 4, 8, 12, 0, 4, 8, 12);
    return _mm256_cvtepi32_ps(_mm256_shuffle_epi8(v, _mm256_add_epi32(_mm256_set1_epi32(at), rows4)));
}
FN __m256 top_value(__m256i v, u32 i) {
    const auto at = static_cast<int>(0x00808080u | i << 24);
    const __m256i rows4 = _mm256_setr_epi32(0, 4 << 24, 8 << 24, 12 << 24, 0, 4 << 24, 8 << 24, 12 << 24);
    return _mm256_cvtepi32_ps(_mm256_shuffle_epi8(v, _mm256_add_epi32(_mm256_set1_epi32(at), rows4)));
}
constexpr float kPerTop = 1.0f / (1 << 24);

// to[g] = by * byte g % 4 of v[g / 4], groups `step` apart.
FN void store_bytes(__m256 by, const __m256i *v, u32 groups, float (*to)[kChunkRows], u32 step = 1) {
#pragma GCC unroll 16
    for (u32 g = 0; g < groups; g++) _mm256_store_ps(to[g * step], _mm256_mul_ps(by, byte_value(v[g / 4], g % 4)));
}
FN void store_tops(__m256 by, const __m256i *v, u32 groups, float (*to)[kChunkRows], u32 step = 1) {
    const __m256 d = _mm256_mul_ps(by, _mm256_set1_ps(kPerTop));
#pragma GCC unroll 16
    for (u32 g = 0; g < groups; g++) _mm256_store_ps(to[g * step], _mm256_mul_ps(d, top_value(v[g / 4], g % 4)));
}

// ---- Format by format: of eight rows, whose chunk begins at byte `at`. c is given from the first of the eight on.

struct Scales8 {
    float (*scale)[kChunkRows], (*bias)[kChunkRows];
};
#define RIDGE_SCALES(NAME)                                                                                       \
    template <>                                                                                                  \
    struct Scales<Format::NAME> {                                                                                \
        static FN void load8(Rows8 rows, size_t at, [[maybe_unused]] u32 blocks, Scales8 c);                     \
        static FN void load(const Rows &rows, u32 first, u32 blocks, GroupScales &c) {                           \
            constexpr size_t bytes = kChunk / Decode<Format::NAME>::block * size_t{Decode<Format::NAME>::bytes}; \
            for (u32 r = 0; r < kChunkRows; r += 8)                                                              \
                load8(rows.row + r, first / kChunkBlocks * bytes, blocks,                                        \
                      {reinterpret_cast<float(*)[kChunkRows]>(&c.scale[0][r]),                                   \
                       reinterpret_cast<float(*)[kChunkRows]>(&c.bias[0][r])});                                  \
        }                                                                                                        \
    };                                                                                                           \
    FN void Scales<Format::NAME>::load8(Rows8 rows, size_t at, [[maybe_unused]] u32 blocks, Scales8 c)

// Blocks of 32: the first words of two blocks lie in 32 bytes (but for Q8_0), so they are put side by side together,
// the first block's in the lower half of the vectors, the second one's in the upper half, where they begin `bytes` - 16
// later.
template <Format F>
struct TwoBlocks {
    Rows8 rows;
    size_t at;
    FN __m256i row(u32 r) const { return bytes32(rows[r] + at); }
    FN __m256i words(u32 r) const { return _mm256_unpacklo_epi16(row(r), row(r + 1)); }
    FN __m256i dwords(u32 r) const { return _mm256_unpacklo_epi32(row(r), row(r + 1)); }
};
// The lower half's low 64 bits and the upper half's high 64 bits of a, then of b.
FN __m256i low_high(__m256i a, __m256i b) {
    return _mm256_castpd_si256(_mm256_shuffle_pd(_mm256_castsi256_pd(a), _mm256_castsi256_pd(b), 0b1100));
}
FN void store_f16(float (*to)[kChunkRows], __m256i halves) {
    _mm256_store_ps(to[0], _mm256_cvtph_ps(_mm256_castsi256_si128(halves)));
    _mm256_store_ps(to[1], _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1)));
}

// d f16.
template <Format F>
FN void load_d(Rows8 rows, size_t at, u32 blocks, Scales8 c) {
    constexpr size_t bytes = Decode<F>::bytes;
    u32 b = 0;
    if constexpr (bytes < 32)
        for (; b + 2 <= blocks; b += 2) {
            const TwoBlocks<F> two{rows, at + b * bytes};
            __m256i v[2];
#pragma GCC unroll 2
            for (u32 i = 0; i < 2; i++) {
                const __m256i ab = two.words(4 * i), cd = two.words(4 * i + 2);
                v[i] = _mm256_unpacklo_epi32(ab, cd);
                if constexpr (bytes == 22)  // the upper half's are the fourth words
                    v[i] = _mm256_blend_epi32(v[i], _mm256_unpackhi_epi32(ab, cd), 0xf0);
                else
                    static_assert(bytes == 18);  // the second words
            }
            store_f16(c.scale + b, low_high(v[0], v[1]));
        }
    for (; b < blocks; b++) _mm256_store_ps(c.scale[b], first_f16(rows, at + b * bytes));
}
RIDGE_SCALES(Q4_0) { load_d<Format::Q4_0>(rows, at, blocks, c); }
RIDGE_SCALES(Q5_0) { load_d<Format::Q5_0>(rows, at, blocks, c); }
RIDGE_SCALES(Q8_0) { load_d<Format::Q8_0>(rows, at, blocks, c); }
RIDGE_SCALES(IQ4_NL) { load_d<Format::IQ4_NL>(rows, at, blocks, c); }

// d f16 | m f16.
template <Format F>
FN void load_dm(Rows8 rows, size_t at, u32 blocks, Scales8 c) {
    constexpr size_t bytes = Decode<F>::bytes;
    u32 b = 0;
    for (; b + 2 <= blocks; b += 2) {
        const TwoBlocks<F> two{rows, at + b * bytes};
        __m256i v[2];
#pragma GCC unroll 2
        for (u32 i = 0; i < 2; i++) {
            if constexpr (bytes == 20) {  // the upper half's are the second dwords
                v[i] = low_high(two.dwords(4 * i), two.dwords(4 * i + 2));
            } else {
                static_assert(bytes == 24);  // the third
                const __m256 ab = _mm256_castsi256_ps(low_high(two.row(4 * i), two.row(4 * i + 1)));
                const __m256 cd = _mm256_castsi256_ps(low_high(two.row(4 * i + 2), two.row(4 * i + 3)));
                v[i] = _mm256_castps_si256(_mm256_shuffle_ps(ab, cd, 0x88));
            }
        }
        const __m256i low = _mm256_set1_epi32(0xffff);
        store_f16(c.scale + b, _mm256_packus_epi32(_mm256_and_si256(v[0], low), _mm256_and_si256(v[1], low)));
        store_f16(c.bias + b, _mm256_packus_epi32(_mm256_srli_epi32(v[0], 16), _mm256_srli_epi32(v[1], 16)));
    }
    for (; b < blocks; b++) {
        const __m256i dm = first_dword(rows, at + b * bytes);
        _mm256_store_ps(c.scale[b], f16_low(dm));
        _mm256_store_ps(c.bias[b], f16_high(dm));
    }
}
RIDGE_SCALES(Q4_1) { load_dm<Format::Q4_1>(rows, at, blocks, c); }
RIDGE_SCALES(Q5_1) { load_dm<Format::Q5_1>(rows, at, blocks, c); }

// A power of two, e - 128; the smallest two are subnormal.
FN void store_power(float *to, __m256i e) {
    const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
    const __m256i small = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
    const __m256i bits = _mm256_blendv_epi8(normal, small, _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e));
    _mm256_store_ps(to, _mm256_castsi256_ps(bits));
}
RIDGE_SCALES(MXFP4) {
    constexpr size_t bytes = Decode<Format::MXFP4>::bytes;
    static_assert(bytes == 17);
    u32 b = 0;
    for (; b + 2 <= blocks; b += 2) {
        const TwoBlocks<Format::MXFP4> two{rows, at + b * bytes};
        const auto pair = [&](u32 r) __attribute__((always_inline)) {
            return _mm256_unpacklo_epi8(two.row(r), two.row(r + 1));
        };
        const __m256i lower = _mm256_unpacklo_epi16(pair(0), pair(2)), upper = _mm256_unpacklo_epi16(pair(4), pair(6));
        const __m256i e = _mm256_unpacklo_epi32(lower, upper);  // the upper half's are the second bytes
        const __m128i second = _mm_unpackhi_epi64(_mm256_extracti128_si256(e, 1), _mm_setzero_si128());
        store_power(c.scale[b], _mm256_cvtepu8_epi32(_mm256_castsi256_si128(e)));
        store_power(c.scale[b + 1], _mm256_cvtepu8_epi32(second));
    }
    for (; b < blocks; b++)
        store_power(c.scale[b], _mm256_and_si256(first_dword(rows, at + b * bytes), _mm256_set1_epi32(255)));
}

// d f16 | dmin f16 | 12 bytes: eight scales and eight minima of 6 bits. A dword's four bytes are those of four groups.
FN void load_packed6(Rows8 rows, size_t at, Scales8 c) {
    __m256i v[4];
    load_dwords(rows, at, v);
    const __m256i six = set8(0x3f), top = set8(0x30);
    const auto high = [&](__m256i bits, __m256i nibble) __attribute__((always_inline)) {
        return _mm256_or_si256(nibble, _mm256_and_si256(_mm256_srli_epi16(bits, 2), top));
    };
    const __m256i scales[2] = {_mm256_and_si256(v[1], six), high(v[1], low_nibble(v[3]))};
    const __m256i minima[2] = {_mm256_and_si256(v[2], six), high(v[2], high_nibble(v[3]))};
    store_bytes(f16_low(v[0]), scales, 8, c.scale);
    store_bytes(minus(f16_high(v[0])), minima, 8, c.bias);
}
RIDGE_SCALES(Q4_K) { load_packed6(rows, at, c); }
RIDGE_SCALES(Q5_K) { load_packed6(rows, at, c); }

// Sixteen signed bytes and d f16.
RIDGE_SCALES(Q6_K) {
    __m256i v[4];
    load_dwords(rows, at + offset_of(q6_K_scales), v);
    store_tops(last_f16(rows, at + offset_of(q6_K_d) - 14), v, 16, c.scale);
}

// Sixteen bytes: a scale and a minimum of 4 bits. Last come d f16 and dmin f16.
RIDGE_SCALES(Q2_K) {
    __m256i v[4], scales[4], minima[4];
    load_dwords(rows, at + offset_of(q2_K_scales), v);
#pragma GCC unroll 4
    for (u32 i = 0; i < 4; i++) scales[i] = low_nibble(v[i]), minima[i] = high_nibble(v[i]);
    const __m256i dm = last_dword(rows, at + offset_of(q2_K_d) - 12);
    store_bytes(f16_low(dm), scales, 16, c.scale);
    store_bytes(minus(f16_high(dm)), minima, 16, c.bias);
}

// Twelve bytes and d f16, the last of the block: nibbles of groups 0..7 (low) and 8..15 (high) in eight bytes, then two
// upper bits of groups g % 4 in each of four bytes.
RIDGE_SCALES(Q3_K) {
    __m256i v[4];
#pragma GCC unroll 4
    for (u32 q = 0; q < 4; q++) v[q] = _mm256_bsrli_epi128(two_rows(rows, at + offset_of(q3_K_scales) - 2, q), 2);
    transpose4(v);
    const auto scale = [&](__m256i nibble, u32 i) __attribute__((always_inline)) {
        return _mm256_sub_epi8(_mm256_or_si256(nibble, move_bits(v[2], 2 * i, 4, 3)), set8(32));
    };
    const __m256i scales[4] = {scale(low_nibble(v[0]), 0), scale(low_nibble(v[1]), 1), scale(high_nibble(v[0]), 2),
                               scale(high_nibble(v[1]), 3)};
    store_tops(f16_of(v[3]), scales, 16, c.scale);
}

// d f16 | two upper bits of eight groups | their nibbles.
RIDGE_SCALES(IQ4_XS) {
    const TwoDwords v = first_dwords(rows, at);
    // The two bytes of upper bits, each twice: of groups 0 to 3 and of 4 to 7.
    const __m256i twice =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(2, 2, 3, 3, 6, 6, 7, 7, 10, 10, 11, 11, 14, 14, 15, 15));
    const __m256i bits = _mm256_shuffle_epi8(v.first, twice);
    const __m256i first = _mm256_set1_epi16(0x0030), second = _mm256_set1_epi16(0x3000);
    const auto scale = [&](__m256i nibble, __m256i of_first, __m256i of_second) __attribute__((always_inline)) {
        const __m256i upper = _mm256_or_si256(_mm256_and_si256(of_first, first), _mm256_and_si256(of_second, second));
        return _mm256_sub_epi8(_mm256_or_si256(nibble, upper), set8(32));
    };
    const __m256i even = scale(low_nibble(v.second), _mm256_slli_epi16(bits, 4), bits);
    const __m256i odd = scale(high_nibble(v.second), _mm256_slli_epi16(bits, 2), _mm256_srli_epi16(bits, 2));
    const __m256 d = f16_low(v.first);
    store_tops(d, &even, 4, c.scale, 2);
    store_tops(d, &odd, 4, c.scale + 1, 2);
}

// One scale for the whole block, its last two bytes.
FN void load_one(Rows8 rows, size_t d_at, Scales8 c) {
    const __m256 d = last_f16(rows, d_at - 14);
#pragma GCC unroll 8
    for (u32 b = 0; b < kChunkBlocks; b++) _mm256_store_ps(c.scale[b], d);
}
RIDGE_SCALES(TQ1_0) { load_one(rows, at + offset_of(tq1_0_d), c); }
RIDGE_SCALES(TQ2_0) { load_one(rows, at + offset_of(tq2_0_d), c); }

// ---- Grids: d f16 first and, but for IQ3_S, odd multiples 2 * s + 1 of an eighth or a quarter of it

FN __m256 times(__m256 v, float by) { return _mm256_mul_ps(v, _mm256_set1_ps(by)); }
// 2 * s + 1 where s is three or four bits of `v` from bit `from` on, times `by`.
FN __m256 odd_multiple(__m256i v, u32 from, int mask, __m256 by) {
    const __m256i at =
        from == 0 ? _mm256_slli_epi32(v, 1) : _mm256_srli_epi32(v, static_cast<int>(from == 0 ? 0 : from - 1));
    const __m256i odd = _mm256_or_si256(_mm256_and_si256(at, _mm256_set1_epi32(mask << 1)), _mm256_set1_epi32(1));
    return _mm256_mul_ps(by, _mm256_cvtepi32_ps(odd));
}
// The same from nibbles, low ones first: to[g] for eight groups of each dword.
FN void store_odd_nibbles(const __m256i *v, u32 dwords, __m256 by, float (*to)[kChunkRows]) {
    for (u32 i = 0; i < dwords; i++) {
        const auto odd = [&](u32 from) __attribute__((always_inline)) {
            return _mm256_or_si256(move_bits(v[i], from, 1, 15), set8(1));
        };
        const __m256i low = odd(0), high = odd(4);
        store_bytes(by, &low, 4, to + 8 * i, 2);
        store_bytes(by, &high, 4, to + 8 * i + 1, 2);
    }
}
RIDGE_SCALES(IQ2_XXS) {
    const __m256 by = times(first_f16(rows, at), 0.125f);
#pragma GCC unroll 4
    for (u32 g = 0; g < 8; g += 2) {
        __m256i v[4];
        load_dwords(rows, at + offset_of(iq2_xxs_qs) + 8 * g, v);
        _mm256_store_ps(c.scale[g], odd_multiple(v[1], 28, 15, by));
        _mm256_store_ps(c.scale[g + 1], odd_multiple(v[3], 28, 15, by));
    }
}
RIDGE_SCALES(IQ3_XXS) {
    __m256i v[8];
    load_dwords8(rows, at + offset_of(iq3_xxs_signs), v);
    const __m256 by = times(first_f16(rows, at), 0.25f);
#pragma GCC unroll 8
    for (u32 g = 0; g < 8; g++) _mm256_store_ps(c.scale[g], odd_multiple(v[g], 28, 15, by));
}
RIDGE_SCALES(IQ2_XS) {
    const TwoDwords v = last_dwords(rows, at + offset_of(iq2_xs_scales) - 8);
    const __m256i dwords[2] = {v.first, v.second};
    store_odd_nibbles(dwords, 2, times(first_f16(rows, at), 0.125f), c.scale);
}
RIDGE_SCALES(IQ2_S) {
    const TwoDwords v = last_dwords(rows, at + offset_of(iq2_s_scales) - 8);
    const __m256i dwords[2] = {v.first, v.second};
    store_odd_nibbles(dwords, 2, times(first_f16(rows, at), 0.125f), c.scale);
}
RIDGE_SCALES(IQ3_S) {
    const __m256i v = last_dword(rows, at + offset_of(iq3_s_scales) - 12);
    store_odd_nibbles(&v, 1, first_f16(rows, at), c.scale);
}
RIDGE_SCALES(IQ1_S) {
    __m256i v[4];
    load_dwords(rows, at + offset_of(iq1_s_qh), v);
    const __m256 by = times(first_f16(rows, at), 0.125f);
#pragma GCC unroll 8
    for (u32 g = 0; g < 8; g++) _mm256_store_ps(c.scale[g], odd_multiple(v[g / 2], 16 * (g % 2) + 12, 7, by));
}
// Four words: four scales of 3 bits and, on top, four bits of d.
RIDGE_SCALES(IQ1_M) {
    const TwoDwords v = last_dwords(rows, at + offset_of(iq1_m_scales) - 8);
    const auto bits = [](__m256i from, int shift, int mask) __attribute__((always_inline)) {
        return _mm256_and_si256(_mm256_srli_epi32(from, shift), _mm256_set1_epi32(mask));
    };
    const __m256i d = _mm256_or_si256(_mm256_or_si256(bits(v.first, 12, 0xf), bits(v.first, 24, 0xf0)),
                                      _mm256_or_si256(bits(v.second, 4, 0xf00), bits(v.second, 16, 0xf000)));
    const __m256 by = times(f16_of(d), 0.125f);
#pragma GCC unroll 16
    for (u32 g = 0; g < 16; g++)
        _mm256_store_ps(c.scale[g], odd_multiple(g < 8 ? v.first : v.second, 16 * (g / 4 % 2) + 3 * (g % 4), 7, by));
}
#undef RIDGE_SCALES

}  // namespace RIDGE_ISA
}  // namespace ridge::cpu
