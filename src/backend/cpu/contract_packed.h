// With AVX2: the 32 codes of group g32 of a block at once, format by format. Each says again what codes4 of its format
// says, for speed; the gate holds the two together bit by bit.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "backend/cpu/simd.h"
#include "format/decode.h"

namespace ridge::cpu {
inline namespace RIDGE_ISA {

// load(block, g32): signed bytes, weight 32 * g32 + i in byte i. Nothing where a format has only codes4.
template <Format F>
struct Packed {};

// Where a field named in a format header begins.
constexpr u32 offset_of(u32 offset, u32, u32) { return offset; }

FN __m256i bytes32(const std::byte *p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i *>(p)); }
FN __m256i set8(int v) { return _mm256_set1_epi8(static_cast<char>(v)); }
// The bits of every byte from bit `shift` on, `mask` of them.
FN __m256i field8(__m256i v, u32 shift, int mask) {
    return _mm256_and_si256(_mm256_srli_epi16(v, static_cast<int>(shift)), set8(mask));
}
// Sixteen bytes: the low nibbles, then the high ones.
FN __m256i nibbles(const std::byte *p) {
    const __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i *>(p));
    return _mm256_and_si256(_mm256_inserti128_si256(_mm256_castsi128_si256(v), _mm_srli_epi16(v, 4), 1), set8(15));
}
// -1 where bit i is set.
FN __m256i bits_to_bytes(u32 bits) {
    const __m256i spread =
        _mm256_shuffle_epi8(_mm256_set1_epi32(static_cast<int>(bits)),
                            _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303));
    const __m256i bit = _mm256_set1_epi64x(static_cast<long long>(0x8040201008040201ull));
    return _mm256_cmpeq_epi8(_mm256_and_si256(spread, bit), bit);
}
// 16 where bit i of the four bytes is set.
FN __m256i fifth_bits(const std::byte *p) {
    u32 bits;
    __builtin_memcpy(&bits, p, 4);
    return _mm256_and_si256(bits_to_bytes(bits), set8(16));
}
// The signed bytes that nibbles name in a table of 16.
FN __m256i levels(u32 first_word, u32, __m256i nibble) {
    const __m128i table = _mm_loadu_si128(reinterpret_cast<const __m128i *>(dialect::table_words + first_word));
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), nibble);
}
// Two bits per weight: 32 bytes for 128 weights, weight 32 p + i in pair p of byte i.
FN __m256i pairs(const std::byte *p, u32 g32) { return field8(bytes32(p + 32 * (g32 / 4)), 2 * (g32 % 4), 3); }
// A nibble per weight: 32 bytes for 64 weights, the low nibbles first.
FN __m256i halves(const std::byte *p, u32 g32) { return field8(bytes32(p + 32 * (g32 / 2)), 4 * (g32 % 2), 15); }

#define RIDGE_PACKED(NAME)                                                  \
    template <>                                                             \
    struct Packed<Format::NAME> {                                           \
        static FN __m256i load(const std::byte *b, [[maybe_unused]] u32 g); \
    };                                                                      \
    FN __m256i Packed<Format::NAME>::load(const std::byte *b, [[maybe_unused]] u32 g)

RIDGE_PACKED(Q4_0) { return _mm256_sub_epi8(nibbles(b + offset_of(q4_0_qs)), set8(8)); }
RIDGE_PACKED(Q4_1) { return nibbles(b + offset_of(q4_1_qs)); }
RIDGE_PACKED(Q5_0) {
    return _mm256_sub_epi8(_mm256_or_si256(nibbles(b + offset_of(q5_0_qs)), fifth_bits(b + offset_of(q5_0_qh))),
                           set8(16));
}
RIDGE_PACKED(Q5_1) { return _mm256_or_si256(nibbles(b + offset_of(q5_1_qs)), fifth_bits(b + offset_of(q5_1_qh))); }
RIDGE_PACKED(Q8_0) { return bytes32(b + offset_of(q8_0_qs)); }
RIDGE_PACKED(IQ4_NL) { return levels(iq4nl_values, nibbles(b + offset_of(iq4_nl_qs))); }
RIDGE_PACKED(MXFP4) { return levels(mxfp4_values, nibbles(b + offset_of(mxfp4_qs))); }
RIDGE_PACKED(IQ4_XS) { return levels(iq4nl_values, nibbles(b + offset_of(iq4_xs_qs) + 16 * g)); }
RIDGE_PACKED(TQ2_0) { return _mm256_sub_epi8(pairs(b + offset_of(tq2_0_qs), g), set8(1)); }
RIDGE_PACKED(Q2_K) { return pairs(b + offset_of(q2_K_qs), g); }
RIDGE_PACKED(Q3_K) {
    const __m256i third = _mm256_slli_epi16(field8(bytes32(b + offset_of(q3_K_hmask)), g, 1), 2);
    return _mm256_sub_epi8(_mm256_or_si256(pairs(b + offset_of(q3_K_qs), g), third), set8(4));
}
RIDGE_PACKED(Q4_K) { return halves(b + offset_of(q4_K_qs), g); }
RIDGE_PACKED(Q5_K) {
    const __m256i fifth = _mm256_slli_epi16(field8(bytes32(b + offset_of(q5_K_qh)), g, 1), 4);
    return _mm256_or_si256(halves(b + offset_of(q5_K_qs), g), fifth);
}
RIDGE_PACKED(Q6_K) {
    const __m256i low = field8(bytes32(b + offset_of(q6_K_ql) + 64 * (g / 4) + 32 * (g % 2)), 4 * (g / 2 % 2), 15);
    const __m256i high = _mm256_slli_epi16(pairs(b + offset_of(q6_K_qh), g), 4);
    return _mm256_sub_epi8(_mm256_or_si256(low, high), set8(32));
}

