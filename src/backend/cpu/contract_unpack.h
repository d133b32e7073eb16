// Weights made ready for contract's inner kernels: codes as bytes, scales of sixteen rows side by side, or a chunk of a
// row as f32. Derived from Decode<F> for every format; with AVX2 and NEON codes come 32 at a time from
// contract_packed*.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/simd.h"
#include "format/decode.h"

#if defined(RIDGE_ISA_AVX512) || defined(RIDGE_ISA_AVX2)
#include "backend/cpu/contract_packed.h"
#elif defined(RIDGE_ISA_NEON)
#include "backend/cpu/contract_packed_neon.h"
#endif

namespace ridge::cpu {
inline namespace RIDGE_ISA {

constexpr uint32_t kChunk = 256, kChunkBlocks = kChunk / 32;
constexpr uint32_t kChunkRows = 16;

// Something for each format, indexed by Format.
template <class T>
struct ByFormat {
    T entry[64];
};

// Sixteen rows of weights. Where there are fewer (n >= 1), the last one stands for the missing ones.
struct Rows {
    const std::byte *row[kChunkRows];
    FN Rows(const std::byte *first, size_t row_bytes, uint32_t n) {
        for (uint32_t r = 0; r < kChunkRows; r++) row[r] = first + (r < n ? r : n - 1) * row_bytes;
    }
};

// Of a chunk of sixteen rows. Groups of 32 have the scale of block b in scale[b], groups of 16 in scale[2 * b] and
// scale[2 * b + 1].
struct GroupScales {
    alignas(64) float scale[16][kChunkRows], bias[16][kChunkRows];
};

// ---- 32 codes: Codes<F>::store(block, g32, to) writes those of group g32 of a block.

template <Format F>
struct CodesByFours {
    static FN void store(const std::byte *block, u32 g32, int8_t *to) {
        for (u32 j = 0; j < 8; j++) {
            const u32 four = Decode<F>::codes4(block, g32, j);
            __builtin_memcpy(to + 4 * j, &four, 4);
        }
    }
};

#if defined(RIDGE_ISA_NEON)

template <Format F>
struct Codes {
    static FN void store(const std::byte *block, u32 g32, int8_t *to) {
        const I8x32 v = load(block, g32);
        vst1q_s8(to, v.a);
        vst1q_s8(to + 16, v.b);
    }
    static FN I8x32 load(const std::byte *block, u32 g32) { return Packed<F>::load(block, g32); }
};

#elif !defined(RIDGE_ISA_AVX512) && !defined(RIDGE_ISA_AVX2)

template <Format F>
struct Codes : CodesByFours<F> {};

#else

template <Format F>
struct Codes {
    static FN void store(const std::byte *block, u32 g32, int8_t *to) {
        if constexpr (requires { Packed<F>::load(block, g32); })
            _mm256_storeu_si256(reinterpret_cast<__m256i *>(to), Packed<F>::load(block, g32));
        else
            CodesByFours<F>::store(block, g32, to);
    }
    static FN __m256i load(const std::byte *block, u32 g32) {
        if constexpr (requires { Packed<F>::load(block, g32); }) {
            return Packed<F>::load(block, g32);
        } else {
            alignas(32) int8_t codes[32];
            CodesByFours<F>::store(block, g32, codes);
            return _mm256_load_si256(reinterpret_cast<const __m256i *>(codes));
        }
    }
};

#endif

// ---- Scales

// Block that holds weights 32 * g32 .. +31 of a row; g32 counts from the row's start and becomes a group of the block.
template <Format F>
FN const std::byte *block_of(const std::byte *row, u32 &g32) {
    constexpr u32 per_block = Decode<F>::block / 32;
    const std::byte *block = row + size_t{g32 / per_block} * Decode<F>::bytes;
    g32 %= per_block;
    return block;
}

// Scales and biases of blocks first .. first + blocks - 1 of sixteen rows.
template <Format F>
struct Scales {
    static FN void load(const Rows &rows, uint32_t first, uint32_t blocks, GroupScales &c) {
        using D = Decode<F>;
        constexpr u32 groups = D::group == 16 ? 2 : 1;  // per 32
        for (u32 r = 0; r < kChunkRows; r++) {
            const std::byte *row = rows.row[r];
            for (u32 b = 0; b < blocks; b++) {
                u32 g32 = first + b;
                const std::byte *block = block_of<F>(row, g32);
                for (u32 h = 0; h < groups; h++) {
                    const u32 g = D::group == 256 ? 0 : groups * g32 + h;
                    c.scale[groups * b + h][r] = D::scale(block, g);
                    if constexpr (D::has_bias) c.bias[groups * b + h][r] = D::bias(block, g);
                }
            }
        }
    }
};

// Sixteen integers as floats, with another one added or not; sixteen codes; sixteen values of a float format.
#if defined(RIDGE_ISA_AVX512)
FN F32x16 load_i32(const int32_t *p) { return {_mm512_cvtepi32_ps(_mm512_load_si512(p))}; }
FN F32x16 load_i32_plus(const int32_t *p, int32_t plus) {
    return {_mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_load_si512(p), _mm512_set1_epi32(plus)))};
}
FN F32x16 load_codes(const int8_t *p) {
    return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i *>(p))))};
}
FN F32x16 load_bf16(const std::byte *p) {
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bytes32(p)), 16))};
}
#elif defined(RIDGE_ISA_AVX2)
FN __m256i load_8i32(const int32_t *p) { return _mm256_load_si256(reinterpret_cast<const __m256i *>(p)); }
FN F32x16 load_i32(const int32_t *p) { return {_mm256_cvtepi32_ps(load_8i32(p)), _mm256_cvtepi32_ps(load_8i32(p + 8))}; }
FN F32x16 load_i32_plus(const int32_t *p, int32_t plus) {
    const __m256i m = _mm256_set1_epi32(plus);
    return {_mm256_cvtepi32_ps(_mm256_add_epi32(load_8i32(p), m)),
            _mm256_cvtepi32_ps(_mm256_add_epi32(load_8i32(p + 8), m))};
}
FN __m128i bytes16(const void *p) { return _mm_loadu_si128(static_cast<const __m128i *>(p)); }
FN F32x16 load_codes(const int8_t *p) {
    const __m128i v = bytes16(p);
    return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(v)),
            _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(v, 8)))};
}
FN F32x16 load_bf16(const std::byte *p) {
    const auto eight = [](__m128i v) __attribute__((always_inline)) {
        return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(v), 16));
    };
    return {eight(bytes16(p)), eight(bytes16(p + 16))};
}
#elif !defined(RIDGE_ISA_NEON)
FN F32x16 load_i32_plus(const int32_t *p, int32_t plus) {
    float v[kLanes];
    for (u32 l = 0; l < kLanes; l++) v[l] = static_cast<float>(p[l] + plus);
    return load(v);
}
FN F32x16 load_i32(const int32_t *p) { return load_i32_plus(p, 0); }
FN F32x16 load_codes(const int8_t *p) {
    F32x16 v;
    for (u32 l = 0; l < kLanes; l++) v.v[l] = static_cast<float>(p[l]);
    return v;
}
#endif
template <Format F>
FN F32x16 load_values(const std::byte *p) {
#if defined(RIDGE_ISA_AVX512) || defined(RIDGE_ISA_AVX2) || defined(RIDGE_ISA_NEON)
    if constexpr (F == Format::F32) return load(reinterpret_cast<const float *>(p));
    if constexpr (F == Format::F16) return load(reinterpret_cast<const F16 *>(p));
    if constexpr (F == Format::BF16) return load_bf16(p);
#else
    F32x16 v;
    for (u32 l = 0; l < kLanes; l++) v.v[l] = Decode<F>::value(p, l);
    return v;
#endif
}

