// What attention asks of sixteen lanes beyond simd.h: a square of numbers transposed, and many sums taken at once.
//
//   transpose16(row, to): lane l of row(j) goes to to(l)[j], j and l below 16
//   reduce_add_all(x, out): out[i] = reduce_add(x[i])
#pragma once

#include "backend/cpu/simd.h"

namespace ridge::cpu {
inline namespace RIDGE_ISA {

#if defined(RIDGE_ISA_AVX512)

template <class Row, class To>
inline void transpose16(Row &&row, To &&to) {
    const auto pd = [](__m512 v) { return _mm512_castps_pd(v); };
    __m512 four[16];  // [4 i + c]: quarter q holds lane 4 q + c of rows 4 i .. 4 i + 3
#pragma GCC unroll 4
    for (uint32_t i = 0; i < 16; i += 4) {
        const __m512 r0 = row(i).v, r1 = row(i + 1).v, r2 = row(i + 2).v, r3 = row(i + 3).v;
        const __m512 a = _mm512_unpacklo_ps(r0, r1), b = _mm512_unpackhi_ps(r0, r1);
        const __m512 c = _mm512_unpacklo_ps(r2, r3), d = _mm512_unpackhi_ps(r2, r3);
        four[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(pd(a), pd(c)));
        four[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(pd(a), pd(c)));
        four[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(pd(b), pd(d)));
        four[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(pd(b), pd(d)));
    }
#pragma GCC unroll 4
    for (uint32_t c = 0; c < 4; c++) {
        const __m512 low0 = _mm512_shuffle_f32x4(four[c], four[4 + c], 0x44);
        const __m512 low1 = _mm512_shuffle_f32x4(four[8 + c], four[12 + c], 0x44);
        const __m512 high0 = _mm512_shuffle_f32x4(four[c], four[4 + c], 0xee);
        const __m512 high1 = _mm512_shuffle_f32x4(four[8 + c], four[12 + c], 0xee);
        _mm512_storeu_ps(to(c), _mm512_shuffle_f32x4(low0, low1, 0x88));
        _mm512_storeu_ps(to(4 + c), _mm512_shuffle_f32x4(low0, low1, 0xdd));
        _mm512_storeu_ps(to(8 + c), _mm512_shuffle_f32x4(high0, high1, 0x88));
        _mm512_storeu_ps(to(12 + c), _mm512_shuffle_f32x4(high0, high1, 0xdd));
    }
}

// Halves, then quarters, eighths and neighbours added: 15 additions and 30 shuffles for 16 sums. Each step puts two
// vectors into one, so the sums come out with the bits of their indices reversed; the first step takes them in that
// order.
inline void reduce_add_all(const F32x16 (&x)[16], float *out) {
    constexpr uint32_t kReversed[16] = {0, 2, 1, 3, 8, 10, 9, 11, 4, 6, 5, 7, 12, 14, 13, 15};
    __m512 a[8], b[4], c[2];
#pragma GCC unroll 8
    for (uint32_t i = 0; i < 8; i++) {
        const __m512 p = x[kReversed[i]].v, q = x[kReversed[i + 8]].v;
        a[i] = _mm512_add_ps(_mm512_shuffle_f32x4(p, q, 0x44), _mm512_shuffle_f32x4(p, q, 0xee));
    }
#pragma GCC unroll 4
    for (uint32_t i = 0; i < 4; i++)
        b[i] = _mm512_add_ps(_mm512_shuffle_f32x4(a[i], a[i + 4], 0x88), _mm512_shuffle_f32x4(a[i], a[i + 4], 0xdd));
#pragma GCC unroll 2
    for (uint32_t i = 0; i < 2; i++)
        c[i] = _mm512_add_ps(_mm512_shuffle_ps(b[i], b[i + 2], 0x44), _mm512_shuffle_ps(b[i], b[i + 2], 0xee));
    _mm512_storeu_ps(out, _mm512_add_ps(_mm512_shuffle_ps(c[0], c[1], 0x88), _mm512_shuffle_ps(c[0], c[1], 0xdd)));
}

#else

#if defined(RIDGE_ISA_AVX2)

// x[i] lane j becomes x[j] lane i.
inline void transpose8(__m256 (&x)[8]) {
    __m256 four[8];  // [4 i + c]: half h holds lane 4 h + c of rows 4 i .. 4 i + 3
#pragma GCC unroll 2
    for (uint32_t i = 0; i < 8; i += 4) {
        const __m256 a = _mm256_unpacklo_ps(x[i], x[i + 1]), b = _mm256_unpackhi_ps(x[i], x[i + 1]);
        const __m256 c = _mm256_unpacklo_ps(x[i + 2], x[i + 3]), d = _mm256_unpackhi_ps(x[i + 2], x[i + 3]);
        four[i] = _mm256_shuffle_ps(a, c, 0x44);
        four[i + 1] = _mm256_shuffle_ps(a, c, 0xee);
        four[i + 2] = _mm256_shuffle_ps(b, d, 0x44);
        four[i + 3] = _mm256_shuffle_ps(b, d, 0xee);
    }
#pragma GCC unroll 4
    for (uint32_t c = 0; c < 4; c++) {
        x[c] = _mm256_permute2f128_ps(four[c], four[4 + c], 0x20);
        x[4 + c] = _mm256_permute2f128_ps(four[c], four[4 + c], 0x31);
    }
}

template <class Row, class To>
inline void transpose16(Row &&row, To &&to) {
    for (uint32_t j = 0; j < 16; j += 8) {
        __m256 lo[8], hi[8];
#pragma GCC unroll 8
        for (uint32_t i = 0; i < 8; i++) {
            const F32x16 r = row(j + i);
            lo[i] = r.lo, hi[i] = r.hi;
        }
        transpose8(lo), transpose8(hi);
#pragma GCC unroll 8
        for (uint32_t i = 0; i < 8; i++) {
            _mm256_storeu_ps(to(i) + j, lo[i]);
            _mm256_storeu_ps(to(8 + i) + j, hi[i]);
        }
    }
}

#elif defined(RIDGE_ISA_NEON)

// Four rows: lane l of x[i] goes to to(l)[i].
template <class To>
inline void transpose4x4(const float32x4_t (&x)[4], To &&to) {
    const auto wide = [](float32x4_t v) { return vreinterpretq_f64_f32(v); };
    const auto put = [](float *p, float64x2_t v) { vst1q_f32(p, vreinterpretq_f32_f64(v)); };
    const float64x2_t a = wide(vtrn1q_f32(x[0], x[1])), b = wide(vtrn2q_f32(x[0], x[1]));
    const float64x2_t c = wide(vtrn1q_f32(x[2], x[3])), d = wide(vtrn2q_f32(x[2], x[3]));
    put(to(0), vtrn1q_f64(a, c)), put(to(1), vtrn1q_f64(b, d));
    put(to(2), vtrn2q_f64(a, c)), put(to(3), vtrn2q_f64(b, d));
}

template <class Row, class To>
inline void transpose16(Row &&row, To &&to) {
#pragma GCC unroll 4
    for (uint32_t j = 0; j < 16; j += 4) {
        const F32x16 r[4] = {row(j), row(j + 1), row(j + 2), row(j + 3)};
        const auto lanes = [&](uint32_t first) { return [&to, j, first](uint32_t l) { return to(first + l) + j; }; };
        transpose4x4({r[0].a, r[1].a, r[2].a, r[3].a}, lanes(0));
        transpose4x4({r[0].b, r[1].b, r[2].b, r[3].b}, lanes(4));
        transpose4x4({r[0].c, r[1].c, r[2].c, r[3].c}, lanes(8));
        transpose4x4({r[0].d, r[1].d, r[2].d, r[3].d}, lanes(12));
    }
}

#else

template <class Row, class To>
inline void transpose16(Row &&row, To &&to) {
    for (uint32_t j = 0; j < 16; j++) {
        float lanes[16];
        store(lanes, row(j));
        for (uint32_t l = 0; l < 16; l++) to(l)[j] = lanes[l];
    }
}

#endif

inline void reduce_add_all(const F32x16 (&x)[4], float *out) { reduce_add4(x[0], x[1], x[2], x[3], out); }

#endif

}  // namespace RIDGE_ISA
}  // namespace ridge::cpu
