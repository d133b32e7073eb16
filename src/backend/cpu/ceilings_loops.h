// The loops that ceilings are measured with, as the including file is compiled: its instruction set and nothing else.
//
// Twelve sums take turns: more than the four or five cycles of latency times the two units that any x86 has, so that
// the units, not the latency, are measured.
#pragma once

#include <cstring>

#include "backend/cpu/ceilings.h"
#include "backend/cpu/isa.h"
#include "backend/cpu/row.h"

#if defined(RIDGE_ISA_AVX512) || defined(RIDGE_ISA_AVX2)
#include <immintrin.h>
#elif defined(RIDGE_ISA_NEON)
#include <arm_neon.h>
#endif

namespace ridge::cpu {
inline namespace RIDGE_ISA {

constexpr unsigned kSums = 12;

#if defined(RIDGE_ISA_AVX512)

using Ints = __m512i;
using Floats = __m512;
inline Ints load_ints(const std::byte *p) { return _mm512_loadu_si512(p); }
inline Ints both(Ints a, Ints b) { return _mm512_or_si512(a, b); }
inline Ints ints(int8_t v) { return _mm512_set1_epi8(static_cast<char>(v)); }
inline Ints dot(Ints sum, Ints a, Ints b) { return _mm512_dpbusd_epi32(sum, a, b); }
#if defined(__AVX512BF16__)
#define RIDGE_CEILING_BF16 1
// Both products of every pair; the operands are what the bits of an f32 of two equal halves make.
inline Floats multiply_add_pairs(Floats a, Floats b, Floats c) {
    __m512bh x, y;
    std::memcpy(&x, &a, sizeof x), std::memcpy(&y, &b, sizeof y);
    return _mm512_dpbf16_ps(c, x, y);
}
#endif
inline Floats floats(float v) { return _mm512_set1_ps(v); }
inline Floats multiply_add(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
constexpr double kBytes = 64, kProducts = 64;  // of a register; int8 products of an instruction

#elif defined(RIDGE_ISA_AVX2)

using Ints = __m256i;
using Floats = __m256;
inline Ints load_ints(const std::byte *p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i *>(p)); }
inline Ints both(Ints a, Ints b) { return _mm256_or_si256(a, b); }
inline Ints ints(int8_t v) { return _mm256_set1_epi8(static_cast<char>(v)); }
// What AVX2 has in place of a dot of four.
inline Ints dot(Ints sum, Ints a, Ints b) {
    return _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), _mm256_set1_epi16(1)));
}
inline Floats floats(float v) { return _mm256_set1_ps(v); }
inline Floats multiply_add(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
constexpr double kBytes = 32, kProducts = 32;

#elif defined(RIDGE_ISA_NEON)

using Ints = int8x16_t;
using Floats = float32x4_t;
inline Ints load_ints(const std::byte *p) { return vld1q_s8(reinterpret_cast<const int8_t *>(p)); }
inline Ints both(Ints a, Ints b) { return vorrq_s8(a, b); }
inline Ints ints(int8_t v) { return vdupq_n_s8(v); }
inline Floats floats(float v) { return vdupq_n_f32(v); }
inline Floats multiply_add(Floats a, Floats b, Floats c) { return vfmaq_f32(c, a, b); }
constexpr double kBytes = 16;
#if defined(RIDGE_ISA_I8MM)
// Two rows of eight by two columns of eight.
inline Ints dot(Ints sum, Ints a, Ints b) { return vreinterpretq_s8_s32(vmmlaq_s32(vreinterpretq_s32_s8(sum), a, b)); }
constexpr double kProducts = 32;
#else
inline Ints dot(Ints sum, Ints a, Ints b) { return vreinterpretq_s8_s32(vdotq_s32(vreinterpretq_s32_s8(sum), a, b)); }
constexpr double kProducts = 16;
#endif

#else

// Sixteen bytes as the compiler of the baseline sees fit.
struct Ints {
    int32_t v[4];
};
struct Floats {
    float v[4];
};
inline Ints load_ints(const std::byte *p) {
    Ints a;
    std::memcpy(&a, p, sizeof a);
    return a;
}
inline Ints both(Ints a, Ints b) {
    for (int i = 0; i < 4; i++) a.v[i] |= b.v[i];
    return a;
}
inline Ints ints(int8_t v) { return {{v, v + 1, v + 2, v + 3}}; }
inline Ints dot(Ints sum, Ints a, Ints b) {
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++)
            sum.v[i] += static_cast<int8_t>(a.v[i] >> 8 * j) * static_cast<int8_t>(b.v[i] >> 8 * j);
    return sum;
}
inline Floats floats(float v) { return {{v, v, v, v}}; }
inline Floats multiply_add(Floats a, Floats b, Floats c) {
    for (int i = 0; i < 4; i++) c.v[i] += a.v[i] * b.v[i];
    return c;
}
constexpr double kBytes = 16, kProducts = 16;

