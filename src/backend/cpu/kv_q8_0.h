// Writing KV state in q8_0: f32 values to blocks of 32 (Q8Block in op/types.h). KvWrite in op/op.h says what a block
// holds; the forms below take the same steps and give the same bits.
//
//   scale = f16(max|x| / 127)      code = round-half-even(x * f32(1 / scale)), held to -127 .. 127
//
// The scale is rounded before the codes are chosen, so that they fit the scale that a reader sees: |x - scale * code|
// is at most scale / 2 (above, the scale's own rounding leaves |x / scale| <= 127.07), but where the scale is a
// subnormal f16 (max|x| < 127 * 2^-14) and |x / scale| may reach 190, 127 * 2^-25 more.
// An f16 is at least 2^-24, so its reciprocal is an ordinary f32, and codes before the limit stay below 2^8.
#pragma once

#include "backend/cpu/simd.h"

namespace ridge::cpu {
inline namespace RIDGE_ISA {

struct Q8Scale {
    uint16_t bits;  // f16
    float inverse;  // 0: all codes are 0
};

// `most`: bits of max|x|. The order of the bits is that of the values, NaN above infinity.
inline Q8Scale q8_scale(uint32_t most) {
    constexpr uint32_t kInfinity = 0x7f800000u;
    constexpr Q8Scale kNaN = {0x7e00u, 0.0f};
    if (most >= kInfinity) return kNaN;
    const float exact = __builtin_bit_cast(float, most) / 127.0f;
#if defined(RIDGE_ISA_AVX512) || defined(RIDGE_ISA_AVX2)
    const __m128i half = _mm_cvtps_ph(_mm_set_ss(exact), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const auto bits = static_cast<uint16_t>(_mm_cvtsi128_si32(half));
    const float scale = _mm_cvtss_f32(_mm_cvtph_ps(half));
#else
    const uint16_t bits = f32_to_f16(exact);
    const float scale = f16_to_f32(bits);
#endif
    if (bits >= 0x7c00u) return kNaN;
    return {bits, bits > 0 ? 1.0f / scale : 0.0f};
}

#if defined(RIDGE_ISA_AVX512)

inline void write_q8_block(const float *x, Q8Block *out) {
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    const __m512 v0 = _mm512_loadu_ps(x), v1 = _mm512_loadu_ps(x + 16);
    const __m512i most = _mm512_max_epu32(_mm512_and_si512(_mm512_castps_si512(v0), magnitude),
                                          _mm512_and_si512(_mm512_castps_si512(v1), magnitude));
    const Q8Scale s = q8_scale(_mm512_reduce_max_epu32(most));
    __m256i codes = _mm256_setzero_si256();
    if (s.inverse > 0) {
        const __m512 by = _mm512_set1_ps(s.inverse);
        const __m128i c0 = _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(v0, by)));
        const __m128i c1 = _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(v1, by)));
        codes = _mm256_max_epi8(_mm256_inserti128_si256(_mm256_castsi128_si256(c0), c1, 1), _mm256_set1_epi8(-127));
    }
    out->scale = s.bits;
    _mm256_storeu_si256(reinterpret_cast<__m256i *>(out->codes), codes);
}

#elif defined(RIDGE_ISA_AVX2)

inline void write_q8_block(const float *x, Q8Block *out) {
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
    __m256 v[4];
    __m256i most = _mm256_setzero_si256();
    for (int i = 0; i < 4; i++) {
        v[i] = _mm256_loadu_ps(x + 8 * i);
        most = _mm256_max_epu32(most, _mm256_and_si256(_mm256_castps_si256(v[i]), magnitude));
    }
    __m128i m = _mm_max_epu32(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4e));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0xb1));
    const Q8Scale s = q8_scale(static_cast<uint32_t>(_mm_cvtsi128_si32(m)));
    __m256i codes = _mm256_setzero_si256();
    if (s.inverse > 0) {
        const __m256 by = _mm256_set1_ps(s.inverse);
        __m256i c[4];
        for (int i = 0; i < 4; i++) c[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], by));
        // Packing works within halves: the dwords come out as 0 2 4 6 1 3 5 7.
        codes = _mm256_packs_epi16(_mm256_packs_epi32(c[0], c[1]), _mm256_packs_epi32(c[2], c[3]));
        codes = _mm256_permutevar8x32_epi32(codes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
        codes = _mm256_max_epi8(codes, _mm256_set1_epi8(-127));
    }
    out->scale = s.bits;
    _mm256_storeu_si256(reinterpret_cast<__m256i *>(out->codes), codes);
}

#elif defined(RIDGE_ISA_NEON)

inline void write_q8_block(const float *x, Q8Block *out) {
    float32x4_t v[8];
    uint32x4_t most = vdupq_n_u32(0);
    for (int i = 0; i < 8; i++) {
        v[i] = vld1q_f32(x + 4 * i);
        most = vmaxq_u32(most, vreinterpretq_u32_f32(vabsq_f32(v[i])));
    }
    const Q8Scale s = q8_scale(vmaxvq_u32(most));
    int8x16_t codes[2] = {vdupq_n_s8(0), vdupq_n_s8(0)};
    if (s.inverse > 0) {
        int16x4_t c[8];
        for (int i = 0; i < 8; i++) c[i] = vmovn_s32(vcvtnq_s32_f32(vmulq_n_f32(v[i], s.inverse)));
        for (int i = 0; i < 2; i++) {
            const int16x8_t low = vcombine_s16(c[4 * i], c[4 * i + 1]), high = vcombine_s16(c[4 * i + 2], c[4 * i + 3]);
            codes[i] = vmaxq_s8(vqmovn_high_s16(vqmovn_s16(low), high), vdupq_n_s8(-127));
        }
    }
    out->scale = s.bits;
    vst1q_s8(out->codes, codes[0]);
    vst1q_s8(out->codes + 16, codes[1]);
}

#else

inline void write_q8_block(const float *x, Q8Block *out) {
    uint32_t most = 0;
    for (uint32_t i = 0; i < 32; i++) {
        const uint32_t size = __builtin_bit_cast(uint32_t, x[i]) & 0x7fffffffu;
        most = size > most ? size : most;
    }
    const Q8Scale s = q8_scale(most);
    out->scale = s.bits;
    for (uint32_t i = 0; i < 32; i++) {
        // A sum with kRoundMagic has no bits below 1. Infinity times 0 is no number, hence no product with 0.
        const float code = s.inverse > 0 ? x[i] * s.inverse + kRoundMagic - kRoundMagic : 0.0f;
        out->codes[i] = static_cast<int8_t>(code > 127.0f ? 127.0f : code < -127.0f ? -127.0f : code);
    }
}

#endif

// n values, n a multiple of 32.
inline void write_q8_0(const float *x, size_t n, Q8Block *out) {
    for (size_t i = 0; i < n; i += 32) write_q8_block(x + i, out + i / 32);
}

}  // namespace RIDGE_ISA
}  // namespace ridge::cpu
