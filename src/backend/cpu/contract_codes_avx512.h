// With AVX-512: 64 codes of a row's chunk at once, as unsigned bytes (code + kOffset). Each says again what codes4 of its
// format says, for speed; the gate holds the two together bit by bit.
//
// Codes64<F>::load(chunk, i, one): codes of weights 64 i .. 64 i + 63 of the chunk of 256 that begins at `chunk`; with
// `one` only the first 32 lie in the row and the others are anything.
#pragma once

#include "backend/cpu/contract_unpack.h"

namespace ridge::cpu {
inline namespace RIDGE_ISA {

FN __m512i load512(const void *p) { return _mm512_loadu_si512(p); }
FN __m512i set8x64(int v) { return _mm512_set1_epi8(static_cast<char>(v)); }
// The same 32 bytes in both halves.
FN __m512i twice32(const std::byte *p) { return _mm512_broadcast_i64x4(bytes32(p)); }
// The words of the lower half shifted right by `low`, of the upper by `high`.
FN __m512i shift_halves(__m512i v, int low, int high) {
    return _mm512_srlv_epi16(v, _mm512_inserti64x4(_mm512_set1_epi16(static_cast<short>(low)),
                                                   _mm256_set1_epi16(static_cast<short>(high)), 1));
}
// 64 codes of two bits that lie in 32 bytes, from bit `shift` of each on, then from bit shift + 2.
FN __m512i pairs64(const std::byte *p, u32 shift) {
    const int s = static_cast<int>(shift);
    return _mm512_and_si512(shift_halves(twice32(p), s, s + 2), set8x64(3));
}
// Sixteen bytes at p and sixteen at q: low nibbles, high nibbles, low, high.
FN __m512i nibbles64(const std::byte *p, const std::byte *q) {
    const __m512i first = _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i *>(p)));
    const __m512i v =
        _mm512_mask_broadcast_i32x4(first, 0xff00, _mm_loadu_si128(reinterpret_cast<const __m128i *>(q)));
    const __m512i shift = _mm512_maskz_set1_epi16(0xff00ff00u, 4);
    return _mm512_and_si512(_mm512_srlv_epi16(v, shift), set8x64(15));
}
// Bytes that nibbles name in a table of 16, plus 128.
FN __m512i levels64(u32 first_word, u32, __m512i nibble) {
    const __m128i table = _mm_loadu_si128(reinterpret_cast<const __m128i *>(dialect::table_words + first_word));
    const __m512i unsigned_table = _mm512_xor_si512(_mm512_broadcast_i32x4(table), set8x64(128));
    return _mm512_shuffle_epi8(unsigned_table, nibble);
}
FN __mmask64 mask_of(u32 low, u32 high) { return _cvtu64_mask64(low | uint64_t{high} << 32); }

// From 32 codes at a time.
template <Format F>
struct Codes64 {
    static constexpr int32_t kOffset = Decode<F>::has_bias ? 0 : 128;
    static FN __m512i load(const std::byte *chunk, u32 i, bool one) {
        u32 g = 2 * i, next = g + 1;
        const std::byte *block = block_of<F>(chunk, g);
        __m512i v = _mm512_castsi256_si512(Codes<F>::load(block, g));
        if (!one) {
            block = block_of<F>(chunk, next);
            v = _mm512_inserti64x4(v, Codes<F>::load(block, next), 1);
        }
        return Decode<F>::has_bias ? v : _mm512_xor_si512(v, set8x64(128));
    }
};

#define RIDGE_CODES64(NAME, offset)                                       \
    template <>                                                           \
    struct Codes64<Format::NAME> {                                        \
        static constexpr int32_t kOffset = offset;                        \
        static FN __m512i load(const std::byte *b, u32 i, bool one);      \
    };                                                                    \
    FN __m512i Codes64<Format::NAME>::load(const std::byte *b, u32 i, [[maybe_unused]] bool one)

// ---- Blocks of 32. Where the second one does not lie in the row, the first one is read twice.

template <Format F>
struct TwoBlocks {
    const std::byte *first, *second;
    FN TwoBlocks(const std::byte *chunk, u32 i, bool one)
        : first(chunk + 2 * i * size_t{Decode<F>::bytes}), second(one ? first : first + Decode<F>::bytes) {}
    // Sixteen bytes of each as nibbles.
    FN __m512i nibbles(size_t offset) const { return nibbles64(first + offset, second + offset); }
    // Four bytes of each as 64 bits.
    FN __mmask64 mask(size_t offset) const { return mask_of(load_u32(first + offset), load_u32(second + offset)); }
};