// n (<= 256) weights of a row from `first` (a multiple of 256) on, as f32; zeros up to a multiple of 16.
using DecodeChunk = void(const std::byte *row, uint32_t first, uint32_t n, float *to);

template <Format F>
void decode_chunk(const std::byte *row, uint32_t first, uint32_t n, float *to) {
    using D = Decode<F>;
    if constexpr (D::group == 0) {
        row += size_t{first} * D::bytes;
        u32 i = 0;
        for (; i + kLanes <= n; i += kLanes) store(to + i, load_values<F>(row + i * D::bytes));
        if (i == n) return;
        store(to + i, set1(0));
        for (; i < n; i++) to[i] = D::value(row, i);
    } else {
        constexpr u32 groups = D::group == 16 ? 2 : 1;  // per 32
        for (u32 i = 0; i < n; i += 32) {
            u32 g32 = (first + i) / 32;
            const std::byte *block = block_of<F>(row, g32);
            alignas(32) int8_t codes[32];
            Codes<F>::store(block, g32, codes);
            for (u32 h = 0; h < 2; h++) {
                const u32 g = D::group == 256 ? 0 : groups * g32 + h * (groups - 1);
                F32x16 v = set1(D::scale(block, g)) * load_codes(codes + kLanes * h);  // exact
                if constexpr (D::has_bias) v = v + set1(D::bias(block, g));
                store(to + i + kLanes * h, v);
            }
        }
    }
}

constexpr ByFormat<DecodeChunk *> decode_table() {
    ByFormat<DecodeChunk *> t = {};
#define FORMAT(NAME, prefix, id, block, bytes, group, bias) t.entry[id] = decode_chunk<Format::NAME>;
#define FORMAT_FLOAT(NAME, prefix, id, bytes) t.entry[id] = decode_chunk<Format::NAME>;
#include "format/formats.def"
    return t;
}

}  // namespace RIDGE_ISA
}  // namespace ridge::cpu
