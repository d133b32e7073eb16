// Sixteen f32 lanes: one zmm register, two ymm registers, four of NEON, or an array. Every operation is defined lane by
// lane and gives the same bits in all of them, so a kernel written over F32x16 is one kernel compiled several times.
//
//   lane i of load(p) is p[i]; fma(a, b, c) = a * b + c rounded once; maximum(a, b) = a > b ? a : b and
//   minimum(a, b) = a < b ? a : b, as x86 has it: a NaN in a gives b
//   reduce_add adds lanes l and l+8, then l and l+4, l+2, l+1 (Order::f32_lanes16)
//   the *_part forms touch only n < 16 elements and fill the other lanes with `rest`
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/math.h"
#include "op/op.h"

#if defined(RIDGE_ISA_AVX512) || defined(RIDGE_ISA_AVX2)
#if defined(__GNUC__) && !defined(__clang__)
// GCC 12 takes the deliberately undefined operands inside its own header for mistakes (GCC bug 105593).
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif
#elif defined(RIDGE_ISA_NEON)
#include <arm_neon.h>
#endif

namespace ridge::cpu {
inline namespace RIDGE_ISA {

constexpr uint32_t kLanes = 16;

// An element of f16 state. A type of its own, so that overloads tell it from other 16-bit numbers.
struct F16 {
    uint16_t bits;
};

#if defined(RIDGE_ISA_AVX512)

struct F32x16 {
    __m512 v;
};
constexpr uint32_t kChains = 8;  // independent accumulators that keep the multipliers busy and fit the registers

inline __mmask16 first_lanes(uint32_t n) { return static_cast<__mmask16>((1u << n) - 1u); }

inline F32x16 set1(float x) { return {_mm512_set1_ps(x)}; }
inline F32x16 load(const float *p) { return {_mm512_loadu_ps(p)}; }
inline void store(float *p, F32x16 a) { _mm512_storeu_ps(p, a.v); }
inline F32x16 load_part(const float *p, uint32_t n, float rest) {
    return {_mm512_mask_loadu_ps(_mm512_set1_ps(rest), first_lanes(n), p)};
}
inline void store_part(float *p, F32x16 a, uint32_t n) { _mm512_mask_storeu_ps(p, first_lanes(n), a.v); }
inline F32x16 load(const F16 *p) { return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(p)))}; }
inline void store(F16 *p, F32x16 a) {
    _mm256_storeu_si256(reinterpret_cast<__m256i *>(p),
                        _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

inline F32x16 operator+(F32x16 a, F32x16 b) { return {_mm512_add_ps(a.v, b.v)}; }
inline F32x16 operator-(F32x16 a, F32x16 b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline F32x16 operator*(F32x16 a, F32x16 b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline F32x16 operator/(F32x16 a, F32x16 b) { return {_mm512_div_ps(a.v, b.v)}; }
inline F32x16 fma(F32x16 a, F32x16 b, F32x16 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline F32x16 maximum(F32x16 a, F32x16 b) { return {_mm512_max_ps(a.v, b.v)}; }
inline F32x16 minimum(F32x16 a, F32x16 b) { return {_mm512_min_ps(a.v, b.v)}; }

// p * 2^n for the n that kRoundMagic left in the low bits of `shifted` (see exp_), rounded once.
inline F32x16 scale_by_power(F32x16 p, F32x16 shifted) {
    return {_mm512_scalef_ps(p.v, _mm512_sub_ps(shifted.v, _mm512_set1_ps(kRoundMagic)))};
}

// Lanes l and l+8 added.
inline __m256 fold(F32x16 a) { return _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1)); }
inline __m256 fold_maximum(F32x16 a) {
    return _mm256_max_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
}

#elif defined(RIDGE_ISA_AVX2)

struct F32x16 {
    __m256 lo, hi;
};
constexpr uint32_t kChains = 4;

inline F32x16 set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline F32x16 load(const float *p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline void store(float *p, F32x16 a) {
    _mm256_storeu_ps(p, a.lo);
    _mm256_storeu_ps(p + 8, a.hi);
}
inline F32x16 load(const F16 *p) {
    return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i *>(p))),
            _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i *>(p + 8)))};
}
inline void store(F16 *p, F32x16 a) {
    constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    _mm_storeu_si128(reinterpret_cast<__m128i *>(p), _mm256_cvtps_ph(a.lo, kNearest));
    _mm_storeu_si128(reinterpret_cast<__m128i *>(p + 8), _mm256_cvtps_ph(a.hi, kNearest));
}

