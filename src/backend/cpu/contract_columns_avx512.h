// With AVX-512: a chunk of sixteen rows, unpacked. Each format says again what the functions of its header say, for sixteen
// rows at once (contract_words_avx512.h); the gate holds the two together bit by bit.
//
//   Columns<F>::fetch(rows, at, w)
// reads the chunk of 256 columns that begins `at` bytes behind the rows' beginnings, all of which lies in the rows, as
// kWords vectors w: stored words of all rows side by side.
//   Columns<F>::unpack(w, use)
// makes of them, and hands out, a row per lane and in constants g, j and shift:
//   use.codes(g, j, shift, v)     the codes of columns 4j .. 4j + 3 (j = 0..7) of group of 32 number g, plus kOffset, shifted
//                                 left by `shift`, as unsigned bytes. So fields of a byte need not be moved to its end: a
//                                 dot of them is, later. The shift is the same in half a group, and with kOneShift in all
//                                 of it. Where there is a function column(j, l) and not Use::kNatural, byte l of a row has
//                                 that column of the group instead of 4j + l.
//   use.scale(g, scale...)        then one scale of group g, or two of its halves
//   use.scale(g, scale, bias...)  likewise with biases: scale, bias or both scales, both biases
// j ascends in a group, and so does g in the calls of scale.
//
// The two are apart so that a chunk can be fetched while the one before it is unpacked: the latency of a transposition is
// some 50 cycles, and with what else a chunk needs there is no room in the processor's window for the next one.
#pragma once

#include "backend/cpu/contract_words_avx512.h"

#define INLINE __attribute__((always_inline))