#endif

// A number that depends on every bit, so that nothing can be left out.
template <class T>
inline uint64_t any(const T &a) {
    uint64_t words[sizeof(T) / 8], out = 0;
    std::memcpy(words, &a, sizeof a);
    for (const uint64_t w : words) out |= w;
    return out;
}

struct CeilingLoop {
    static uint64_t read(const std::byte *from, size_t bytes) {
        Ints sum[4] = {ints(0), ints(0), ints(0), ints(0)};
        constexpr auto kStep = static_cast<size_t>(kBytes);
        for (size_t i = 0; i < bytes; i += 16 * kStep) {
#pragma GCC unroll 16
            for (size_t j = 0; j < 16; j++) sum[j % 4] = both(sum[j % 4], load_ints(from + i + j * kStep));
        }
        return any(both(both(sum[0], sum[1]), both(sum[2], sum[3])));
    }
    // The operands are asked of the hardware's registers each time, so that no compiler computes the sums by itself.
    template <class T, class Step>
    static uint64_t sums(uint64_t rounds, T start, T a, T b, Step &&step) {
        T sum[kSums];
        for (T &s : sum) s = start;
        for (uint64_t r = 0; r < rounds; r++) {
#if defined(RIDGE_ISA_AVX512)
            asm volatile("" : "+v"(a), "+v"(b));
#elif defined(RIDGE_ISA_AVX2)
            asm volatile("" : "+x"(a), "+x"(b));
#elif defined(RIDGE_ISA_NEON)
            asm volatile("" : "+w"(a), "+w"(b));
#else
            asm volatile("" : "+m"(a), "+m"(b));
#endif
#pragma GCC unroll 12
            for (T &s : sum) s = step(s, a, b);
        }
        uint64_t out = 0;
        for (const T &s : sum) out |= any(s);
        return out;
    }
    static uint64_t int8(uint64_t rounds) {
        return sums(rounds, ints(0), ints(3), ints(5), [](Ints s, Ints a, Ints b) { return dot(s, a, b); });
    }
    static uint64_t f32(uint64_t rounds) {
        return sums(rounds, floats(0), floats(0.25f), floats(0.5f),
                    [](Floats s, Floats a, Floats b) { return multiply_add(a, b, s); });
    }
#if defined(RIDGE_CEILING_BF16)
    static uint64_t bf16(uint64_t rounds) {
        return sums(rounds, floats(0), floats(0.25f), floats(0.5f),
                    [](Floats s, Floats a, Floats b) { return multiply_add_pairs(a, b, s); });
    }
#else
    static constexpr uint64_t (*bf16)(uint64_t) = nullptr;
#endif
};

constexpr CeilingLoops kLoops = {
    .isa = RIDGE_ISA_TEXT(RIDGE_ISA),
    .read = &CeilingLoop::read,
    .int8 = &CeilingLoop::int8,
    .f32 = &CeilingLoop::f32,
    .bf16 = CeilingLoop::bf16,
    .int8_per_round = kSums * kProducts,
    .f32_per_round = kSums * kBytes / 4,
    .bf16_per_round = kSums * kBytes / 2,
};

}  // namespace RIDGE_ISA
}  // namespace ridge::cpu
