// With AVX2: codes of eight rows side by side, a row per dword, four codes of it in the dword. So a product with four
// activations broadcast to all dwords advances eight rows by four codes, and no sum crosses lanes.
//
// Rows are put side by side while their codes are still packed: sixteen bytes of eight rows are four vectors, of which
// each gives two to four vectors of codes (nibbles, pairs of bits), so the transposition is paid once for all of them.
//
// Columns<F>::visit(rows, at, blocks, sink): the codes of `blocks` (1..8) groups of 32 of eight rows, whose chunk of
// 256 begins at byte `at`. sink(g, code) is called once for each group g; code(j), j = 0..7, is the vector of weights
// 32 g + 4 j .. + 3. Formats with blocks of 256 have all eight groups.
// Each says again what codes4 of its format says, for speed; the gate holds the two together bit by bit. The formats
// that look up grids are in contract_grids_avx2.h.
#pragma once

#include "backend/cpu/contract_unpack.h"

namespace ridge::cpu {
inline namespace RIDGE_ISA {

// What a byte u of Columns stands for: the code is factor * u - offset, and u <= most.
struct Coding {
    int32_t offset, factor, most;
    bool is_signed;  // u is the code itself, and |u| <= most
};
constexpr Coding unsigned_codes(int32_t most, int32_t offset = 0, int32_t factor = 1) {
    return {offset, factor, most, false};
}
// vpdpbusd takes all unsigned bytes; vpmaddubsw adds two products in 16 bits, so that it takes codes up to 127 only.
constexpr Coding signed_codes() {
#if defined(RIDGE_ISA_AVXVNNI)
    return {128, 1, 255, false};
#else
    return {0, 1, 128, true};
#endif
}

template <Format F>
struct Columns;

using Rows8 = const std::byte *const *;  // eight

FN __m128i load128(const std::byte *p) { return _mm_loadu_si128(reinterpret_cast<const __m128i *>(p)); }
// Sixteen bytes of rows q and q + 4.
FN __m256i two_rows(Rows8 rows, size_t at, u32 q) {
    return _mm256_inserti128_si256(_mm256_castsi128_si256(load128(rows[q] + at)), load128(rows[q + 4] + at), 1);
}
// 4x4 dwords within each 128 bits: from rows to columns.
FN void transpose4(__m256i *v) {
    const __m256i ab_low = _mm256_unpacklo_epi32(v[0], v[1]), ab_high = _mm256_unpackhi_epi32(v[0], v[1]);
    const __m256i cd_low = _mm256_unpacklo_epi32(v[2], v[3]), cd_high = _mm256_unpackhi_epi32(v[2], v[3]);
    v[0] = _mm256_unpacklo_epi64(ab_low, cd_low), v[1] = _mm256_unpackhi_epi64(ab_low, cd_low);
    v[2] = _mm256_unpacklo_epi64(ab_high, cd_high), v[3] = _mm256_unpackhi_epi64(ab_high, cd_high);
}
// v[j]: dword j of the sixteen bytes at `at` of the rows.
FN void load_dwords(Rows8 rows, size_t at, __m256i *v) {
#pragma GCC unroll 4
    for (u32 q = 0; q < 4; q++) v[q] = two_rows(rows, at, q);
    transpose4(v);
}
// The same of thirty-two bytes.
FN void load_dwords8(Rows8 rows, size_t at, __m256i *v) {
    load_dwords(rows, at, v);
    load_dwords(rows, at + 16, v + 4);
}
// One dword, the first or the last of the sixteen bytes at `at`.
FN __m256i first_dword(Rows8 rows, size_t at) {
    const __m256i ab = _mm256_unpacklo_epi32(two_rows(rows, at, 0), two_rows(rows, at, 1));
    const __m256i cd = _mm256_unpacklo_epi32(two_rows(rows, at, 2), two_rows(rows, at, 3));
    return _mm256_unpacklo_epi64(ab, cd);
}
FN __m256i last_dword(Rows8 rows, size_t at) {
    const __m256i ab = _mm256_unpackhi_epi32(two_rows(rows, at, 0), two_rows(rows, at, 1));
    const __m256i cd = _mm256_unpackhi_epi32(two_rows(rows, at, 2), two_rows(rows, at, 3));
    return _mm256_unpackhi_epi64(ab, cd);
}

// A table of sixteen signed bytes, plus `offset`, in both halves.
FN __m256i table16(u32 first_word, u32, int offset) {
    const __m128i t = load128(reinterpret_cast<const std::byte *>(dialect::table_words + first_word));
    return _mm256_add_epi8(_mm256_broadcastsi128_si256(t), set8(offset));
}
FN __m256i low_nibble(__m256i v) { return _mm256_and_si256(v, set8(15)); }
FN __m256i high_nibble(__m256i v) { return field8(v, 4, 15); }
// Bits of `v` from bit `from` on, `mask` moved to bit `to`.
FN __m256i move_bits(__m256i v, u32 from, u32 to, int mask) {
    const __m256i at = from < to ? _mm256_slli_epi16(v, static_cast<int>(to - from))
                                 : _mm256_srli_epi16(v, static_cast<int>(from - to));
    return _mm256_and_si256(at, set8(mask << to));
}
// In the four bytes of each dword: bits 4 j .. 4 j + 3 of the dword of `bits`, as the bits that `select` names.
FN __m256i spread_nibble(__m256i bits, u32 j) {
    const auto byte = static_cast<int>((j / 2) * 0x01010101u);
    const __m256i index = _mm256_add_epi32(
        _mm256_set1_epi32(byte),
        _mm256_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c, 0, 0x04040404, 0x08080808, 0x0c0c0c0c));
    return _mm256_shuffle_epi8(bits, index);
}

#define RIDGE_COLUMNS(NAME, ...)                                                             \
    template <>                                                                              \
    struct Columns<Format::NAME> {                                                           \
        static constexpr Coding kCoding = __VA_ARGS__;                                       \
        template <class Sink>                                                                \
        static FN void visit(Rows8 rows, size_t at, [[maybe_unused]] u32 blocks, Sink sink); \
    };                                                                                       \
    template <class Sink>                                                                    \
    FN void Columns<Format::NAME>::visit(Rows8 rows, size_t at, [[maybe_unused]] u32 blocks, Sink sink)
#define RIDGE_CODE [&](u32 j) __attribute__((always_inline))

// ---- Blocks of 32

// Sixteen bytes of nibbles: the low ones, then the high ones.
template <class Map, class Sink>
FN void visit_nibbles(Rows8 rows, size_t at, u32 g, Map map, Sink sink) {
    __m256i q[4];
    load_dwords(rows, at, q);
    sink(
        g, RIDGE_CODE { return map(j < 4 ? low_nibble(q[j]) : high_nibble(q[j - 4])); });
}
FN __m256i same(__m256i v) { return v; }

RIDGE_COLUMNS(Q4_0, unsigned_codes(15, 8)) {
    for (u32 g = 0; g < blocks; g++)
        visit_nibbles(rows, at + g * size_t{Decode<Format::Q4_0>::bytes} + offset_of(q4_0_qs), g, same, sink);
}
RIDGE_COLUMNS(Q4_1, unsigned_codes(15)) {
    for (u32 g = 0; g < blocks; g++)
        visit_nibbles(rows, at + g * size_t{Decode<Format::Q4_1>::bytes} + offset_of(q4_1_qs), g, same, sink);
}
RIDGE_COLUMNS(IQ4_NL, signed_codes()) {
    const __m256i table = table16(iq4nl_values, Columns<Format::IQ4_NL>::kCoding.offset);
    const auto map = [&](__m256i v) __attribute__((always_inline)) { return _mm256_shuffle_epi8(table, v); };
    for (u32 g = 0; g < blocks; g++)
        visit_nibbles(rows, at + g * size_t{Decode<Format::IQ4_NL>::bytes} + offset_of(iq4_nl_qs), g, map, sink);
}
RIDGE_COLUMNS(MXFP4, unsigned_codes(24, 12)) {
    const __m256i table = table16(mxfp4_values, 12);
    const auto map = [&](__m256i v) __attribute__((always_inline)) { return _mm256_shuffle_epi8(table, v); };
    for (u32 g = 0; g < blocks; g++)
        visit_nibbles(rows, at + g * size_t{Decode<Format::MXFP4>::bytes} + offset_of(mxfp4_qs), g, map, sink);
}
// With a fifth bit for each weight in one dword of `high`: moved to the upper half of the bytes, it is kept as 16.
template <class Sink>
FN void visit_fives(Rows8 rows, size_t qs, size_t qh, u32 g, Sink sink) {
    __m256i q[4];
    load_dwords(rows, qs, q);
    const __m256i high = first_dword(rows, qh), low_up = _mm256_slli_epi32(high, 4);
    sink(
        g, RIDGE_CODE {
            const __m256i bits = _mm256_and_si256(spread_nibble(j % 2 == 0 ? low_up : high, j),
                                                  _mm256_set1_epi32(static_cast<int>(0x80402010u)));
            return _mm256_or_si256(j < 4 ? low_nibble(q[j]) : high_nibble(q[j - 4]), _mm256_min_epu8(bits, set8(16)));
        });
}
RIDGE_COLUMNS(Q5_0, unsigned_codes(31, 16)) {
    for (u32 g = 0; g < blocks; g++) {
        const size_t block = at + g * size_t{Decode<Format::Q5_0>::bytes};
        visit_fives(rows, block + offset_of(q5_0_qs), block + offset_of(q5_0_qh), g, sink);
    }
}
RIDGE_COLUMNS(Q5_1, unsigned_codes(31)) {
    for (u32 g = 0; g < blocks; g++) {
        const size_t block = at + g * size_t{Decode<Format::Q5_1>::bytes};
        visit_fives(rows, block + offset_of(q5_1_qs), block + offset_of(q5_1_qh), g, sink);
    }
}
RIDGE_COLUMNS(Q8_0, signed_codes()) {
    for (u32 g = 0; g < blocks; g++) {
        __m256i q[8];
        load_dwords8(rows, at + g * size_t{Decode<Format::Q8_0>::bytes} + offset_of(q8_0_qs), q);
        sink(
            g, RIDGE_CODE { return kCoding.is_signed ? q[j] : _mm256_xor_si256(q[j], set8(128)); });
    }
}

// ---- Blocks of 256

RIDGE_COLUMNS(IQ4_XS, signed_codes()) {
    const __m256i table = table16(iq4nl_values, Columns<Format::IQ4_XS>::kCoding.offset);
    const auto map = [&](__m256i v) __attribute__((always_inline)) { return _mm256_shuffle_epi8(table, v); };
    for (u32 g = 0; g < 8; g++) visit_nibbles(rows, at + offset_of(iq4_xs_qs) + 16 * g, g, map, sink);
}
RIDGE_COLUMNS(Q4_K, unsigned_codes(15)) {
    for (u32 g = 0; g < 8; g += 2) {
        __m256i q[8];
        load_dwords8(rows, at + offset_of(q4_K_qs) + 16 * g, q);
        sink(
            g, RIDGE_CODE { return low_nibble(q[j]); });
        sink(
            g + 1, RIDGE_CODE { return high_nibble(q[j]); });
    }
}
RIDGE_COLUMNS(Q5_K, unsigned_codes(31)) {
    __m256i high[8];
    load_dwords8(rows, at + offset_of(q5_K_qh), high);
#pragma GCC unroll 4
    for (u32 g = 0; g < 8; g += 2) {
        __m256i q[8];
        load_dwords8(rows, at + offset_of(q5_K_qs) + 16 * g, q);
        sink(
            g, RIDGE_CODE { return _mm256_or_si256(low_nibble(q[j]), move_bits(high[j], g, 4, 1)); });
        sink(
            g + 1, RIDGE_CODE { return _mm256_or_si256(high_nibble(q[j]), move_bits(high[j], g + 1, 4, 1)); });
    }
}
RIDGE_COLUMNS(Q6_K, unsigned_codes(63, 32)) {
    for (u32 half = 0; half < 2; half++) {
        __m256i high[8];
        load_dwords8(rows, at + offset_of(q6_K_qh) + 32 * half, high);
#pragma GCC unroll 2
        for (u32 i = 0; i < 2; i++) {
            __m256i q[8];
            load_dwords8(rows, at + offset_of(q6_K_ql) + 64 * half + 32 * i, q);
            sink(
                4 * half + i,
                RIDGE_CODE { return _mm256_or_si256(low_nibble(q[j]), move_bits(high[j], 2 * i, 4, 3)); });
            sink(
                4 * half + i + 2,
                RIDGE_CODE { return _mm256_or_si256(high_nibble(q[j]), move_bits(high[j], 2 * i + 4, 4, 3)); });
        }
    }
}
// Two bits per weight: 32 bytes for 128 weights, weight 32 p + i in pair p of byte i. finish(g, j, pair) adds to them.
template <class Finish, class Sink>
FN void visit_pairs(Rows8 rows, size_t at, u32 first, Finish finish, Sink sink) {
    __m256i q[8];
    load_dwords8(rows, at, q);
#pragma GCC unroll 4
    for (u32 p = 0; p < 4; p++)
        sink(
            first + p, RIDGE_CODE { return finish(first + p, j, move_bits(q[j], 2 * p, 0, 3)); });
}
FN __m256i same_pair(u32, u32, __m256i v) { return v; }

RIDGE_COLUMNS(Q2_K, unsigned_codes(3)) {
    for (u32 half = 0; half < 2; half++)
        visit_pairs(rows, at + offset_of(q2_K_qs) + 32 * half, 4 * half, same_pair, sink);
}
RIDGE_COLUMNS(TQ2_0, unsigned_codes(3, 1)) {
    for (u32 half = 0; half < 2; half++)
        visit_pairs(rows, at + offset_of(tq2_0_qs) + 32 * half, 4 * half, same_pair, sink);
}
RIDGE_COLUMNS(Q3_K, unsigned_codes(7, 4)) {
    __m256i high[8];
    load_dwords8(rows, at + offset_of(q3_K_hmask), high);
    const auto third = [&](u32 g, u32 j, __m256i v) __attribute__((always_inline)) {
        return _mm256_or_si256(v, move_bits(high[j], g, 2, 1));
    };
#pragma GCC unroll 2
    for (u32 half = 0; half < 2; half++) visit_pairs(rows, at + offset_of(q3_K_qs) + 32 * half, 4 * half, third, sink);
}
// The upper byte of 3 * v is how often v exceeds 85 and 170; the next digit's byte is the lower one.
FN __m256i ternary_digit(__m256i v) {
    const auto exceeds = [&](int limit) __attribute__((always_inline)) {
        return _mm256_min_epu8(_mm256_subs_epu8(v, set8(limit)), set8(1));
    };
    return _mm256_add_epi8(exceeds(85), exceeds(170));
}
FN __m256i times3(__m256i v) { return _mm256_add_epi8(_mm256_add_epi8(v, v), v); }
RIDGE_COLUMNS(TQ1_0, unsigned_codes(2, 1)) {
    __m256i q[8];
    load_dwords8(rows, at + offset_of(tq1_0_qs), q);
    // A lambda's result must not depend on how often it is called: digits are taken off before and after.
    for (u32 g = 0; g < 5; g++) {
        sink(
            g, RIDGE_CODE { return ternary_digit(q[j]); });
#pragma GCC unroll 8
        for (u32 j = 0; j < 8; j++) q[j] = times3(q[j]);
    }
    // Sixteen bytes more: two digits for each group.
    __m256i two[8];
    load_dwords(rows, at + offset_of(tq1_0_qs) + 32, two);
    const auto next = [&]() __attribute__((always_inline)) {
#pragma GCC unroll 4
        for (u32 j = 0; j < 4; j++) two[4 + j] = times3(two[j]);
    };
    for (u32 g = 5; g < 7; g++) {
        next();
        sink(
            g, RIDGE_CODE { return ternary_digit(two[j]); });
#pragma GCC unroll 4
        for (u32 j = 0; j < 4; j++) two[j] = times3(two[4 + j]);
    }
    // The last digit, and the four of qh, which is the last dword of these sixteen bytes.
    two[4] = last_dword(rows, at + offset_of(tq1_0_qh) - 12);
#pragma GCC unroll 3
    for (u32 j = 5; j < 8; j++) two[j] = times3(two[j - 1]);
    sink(
        7, RIDGE_CODE { return ternary_digit(two[j]); });
}

}  // namespace RIDGE_ISA
}  // namespace ridge::cpu
