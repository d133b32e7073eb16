// Weights made ready for contract's inner kernels: chunks of 256 of sixteen rows as bytes and scales, or of one row as
// f32. Derived from Decode<F> for every format; with AVX2 the bytes come 32 at a time from contract_packed.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/simd.h"
#include "format/decode.h"

#if defined(RIDGE_ISA_AVX512) || defined(RIDGE_ISA_AVX2)
#include "backend/cpu/contract_packed.h"
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
    size_t ahead = 0;  // bytes from what is read to what will be read some chunks later
    FN Rows(const std::byte *first, size_t row_bytes, uint32_t n) {
        for (uint32_t r = 0; r < kChunkRows; r++) row[r] = first + (r < n ? r : n - 1) * row_bytes;
    }
};

// Groups of 32 have the scale of block b in scale[b], groups of 16 in scale[2 * b] and scale[2 * b + 1].
struct Chunk {
    alignas(64) uint8_t codes[kChunkRows][kChunk];
    alignas(64) float scale[16][kChunkRows], bias[16][kChunkRows];
};

// ---- 32 codes: Codes<F>::store(block, g32, flip, to) writes those of group g32 of a block, each byte xor `flip`.

template <Format F>
struct CodesByFours {
    static FN void store(const std::byte *block, u32 g32, u32 flip, uint8_t *to) {
        for (u32 j = 0; j < 8; j++) {
            const u32 four = Decode<F>::codes4(block, g32, j) ^ (flip * 0x01010101u);
            __builtin_memcpy(to + 4 * j, &four, 4);
        }
    }
};

#if !defined(RIDGE_ISA_AVX512) && !defined(RIDGE_ISA_AVX2)

template <Format F>
struct Codes : CodesByFours<F> {};

#else

template <Format F>
struct Codes {
    static FN void store(const std::byte *block, u32 g32, u32 flip, uint8_t *to) {
        if constexpr (requires { Packed<F>::load(block, g32); }) {
            const __m256i flips = _mm256_set1_epi8(static_cast<char>(flip));
            _mm256_storeu_si256(reinterpret_cast<__m256i *>(to), _mm256_xor_si256(Packed<F>::load(block, g32), flips));
        } else {
            CodesByFours<F>::store(block, g32, flip, to);
        }
    }
};

#endif

// ---- Chunks

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
    static FN void load(const Rows &rows, uint32_t first, uint32_t blocks, Chunk &c) {
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

template <Format F>
FN void unpack_blocks(const Rows &rows, uint32_t first, uint32_t blocks, u32 flip, Chunk &c) {
    // Sixteen streams at once are more than hardware prefetchers follow.
    constexpr size_t bytes = kChunk / Decode<F>::block * Decode<F>::bytes;
    const size_t ahead = first / kChunkBlocks * bytes + rows.ahead;
    for (u32 r = 0; r < kChunkRows; r++) {
        const std::byte *row = rows.row[r];
        for (size_t line = 0; line < bytes; line += 64) __builtin_prefetch(row + ahead + line);
#pragma GCC unroll 8
        for (u32 b = 0; b < blocks; b++) {
            u32 g32 = first + b;
            const std::byte *block = block_of<F>(row, g32);
            Codes<F>::store(block, Decode<F>::block == kChunk ? b : 0, flip, c.codes[r] + 32 * b);
        }
    }
    Scales<F>::load(rows, first, blocks, c);
}

// Int8::flip(has_bias) is xored to the bytes: 128 makes code + 128 of a signed code.
template <Format F, class Int8>
void unpack(const Rows &rows, uint32_t first, uint32_t blocks, Chunk &c) {
    constexpr u32 flip = Int8::flip(Decode<F>::has_bias);
    if (Decode<F>::block == kChunk || blocks == kChunkBlocks)
        unpack_blocks<F>(rows, first, kChunkBlocks, flip, c);
    else
        unpack_blocks<F>(rows, first, blocks, flip, c);
}

// Sixteen codes, and sixteen values of a float format.
#if defined(RIDGE_ISA_AVX512)
FN F32x16 load_codes(const int8_t *p) {
    return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i *>(p))))};
}
FN F32x16 load_bf16(const std::byte *p) {
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bytes32(p)), 16))};
}
#elif defined(RIDGE_ISA_AVX2)
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
#else
FN F32x16 load_codes(const int8_t *p) {
    F32x16 v;
    for (u32 l = 0; l < kLanes; l++) v.v[l] = static_cast<float>(p[l]);
    return v;
}
#endif
template <Format F>
FN F32x16 load_values(const std::byte *p) {
#if defined(RIDGE_ISA_AVX512) || defined(RIDGE_ISA_AVX2)
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
            Codes<F>::store(block, g32, 0, reinterpret_cast<uint8_t *>(codes));
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
