// With AVX2: Columns of the formats whose weights are entries of a grid, four or eight magnitudes that an index names,
// with signs (or a delta) apart. Entries are looked up by scalar loads: eight rows' entries of four bytes are a vector
// of codes, of eight bytes two. (vpgatherdd takes longer: 50 cycles for eight on Zen 5, where a look-up takes two of
// three loads in a cycle.) Indices longer than a byte are first put together with vectors, sixteen bits each.
//
// IQ2 and IQ3: code(j) is a pair of magnitudes and signs. With one token it is cheapest to give the activations the
// signs; unsigned_code makes of it the unsigned bytes that kCoding says.
#pragma once

#include "backend/cpu/contract_columns_avx2.h"

namespace ridge::cpu {
inline namespace RIDGE_ISA {

// Magnitudes, and bytes that are negative where the code is and positive elsewhere.
struct SignedCode {
    __m256i magnitude, sign;
};

// ---- Look-ups

// The tables as the compiler sees them, to derive others from.
inline constexpr uint32_t kTableWords[TABLE_WORDS] = {
#include "format/tables.def"
};
// Entries of four bytes, each four times, so that a blend takes any dword of it from memory; bytes shifted right.
template <u32 kCount>
struct FourTimes {
    alignas(64) uint32_t entry[kCount][4];
};
template <u32 kCount>
constexpr FourTimes<kCount> four_times(u32 first_word, u32, u32 shift) {
    FourTimes<kCount> t = {};
    for (u32 i = 0; i < kCount; i++)
        for (u32 &word : t.entry[i]) word = kTableWords[first_word + i] >> shift & (0xffu >> shift) * 0x01010101u;
    return t;
}
inline constexpr FourTimes<256> kIq3XxsHalves = four_times<256>(iq3xxs_grid, 1);
inline constexpr FourTimes<512> kIq3S = four_times<512>(iq3s_grid, 0);

// Eight rows' entries, offset(i) where that of row i lies in bytes, of the entries repeated four times ...
template <u32 kCount, class Offset>
FN __m256i look_up4(const FourTimes<kCount> &table, Offset offset) {
    const auto four = [&](u32 i) __attribute__((always_inline)) {
        const auto entry = [&](u32 row) __attribute__((always_inline)) {
            return load128(reinterpret_cast<const std::byte *>(table.entry) + offset(row));
        };
        __m128i v = _mm_blend_epi32(entry(i), entry(i + 1), 0b0010);
        v = _mm_blend_epi32(v, entry(i + 2), 0b0100);
        return _mm_blend_epi32(v, entry(i + 3), 0b1000);
    };
    return _mm256_inserti128_si256(_mm256_castsi128_si256(four(0)), four(4), 1);
}
// ... of a word of the tables, index(i) that of row i, ...
template <class Index>
FN __m256i look_up4(u32 first_word, u32, Index index) {
    const auto four = [&](u32 i) __attribute__((always_inline)) {
        const auto entry = [&](u32 row) __attribute__((always_inline)) {
            return _mm_cvtsi32_si128(static_cast<int>(dialect::table_words[first_word + size_t{index(row)}]));
        };
        return _mm_unpacklo_epi64(_mm_unpacklo_epi32(entry(i), entry(i + 1)),
                                  _mm_unpacklo_epi32(entry(i + 2), entry(i + 3)));
    };
    return _mm256_inserti128_si256(_mm256_castsi128_si256(four(0)), four(4), 1);
}
// ... or of two words: first[0] has the first ones, first[1] the second ones.
template <class Index>
FN void look_up8(u32 first_word, u32, Index index, __m256i *words) {
    const auto two = [&](u32 i) __attribute__((always_inline)) {
        const auto entry = [&](u32 row) __attribute__((always_inline)) {
            return dialect::table_words + first_word + 2 * size_t{index(row)};
        };
        const __m128i low = _mm_loadl_epi64(reinterpret_cast<const __m128i *>(entry(i)));
        return _mm_loadh_pi(_mm_castsi128_ps(low), reinterpret_cast<const __m64 *>(entry(i + 1)));
    };
    const __m256 even = _mm256_insertf128_ps(_mm256_castps128_ps256(two(0)), two(4), 1);
    const __m256 odd = _mm256_insertf128_ps(_mm256_castps128_ps256(two(2)), two(6), 1);
    words[0] = _mm256_castps_si256(_mm256_shuffle_ps(even, odd, 0x88));
    words[1] = _mm256_castps_si256(_mm256_shuffle_ps(even, odd, 0xdd));
}

// Four indices of sixteen bits of each of eight rows. They are loaded together, since loads are what is scarce; the
// empty assembly keeps compilers from making loads of sixteen bits of it.
struct FourIndices {
    uint64_t of_row[8];
    template <class Load>
    FN void load(Load load_row) {
#pragma GCC unroll 8
        for (u32 row = 0; row < 8; row++) {
            of_row[row] = load_row(row);
            asm("" : "+r"(of_row[row]));
        }
    }
    FN size_t of(u32 row, u32 i) const { return of_row[row] >> (16 * i) & 0xffffu; }
};

// Indices of sixteen bits, put together once for a chunk.
template <u32 kCount>
struct Indices {
    alignas(32) uint16_t of[8][kCount];
    FN void load(u32 i, FourIndices &four) const {
        four.load([&](u32 row) __attribute__((always_inline)) { return load_u64(of[row] + i); });
    }
    FN void store16(u32 row, u32 i, __m256i v) { _mm256_store_si256(reinterpret_cast<__m256i *>(of[row] + i), v); }
};
FN __m256i low_bytes16(const std::byte *p) { return _mm256_cvtepu8_epi16(load128(p)); }

// ---- Signs: bit i of a row's dword is that of weight i

// Of four weights from 4 j on: 1, or 1 less a power of two from 2 on.
struct Signs {
    __m256i bits, bits_up;
    FN explicit Signs(__m256i v) : bits(v), bits_up(_mm256_slli_epi32(v, 1)) {}
    FN __m256i of(u32 j) const {
        const bool even = j % 2 == 0;
        const __m256i select = _mm256_set1_epi32(static_cast<int>(even ? 0x10080402u : 0x80402010u));
        return _mm256_sub_epi8(set8(1), _mm256_and_si256(spread_nibble(even ? bits_up : bits, j), select));
    }
};
// Seven signs in each byte: the eighth makes their number even.
FN __m256i even_signs(__m256i v) {
    const __m256i nibble_parity = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0));
    const __m256i parity = _mm256_xor_si256(_mm256_shuffle_epi8(nibble_parity, low_nibble(v)),
                                            _mm256_shuffle_epi8(nibble_parity, high_nibble(v)));
    return _mm256_xor_si256(v, parity);
}
// The low 28 bits of each dword as four bytes of seven.
FN __m256i sevens(__m256i v) {
    const auto byte = [&](int i) __attribute__((always_inline)) {
        return _mm256_and_si256(_mm256_slli_epi32(v, i), _mm256_set1_epi32(0x7f << (8 * i)));
    };
    return _mm256_or_si256(_mm256_or_si256(byte(0), byte(1)), _mm256_or_si256(byte(2), byte(3)));
}
FN __m256i signed_plus(SignedCode c, int offset) {
    return _mm256_add_epi8(_mm256_sign_epi8(c.magnitude, c.sign), set8(offset));
}