inline F32x16 operator+(F32x16 a, F32x16 b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
inline F32x16 operator-(F32x16 a, F32x16 b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
inline F32x16 operator*(F32x16 a, F32x16 b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
inline F32x16 operator/(F32x16 a, F32x16 b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
inline F32x16 fma(F32x16 a, F32x16 b, F32x16 c) {
    return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
inline F32x16 maximum(F32x16 a, F32x16 b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
inline F32x16 minimum(F32x16 a, F32x16 b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }

inline __m256 scale_by_power(__m256 p, __m256 shifted) {
    const __m256i bias = _mm256_set1_epi32(127);
    const __m256i n = _mm256_sub_epi32(_mm256_castps_si256(shifted), _mm256_castps_si256(_mm256_set1_ps(kRoundMagic)));
    const __m256i half = _mm256_srai_epi32(n, 1);
    const __m256i rest = _mm256_sub_epi32(n, half);
    const __m256 scale1 = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23));
    const __m256 scale2 = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23));
    return _mm256_mul_ps(_mm256_mul_ps(p, scale1), scale2);
}
inline F32x16 scale_by_power(F32x16 p, F32x16 shifted) {
    return {scale_by_power(p.lo, shifted.lo), scale_by_power(p.hi, shifted.hi)};
}

inline __m256 fold(F32x16 a) { return _mm256_add_ps(a.lo, a.hi); }
inline __m256 fold_maximum(F32x16 a) { return _mm256_max_ps(a.lo, a.hi); }

#elif defined(RIDGE_ISA_NEON)

struct F32x16 {
    float32x4_t a, b, c, d;
};
constexpr uint32_t kChains = 4;  // sixteen of 32 registers

inline F32x16 set1(float x) {
    const float32x4_t v = vdupq_n_f32(x);
    return {v, v, v, v};
}
inline F32x16 load(const float *p) { return {vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)}; }
inline void store(float *p, F32x16 v) {
    vst1q_f32(p, v.a);
    vst1q_f32(p + 4, v.b);
    vst1q_f32(p + 8, v.c);
    vst1q_f32(p + 12, v.d);
}
inline F32x16 load(const F16 *p) {
    const float16x8_t low = vreinterpretq_f16_u16(vld1q_u16(&p->bits));
    const float16x8_t high = vreinterpretq_f16_u16(vld1q_u16(&p[8].bits));
    return {vcvt_f32_f16(vget_low_f16(low)), vcvt_high_f32_f16(low), vcvt_f32_f16(vget_low_f16(high)),
            vcvt_high_f32_f16(high)};
}
inline void store(F16 *p, F32x16 v) {
    vst1q_u16(&p->bits, vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(v.a), v.b)));
    vst1q_u16(&p[8].bits, vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(v.c), v.d)));
}

