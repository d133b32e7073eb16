// With AVX-512 VBMI: the formats whose codes come from grids, Columns<F> of contract_columns_avx512.h.
//
// An entry of a grid is four or eight magnitudes, of which there are two to eight different ones: 16 bits name them. The
// sixteen bits are looked up a byte at a time by vpermi2b, 128 entries of a byte for 64 indices: the indices of sixteen
// rows side by side need not be moved for it, and the names of eight or sixteen codes come out where the index was. Bits of
// the index above the seventh choose between the results.
// Then vpmultishiftqb puts the name of each code into a byte of its own, where a sign bit joins it (moved there by another
// one), and vpermb, which looks at six bits of it, makes a code of both.
#pragma once

#include <array>

#include "backend/cpu/contract_columns_avx512.h"

namespace ridge::cpu {
inline namespace RIDGE_ISA {


constexpr u32 kTableWords[TABLE_WORDS] = {
#include "format/tables.def"
};
template <size_t N>
using Table = std::array<Bytes64, N>;  // 64 N bytes

// ---- Tables made of a grid's words

// Which of a grid's magnitudes this is, counted from the smallest.
constexpr u32 name_of(u32 magnitude, const uint8_t *magnitudes) {
    u32 i = 0;
    while (magnitudes[i] != magnitude) i++;  // not a constant expression where there is none
    return i;
}
constexpr u32 byte_of_word(u32 word, u32 i) { return word >> (8 * i) & 255; }

constexpr uint8_t kOfTwo[] = {8, 25, 43};                           // IQ2_*
constexpr uint8_t kOfThreeXxs[] = {4, 12, 20, 28, 36, 44, 52, 62};  // IQ3_XXS
constexpr uint8_t kOfThree[] = {1, 3, 5, 7, 9, 11, 13, 15};         // IQ3_S

// Two bits for each of four magnitudes: those of half `half` of an entry of eight.
template <u32 kEntries>
constexpr Table<kEntries / 64> pairs_of(u32 first_word, u32 half) {
    Table<kEntries / 64> t = {};
    for (u32 e = 0; e < kEntries; e++)
        for (u32 i = 0; i < 4; i++)
            t[e / 64].byte[e % 64] |= static_cast<uint8_t>(name_of(byte_of_word(kTableWords[first_word + 2 * e + half], i), kOfTwo) << (2 * i));
    return t;
}
// Four bits for each of two: those of half `half` of an entry of four.
template <u32 kEntries>
constexpr Table<kEntries / 64> nibbles_of(u32 first_word, u32 half, const uint8_t *magnitudes) {
    Table<kEntries / 64> t = {};
    for (u32 e = 0; e < kEntries; e++)
        for (u32 i = 0; i < 2; i++)
            t[e / 64].byte[e % 64] |= static_cast<uint8_t>(name_of(byte_of_word(kTableWords[first_word + e], 2 * half + i), magnitudes) << (4 * i));
    return t;
}
// Seven signs and the eighth that makes them even.
constexpr Table<2> even_signs_table() {
    Table<2> t = {};
    for (u32 v = 0; v < 128; v++) {
        u32 ones = 0;
        for (u32 i = 0; i < 7; i++) ones += v >> i & 1;
        t[v / 64].byte[v % 64] = static_cast<uint8_t>(v | (ones & 1) << 7);
    }
    return t;
}
// Codes plus 64 that six bits make: a name from bit `at` on, where there is room for `room` of them, and a sign in bit
// `sign`.
constexpr Bytes64 codes_of(const uint8_t *magnitudes, u32 names, u32 room, u32 at, u32 sign) {
    Bytes64 t = {};
    for (u32 i = 0; i < 64; i++) {
        const u32 name = (i >> at) % room;
        if (name < names) t.byte[i] = static_cast<uint8_t>((i >> sign & 1) != 0 ? 64 - magnitudes[name] : 64 + magnitudes[name]);
    }
    return t;
}
// For each byte of two rows' dwords the bit that a multishift begins at: `first` + i * `step` for byte i of the first row.
constexpr Bytes64 bits_from(u32 first, u32 step, u32 next_row = 32) {
    Bytes64 t = {};
    for (u32 i = 0; i < 64; i++) t.byte[i] = static_cast<uint8_t>((first + i % 4 * step + i / 4 % 2 * next_row) % 64);
    return t;
}

template <u32 first, u32 step, u32 next_row = 32>
constexpr Bytes64 kBits = bits_from(first, step, next_row);
constexpr Table<2> kSigns = even_signs_table();
// Of a name in bits 0 and 1 and a sign in bit 4, or in bits 2 and 3 and bit 5; for names one by one with a sign in bit 2.
constexpr Bytes64 kCodesOfTwo[2] = {codes_of(kOfTwo, 3, 4, 0, 4), codes_of(kOfTwo, 3, 4, 2, 5)};
constexpr Bytes64 kOneCodeOfTwo = codes_of(kOfTwo, 3, 4, 0, 2);

// ---- Look-ups

// Bytes of a table of 64 N entries that indices name; `bits` are those of the index from the eighth on.
template <size_t N, class... Masks>
FN __m512i look_up(const Table<N> &table, __m512i index, Masks... bits) {
    constexpr u32 count = sizeof...(bits);
    static_assert(N == 2u << count);
    const __mmask64 mask[] = {bits..., 0};
    __m512i v[N / 2];
    each<N / 2>([&](auto i) INLINE {
        v[i] = _mm512_permutex2var_epi8(vector(table[2 * i]), index, vector(table[2 * i + 1]));
    });
    each<count>([&](auto bit) INLINE {
        each<(N / 4 >> bit)>([&](auto i) INLINE {
            constexpr u32 a = i << (bit + 1), b = a + (1u << bit);
            v[a] = _mm512_mask_mov_epi8(v[a], mask[bit], v[b]);
        });
    });
    return v[0];
}
FN __mmask64 bit7(__m512i v) { return _mm512_movepi8_mask(v); }
FN __mmask64 bit(__m512i v, int mask) { return _mm512_test_epi8_mask(v, set8x64(mask)); }
FN __m512i even_signs(__m512i word) {
    const __m512i seven = _mm512_multishift_epi64_epi8(vector(kBits<0, 7>), word);
    return _mm512_permutex2var_epi8(vector(kSigns[0]), seven, vector(kSigns[1]));
}

// ---- Entries of eight: IQ2

// The codes of group g: `half[h]` has in byte l of a row's dword the names of four magnitudes, those of columns 8l + 4h ..
// + 3; bit i of the signs is that of column i.
template <Format F, u32 g, class Use>
FN void use_eights(const __m512i *half, __m512i signs, Use &use) {
    if constexpr (Use::kNatural) {
        each<8>([&](auto j) INLINE {
            const __m512i name = _mm512_multishift_epi64_epi8(vector(kBits<8 * (j / 2), 2>), half[j % 2]);
            const __m512i sign = _mm512_multishift_epi64_epi8(vector(kBits<4 * j + 64 - 2, 1>), signs);
            use.codes(Const<g>{}, j, kUnshifted, _mm512_permutexvar_epi8(select(set8x64(3), name, sign), vector(kOneCodeOfTwo)));
        });
    } else {
        // Two names and their signs are six bits, of which two tables make a code each.
        const auto four = [&](u32 first, __m512i names, __m512i sign4, __m512i sign2) INLINE { (void)first;
            return std::array{select(set8x64(15), names, sign4), select(set8x64(15), shr(names, 4), sign2)};
        };
        const auto hand_out = [&](auto h, const auto &index) INLINE {
            each<4>([&](auto c) INLINE {
                use.codes(Const<g>{}, Const<4 * h + c>{}, kUnshifted, _mm512_permutexvar_epi8(index[c / 2], vector(kCodesOfTwo[c % 2])));
            });
        };
        if constexpr (Decode<F>::group == 32) {
            hand_out(Const<0>{}, four(0, half[0], shl(signs, 4), shl(signs, 2)));
            hand_out(Const<1>{}, four(0, half[1], signs, shr(signs, 2)));
        } else {
            // Of the entries of each half of the group: names, then those of the entries' upper halves; signs likewise.
            constexpr __mmask32 odd = 0xaaaaaaaau;
            const __m512i a = _mm512_mask_mov_epi16(half[0], odd, shl(half[1], 16));
            const __m512i b = _mm512_mask_mov_epi16(shr(half[0], 16), odd, half[1]);
            const __m512i sa = _mm512_mask_mov_epi16(shl(signs, 4), odd, shl(signs, 16));
            const __m512i sb = _mm512_mask_mov_epi16(shr(signs, 12), odd, signs);
            hand_out(Const<0>{}, four(0, a, sa, shr(sa, 2)));
            hand_out(Const<1>{}, four(0, b, sb, shr(sb, 2)));
        }
    }
}

// d * (1 + 2 s) / 8 for s in the lowest four bits.
FN __m512 eighths() { return sixteen(0.25f, 0.125f); }

constexpr Table<4> kXxs2[2] = {pairs_of<256>(first_word_of(iq2xxs_grid), 0), pairs_of<256>(first_word_of(iq2xxs_grid), 1)};
constexpr Table<8> kXs2[2] = {pairs_of<512>(first_word_of(iq2xs_grid), 0), pairs_of<512>(first_word_of(iq2xs_grid), 1)};
constexpr Table<16> kS2[2] = {pairs_of<1024>(first_word_of(iq2s_grid), 0), pairs_of<1024>(first_word_of(iq2s_grid), 1)};
constexpr Table<4> kXxs3[2] = {nibbles_of<256>(first_word_of(iq3xxs_grid), 0, kOfThreeXxs),
                               nibbles_of<256>(first_word_of(iq3xxs_grid), 1, kOfThreeXxs)};
constexpr Table<8> kS3[2] = {nibbles_of<512>(first_word_of(iq3s_grid), 0, kOfThree),
                             nibbles_of<512>(first_word_of(iq3s_grid), 1, kOfThree)};
constexpr Bytes64 kCodesOfThreeXxs = codes_of(kOfThreeXxs, 8, 8, 0, 3), kCodesOfThree = codes_of(kOfThree, 8, 8, 0, 3);
// Bits 0 and 1 of a byte, or 2 and 3, moved to bits 3 and 7.
constexpr Bytes64 signs_of_nibbles(u32 from) {
    Bytes64 t = {};
    for (u32 i = 0; i < 64; i++) t.byte[i] = static_cast<uint8_t>((i >> from & 1) << 3 | (i >> (from + 1) & 1) << 7);
    return t;
}
constexpr Bytes64 kNibbleSigns[2] = {signs_of_nibbles(0), signs_of_nibbles(2)};
// Of two words: the even bytes, the odd ones.
constexpr std::array<Bytes64, 2> kEvenOdd = [] {
    std::array<Bytes64, 2> t = {};
    for (u32 odd = 0; odd < 2; odd++)
        for (u32 i = 0; i < 64; i++) t[odd].byte[i] = static_cast<uint8_t>(i / 4 * 4 + i % 2 * 2 + odd + (i % 4 < 2 ? 0 : 64));
    return t;
}();

#define RIDGE_GRID(NAME, offset, words, column_expression)                      \
    template <>                                                                 \
    struct Columns<Format::NAME> {                                              \
        static constexpr int32_t kOffset = offset;                              \
        static constexpr bool kOneShift = true;                                 \
        static constexpr u32 kWords = words;                                    \
        static constexpr u32 column(u32 j, u32 l) { return column_expression; } \
        static FN void fetch(const SixteenRows &rows, size_t at, __m512i *w);   \
        template <class Use>                                                    \
        static FN void unpack(const __m512i *w, Use use);                       \
    };

RIDGE_GRID(IQ2_XXS, 64, 17, j + 8 * l)
RIDGE_FETCH(IQ2_XXS) {
    load16(rows, at + offset_of(iq2_xxs_qs), w);
    w[16] = load1(rows, at + offset_of(iq2_xxs_d));
}
RIDGE_UNPACK(IQ2_XXS) {
    const __m512 d = f16_to_f32(w[16]), factor = eighths();
    each<8>([&](auto g) INLINE {
        const __m512i index = once(w[2 * g]), high = once(w[2 * g + 1]);
        const __mmask64 m = bit7(index);
        const __m512i half[2] = {look_up(kXxs2[0], index, m), look_up(kXxs2[1], index, m)};
        use_eights<Format::IQ2_XXS, g>(half, even_signs(high), use);
        use.scale(g, times_entry(d, shr(high, 28), factor));
    });
}
// Two scales of four bits each.
template <u32 g, class Use>
FN void use_nibble_scales(Const<g> group, __m512 d, __m512i word, Use &use) {
    const __m512 factor = eighths();
    use.scale(group, times_entry(d, shr(word, 8 * (g % 4)), factor), times_entry(d, shr(word, 8 * (g % 4) + 4), factor));
}
RIDGE_GRID(IQ2_XS, 64, 21, 16 * (j / 4) + j % 4 + 8 * (l % 2) + 4 * (l / 2))
RIDGE_FETCH(IQ2_XS) {
    static_assert(offset_of(iq2_xs_scales) + 8 == Decode<Format::IQ2_XS>::bytes);
    load16(rows, at + offset_of(iq2_xs_qs), w), load4(rows, at + offset_of(iq2_xs_scales) - 8, w + 16);
    w[20] = load1(rows, at + offset_of(iq2_xs_d));
}
RIDGE_UNPACK(IQ2_XS) {
    const __m512 d = f16_to_f32(w[20]);
    each<8>([&](auto g) INLINE {
        const __m512i low = _mm512_permutex2var_epi8(w[2 * g], vector(kEvenOdd[0]), w[2 * g + 1]);
        const __m512i high = _mm512_permutex2var_epi8(w[2 * g], vector(kEvenOdd[1]), w[2 * g + 1]);
        const __mmask64 m7 = bit7(low), m8 = bit(high, 1);
        const __m512i half[2] = {look_up(kXs2[0], low, m7, m8), look_up(kXs2[1], low, m7, m8)};
        const __m512i signs = _mm512_permutex2var_epi8(vector(kSigns[0]), shr(high, 1), vector(kSigns[1]));
        use_eights<Format::IQ2_XS, g>(half, signs, use);
        use_nibble_scales(g, d, w[18 + g / 4], use);
    });
}
RIDGE_GRID(IQ2_S, 64, 21, 16 * (j / 4) + j % 4 + 8 * (l % 2) + 4 * (l / 2))
RIDGE_FETCH(IQ2_S) {
    static_assert(offset_of(iq2_s_signs) == offset_of(iq2_s_qs) + 32 && offset_of(iq2_s_scales) == offset_of(iq2_s_qh) + 8);
    load16(rows, at + offset_of(iq2_s_qs), w), load4(rows, at + offset_of(iq2_s_qh), w + 16);
    w[20] = load1(rows, at + offset_of(iq2_s_d));
}
RIDGE_UNPACK(IQ2_S) {
    const __m512 d = f16_to_f32(w[20]);
    each<8>([&](auto g) INLINE {
        const __m512i high = _mm512_multishift_epi64_epi8(vector(kBits<8 * (g % 4), 2>), w[16 + g / 4]);
        const __mmask64 m7 = bit7(w[g]), m8 = bit(high, 1), m9 = bit(high, 2);
        const __m512i half[2] = {look_up(kS2[0], w[g], m7, m8, m9), look_up(kS2[1], w[g], m7, m8, m9)};
        use_eights<Format::IQ2_S, g>(half, w[8 + g], use);
        use_nibble_scales(g, d, w[18 + g / 4], use);
    });
}

// ---- Entries of four: IQ3

// For codes in their natural order: the bytes of four indices of each row in the order in which the halves of entries,
// interleaved, lie as a multishift of two rows' 64 bits wants them.
FN __m512i pair_rows(__m512i index) {
    const __m128i order = _mm_setr_epi8(0, 4, 1, 5, 8, 12, 9, 13, 2, 6, 3, 7, 10, 14, 11, 15);
    return _mm512_shuffle_epi8(index, _mm512_broadcast_i32x4(order));
}
// The codes of columns 16 q .. + 15 of group g, from four indices of each row; `bits` are functions of the mask of ...
template <u32 g, u32 q, size_t N, class Use, class... Ninth>
FN void use_fours(const Table<N> *half, __m512i index, __m512i signs, __m512i codes, Use &use, Ninth... ninth) {
    if constexpr (Use::kNatural) index = pair_rows(index);
    [[maybe_unused]] const auto mask = [](__m512i v) INLINE { return bit(Use::kNatural ? pair_rows(v) : v, 1); };
    const __mmask64 m7 = bit7(index);
    const __m512i low = look_up(half[0], index, m7, mask(ninth)...), high = look_up(half[1], index, m7, mask(ninth)...);
    const auto hand_out = [&](auto j, __m512i name, __m512i sign) INLINE {
        use.codes(Const<g>{}, j, kUnshifted, _mm512_permutexvar_epi8(select(set8x64(7), name, sign), codes));
    };
    if constexpr (Use::kNatural) {
        const __m512i entries[2] = {_mm512_unpacklo_epi8(low, high), _mm512_unpackhi_epi8(low, high)};
        each<4>([&](auto l) INLINE {
            constexpr Const<4 * q + l> j;
            const __m512i name = _mm512_multishift_epi64_epi8(vector(kBits<l % 2 * 32, 4, 16>), entries[l / 2]);
            hand_out(j, name, _mm512_multishift_epi64_epi8(vector(kBits<4 * j + 64 - 3, 1>), signs));
        });
    } else {
        const __m512i four_signs = _mm512_multishift_epi64_epi8(vector(kBits<16 * q, 4>), signs);
        const auto two = [&](auto h, __m512i names) INLINE {
            const __m512i sign = _mm512_permutexvar_epi8(four_signs, vector(kNibbleSigns[h]));
            const __m512i both = select(set8x64(0x77), names, sign);
            use.codes(Const<g>{}, Const<4 * q + 2 * h>{}, kUnshifted, _mm512_permutexvar_epi8(both, codes));
            use.codes(Const<g>{}, Const<4 * q + 2 * h + 1>{}, kUnshifted, _mm512_permutexvar_epi8(shr(both, 4), codes));
        };
        two(Const<0>{}, low), two(Const<1>{}, high);
    }
}

RIDGE_GRID(IQ3_XXS, 64, 25, 16 * (j / 4) + j % 4 + 4 * l)
RIDGE_FETCH(IQ3_XXS) {
    load16(rows, at + offset_of(iq3_xxs_qs), w), load8(rows, at + offset_of(iq3_xxs_signs), w + 16);
    w[24] = load1(rows, at + offset_of(iq3_xxs_d));
}
RIDGE_UNPACK(IQ3_XXS) {
    const __m512 d = f16_to_f32(w[24]), factor = sixteen(0.5f, 0.25f);
    const __m512i codes = vector(kCodesOfThreeXxs);
    each<8>([&](auto g) INLINE {
        const __m512i high = w[16 + g], signs = even_signs(high);
        each<2>([&](auto q) INLINE { use_fours<g, q>(kXxs3, w[2 * g + q], signs, codes, use); });
        use.scale(g, times_entry(d, shr(high, 28), factor));
    });
}
RIDGE_GRID(IQ3_S, 64, 29, 16 * (j / 4) + j % 4 + 4 * l)
RIDGE_FETCH(IQ3_S) {
    static_assert(offset_of(iq3_s_signs) == offset_of(iq3_s_qh) + 8 && offset_of(iq3_s_scales) == offset_of(iq3_s_signs) + 32);
    static_assert(offset_of(iq3_s_scales) + 4 == Decode<Format::IQ3_S>::bytes);
    load16(rows, at + offset_of(iq3_s_qs), w);
    load4(rows, at + offset_of(iq3_s_qh), w + 16), load8(rows, at + Decode<Format::IQ3_S>::bytes - 32, w + 20);
    w[28] = load1(rows, at + offset_of(iq3_s_d));
}
RIDGE_UNPACK(IQ3_S) {
    const __m512 d = f16_to_f32(w[28]), factor = sixteen(2, 1);
    const __m512i codes = vector(kCodesOfThree);
    each<8>([&](auto g) INLINE {
        // Words 2 and 3 of qh are signs already, and word 0 behind it is sign 1 again.
        const __m512i signs = g < 2 ? w[18 + g] : w[19 + g];
        each<2>([&](auto q) INLINE {
            const __m512i ninth = _mm512_multishift_epi64_epi8(vector(kBits<8 * (g % 4) + 4 * q, 1>), w[16 + g / 4]);
            use_fours<g, q>(kS3, w[2 * g + q], signs, codes, use, ninth);
        });
        use.scale(g, times_entry(d, shr(w[27], 4 * g), factor));
    });
}

// ---- Entries of eight of three values: IQ1

// The columns 4 half .. 4 half + 3 of an entry.
constexpr u32 names_of_one(u32 entry, u32 half) {
    u32 names = 0;
    for (u32 i = 0; i < 4; i++) names |= (kTableWords[first_word_of(iq1s_grid) + entry] >> (8 * i + 4 * half) & 3) << (2 * i);
    return names;
}
constexpr Table<32> kLow1 = [] {
    Table<32> t = {};
    for (u32 e = 0; e < 2048; e++) t[e / 64].byte[e % 64] = static_cast<uint8_t>(names_of_one(e, 0));
    return t;
}();
// The grid is in the order of the upper halves of its entries, and sixteen consecutive ones have two different upper halves
// at most: the first of them, the last, and from which of the sixteen on it is the last.
struct Uppers {
    Table<2> first, last, from;
};
constexpr Uppers kHigh1 = [] {
    Uppers t = {};
    for (u32 i = 0; i < 128; i++) {
        const u32 first = names_of_one(16 * i, 1), last = names_of_one(16 * i + 15, 1);
        u32 from = 0;
        while (from < 16 && names_of_one(16 * i + from, 1) == first) from++;
        for (u32 e = from; e < 16; e++)
            if (names_of_one(16 * i + e, 1) != last) throw "more than two";
        t.first[i / 64].byte[i % 64] = static_cast<uint8_t>(first), t.last[i / 64].byte[i % 64] = static_cast<uint8_t>(last);
        t.from[i / 64].byte[i % 64] = static_cast<uint8_t>(from);
    }
    return t;
}();
FN __m512i seven_bits(const Table<2> &table, __m512i index) {
    return _mm512_permutex2var_epi8(vector(table[0]), index, vector(table[1]));
}
// Codes plus 9 of a name from bit `at` on: eight times it, and 2 more unless delta's sign is set, in bit `sign`.
constexpr Bytes64 codes_of_one(u32 at, u32 sign) {
    Bytes64 t = {};
    for (u32 i = 0; i < 64; i++) t.byte[i] = static_cast<uint8_t>(8 * (i >> at & 3) + ((i >> sign & 1) != 0 ? 0 : 2));
    return t;
}
constexpr Bytes64 kCodesOfOne[2] = {codes_of_one(0, 4), codes_of_one(2, 4)}, kOneCodeOfOne = codes_of_one(0, 2);

// The codes of group g: eight low bits of the indices of four entries, three high ones in the lowest bits of `high`, and
// the signs of the deltas in bit 4 of `minus`.
template <Format F, u32 g, class Use>
FN void use_ternary(__m512i low, __m512i high, __m512i minus, Use &use) {
    const __m512i lower = look_up(kLow1, low, bit7(low), bit(high, 1), bit(high, 2), bit(high, 4));
    const __m512i sixteenth = select(set8x64(15), shr(low, 4), shl(high, 4));
    const __mmask64 late = _mm512_cmpge_epu8_mask(and8(low, 15), seven_bits(kHigh1.from, sixteenth));
    const __m512i upper =
        _mm512_mask_mov_epi8(seven_bits(kHigh1.first, sixteenth), late, seven_bits(kHigh1.last, sixteenth));
    if constexpr (Use::kNatural) {
        const __m512i half[2] = {lower, upper};
        each<8>([&](auto j) INLINE {
            const __m512i name = _mm512_multishift_epi64_epi8(vector(kBits<8 * (j / 2), 2>), half[j % 2]);
            const __m512i sign = _mm512_multishift_epi64_epi8(vector(kBits<8 * (j / 2) + 2, 0>), minus);
            use.codes(Const<g>{}, j, kUnshifted, _mm512_permutexvar_epi8(select(set8x64(3), name, sign), vector(kOneCodeOfOne)));
        });
    } else {
        const auto four = [&](auto h, __m512i names, __m512i sign) INLINE {
            const __m512i index[2] = {select(set8x64(15), names, sign), select(set8x64(15), shr(names, 4), sign)};
            each<4>([&](auto c) INLINE {
                use.codes(Const<g>{}, Const<4 * h + c>{}, kUnshifted, _mm512_permutexvar_epi8(index[c / 2], vector(kCodesOfOne[c % 2])));
            });
        };
        if constexpr (Decode<F>::group == 32) {
            four(Const<0>{}, lower, minus), four(Const<1>{}, upper, minus);
        } else {
            constexpr __mmask32 odd = 0xaaaaaaaau;
            four(Const<0>{}, _mm512_mask_mov_epi16(lower, odd, shl(upper, 16)), _mm512_mask_mov_epi16(minus, odd, shl(minus, 16)));
            four(Const<1>{}, _mm512_mask_mov_epi16(shr(lower, 16), odd, upper), _mm512_mask_mov_epi16(shr(minus, 16), odd, minus));
        }
    }
}
// (1 + 2 s) / 8 for s in the lowest three of four bits.
FN __m512 odd_eighths() {
    return _mm512_setr_ps(0.125f, 0.375f, 0.625f, 0.875f, 1.125f, 1.375f, 1.625f, 1.875f, 0.125f, 0.375f, 0.625f, 0.875f,
                          1.125f, 1.375f, 1.625f, 1.875f);
}

RIDGE_GRID(IQ1_S, 9, 13, j + 8 * l)
RIDGE_FETCH(IQ1_S) {
    load8(rows, at + offset_of(iq1_s_qs), w), load4(rows, at + offset_of(iq1_s_qh), w + 8);
    w[12] = load1(rows, at + offset_of(iq1_s_d));
}
RIDGE_UNPACK(IQ1_S) {
    const __m512 d = f16_to_f32(w[12]), factor = odd_eighths();
    each<8>([&](auto g) INLINE {
        const __m512i qh = w[8 + g / 2], high = _mm512_multishift_epi64_epi8(vector(kBits<16 * (g % 2), 3>), qh);
        const __mmask16 minus = _mm512_movepi32_mask(g % 2 == 0 ? shl(qh, 16) : qh);
        use_ternary<Format::IQ1_S, g>(w[g], high, _mm512_maskz_set1_epi32(minus, 0x10101010), use);
        use.scale(g, times_entry(d, shr(qh, 16 * (g % 2) + 12), factor));
    });
}
RIDGE_GRID(IQ1_M, 9, 16, 16 * (j / 4) + j % 4 + 8 * (l % 2) + 4 * (l / 2))
RIDGE_FETCH(IQ1_M) {
    // The last two words of qs again, then qh and the scales.
    static_assert(offset_of(iq1_m_qh) == 32 && offset_of(iq1_m_scales) == 48 && Decode<Format::IQ1_M>::bytes == 56);
    load8(rows, at, w), load8(rows, at + 24, w + 8);
}
RIDGE_UNPACK(IQ1_M) {
    const __m512i s[2] = {w[14], w[15]};
    const auto nibble = [](__m512i word, int from, int to) INLINE {
        return _mm512_and_si512(shift(word, to - from), _mm512_set1_epi32(15 << to));
    };
    const __m512i low = _mm512_or_si512(nibble(s[0], 12, 0), nibble(s[0], 28, 4));
    const __m512 d = f16_to_f32(_mm512_or_si512(low, _mm512_or_si512(nibble(s[1], 12, 8), nibble(s[1], 28, 12))));
    const __m512 factor = odd_eighths();
    each<8>([&](auto g) INLINE {
        const __m512i high = _mm512_multishift_epi64_epi8(vector(kBits<16 * (g % 2), 4>), w[10 + g / 2]);
        use_ternary<Format::IQ1_M, g>(w[g], high, shl(high, 1), use);
        constexpr u32 first = 16 * (g / 2 % 2) + 6 * (g % 2);
        use.scale(g, times_entry(d, shr(s[g / 4], first), factor), times_entry(d, shr(s[g / 4], first + 3), factor));
    });
}

// ---- TQ1_0: digits in base 3, five in a byte

constexpr u32 digit_of(u32 byte, u32 n) {
    for (u32 i = 0; i < n; i++) byte = byte * 3 % 256;
    return byte * 3 / 256;
}
// The first four, two bits each; the fifth.
constexpr Table<4> kFourDigits = [] {
    Table<4> t = {};
    for (u32 i = 0; i < 256; i++)
        for (u32 n = 0; n < 4; n++) t[i / 64].byte[i % 64] |= static_cast<uint8_t>(digit_of(i, n) << (2 * n));
    return t;
}();
constexpr Table<4> kFifthDigit = [] {
    Table<4> t = {};
    for (u32 i = 0; i < 256; i++) t[i / 64].byte[i % 64] = static_cast<uint8_t>(digit_of(i, 4));
    return t;
}();

RIDGE_COLUMNS(TQ1_0, 1, false, 16)
RIDGE_FETCH(TQ1_0) {
    // The last four words begin with ten bytes of qs; qh and d are in the others.
    static_assert(offset_of(tq1_0_qh) == 48 && offset_of(tq1_0_d) == 52 && Decode<Format::TQ1_0>::bytes == 54);
    load8(rows, at, w), load4(rows, at + 32, w + 8), load4(rows, at + 38, w + 12);
}
RIDGE_UNPACK(TQ1_0) {
    const __m512 d = high_f16_to_f32(w[15]);
    const auto digits = [](__m512i v) INLINE { return look_up(kFourDigits, v, bit7(v)); };
    const auto fifth = [](__m512i v) INLINE { return look_up(kFifthDigit, v, bit7(v)); };
    each<8>([&](auto j) INLINE {
        const __m512i v = digits(w[j]);
        each<4>([&](auto n) INLINE { use.codes(n, j, Const<2 * n>{}, and8(v, 3 << (2 * n))); });
        use.codes(Const<4>{}, j, kUnshifted, fifth(w[j]));
    });
    each<5>([&](auto g) INLINE { use.scale(g, d); });
    __m512i v[4];
    each<4>([&](auto j) INLINE { v[j] = digits(w[8 + j]); });
    each<4>([&](auto n) INLINE {
        each<4>([&](auto j) INLINE { use.codes(Const<5 + n / 2>{}, Const<n % 2 * 4 + j>{}, Const<2 * n>{}, and8(v[j], 3 << (2 * n))); });
        if constexpr (n % 2 == 1) use.scale(Const<5 + n / 2>{}, d);
    });
    each<4>([&](auto j) INLINE { use.codes(Const<7>{}, j, kUnshifted, fifth(w[8 + j])); });
    const __m512i last = digits(funnel<2>(w[14], w[15]));
    each<4>([&](auto n) INLINE { use.codes(Const<7>{}, Const<4 + n>{}, kUnshifted, and8(shr(last, 2 * n), 3)); });
    use.scale(Const<7>{}, d);
}

}  // namespace RIDGE_ISA
}  // namespace ridge::cpu
