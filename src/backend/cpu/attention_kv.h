// Keys and values as attention reads them: the rows of one KV head in one page, sixteen f32 at a time, whatever type
// the state has. A further type is one more Kv.
#pragma once

#include "backend/cpu/simd.h"
#include "op/types.h"

namespace ridge::cpu {
inline namespace RIDGE_ISA {

// Element types of state: where element i of a row begins, and sixteen values of it from d on, a multiple of 16.
// `together`: so many vectors cost less as one.
template <DType>
struct Kv;

template <>
struct Kv<DType::f32> {
    static constexpr uint32_t together = 1;
    static constexpr size_t bytes(size_t n) { return n * sizeof(float); }
    static F32x16 load(const std::byte *row, uint32_t d) { return cpu::load(reinterpret_cast<const float *>(row) + d); }
    static F32x16 load_part(const std::byte *row, uint32_t d, uint32_t n) {
        return cpu::load_part(reinterpret_cast<const float *>(row) + d, n, 0.0f);
    }
};

template <>
struct Kv<DType::f16> {
    static constexpr uint32_t together = 1;
    static constexpr size_t bytes(size_t n) { return n * sizeof(F16); }
    static F32x16 load(const std::byte *row, uint32_t d) { return cpu::load(reinterpret_cast<const F16 *>(row) + d); }
    static F32x16 load_part(const std::byte *row, uint32_t d, uint32_t n) {
        return cpu::load_part(reinterpret_cast<const F16 *>(row) + d, n, 0.0f);
    }
};

// A head is whole blocks. The product with the scale is exact: 11 bits times 8.
template <>
struct Kv<DType::q8_0> {
    static constexpr uint32_t together = 2;  // a block, with its scale
    static constexpr size_t bytes(size_t n) { return n / 32 * sizeof(Q8Block); }
    static F32x16 load(const std::byte *row, uint32_t d) {
        const Q8Block &block = reinterpret_cast<const Q8Block *>(row)[d / 32];
        return scaled(block.codes + d % 32, scale(block));
    }
    static void load(const std::byte *row, uint32_t d, F32x16 (&x)[2]) {
        const Q8Block &block = reinterpret_cast<const Q8Block *>(row)[d / 32];
        const auto by = scale(block);
        x[0] = scaled(block.codes, by), x[1] = scaled(block.codes + 16, by);
    }
    static F32x16 load_part(const std::byte *row, uint32_t d, uint32_t) { return load(row, d); }

#if defined(RIDGE_ISA_AVX512)
    static __m512 scale(const Q8Block &b) { return _mm512_cvtph_ps(_mm256_set1_epi16(static_cast<int16_t>(b.scale))); }
    static F32x16 scaled(const int8_t *codes, __m512 by) {
        const __m512i whole = _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i *>(codes)));
        return {_mm512_mul_ps(_mm512_cvtepi32_ps(whole), by)};
    }
#elif defined(RIDGE_ISA_AVX2)
    static __m256 scale(const Q8Block &b) { return _mm256_cvtph_ps(_mm_set1_epi16(static_cast<int16_t>(b.scale))); }
    static F32x16 scaled(const int8_t *codes, __m256 by) {
        const __m128i all = _mm_loadu_si128(reinterpret_cast<const __m128i *>(codes));
        return {_mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(all)), by),
                _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(all, 8))), by)};
    }
#elif defined(RIDGE_ISA_NEON)
    static float32x4_t scale(const Q8Block &b) { return vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(b.scale))); }
    static F32x16 scaled(const int8_t *codes, float32x4_t by) {
        const int8x16_t all = vld1q_s8(codes);
        const int16x8_t low = vmovl_s8(vget_low_s8(all)), high = vmovl_high_s8(all);
        const auto times = [by](int32x4_t whole) { return vmulq_f32(vcvtq_f32_s32(whole), by); };
        return {times(vmovl_s16(vget_low_s16(low))), times(vmovl_high_s16(low)), times(vmovl_s16(vget_low_s16(high))),
                times(vmovl_high_s16(high))};
    }
#else
    static float scale(const Q8Block &b) { return f16_to_f32(b.scale); }
    static F32x16 scaled(const int8_t *codes, float by) {
        float lanes[kLanes];
        for (uint32_t l = 0; l < kLanes; l++) lanes[l] = static_cast<float>(codes[l]) * by;
        return cpu::load(lanes);
    }
#endif
};

// Row j at data + j * stride.
template <DType type>
struct KvRows {
    const std::byte *data = nullptr;
    size_t stride = 0;

    F32x16 load(uint32_t j, uint32_t d) const { return Kv<type>::load(data + j * stride, d); }
    // N vectors, all that are together or one.
    template <uint32_t N>
    void load(uint32_t j, uint32_t d, F32x16 (&x)[N]) const {
        if constexpr (N == 1)
            x[0] = load(j, d);
        else
            Kv<type>::load(data + j * stride, d, x);
    }
    F32x16 load_part(uint32_t j, uint32_t d, uint32_t n) const { return Kv<type>::load_part(data + j * stride, d, n); }
};

// Rows that are due later and come to the nearest cache meanwhile: with row j of a piece of 2^n rows, row j % 2^n of
// another.
struct Later {
    const std::byte *data = nullptr;
    size_t stride = 0;
    uint32_t row_bytes = 0, rows = 64;

    void ask(uint32_t j) const {
        asm volatile("");  // a function that only prefetches counts as one without effect, whose calls may be left out
        const std::byte *row = data + (j & (rows - 1)) * stride;
        for (uint32_t b = 0; b < row_bytes; b += 64) __builtin_prefetch(row + b);
    }
};

}  // namespace RIDGE_ISA
}  // namespace ridge::cpu