RIDGE_CODES64(Q4_0, 8) { return TwoBlocks<Format::Q4_0>(b, i, one).nibbles(offset_of(q4_0_qs)); }
RIDGE_CODES64(Q4_1, 0) { return TwoBlocks<Format::Q4_1>(b, i, one).nibbles(offset_of(q4_1_qs)); }
RIDGE_CODES64(Q5_0, 16) {
    const TwoBlocks<Format::Q5_0> two(b, i, one);
    const __m512i v = two.nibbles(offset_of(q5_0_qs));
    return _mm512_mask_add_epi8(v, two.mask(offset_of(q5_0_qh)), v, set8x64(16));
}
RIDGE_CODES64(Q5_1, 0) {
    const TwoBlocks<Format::Q5_1> two(b, i, one);
    const __m512i v = two.nibbles(offset_of(q5_1_qs));
    return _mm512_mask_add_epi8(v, two.mask(offset_of(q5_1_qh)), v, set8x64(16));
}
RIDGE_CODES64(IQ4_NL, 128) {
    return levels64(iq4nl_values, TwoBlocks<Format::IQ4_NL>(b, i, one).nibbles(offset_of(iq4_nl_qs)));
}
RIDGE_CODES64(MXFP4, 128) {
    return levels64(mxfp4_values, TwoBlocks<Format::MXFP4>(b, i, one).nibbles(offset_of(mxfp4_qs)));
}
RIDGE_CODES64(Q8_0, 128) {
    const TwoBlocks<Format::Q8_0> two(b, i, one);
    const __m512i v = _mm512_inserti64x4(_mm512_castsi256_si512(bytes32(two.first + offset_of(q8_0_qs))),
                                         bytes32(two.second + offset_of(q8_0_qs)), 1);
    return _mm512_xor_si512(v, set8x64(128));
}

// ---- Blocks of 256: all of a chunk lies in one.

RIDGE_CODES64(IQ4_XS, 128) {
    const std::byte *qs = b + offset_of(iq4_xs_qs) + 32 * i;
    return levels64(iq4nl_values, nibbles64(qs, qs + 16));
}
RIDGE_CODES64(TQ2_0, 1) { return pairs64(b + offset_of(tq2_0_qs) + 32 * (i / 2), 4 * (i % 2)); }
RIDGE_CODES64(Q2_K, 0) { return pairs64(b + offset_of(q2_K_qs) + 32 * (i / 2), 4 * (i % 2)); }
RIDGE_CODES64(Q3_K, 4) {
    const __m512i v = pairs64(b + offset_of(q3_K_qs) + 32 * (i / 2), 4 * (i % 2));
    const __m512i bit = _mm512_inserti64x4(set8x64(1 << (2 * i)), set8(1 << (2 * i + 1)), 1);
    const __mmask64 third = _mm512_test_epi8_mask(twice32(b + offset_of(q3_K_hmask)), bit);
    return _mm512_mask_add_epi8(v, third, v, set8x64(4));
}
RIDGE_CODES64(Q4_K, 0) {
    return _mm512_and_si512(shift_halves(twice32(b + offset_of(q4_K_qs) + 32 * i), 0, 4), set8x64(15));
}
RIDGE_CODES64(Q5_K, 0) {
    const __m512i v = _mm512_and_si512(shift_halves(twice32(b + offset_of(q5_K_qs) + 32 * i), 0, 4), set8x64(15));
    const __m512i bit = _mm512_inserti64x4(set8x64(1 << (2 * i)), set8(1 << (2 * i + 1)), 1);
    const __mmask64 fifth = _mm512_test_epi8_mask(twice32(b + offset_of(q5_K_qh)), bit);
    return _mm512_mask_add_epi8(v, fifth, v, set8x64(16));
}
RIDGE_CODES64(Q6_K, 32) {
    __m512i low = load512(b + offset_of(q6_K_ql) + 64 * (i / 2));
    if (i % 2 == 1) low = _mm512_srli_epi16(low, 4);
    const __m512i pairs = pairs64(b + offset_of(q6_K_qh) + 32 * (i / 2), 4 * (i % 2));
    return _mm512_or_si512(_mm512_and_si512(low, set8x64(15)), _mm512_slli_epi16(pairs, 4));
}
#undef RIDGE_CODES64

}  // namespace RIDGE_ISA
}  // namespace ridge::cpu
