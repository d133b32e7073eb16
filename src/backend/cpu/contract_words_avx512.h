// With AVX-512: stored words of sixteen weight rows side by side, a row per lane.
//
// load4, load8 and load16 read 16, 32 or 64 bytes of each row and transpose them: word i of the result holds bytes 4i ..
// 4i + 3 of all rows. Then what a format does to one row's word is done to sixteen rows at once, and a vector of codes of
// four columns is what a vpdpbusd with four activations wants.
//
// Per word of sixteen rows: load4 costs four loads and two shuffles, load8 two loads and three shuffles, load16 one load
// and four shuffles; on Zen 5 a cycle does two loads and two to four shuffles.
#pragma once

#include <utility>

#include "backend/cpu/contract_unpack.h"

namespace ridge::cpu {
inline namespace RIDGE_ISA {

FN __m512i set8x64(int v) { return _mm512_set1_epi8(static_cast<char>(v)); }
// (a & m) | (b & ~m), in the register of b
FN __m512i select(__m512i m, __m512i a, __m512i b) { return _mm512_ternarylogic_epi32(b, a, m, 0xd8); }
// (a & m) | b, in the register of b
FN __m512i and_or(__m512i m, __m512i a, __m512i b) { return _mm512_ternarylogic_epi32(b, a, m, 0xf8); }

struct alignas(64) Bytes64 {
    uint8_t byte[64];
};
FN __m512i vector(const Bytes64 &v) { return _mm512_load_si512(&v); }

// A constant that a function can be called with.
template <u32 I>
using Const = std::integral_constant<u32, I>;

// f(Const<0>) .. f(Const<N - 1>), so that what f indexes with it stays in registers.
template <u32 N, class Function>
FN void each(Function f) {
    [&]<u32... I>(std::integer_sequence<u32, I...>) __attribute__((always_inline)) { (f(Const<I>{}), ...); }
    (std::make_integer_sequence<u32, N>{});
}

// 4x4 dwords within each 128 bits: from rows to columns.
FN void transpose4(__m512i *v) {
    const __m512i ab_low = _mm512_unpacklo_epi32(v[0], v[1]), ab_high = _mm512_unpackhi_epi32(v[0], v[1]);
    const __m512i cd_low = _mm512_unpacklo_epi32(v[2], v[3]), cd_high = _mm512_unpackhi_epi32(v[2], v[3]);
    v[0] = _mm512_unpacklo_epi64(ab_low, cd_low), v[1] = _mm512_unpackhi_epi64(ab_low, cd_low);
    v[2] = _mm512_unpacklo_epi64(ab_high, cd_high), v[3] = _mm512_unpackhi_epi64(ab_high, cd_high);
}

// Memory to be asked for in the order it lies, a line now and then between other work: the fewer are under way at a time
// the better. Zen 5 leaves out what exceeds about two dozen: asked for 68 at a time (a chunk of Q8_0), one core reads
// 17 GB/s as if nothing had been asked for, else 26.
struct Later {
    const std::byte *next;
    template <u32 kLines>
    FN void ask() {
        // A statement of its own, or the compiler collects them.
        each<kLines>([&](auto i) __attribute__((always_inline)) { asm volatile("prefetcht0 %0" : : "m"(next[64 * i])); });
        next += 64 * kLines;
    }
};

// Sixteen rows `step` bytes apart. While they are loaded half as many bytes of `later` are asked for.
struct SixteenRows {
    const std::byte *first;
    size_t step;
    Later *later = nullptr;
    template <u32 kLines>
    FN void ask() const {
        if (later != nullptr) later->ask<kLines>();
    }
};
// Keeps what was loaded in a register: the compiler would load it again for each use.
FN __m512i once(__m512i v) {
    __asm__("" : "+v"(v));
    return v;
}
// Addresses of sixteen rows, `at` bytes behind their beginnings, in six registers. Left alone, the compiler computes all
// sixteen before a loop, with vectors, and has nowhere to keep them.
struct Addresses {
    const std::byte *p[4];
    size_t step, step3;
    FN Addresses(const SixteenRows &rows, size_t at) : step(rows.step), step3(3 * rows.step) {
        const std::byte *row = rows.first + at;
        each<4>([&](auto q) __attribute__((always_inline)) {
            __asm__("" : "+r"(row));
            p[q] = row;
            row += 4 * step;
        });
        __asm__("" : "+r"(step3));
    }
    FN const std::byte *operator[](u32 r) const {
        return p[r / 4] + (r % 4 == 0 ? 0 : r % 4 == 1 ? step : r % 4 == 2 ? 2 * step : step3);
    }
};

FN void load4(const SixteenRows &rows, size_t at, __m512i *w) {
    const Addresses row_at(rows, at);
    each<4>([&](auto i) __attribute__((always_inline)) {
        const auto row = [&](u32 q) __attribute__((always_inline)) {
            return _mm_loadu_si128(reinterpret_cast<const __m128i *>(row_at[4 * q + i]));
        };
        const __m512i a = _mm512_inserti32x4(_mm512_castsi128_si512(row(0)), row(1), 1);
        w[i] = once(_mm512_inserti32x4(_mm512_inserti32x4(a, row(2), 2), row(3), 3));
        rows.ask<i % 2>();
    });
    transpose4(w);
}

FN void load8(const SixteenRows &rows, size_t at, __m512i *w) {
    const Addresses row(rows, at);
    const auto two = [&](u32 r) __attribute__((always_inline)) {
        return once(_mm512_inserti64x4(_mm512_castsi256_si512(bytes32(row[r])), bytes32(row[r + 4]), 1));
    };
    __m512i a[4], b[4];
    each<4>([&](auto i) __attribute__((always_inline)) {
        a[i] = two(i), b[i] = two(i + 8);
        rows.ask<1>();
    });
    transpose4(a), transpose4(b);
    each<4>([&](auto i) __attribute__((always_inline)) {
        w[i] = _mm512_shuffle_i32x4(a[i], b[i], 0x88), w[i + 4] = _mm512_shuffle_i32x4(a[i], b[i], 0xdd);
    });
}

FN void load16(const SixteenRows &rows, size_t at, __m512i *w) {
    const Addresses row(rows, at);
    __m512i v[16];
    each<16>([&](auto r) __attribute__((always_inline)) {
        v[r] = once(_mm512_loadu_si512(row[r]));
        rows.ask<r % 2>();
    });
    each<4>([&](auto q) __attribute__((always_inline)) { transpose4(v + 4 * q); });
    each<4>([&](auto q) __attribute__((always_inline)) {
        const __m512i ab_low = _mm512_shuffle_i32x4(v[q], v[q + 4], 0x88), ab_high = _mm512_shuffle_i32x4(v[q], v[q + 4], 0xdd);
        const __m512i cd_low = _mm512_shuffle_i32x4(v[q + 8], v[q + 12], 0x88),
                      cd_high = _mm512_shuffle_i32x4(v[q + 8], v[q + 12], 0xdd);
        w[q] = _mm512_shuffle_i32x4(ab_low, cd_low, 0x88), w[q + 8] = _mm512_shuffle_i32x4(ab_low, cd_low, 0xdd);
        w[q + 4] = _mm512_shuffle_i32x4(ab_high, cd_high, 0x88), w[q + 12] = _mm512_shuffle_i32x4(ab_high, cd_high, 0xdd);
    });
}

// Bytes kBytes .. kBytes + 3 (1..3) of two words.
template <u32 kBytes>
FN __m512i funnel(__m512i low, __m512i high) {
#if defined(__AVX512VBMI2__)
    return _mm512_shrdi_epi32(low, high, 8 * kBytes);
#else
    return _mm512_or_si512(_mm512_srli_epi32(low, 8 * kBytes), _mm512_slli_epi32(high, 32 - 8 * kBytes));
#endif
}

// One word of each row.
FN __m512i load1(const SixteenRows &rows, size_t at) {
    const Addresses row(rows, at);
    const auto four = [&](u32 r) __attribute__((always_inline)) {
        const auto word = [&](u32 i) __attribute__((always_inline)) { return _mm_loadu_si32(row[r + i]); };
        return _mm_unpacklo_epi64(_mm_unpacklo_epi32(word(0), word(1)), _mm_unpacklo_epi32(word(2), word(3)));
    };
    const __m256i low = _mm256_inserti128_si256(_mm256_castsi128_si256(four(0)), four(4), 1);
    const __m256i high = _mm256_inserti128_si256(_mm256_castsi128_si256(four(8)), four(12), 1);
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

// From the low halves of words.
FN __m512 f16_to_f32(__m512i dwords) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(dwords)); }
FN __m512 high_f16_to_f32(__m512i dwords) { return f16_to_f32(_mm512_srli_epi32(dwords, 16)); }

}  // namespace RIDGE_ISA
}  // namespace ridge::cpu