inline F32x16 operator+(F32x16 x, F32x16 y) {
    return {vaddq_f32(x.a, y.a), vaddq_f32(x.b, y.b), vaddq_f32(x.c, y.c), vaddq_f32(x.d, y.d)};
}
inline F32x16 operator-(F32x16 x, F32x16 y) {
    return {vsubq_f32(x.a, y.a), vsubq_f32(x.b, y.b), vsubq_f32(x.c, y.c), vsubq_f32(x.d, y.d)};
}
inline F32x16 operator*(F32x16 x, F32x16 y) {
    return {vmulq_f32(x.a, y.a), vmulq_f32(x.b, y.b), vmulq_f32(x.c, y.c), vmulq_f32(x.d, y.d)};
}
inline F32x16 operator/(F32x16 x, F32x16 y) {
    return {vdivq_f32(x.a, y.a), vdivq_f32(x.b, y.b), vdivq_f32(x.c, y.c), vdivq_f32(x.d, y.d)};
}
inline F32x16 fma(F32x16 x, F32x16 y, F32x16 z) {
    return {vfmaq_f32(z.a, x.a, y.a), vfmaq_f32(z.b, x.b, y.b), vfmaq_f32(z.c, x.c, y.c), vfmaq_f32(z.d, x.d, y.d)};
}
// Not fmax and fmin: those let no NaN through, or every NaN, and order the zeros.
inline float32x4_t maximum(float32x4_t x, float32x4_t y) { return vbslq_f32(vcgtq_f32(x, y), x, y); }
inline float32x4_t minimum(float32x4_t x, float32x4_t y) { return vbslq_f32(vcltq_f32(x, y), x, y); }
inline F32x16 maximum(F32x16 x, F32x16 y) {
    return {maximum(x.a, y.a), maximum(x.b, y.b), maximum(x.c, y.c), maximum(x.d, y.d)};
}
inline F32x16 minimum(F32x16 x, F32x16 y) {
    return {minimum(x.a, y.a), minimum(x.b, y.b), minimum(x.c, y.c), minimum(x.d, y.d)};
}

inline float32x4_t scale_by_power(float32x4_t p, float32x4_t shifted) {
    const int32x4_t bias = vdupq_n_s32(127);
    const int32x4_t n = vsubq_s32(vreinterpretq_s32_f32(shifted), vreinterpretq_s32_f32(vdupq_n_f32(kRoundMagic)));
    const int32x4_t half = vshrq_n_s32(n, 1);
    const int32x4_t rest = vsubq_s32(n, half);
    const float32x4_t scale1 = vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(half, bias), 23));
    const float32x4_t scale2 = vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(rest, bias), 23));
    return vmulq_f32(vmulq_f32(p, scale1), scale2);
}
inline F32x16 scale_by_power(F32x16 p, F32x16 shifted) {
    return {scale_by_power(p.a, shifted.a), scale_by_power(p.b, shifted.b), scale_by_power(p.c, shifted.c),
            scale_by_power(p.d, shifted.d)};
}

// Lanes l and l+8, then l and l+4 added.
inline float32x4_t fold(F32x16 x) { return vaddq_f32(vaddq_f32(x.a, x.c), vaddq_f32(x.b, x.d)); }

inline float reduce_add(F32x16 x) {
    const float32x4_t four = fold(x);
    return vpadds_f32(vadd_f32(vget_low_f32(four), vget_high_f32(four)));
}

inline float reduce_max(F32x16 x) {
    const float32x4_t four = maximum(maximum(x.a, x.c), maximum(x.b, x.d));
    const float32x2_t low = vget_low_f32(four), high = vget_high_f32(four);
    const float32x2_t two = vbsl_f32(vcgt_f32(low, high), low, high);
    const float first = vget_lane_f32(two, 0), second = vget_lane_f32(two, 1);
    return first > second ? first : second;
}

// out[i] = reduce_add of the i-th of four.
inline void reduce_add4(F32x16 p, F32x16 q, F32x16 r, F32x16 s, float *out) {
    const float32x4_t p4 = fold(p), q4 = fold(q), r4 = fold(r), s4 = fold(s);
    const auto halves = [](float32x4_t x, float32x4_t y) {
        return vaddq_f32(vcombine_f32(vget_low_f32(x), vget_low_f32(y)),
                         vcombine_f32(vget_high_f32(x), vget_high_f32(y)));
    };
    vst1q_f32(out, vpaddq_f32(halves(p4, q4), halves(r4, s4)));
}

#else

struct F32x16 {
    float v[kLanes];
};
constexpr uint32_t kChains = 4;

template <class F>
inline F32x16 each_lane(F &&f) {
    F32x16 r;
    for (uint32_t l = 0; l < kLanes; l++) r.v[l] = f(l);
    return r;
}