// ---- Grids: an index names four or eight magnitudes, signs come apart.

FN u32 load_u32(const std::byte *p) {
    u32 v;
    __builtin_memcpy(&v, p, 4);
    return v;
}
FN uint64_t load_u64(const void *p) {
    uint64_t v;
    __builtin_memcpy(&v, p, 8);
    return v;
}
FN u32 word(u32 first_word, u32, u32 i) { return dialect::table_words[first_word + i]; }
// Bytes from the four entries, or eight half as long, that `index(l)` names.
template <class Index>
FN __m256i entries8(u32 first_word, u32, Index index) {
    const auto entry = [&](u32 l) __attribute__((always_inline)) {
        return static_cast<long long>(load_u64(dialect::table_words + first_word + 2 * index(l)));
    };
    return _mm256_setr_epi64x(entry(0), entry(1), entry(2), entry(3));
}
template <class Index>
FN __m256i entries4(u32 first_word, u32, Index index) {
    const auto entry = [&](u32 j) __attribute__((always_inline)) {
        return static_cast<int>(dialect::table_words[first_word + index(j)]);
    };
    return _mm256_setr_epi32(entry(0), entry(1), entry(2), entry(3), entry(4), entry(5), entry(6), entry(7));
}
FN u32 byte_at(const std::byte *p, u32 i) { return static_cast<u32>(p[i]); }

// Minus v where bit i of `signs` is set.
FN __m256i negate(__m256i v, u32 signs) {
    const __m256i minus = bits_to_bytes(signs);
    return _mm256_sub_epi8(_mm256_xor_si256(v, minus), minus);
}
// Four bytes of seven signs each: the eighth makes their number even.
FN u32 even_signs(u32 v) {
    u32 parity = v ^ (v >> 4);
    parity ^= parity >> 2;
    parity ^= parity >> 1;
    return v | (parity & 0x01010101u) << 7;
}
// The low 28 bits as four bytes of seven.
FN u32 sevens(u32 v) { return (v & 0x7fu) | (v << 1 & 0x7f00u) | (v << 2 & 0x7f0000u) | (v << 3 & 0x7f000000u); }

RIDGE_PACKED(IQ2_XXS) {
    const std::byte *q = b + offset_of(iq2_xxs_qs) + 8 * g;
    const __m256i v = entries8(iq2xxs_grid, [&](u32 l) { return byte_at(q, l); });
    return negate(v, even_signs(sevens(load_u32(q + 4))));
}
RIDGE_PACKED(IQ2_XS) {
    const uint64_t q = load_u64(b + offset_of(iq2_xs_qs) + 8 * g);
    const __m256i v = entries8(iq2xs_grid, [&](u32 l) { return static_cast<u32>(q >> (16 * l)) & 511u; });
    uint64_t signs = q >> 9 & 0x007f007f007f007full;  // of 16 bits each, to bytes
    signs = (signs | signs >> 8) & 0x0000ffff0000ffffull;
    return negate(v, even_signs(static_cast<u32>(signs | signs >> 16)));
}
RIDGE_PACKED(IQ2_S) {
    const std::byte *q = b + offset_of(iq2_s_qs) + 4 * g;
    const u32 high = byte_at(b, offset_of(iq2_s_qh) + g);
    const __m256i v = entries8(iq2s_grid, [&](u32 l) { return byte_at(q, l) | (high >> (2 * l) & 3u) << 8; });
    return negate(v, load_u32(b + offset_of(iq2_s_signs) + 4 * g));
}
RIDGE_PACKED(IQ3_XXS) {
    const std::byte *q = b + offset_of(iq3_xxs_qs) + 8 * g;
    const __m256i v = entries4(iq3xxs_grid, [&](u32 j) { return byte_at(q, j); });
    return negate(v, even_signs(sevens(load_u32(b + offset_of(iq3_xxs_signs) + 4 * g))));
}
RIDGE_PACKED(IQ3_S) {
    const std::byte *q = b + offset_of(iq3_s_qs) + 8 * g;
    const u32 high = byte_at(b, offset_of(iq3_s_qh) + g);
    const __m256i v = entries4(iq3s_grid, [&](u32 j) { return byte_at(q, j) | (high >> j & 1u) << 8; });
    return negate(v, load_u32(b + offset_of(iq3_s_signs) + 4 * g));
}