#define RIDGE_SIGNED_COLUMNS(NAME, coding, pairs, unsigned_code_)                \
    template <>                                                                  \
    struct Columns<Format::NAME> {                                               \
        static constexpr Coding kCoding = coding, kPairs = pairs;                \
        static FN __m256i unsigned_code(SignedCode c) { return unsigned_code_; } \
        template <class Sink>                                                    \
        static FN void visit(Rows8 rows, size_t at, u32 blocks, Sink sink);      \
    };                                                                           \
    template <class Sink>                                                        \
    FN void Columns<Format::NAME>::visit(Rows8 rows, size_t at, u32, Sink sink)

// ---- IQ2: magnitudes 8, 25 and 43

constexpr Coding kIq2 = unsigned_codes(86, 43), kIq2Pairs = unsigned_codes(43);

// Group g of 32: index(row, l) is that of the l-th of four entries.
template <class Index, class Sink>
FN void visit_iq2(u32 g, u32 first_word, u32 words, Signs signs, Index index, Sink sink) {
    __m256i v[2];
    sink(
        g, RIDGE_CODE {
            if (j % 2 == 0)
                look_up8(
                    first_word, words, [&](u32 row) __attribute__((always_inline)) { return index(row, j / 2); }, v);
            return SignedCode{v[j % 2], signs.of(j)};
        });
}
RIDGE_SIGNED_COLUMNS(IQ2_XXS, kIq2, kIq2Pairs, signed_plus(c, 43)) {
    for (u32 g = 0; g < 8; g += 2) {
        const size_t qs = at + offset_of(iq2_xxs_qs) + 8 * g;
        __m256i q[4];
        load_dwords(rows, qs, q);
#pragma GCC unroll 2
        for (u32 i = 0; i < 2; i++)
            visit_iq2(
                g + i, iq2xxs_grid, Signs(even_signs(sevens(q[2 * i + 1]))),
                [&](u32 row, u32 l) __attribute__((always_inline)) { return byte_at(rows[row] + qs, 8 * i + l); },
                sink);
    }
}
RIDGE_SIGNED_COLUMNS(IQ2_XS, kIq2, kIq2Pairs, signed_plus(c, 43)) {
    for (u32 g = 0; g < 8; g += 2) {
        const size_t qs = at + offset_of(iq2_xs_qs) + 8 * g;
        __m256i q[4];
        load_dwords(rows, qs, q);
#pragma GCC unroll 2
        for (u32 i = 0; i < 2; i++) {
            // The upper seven of each sixteen bits, to bytes.
            const __m256i low = _mm256_srli_epi16(q[2 * i], 9), high = _mm256_srli_epi16(q[2 * i + 1], 9);
            const __m256i packed = _mm256_packus_epi16(low, high);  // rows 0..3 low, 0..3 high | 4..7
            const __m256i bits = _mm256_shuffle_epi8(
                packed,
                _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15)));
            FourIndices four;
            four.load([&](u32 row) __attribute__((always_inline)) { return load_u64(rows[row] + qs + 8 * i); });
            visit_iq2(
                g + i, iq2xs_grid, Signs(even_signs(bits)),
                [&](u32 row, u32 l) __attribute__((always_inline)) { return four.of(row, l) & 511u; }, sink);
        }
    }
}
RIDGE_SIGNED_COLUMNS(IQ2_S, kIq2, kIq2Pairs, signed_plus(c, 43)) {
    Indices<32> index;
    const __m256i to_words = _mm256_setr_epi8(0, -1, 0, -1, 0, -1, 0, -1, 1, -1, 1, -1, 1, -1, 1, -1, 2, -1, 2, -1, 2,
                                              -1, 2, -1, 3, -1, 3, -1, 3, -1, 3, -1);
    for (u32 row = 0; row < 8; row++) {
        // Byte i / 4 of qh has the two upper bits of index i from bit 2 * (i % 4) on.
        const __m256i high = _mm256_set1_epi64x(static_cast<long long>(load_u64(rows[row] + at + offset_of(iq2_s_qh))));
#pragma GCC unroll 2
        for (u32 half = 0; half < 2; half++) {
            const __m256i from = _mm256_add_epi8(to_words, _mm256_set1_epi16(static_cast<short>(4 * half)));
            const __m256i shifted =
                _mm256_mullo_epi16(_mm256_shuffle_epi8(high, from), _mm256_set1_epi64x(0x0004001000400100));
            index.store16(row, 16 * half,
                          _mm256_or_si256(low_bytes16(rows[row] + at + offset_of(iq2_s_qs) + 16 * half),
                                          _mm256_and_si256(shifted, _mm256_set1_epi16(0x300))));
        }
    }
    for (u32 i = 0; i < 2; i++) {
        __m256i signs[4];
        load_dwords(rows, at + offset_of(iq2_s_signs) + 16 * i, signs);
#pragma GCC unroll 4
        for (u32 q = 0; q < 4; q++) {
            FourIndices four;
            index.load(16 * i + 4 * q, four);
            visit_iq2(
                4 * i + q, iq2s_grid,
                Signs(signs[q]), [&](u32 row, u32 l) __attribute__((always_inline)) { return four.of(row, l); }, sink);
        }
    }
}