inline F32x16 set1(float x) {
    return each_lane([&](uint32_t) { return x; });
}
inline F32x16 load(const float *p) {
    return each_lane([&](uint32_t l) { return p[l]; });
}
inline void store(float *p, F32x16 a) {
    for (uint32_t l = 0; l < kLanes; l++) p[l] = a.v[l];
}
inline F32x16 load(const F16 *p) {
    return each_lane([&](uint32_t l) { return f16_to_f32(p[l].bits); });
}
inline void store(F16 *p, F32x16 a) {
    for (uint32_t l = 0; l < kLanes; l++) p[l].bits = f32_to_f16(a.v[l]);
}

inline F32x16 operator+(F32x16 a, F32x16 b) {
    return each_lane([&](uint32_t l) { return a.v[l] + b.v[l]; });
}
inline F32x16 operator-(F32x16 a, F32x16 b) {
    return each_lane([&](uint32_t l) { return a.v[l] - b.v[l]; });
}
inline F32x16 operator*(F32x16 a, F32x16 b) {
    return each_lane([&](uint32_t l) { return a.v[l] * b.v[l]; });
}
inline F32x16 operator/(F32x16 a, F32x16 b) {
    return each_lane([&](uint32_t l) { return a.v[l] / b.v[l]; });
}
inline F32x16 fma(F32x16 a, F32x16 b, F32x16 c) {
    return each_lane([&](uint32_t l) { return __builtin_fmaf(a.v[l], b.v[l], c.v[l]); });
}
inline F32x16 maximum(F32x16 a, F32x16 b) {
    return each_lane([&](uint32_t l) { return a.v[l] > b.v[l] ? a.v[l] : b.v[l]; });
}
inline F32x16 minimum(F32x16 a, F32x16 b) {
    return each_lane([&](uint32_t l) { return a.v[l] < b.v[l] ? a.v[l] : b.v[l]; });
}

#endif

// ---- The same text for all.

#if !defined(RIDGE_ISA_AVX512)
inline F32x16 load_part(const float *p, uint32_t n, float rest) {
    float lanes[kLanes];
    for (uint32_t l = 0; l < kLanes; l++) lanes[l] = l < n ? p[l] : rest;
    return load(lanes);
}
inline void store_part(float *p, F32x16 a, uint32_t n) {
    float lanes[kLanes];
    store(lanes, a);
    for (uint32_t l = 0; l < n; l++) p[l] = lanes[l];
}
#endif
inline F32x16 load_part(const F16 *p, uint32_t n, float rest) {
    float lanes[kLanes];
    for (uint32_t l = 0; l < kLanes; l++) lanes[l] = l < n ? f16_to_f32(p[l].bits) : rest;
    return load(lanes);
}
inline void store_part(F16 *p, F32x16 a, uint32_t n) {
    F16 lanes[kLanes];
    store(lanes, a);
    for (uint32_t l = 0; l < n; l++) p[l] = lanes[l];
}

#if defined(RIDGE_ISA_AVX512) || defined(RIDGE_ISA_AVX2)