// IQ1: eight times the grid's values, from four words of eight nibbles (value + 1).
template <class Index>
FN __m256i eight_times_iq1(Index index) {
    const auto entry = [&](u32 l) __attribute__((always_inline)) {
        return static_cast<long long>(uint64_t{word(iq1s_grid, index(l))});
    };
    const __m256i words = _mm256_setr_epi64x(entry(0), entry(1), entry(2), entry(3));
    const __m256i bytes = _mm256_or_si256(words, _mm256_slli_epi64(words, 28));  // values 4..7 to the upper half
    return _mm256_sub_epi8(_mm256_slli_epi16(_mm256_and_si256(bytes, set8(3)), 3), set8(8));
}
RIDGE_PACKED(IQ1_S) {
    const std::byte *q = b + offset_of(iq1_s_qs) + 4 * g;
    const u32 high = byte_at(b, offset_of(iq1_s_qh) + 2 * g) | byte_at(b, offset_of(iq1_s_qh) + 2 * g + 1) << 8;
    const __m256i v = eight_times_iq1([&](u32 l) { return byte_at(q, l) | (high >> (3 * l) & 7u) << 8; });
    return _mm256_add_epi8(v, set8((high & 0x8000u) != 0 ? -1 : 1));
}
RIDGE_PACKED(IQ1_M) {
    const std::byte *q = b + offset_of(iq1_m_qs) + 4 * g;
    const std::byte *high = b + offset_of(iq1_m_qh) + 2 * g;
    const auto nibble_of = [&](u32 l) { return byte_at(high, l / 2) >> (4 * (l % 2)) & 15u; };
    const __m256i v = eight_times_iq1([&](u32 l) { return byte_at(q, l) | (nibble_of(l) & 7u) << 8; });
    const auto delta = [&](u32 l) { return (nibble_of(l) & 8u) != 0 ? -1ll : 0x0101010101010101ll; };
    return _mm256_add_epi8(v, _mm256_setr_epi64x(delta(0), delta(1), delta(2), delta(3)));
}

// ---- TQ1_0: digits of bytes in base 3. `power` is 3^n for each 16 bits of q.
FN __m256i ternary_codes(__m256i q, __m256i power) {
    const __m256i low = _mm256_set1_epi16(255), three = _mm256_set1_epi16(3);
    const __m256i even = _mm256_and_si256(_mm256_mullo_epi16(_mm256_and_si256(q, low), power), low);
    const __m256i odd = _mm256_and_si256(_mm256_mullo_epi16(_mm256_srli_epi16(q, 8), power), low);
    const __m256i even_digit = _mm256_srli_epi16(_mm256_mullo_epi16(even, three), 8);
    const __m256i odd_digit = _mm256_andnot_si256(low, _mm256_mullo_epi16(odd, three));
    return _mm256_sub_epi8(_mm256_or_si256(even_digit, odd_digit), set8(1));
}
RIDGE_PACKED(TQ1_0) {
    constexpr short powers[5] = {1, 3, 9, 27, 81};
    const std::byte *qs = b + offset_of(tq1_0_qs);
    if (g < 5) return ternary_codes(bytes32(qs), _mm256_set1_epi16(powers[g]));
    const __m128i q = _mm_loadu_si128(reinterpret_cast<const __m128i *>(qs + 32));
    if (g < 7) {
        const __m256i power = _mm256_set_m128i(_mm_set1_epi16(powers[2 * g - 9]), _mm_set1_epi16(powers[2 * g - 10]));
        return ternary_codes(_mm256_broadcastsi128_si256(q), power);
    }
    const __m128i last = _mm_set1_epi32(static_cast<int>(load_u32(b + offset_of(tq1_0_qh))));
    return ternary_codes(_mm256_set_m128i(last, q),
                         _mm256_set_m128i(_mm_setr_epi16(1, 1, 3, 3, 9, 9, 27, 27), _mm_set1_epi16(81)));
}
#undef RIDGE_PACKED

}  // namespace RIDGE_ISA
}  // namespace ridge::cpu