// ---- IQ3

// Group g of 32: an entry for each code vector, offsets in index.
template <u32 kCount, class Sink>
FN void visit_iq3(const FourTimes<kCount> &table, u32 g, const Indices<64> &index, Signs signs, Sink sink) {
    sink(
        g, RIDGE_CODE {
            const auto offset = [&](u32 row) __attribute__((always_inline)) {
                const uint64_t four = load_u64(&index.of[row][8 * g + j / 4 * 4]);
                return size_t{four >> (16 * (j % 4)) & 0xffffu};
            };
            return SignedCode{look_up4(table, offset), signs.of(j)};
        });
}

// Magnitudes are even and at most 62: half of them is kept.
RIDGE_SIGNED_COLUMNS(IQ3_XXS, unsigned_codes(62, 62, 2), unsigned_codes(31, 0, 2), signed_plus(c, 31)) {
    Indices<64> index;
    for (u32 row = 0; row < 8; row++)
#pragma GCC unroll 4
        for (u32 i = 0; i < 64; i += 16)
            index.store16(row, i, _mm256_slli_epi16(low_bytes16(rows[row] + at + offset_of(iq3_xxs_qs) + i), 4));
    for (u32 i = 0; i < 2; i++) {
        __m256i aux[4];
        load_dwords(rows, at + offset_of(iq3_xxs_signs) + 16 * i, aux);
#pragma GCC unroll 4
        for (u32 q = 0; q < 4; q++) visit_iq3(kIq3XxsHalves, 4 * i + q, index, Signs(even_signs(sevens(aux[q]))), sink);
    }
}
// Odd magnitudes up to 15: half of code + 15 is kept in the unsigned code.
RIDGE_SIGNED_COLUMNS(IQ3_S, unsigned_codes(15, 15, 2), unsigned_codes(15), _mm256_srli_epi16(signed_plus(c, 15), 1)) {
    Indices<64> index;
    const __m256i bit = _mm256_setr_epi16(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, -32768);
    for (u32 row = 0; row < 8; row++) {
#pragma GCC unroll 4
        for (u32 i = 0; i < 64; i += 16) {
            short high;
            __builtin_memcpy(&high, rows[row] + at + offset_of(iq3_s_qh) + i / 8, 2);
            const __m256i set = _mm256_cmpeq_epi16(_mm256_and_si256(_mm256_set1_epi16(high), bit), bit);
            const __m256i low = _mm256_slli_epi16(low_bytes16(rows[row] + at + offset_of(iq3_s_qs) + i), 4);
            index.store16(row, i, _mm256_or_si256(low, _mm256_and_si256(set, _mm256_set1_epi16(256 << 4))));
        }
    }
    for (u32 i = 0; i < 2; i++) {
        __m256i signs[4];
        load_dwords(rows, at + offset_of(iq3_s_signs) + 16 * i, signs);
#pragma GCC unroll 4
        for (u32 q = 0; q < 4; q++) visit_iq3(kIq3S, 4 * i + q, index, Signs(signs[q]), sink);
    }
}
#undef RIDGE_SIGNED_COLUMNS