namespace ridge::cpu {
inline namespace RIDGE_ISA {

template <Format F>
struct Columns {
    // From 32 codes of a row at a time, and scale by scale.
    static constexpr int32_t kOffset = Decode<F>::has_bias ? 0 : 128;
    static constexpr bool kOneShift = true;
    static constexpr u32 kGroups = Decode<F>::group == 16 ? 2 : 1;  // per 32
    static constexpr u32 kWords = 8 * (8 + kGroups);
    static_assert(!Decode<F>::has_bias);
    static void fetch(const SixteenRows &rows, size_t at, __m512i *w) {
        for (u32 b = 0; b < kChunkBlocks; b++, w += 8 + kGroups) {
            alignas(64) int8_t codes[kChunkRows][32];
            alignas(64) float scale[2][kChunkRows];
            for (u32 r = 0; r < kChunkRows; r++) {
                u32 g32 = b;
                const std::byte *block = block_of<F>(rows.first + r * rows.step + at, g32);
                Codes<F>::store(block, g32, codes[r]);
                for (u32 h = 0; h < kGroups; h++)
                    scale[h][r] = Decode<F>::scale(block, Decode<F>::group == 256 ? 0 : kGroups * g32 + h);
            }
            load8(SixteenRows{reinterpret_cast<const std::byte *>(codes), 32}, 0, w);
            for (u32 h = 0; h < kGroups; h++) w[8 + h] = _mm512_load_si512(scale[h]);
        }
    }
    template <class Use>
    static FN void unpack(const __m512i *w, Use use) {
        each<kChunkBlocks>([&](auto g) INLINE {
            const __m512i *part = w + (8 + kGroups) * g;
            each<8>([&](auto j) INLINE { use.codes(g, j, Const<0>{}, _mm512_xor_si512(part[j], set8x64(128))); });
            if constexpr (Decode<F>::group == 16)
                use.scale(g, _mm512_castsi512_ps(part[8]), _mm512_castsi512_ps(part[9]));
            else
                use.scale(g, _mm512_castsi512_ps(part[8]));
        });
    }
};

#define RIDGE_COLUMNS(NAME, offset, one_shift, words)                              \
    template <>                                                                    \
    struct Columns<Format::NAME> {                                                 \
        static constexpr int32_t kOffset = offset;                                 \
        static constexpr bool kOneShift = one_shift;                               \
        static constexpr u32 kWords = words;                                       \
        static FN void fetch(const SixteenRows &rows, size_t at, __m512i *w);      \
        template <class Use>                                                       \
        static FN void unpack(const __m512i *w, Use use);                          \
    };
#define RIDGE_FETCH(NAME) FN void Columns<Format::NAME>::fetch(const SixteenRows &rows, size_t at, __m512i *w)
#define RIDGE_UNPACK(NAME) \
    template <class Use>   \
    FN void Columns<Format::NAME>::unpack(const __m512i *w, Use use)

FN __m512i and8(__m512i v, int mask) { return _mm512_and_si512(v, set8x64(mask)); }
FN __m512i shr(__m512i v, int n) { return n == 0 ? v : _mm512_srli_epi32(v, static_cast<unsigned>(n)); }
FN __m512i shl(__m512i v, int n) { return n == 0 ? v : _mm512_slli_epi32(v, static_cast<unsigned>(n)); }
// Bits moved up by n, or down by -n.
FN __m512i shift(__m512i v, int n) { return n >= 0 ? shl(v, n) : shr(v, -n); }
// Byte i of every word, as a number. In the middle of a word one shuffle does it.
FN __m512i byte_of(__m512i w, u32 i) {
    if (i == 0) return _mm512_and_si512(w, _mm512_set1_epi32(255));
    return shr(i == 3 ? w : _mm512_and_si512(w, _mm512_set1_epi32(255 << (8 * i))), static_cast<int>(8 * i));
}
FN __m512i signed_byte_of(__m512i w, u32 i) { return _mm512_srai_epi32(shl(w, static_cast<int>(24 - 8 * i)), 24); }
FN __m512 times(__m512 d, __m512i v) { return _mm512_mul_ps(d, _mm512_cvtepi32_ps(v)); }
FN __m512 negative(__m512 v) { return _mm512_xor_ps(v, _mm512_set1_ps(-0.0f)); }
// Nibbles as numbers that a table names: the lowest four bits of every word.
FN __m512 times_entry(__m512 d, __m512i word, __m512 table) { return _mm512_mul_ps(d, _mm512_permutexvar_ps(word, table)); }
// 0 .. 15, times and plus something.
FN __m512 sixteen(float times, float plus) {
    const __m512 i = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return _mm512_add_ps(_mm512_mul_ps(i, _mm512_set1_ps(times)), _mm512_set1_ps(plus));
}
constexpr Const<0> kUnshifted{};

// ---- Q4_K and Q5_K

// Scales and biases from four words: d f16 | dmin f16 | eight scales and eight minima of 6 bits.
struct Packed6 {
    __m512i scales[2], minima[2];
    __m512 d, minus_dmin;
    FN explicit Packed6(const __m512i *w) {
        const __m512i top = set8x64(0x30);
        const auto high = [&](__m512i v, __m512i nibble) INLINE { return and_or(top, shr(v, 2), and8(nibble, 15)); };
        scales[0] = and8(w[1], 63), scales[1] = high(w[1], w[3]);
        minima[0] = and8(w[2], 63), minima[1] = high(w[2], shr(w[3], 4));
        d = f16_to_f32(w[0]), minus_dmin = negative(high_f16_to_f32(w[0]));
    }
    template <u32 g, class Use>
    FN void hand_out(Const<g> group, Use &use) const {
        use.scale(group, times(d, byte_of(scales[g / 4], g % 4)), times(minus_dmin, byte_of(minima[g / 4], g % 4)));
    }
};

RIDGE_COLUMNS(Q4_K, 0, true, 36)
RIDGE_FETCH(Q4_K) {
    load4(rows, at, w);
    load16(rows, at + offset_of(q4_K_qs), w + 4), load16(rows, at + offset_of(q4_K_qs) + 64, w + 20);
}
RIDGE_UNPACK(Q4_K) {
    const Packed6 scales(w);
    each<4>([&](auto p) INLINE {
        constexpr Const<2 * p> g;
        constexpr Const<2 * p + 1> h;
        each<8>([&](auto j) INLINE {
            const __m512i v = once(w[4 + 8 * p + j]);
            use.codes(g, j, kUnshifted, and8(v, 15)), use.codes(h, j, Const<4>{}, and8(v, 0xf0));
        });
        scales.hand_out(g, use), scales.hand_out(h, use);
    });
}
RIDGE_COLUMNS(Q5_K, 0, true, 44)
RIDGE_FETCH(Q5_K) {
    load4(rows, at, w), load8(rows, at + offset_of(q5_K_qh), w + 4);
    load16(rows, at + offset_of(q5_K_qs), w + 12), load16(rows, at + offset_of(q5_K_qs) + 64, w + 28);
}
RIDGE_UNPACK(Q5_K) {
    const Packed6 scales(w);
    each<4>([&](auto p) INLINE {
        constexpr Const<2 * p> g;
        constexpr Const<2 * p + 1> h;
        each<8>([&](auto j) INLINE {
            const __m512i v = once(w[12 + 8 * p + j]), fifth = shift(w[4 + j], 4 - 2 * static_cast<int>(p));  // in bits 4 and 5
            use.codes(g, j, kUnshifted, and_or(set8x64(15), v, and8(fifth, 16)));
            use.codes(h, j, Const<1>{}, and_or(set8x64(15 << 1), shr(v, 3), and8(fifth, 32)));
        });
        scales.hand_out(g, use), scales.hand_out(h, use);
    });
}

// ---- Formats with a scale per sixteen

RIDGE_COLUMNS(Q6_K, 32, true, 56)
RIDGE_FETCH(Q6_K) {
    // From two bytes before the scales on: those and d.
    static_assert(offset_of(q6_K_d) == offset_of(q6_K_scales) + 16 && Decode<Format::Q6_K>::bytes == offset_of(q6_K_d) + 2);
    load8(rows, at + Decode<Format::Q6_K>::bytes - 32, w), load16(rows, at + offset_of(q6_K_qh), w + 8);
    load16(rows, at + offset_of(q6_K_ql), w + 24), load16(rows, at + offset_of(q6_K_ql) + 64, w + 40);
}
RIDGE_UNPACK(Q6_K) {
    const __m512 d = high_f16_to_f32(w[7]);
    const auto scale = [&](u32 g) INLINE { return times(d, signed_byte_of(w[(14 + g) / 4], (14 + g) % 4)); };
    each<2>([&](auto p) INLINE {
        constexpr u32 g = 4 * p;
        each<8>([&](auto j) INLINE {
            const __m512i a = once(w[24 + 16 * p + j]), b = once(w[24 + 16 * p + 8 + j]), h = once(w[8 + 8 * p + j]);
            const __m512i h2 = shl(h, 2), h4 = shl(h, 4);
            use.codes(Const<g>{}, j, kUnshifted, and_or(set8x64(15), a, and8(h4, 0x30)));
            use.codes(Const<g + 1>{}, j, kUnshifted, and_or(set8x64(15), b, and8(h2, 0x30)));
            use.codes(Const<g + 2>{}, j, Const<2>{}, and_or(set8x64(15 << 2), shr(a, 2), and8(h2, 0xc0)));
            use.codes(Const<g + 3>{}, j, Const<2>{}, and_or(set8x64(15 << 2), shr(b, 2), and8(h, 0xc0)));
        });
        each<4>([&](auto i) INLINE { use.scale(Const<g + i>{}, scale(2 * (g + i)), scale(2 * (g + i) + 1)); });
    });
}
RIDGE_COLUMNS(Q3_K, 4, true, 28)
RIDGE_FETCH(Q3_K) {
    // From two bytes before the scales on: 12 bytes of those and d.
    static_assert(offset_of(q3_K_d) == offset_of(q3_K_scales) + 12 && Decode<Format::Q3_K>::bytes == offset_of(q3_K_d) + 2);
    load4(rows, at + Decode<Format::Q3_K>::bytes - 16, w), load8(rows, at + offset_of(q3_K_hmask), w + 4);
    load16(rows, at + offset_of(q3_K_qs), w + 12);
}
RIDGE_UNPACK(Q3_K) {
    const __m512 d = high_f16_to_f32(w[3]);
    // Bytes 0..7 of the scales have the low nibbles of scales 0..7 and 8..15, bytes 8..11 the two upper bits of g, g + 4,
    // g + 8 and g + 12.
    const __m512i nibbles[2] = {funnel<2>(w[0], w[1]), funnel<2>(w[1], w[2])}, upper = funnel<2>(w[2], w[3]);
    __m512i six[4];
    each<4>([&](auto q) INLINE {
        const __m512i bits = and_or(set8x64(15), shift(nibbles[q % 2], q < 2 ? 0 : -4),
                                    and8(shift(upper, 4 - 2 * static_cast<int>(q)), 0x30));
        six[q] = _mm512_sub_epi8(bits, set8x64(32));
    });
    const auto scale = [&](u32 g) INLINE { return times(d, signed_byte_of(six[g / 4], g % 4)); };
    each<2>([&](auto p) INLINE {
        constexpr u32 g = 4 * p;
        each<8>([&](auto j) INLINE {
            const __m512i q = once(w[12 + 8 * p + j]), third = once(w[4 + j]);
            // Bit g + i of `third` to behind the two bits of that group, which stay where they are but for the last.
            const auto bit = [&](int i, int to) INLINE {
                return and8(shift(third, to - static_cast<int>(g) - i), 1 << to);
            };
            use.codes(Const<g>{}, j, kUnshifted, and_or(set8x64(3), q, bit(0, 2)));
            use.codes(Const<g + 1>{}, j, Const<2>{}, and_or(set8x64(3 << 2), q, bit(1, 4)));
            use.codes(Const<g + 2>{}, j, Const<4>{}, and_or(set8x64(3 << 4), q, bit(2, 6)));
            use.codes(Const<g + 3>{}, j, Const<5>{}, and_or(set8x64(3 << 5), shr(q, 1), bit(3, 7)));
        });
        each<4>([&](auto i) INLINE { use.scale(Const<g + i>{}, scale(2 * (g + i)), scale(2 * (g + i) + 1)); });
    });
}
// Groups g .. g + 3 from the pairs of bits of eight words.
template <u32 g, class Use>
FN void use_pairs(const __m512i *q, Use &use) {
    each<8>([&](auto j) INLINE {
        const __m512i v = once(q[j]);
        each<4>([&](auto i) INLINE { use.codes(Const<g + i>{}, j, Const<2 * i>{}, and8(v, 3 << (2 * i))); });
    });
}
RIDGE_COLUMNS(Q2_K, 0, true, 24)
RIDGE_FETCH(Q2_K) {
    static_assert(offset_of(q2_K_scales) == 0 && offset_of(q2_K_qs) == 16 && offset_of(q2_K_d) == 80);
    // Scales and four words of qs, of which three are read again; the other words of qs, d and dmin.
    load8(rows, at, w), load16(rows, at + offset_of(q2_K_qs) + 4, w + 5);
}
RIDGE_UNPACK(Q2_K) {
    const __m512i *qs = w + 4;
    const __m512 d = f16_to_f32(w[20]), minus_dmin = negative(high_f16_to_f32(w[20])), number = sixteen(1, 0);
    const auto scale = [&](u32 g) INLINE { return times_entry(d, shr(w[g / 4], 8 * (g % 4)), number); };
    const auto bias = [&](u32 g) INLINE { return times_entry(minus_dmin, shr(w[g / 4], 8 * (g % 4) + 4), number); };
    each<2>([&](auto p) INLINE {
        use_pairs<4 * p>(qs + 8 * p, use);
        each<4>([&](auto i) INLINE {
            const u32 g = 8 * p + 2 * i;
            use.scale(Const<4 * p + i>{}, scale(g), scale(g + 1), bias(g), bias(g + 1));
        });
    });
}
RIDGE_COLUMNS(TQ2_0, 1, true, 17)
RIDGE_FETCH(TQ2_0) {
    load16(rows, at + offset_of(tq2_0_qs), w);
    w[16] = load1(rows, at + offset_of(tq2_0_d) - 2);
}
RIDGE_UNPACK(TQ2_0) {
    const __m512 d = high_f16_to_f32(w[16]);
    each<2>([&](auto p) INLINE {
        use_pairs<4 * p>(w + 8 * p, use);
        each<4>([&](auto i) INLINE { use.scale(Const<4 * p + i>{}, d); });
    });
}

// ---- Blocks of 32: eight of them as the words of a chunk, of which fields begin at any byte

template <Format F>
struct Blocks32 {
    static constexpr u32 kBytes = 8 * Decode<F>::bytes, kWords = kBytes / 4;
    static_assert(kBytes % 4 == 0);
    static FN void fetch(const SixteenRows &rows, size_t at, __m512i *w) {
        each<kWords / 16>([&](auto i) INLINE { load16(rows, at + 64 * i, w + 16 * i); });
        constexpr u32 rest = kWords % 16;
        static_assert(rest <= 4 || rest == 8 || rest == 12);
        if constexpr (rest == 8 || rest == 12) load8(rows, at + kBytes - 32, w + kWords - 8);
        if constexpr (rest == 12) load4(rows, at + kBytes - 48, w + kWords - 12);
        if constexpr (rest <= 4 && rest != 0) load4(rows, at + kBytes - 16, w + kWords - 4);
    }
    const __m512i *w;
    // The word at byte `at` of block b.
    template <u32 b, u32 at>
    FN __m512i word() const {
        constexpr u32 byte = b * Decode<F>::bytes + at, i = byte / 4;
        if constexpr (byte % 4 == 0)
            return w[i];
        else
            return funnel<byte % 4>(w[i], w[i + 1]);
    }
    // An f16 there.
    template <u32 b, u32 at>
    FN __m512 half() const {
        constexpr u32 byte = b * Decode<F>::bytes + at;
        return byte % 4 == 0 ? f16_to_f32(w[byte / 4]) : high_f16_to_f32(w[byte / 4]);
    }
    // use(j, v) for the four words of nibbles at byte `at`: those of v's low and high halves of bytes are codes of columns
    // 4j .. and 4j + 16 ..
    template <u32 b, u32 at, class Each>
    FN void nibbles(Each use) const {
        __m512i v[4];
        each<4>([&](auto j) INLINE { v[j] = once(word<b, at + 4 * j>()); });
        each<4>([&](auto j) INLINE { use(j, v[j], Const<0>{}); });
        each<4>([&](auto j) INLINE { use(Const<j + 4>{}, v[j], Const<4>{}); });
    }
    template <u32 b, class Use>
    FN void hand_out(Const<b> group, Use &use) const {
        if constexpr (Decode<F>::has_bias)
            use.scale(group, half<b, 0>(), half<b, 2>());
        else
            use.scale(group, half<b, 0>());
    }
};
#define RIDGE_BLOCKS32(NAME, offset, one_shift)                             \
    RIDGE_COLUMNS(NAME, offset, one_shift, Blocks32<Format::NAME>::kWords) \
    RIDGE_FETCH(NAME) { Blocks32<Format::NAME>::fetch(rows, at, w); }

// Q4_0 and Q4_1: d f16, perhaps m f16, sixteen bytes: the low nibbles, then the high ones.
template <Format F, u32 at, class Use>
FN void unpack_blocks4(const __m512i *w, Use &use) {
    const Blocks32<F> blocks{w};
    each<8>([&](auto b) INLINE {
        blocks.template nibbles<b, at>([&](auto j, __m512i v, auto place) INLINE { use.codes(b, j, place, and8(v, 15 << place)); });
        blocks.hand_out(b, use);
    });
}
RIDGE_BLOCKS32(Q4_0, 8, false)
RIDGE_UNPACK(Q4_0) { unpack_blocks4<Format::Q4_0, offset_of(q4_0_qs)>(w, use); }
RIDGE_BLOCKS32(Q4_1, 0, false)
RIDGE_UNPACK(Q4_1) { unpack_blocks4<Format::Q4_1, offset_of(q4_1_qs)>(w, use); }

// Q5_0 and Q5_1: a word of fifth bits before the nibbles.
template <Format F, u32 fifths, u32 at, class Use>
FN void unpack_blocks5(const __m512i *w, Use &use) {
    const Blocks32<F> blocks{w};
    each<8>([&](auto b) INLINE {
        const __m512i fifth = blocks.template word<b, fifths>();
        blocks.template nibbles<b, at>([&](auto j, __m512i v, auto place) INLINE {
            // Bits 4j .. 4j + 3 of a word, each in a byte.
            const __m512i byte = _mm512_set4_epi32(0x0c0c0c0c, 0x08080808, 0x04040404, 0);
            const __m512i spread = _mm512_shuffle_epi8(fifth, _mm512_add_epi8(byte, set8x64(j / 2)));
            const __mmask64 set = _mm512_test_epi8_mask(spread, _mm512_set1_epi32(j % 2 == 0 ? 0x08040201 : 0x80402010));
            const __m512i nibble = and8(shr(v, place), 15);
            use.codes(b, j, kUnshifted, _mm512_mask_add_epi8(nibble, set, nibble, set8x64(16)));
        });
        blocks.hand_out(b, use);
    });
}
RIDGE_BLOCKS32(Q5_0, 16, true)
RIDGE_UNPACK(Q5_0) { unpack_blocks5<Format::Q5_0, offset_of(q5_0_qh), offset_of(q5_0_qs)>(w, use); }
RIDGE_BLOCKS32(Q5_1, 0, true)
RIDGE_UNPACK(Q5_1) { unpack_blocks5<Format::Q5_1, offset_of(q5_1_qh), offset_of(q5_1_qs)>(w, use); }

RIDGE_BLOCKS32(Q8_0, 128, true)
RIDGE_UNPACK(Q8_0) {
    const Blocks32<Format::Q8_0> blocks{w};
    each<8>([&](auto b) INLINE {
        each<8>([&](auto j) INLINE {
            const __m512i v = blocks.template word<b, offset_of(q8_0_qs) + 4 * j>();
            use.codes(b, j, kUnshifted, _mm512_xor_si512(v, set8x64(128)));
        });
        blocks.hand_out(b, use);
    });
}

// ---- Nibbles that name one of sixteen levels

// Levels plus 128.
struct Levels {
    __m512i table;
    FN explicit Levels(u32 first_word) {
        const __m128i t = _mm_loadu_si128(reinterpret_cast<const __m128i *>(dialect::table_words + first_word));
        table = _mm512_xor_si512(_mm512_broadcast_i32x4(t), set8x64(128));
    }
    // Of the low nibbles, whatever the high ones are.
    FN __m512i of(__m512i v) const {
#if defined(RIDGE_ISA_AVX512VBMI)
        return _mm512_permutexvar_epi8(v, table);  // looks at six bits, and the table has the sixteen four times
#else
        return _mm512_shuffle_epi8(table, and8(v, 15));
#endif
    }
};
constexpr u32 first_word_of(u32 first, u32) { return first; }

RIDGE_BLOCKS32(IQ4_NL, 128, true)
RIDGE_UNPACK(IQ4_NL) {
    const Blocks32<Format::IQ4_NL> blocks{w};
    const Levels levels(first_word_of(iq4nl_values));
    each<8>([&](auto b) INLINE {
        blocks.template nibbles<b, offset_of(iq4_nl_qs)>([&](auto j, __m512i v, auto place) INLINE {
            use.codes(b, j, kUnshifted, levels.of(shr(v, place)));
        });
        blocks.hand_out(b, use);
    });
}
RIDGE_BLOCKS32(MXFP4, 128, true)
RIDGE_UNPACK(MXFP4) {
    const Blocks32<Format::MXFP4> blocks{w};
    const Levels levels(first_word_of(mxfp4_values));
    each<8>([&](auto b) INLINE {
        blocks.template nibbles<b, offset_of(mxfp4_qs)>([&](auto j, __m512i v, auto place) INLINE {
            use.codes(b, j, kUnshifted, levels.of(shr(v, place)));
        });
        // 2^(e - 128), subnormal for the smallest two.
        constexpr u32 byte = b * Decode<Format::MXFP4>::bytes + offset_of(mxfp4_e);
        const __m512i e = byte_of(w[byte / 4], byte % 4);
        const __m512i normal = shl(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
        const __m512i subnormal = _mm512_sllv_epi32(_mm512_set1_epi32(0x00200000), e);
        const __mmask16 small = _mm512_cmplt_epu32_mask(e, _mm512_set1_epi32(2));
        use.scale(b, _mm512_castsi512_ps(_mm512_mask_mov_epi32(normal, small, subnormal)));
    });
}
RIDGE_COLUMNS(IQ4_XS, 128, true, 36)
RIDGE_FETCH(IQ4_XS) {
    load4(rows, at, w);
    load16(rows, at + offset_of(iq4_xs_qs), w + 4), load16(rows, at + offset_of(iq4_xs_qs) + 64, w + 20);
}
RIDGE_UNPACK(IQ4_XS) {
    // w[0]: d f16 | two bits of each scale, w[1]: four bits of each scale
    static_assert(offset_of(iq4_xs_d) == 0 && offset_of(iq4_xs_scales_h) == 2 && offset_of(iq4_xs_scales_l) == 4);
    const __m512 d = f16_to_f32(w[0]);
    const Levels levels(first_word_of(iq4nl_values));
    each<8>([&](auto g) INLINE {
        each<8>([&](auto j) INLINE {
            const __m512i v = w[4 + 4 * g + j % 4];
            use.codes(g, j, kUnshifted, levels.of(j < 4 ? v : shr(v, 4)));
        });
        const __m512i low = _mm512_and_si512(shr(w[1], 4 * g), _mm512_set1_epi32(15));
        const __m512i high = _mm512_and_si512(shift(w[0], 4 - 16 - 2 * static_cast<int>(g)), _mm512_set1_epi32(0x30));
        use.scale(g, times(d, _mm512_sub_epi32(_mm512_or_si512(low, high), _mm512_set1_epi32(32))));
    });
}

}  // namespace RIDGE_ISA
}  // namespace ridge::cpu