inline float reduce_add(F32x16 a) {
    const __m256 eight = fold(a);
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

inline float reduce_max(F32x16 a) {
    const __m256 eight = fold_maximum(a);
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

// out[i] = reduce_add of the i-th of four, with half the shuffles of four separate ones.
inline void reduce_add4(F32x16 a, F32x16 b, F32x16 c, F32x16 d, float *out) {
    const __m256 a8 = fold(a), b8 = fold(b), c8 = fold(c), d8 = fold(d);
    // (a, b) and (c, d): four sums each, a and c in the lower half
    const __m256 ab = _mm256_add_ps(_mm256_permute2f128_ps(a8, b8, 0x20), _mm256_permute2f128_ps(a8, b8, 0x31));
    const __m256 cd = _mm256_add_ps(_mm256_permute2f128_ps(c8, d8, 0x20), _mm256_permute2f128_ps(c8, d8, 0x31));
    // a a c c | b b d d
    const __m256 two = _mm256_add_ps(_mm256_shuffle_ps(ab, cd, 0x44), _mm256_shuffle_ps(ab, cd, 0xee));
    // a . c . | b . d .
    const __m256 one = _mm256_add_ps(two, _mm256_movehdup_ps(two));
    const __m128 ac = _mm256_castps256_ps128(one), bd = _mm256_extractf128_ps(one, 1);
    _mm_storeu_ps(out, _mm_blend_ps(ac, _mm_moveldup_ps(bd), 0b1010));
}

#endif
#if defined(RIDGE_ISA_AVX512) || defined(RIDGE_ISA_AVX2) || defined(RIDGE_ISA_NEON)

inline F32x16 exp_(F32x16 x) {
    const F32x16 c = maximum(set1(kExpLow), minimum(set1(kExpHigh), x));
    const F32x16 shifted = fma(c, set1(kLog2e), set1(kRoundMagic));
    const F32x16 whole = shifted - set1(kRoundMagic);
    F32x16 r = fma(whole, set1(-kLn2High), c);
    r = fma(whole, set1(-kLn2Low), r);
    F32x16 p = fma(set1(kExp6), r, set1(kExp5));
    p = fma(p, r, set1(kExp4));
    p = fma(p, r, set1(kExp3));
    p = fma(p, r, set1(kExp2));
    p = fma(p, r, set1(1.0f));
    p = fma(p, r, set1(1.0f));
    return scale_by_power(p, shifted);
}

#else

inline float reduce_add(F32x16 a) {
    for (uint32_t step = kLanes / 2; step > 0; step /= 2)
        for (uint32_t l = 0; l < step; l++) a.v[l] += a.v[l + step];
    return a.v[0];
}

inline float reduce_max(F32x16 a) {
    for (uint32_t step = kLanes / 2; step > 0; step /= 2)
        for (uint32_t l = 0; l < step; l++) a.v[l] = a.v[l] > a.v[l + step] ? a.v[l] : a.v[l + step];
    return a.v[0];
}

inline void reduce_add4(F32x16 a, F32x16 b, F32x16 c, F32x16 d, float *out) {
    out[0] = reduce_add(a);
    out[1] = reduce_add(b);
    out[2] = reduce_add(c);
    out[3] = reduce_add(d);
}

inline F32x16 exp_(F32x16 x) {
    return each_lane([&](uint32_t l) { return exp_(x.v[l]); });
}

#endif

inline F32x16 silu(F32x16 x) { return x / (set1(1.0f) + exp_(set1(-0.0f) - x)); }

// x / 2 * (1 + tanh(y)) = x / (1 + exp(-2 y)), y = sqrt(2 / pi) (x + 0.044715 x^3).
inline F32x16 gelu(F32x16 x) {
    const F32x16 cubic = fma(x * x, set1(-2 * 0.7978845608f * 0.044715f), set1(-2 * 0.7978845608f));
    return x / (set1(1.0f) + exp_(x * cubic));
}

// The limits let a NaN through: it is the second operand.
inline F32x16 clamped_glu(F32x16 gate, F32x16 up) {
    const F32x16 g = minimum(set1(7.0f), gate), u = maximum(set1(-7.0f), minimum(set1(7.0f), up));
    return g / (set1(1.0f) + exp_(set1(-1.702f) * g)) * (u + set1(1.0f));
}

inline F32x16 glu(GluKind kind, F32x16 gate, F32x16 up) {
    if (kind == GluKind::gelu) return gelu(gate) * up;
    if (kind == GluKind::clamped) return clamped_glu(gate, up);
    return silu(gate) * up;
}

// 1 - 2 / (exp(2 x) + 1): off by a few 2^-24 of 1, not of the result, which is what a soft cap needs.
inline F32x16 tanh_(F32x16 x) { return set1(1.0f) - set1(2.0f) / (exp_(x + x) + set1(1.0f)); }

}  // namespace RIDGE_ISA
}  // namespace ridge::cpu