// ---- IQ1: the code is 8 * grid +- 1 = 2 * u - 9 with u = 4 * (grid + 1) + (1 or 0)

constexpr Coding kIq1 = unsigned_codes(9, 9, 2);

// An entry is eight nibbles grid + 1, of the even dwords the low ones. plus: bytes of 1 where the delta is positive.
template <class Plus, class Sink>
FN void visit_iq1(u32 g, const Indices<32> &index, Plus plus, Sink sink) {
    FourIndices four;
    index.load(4 * g, four);
    __m256i v[4];
#pragma GCC unroll 4
    for (u32 l = 0; l < 4; l++)
        v[l] = look_up4(
            iq1s_grid, [&](u32 row) __attribute__((always_inline)) { return four.of(row, l); });
    sink(
        g, RIDGE_CODE { return _mm256_or_si256(move_bits(v[j / 2], j % 2 * 4, 2, 3), plus(j / 2)); });
}
RIDGE_COLUMNS(IQ1_S, kIq1) {
    Indices<32> index;
    for (u32 row = 0; row < 8; row++) {
        // Word g of qh has the three upper bits of four indices.
        const __m256i high = _mm256_broadcastsi128_si256(load128(rows[row] + at + offset_of(iq1_s_qh)));
#pragma GCC unroll 2
        for (u32 half = 0; half < 2; half++) {
            const __m256i from = _mm256_add_epi8(
                _mm256_setr_epi64x(0x0100010001000100, 0x0302030203020302, 0x0504050405040504, 0x0706070607060706),
                set8(static_cast<int>(8 * half)));
            const __m256i shifted = _mm256_srli_epi16(
                _mm256_mullo_epi16(_mm256_shuffle_epi8(high, from), _mm256_set1_epi64x(0x0001000800400200)), 1);
            index.store16(row, 16 * half,
                          _mm256_or_si256(low_bytes16(rows[row] + at + offset_of(iq1_s_qs) + 16 * half),
                                          _mm256_and_si256(shifted, _mm256_set1_epi16(0x700))));
        }
    }
    __m256i qh[4];
    load_dwords(rows, at + offset_of(iq1_s_qh), qh);
#pragma GCC unroll 4
    for (u32 q = 0; q < 4; q++)
#pragma GCC unroll 2
        for (u32 i = 0; i < 2; i++) {
            // The sign of delta is the highest bit of the word.
            const __m256i minus =
                i == 0 ? _mm256_srai_epi32(_mm256_slli_epi32(qh[q], 16), 31) : _mm256_srai_epi32(qh[q], 31);
            const __m256i plus = _mm256_andnot_si256(minus, set8(1));
            visit_iq1(
                2 * q + i, index, [&](u32) __attribute__((always_inline)) { return plus; }, sink);
        }
}
RIDGE_COLUMNS(IQ1_M, kIq1) {
    Indices<32> index;
    for (u32 row = 0; row < 8; row++) {
        // A nibble for each index: its three upper bits and the sign of delta.
        const __m256i high = _mm256_broadcastsi128_si256(load128(rows[row] + at + offset_of(iq1_m_qh)));
#pragma GCC unroll 2
        for (u32 half = 0; half < 2; half++) {
            const __m256i to_words = _mm256_setr_epi8(0, -1, 0, -1, 1, -1, 1, -1, 2, -1, 2, -1, 3, -1, 3, -1, 4, -1, 4,
                                                      -1, 5, -1, 5, -1, 6, -1, 6, -1, 7, -1, 7, -1);
            const __m256i from = _mm256_add_epi8(to_words, _mm256_set1_epi16(static_cast<short>(8 * half)));
            const __m256i shifted = _mm256_mullo_epi16(_mm256_shuffle_epi8(high, from), _mm256_set1_epi32(0x00100100));
            index.store16(row, 16 * half,
                          _mm256_or_si256(low_bytes16(rows[row] + at + offset_of(iq1_m_qs) + 16 * half),
                                          _mm256_and_si256(shifted, _mm256_set1_epi16(0x700))));
        }
    }
    __m256i qh[4];
    load_dwords(rows, at + offset_of(iq1_m_qh), qh);
#pragma GCC unroll 4
    for (u32 q = 0; q < 4; q++)
#pragma GCC unroll 2
        for (u32 i = 0; i < 2; i++) {
            const auto plus = [&](u32 l) __attribute__((always_inline)) {
                const auto bit = static_cast<int>(16 * i + 4 * l + 3);
                const __m256i minus = _mm256_srai_epi32(_mm256_slli_epi32(qh[q], 31 - bit), 31);
                return _mm256_andnot_si256(minus, set8(1));
            };
            visit_iq1(2 * q + i, index, plus, sink);
        }
}

}  // namespace RIDGE_ISA
}  // namespace ridge::cpu
