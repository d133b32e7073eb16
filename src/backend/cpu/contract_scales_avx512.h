// Scales and biases of sixteen rows as one vector per group: the stored words of the rows are put side by side, and
// the format's arithmetic then runs on all rows at once. Specialisations of Scales for the common formats; the values
// are those of Decode<F>, bit for bit, since every product in them is exact.
#pragma once

#include "backend/cpu/contract_unpack.h"

namespace ridge::cpu {
inline namespace RIDGE_ISA {

// words[i][r] = word i of row r, words `step` bytes apart from `offset` on.
template <class Word>
FN void put_side_by_side(const Rows &rows, size_t offset, uint32_t count, size_t step, Word (*words)[kChunkRows]) {
    for (uint32_t r = 0; r < kChunkRows; r++)
#pragma GCC unroll 8
        for (uint32_t i = 0; i < count; i++)
            __builtin_memcpy(&words[i][r], rows.row[r] + offset + i * step, sizeof(Word));
}

FN __m512 f16_to_f32(__m512i dwords) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(dwords)); }

// Blocks of 32 that begin with d f16.
template <Format F>
struct ScalesD {
    static FN void load(const Rows &rows, uint32_t first, uint32_t blocks, GroupScales &c) {
        constexpr size_t bytes = Decode<F>::bytes;
        alignas(32) uint16_t d[kChunkBlocks][kChunkRows];
        put_side_by_side(rows, first * bytes, blocks, bytes, d);
        for (uint32_t b = 0; b < blocks; b++)
            _mm512_store_ps(c.scale[b], _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i *>(d[b]))));
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
        constexpr size_t bytes = Decode<F>::bytes;
        alignas(64) uint32_t dm[kChunkBlocks][kChunkRows];
        put_side_by_side(rows, first * bytes, blocks, bytes, dm);
        for (uint32_t b = 0; b < blocks; b++) {
            const __m512i v = _mm512_load_si512(dm[b]);
            _mm512_store_ps(c.scale[b], f16_to_f32(v));
            _mm512_store_ps(c.bias[b], f16_to_f32(_mm512_srli_epi32(v, 16)));
        }
    }
};
template <>
struct Scales<Format::Q4_1> : ScalesDM<Format::Q4_1> {};
template <>
struct Scales<Format::Q5_1> : ScalesDM<Format::Q5_1> {};

// d f16 | dmin f16 | 12 bytes: eight scales and eight minima of 6 bits. A dword's four bytes are those of four groups.
template <Format F>
struct ScalesPacked6 {
    static FN void load(const Rows &rows, uint32_t first, uint32_t, GroupScales &c) {
        alignas(64) uint32_t words[4][kChunkRows];
        put_side_by_side(rows, first / kChunkBlocks * size_t{Decode<F>::bytes}, 4, 4, words);
        const __m512i dm = _mm512_load_si512(words[0]);
        const __m512i low = _mm512_load_si512(words[1]), low_min = _mm512_load_si512(words[2]);
        const __m512i rest = _mm512_load_si512(words[3]);
        const __m512i six = _mm512_set1_epi8(0x3f), four = _mm512_set1_epi8(0x0f), top = _mm512_set1_epi8(0x30);
        const auto high = [&](__m512i v, __m512i nibble) __attribute__((always_inline)) {
            return _mm512_or_si512(_mm512_and_si512(nibble, four), _mm512_and_si512(_mm512_srli_epi32(v, 2), top));
        };
        const __m512i scales[2] = {_mm512_and_si512(low, six), high(low, rest)};
        const __m512i minima[2] = {_mm512_and_si512(low_min, six), high(low_min, _mm512_srli_epi32(rest, 4))};
        const __m512 d = f16_to_f32(dm);
        const __m512 minus_dmin = _mm512_xor_ps(f16_to_f32(_mm512_srli_epi32(dm, 16)), _mm512_set1_ps(-0.0f));
#pragma GCC unroll 8
        for (uint32_t g = 0; g < 8; g++) {
            const auto value = [&](__m512i v) __attribute__((always_inline)) {
                const __m512i byte = _mm512_and_si512(_mm512_srli_epi32(v, 8 * (g % 4)), _mm512_set1_epi32(255));
                return _mm512_cvtepi32_ps(byte);
            };
            _mm512_store_ps(c.scale[g], _mm512_mul_ps(d, value(scales[g / 4])));
            _mm512_store_ps(c.bias[g], _mm512_mul_ps(minus_dmin, value(minima[g / 4])));
        }
    }
};
template <>
struct Scales<Format::Q4_K> : ScalesPacked6<Format::Q4_K> {};
template <>
struct Scales<Format::Q5_K> : ScalesPacked6<Format::Q5_K> {};

// Sixteen signed bytes and d f16.
template <>
struct Scales<Format::Q6_K> {
    static FN void load(const Rows &rows, uint32_t first, uint32_t, GroupScales &c) {
        const size_t block = first / kChunkBlocks * size_t{Decode<Format::Q6_K>::bytes};
        alignas(64) uint32_t words[4][kChunkRows];
        alignas(32) uint16_t halves16[1][kChunkRows];
        put_side_by_side(rows, block + offset_of(q6_K_scales), 4, 4, words);
        put_side_by_side(rows, block + offset_of(q6_K_d), 1, 2, halves16);
        const __m512 d = _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i *>(halves16[0])));
#pragma GCC unroll 16
        for (uint32_t g = 0; g < 16; g++) {
            const __m512i top = _mm512_slli_epi32(_mm512_load_si512(words[g / 4]), 24 - 8 * (g % 4));
            _mm512_store_ps(c.scale[g], _mm512_mul_ps(d, _mm512_cvtepi32_ps(_mm512_srai_epi32(top, 24))));
        }
    }
};

}  // namespace RIDGE_ISA
}  // namespace ridge::cpu
