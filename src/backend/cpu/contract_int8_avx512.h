// The int8 kernels of contract and gate_up with AVX-512 and VNNI.
//
// vpdpbusd multiplies unsigned by signed bytes: formats without a bias have code + offset in their vectors, and offset
// times the sum of the activations is taken off again, exactly, in integers. The five formats with a bias have codes
// >= 0.
//
//   few tokens: four rows' 64 codes at once, unpacked in registers and used for every token; the lanes of the four dots
//   are added to sums of 16 codes.
//   many: sixteen rows' codes are transposed to [k / 4][16 rows][4], so that a vpdpbusd with four activations broadcast
//   from memory advances sixteen rows by four codes. Two panels of sixteen rows and six tokens are in registers: a
//   broadcast then serves two vpdpbusd, and of what Zen 5 does in a cycle (two vpdpbusd, two loads) the loads are not
//   the scarcer. A block of 32 costs 8 vpdpbusd and a multiplication and an fma in the same two pipes: at most 80% of
//   the rate of vpdpbusd, 73% with a bias or with two groups in a block.
#pragma once

#include "backend/cpu/contract_codes_avx512.h"
#include "backend/cpu/contract_loops.h"
#include "backend/cpu/contract_scales_avx512.h"

namespace ridge::cpu {
inline namespace RIDGE_ISA {
namespace {

// 4x4 dwords within each 128 bits: from rows to columns.
FN void transpose4(__m512i &a, __m512i &b, __m512i &c, __m512i &d) {
    const __m512i ab_low = _mm512_unpacklo_epi32(a, b), ab_high = _mm512_unpackhi_epi32(a, b);
    const __m512i cd_low = _mm512_unpacklo_epi32(c, d), cd_high = _mm512_unpackhi_epi32(c, d);
    a = _mm512_unpacklo_epi64(ab_low, cd_low), b = _mm512_unpackhi_epi64(ab_low, cd_low);
    c = _mm512_unpacklo_epi64(ab_high, cd_high), d = _mm512_unpackhi_epi64(ab_high, cd_high);
}
// 4x4 of 128 bits.
FN void transpose128(__m512i &a, __m512i &b, __m512i &c, __m512i &d) {
    const __m512i ab_low = _mm512_shuffle_i32x4(a, b, 0x88), ab_high = _mm512_shuffle_i32x4(a, b, 0xdd);
    const __m512i cd_low = _mm512_shuffle_i32x4(c, d, 0x88), cd_high = _mm512_shuffle_i32x4(c, d, 0xdd);
    a = _mm512_shuffle_i32x4(ab_low, cd_low, 0x88), c = _mm512_shuffle_i32x4(ab_low, cd_low, 0xdd);
    b = _mm512_shuffle_i32x4(ab_high, cd_high, 0x88), d = _mm512_shuffle_i32x4(ab_high, cd_high, 0xdd);
}

// Sums of each four lanes of v[0..3], as four lanes in their place.
FN __m512i add_lanes4(const __m512i *v) {
    const __m512i a = _mm512_add_epi32(_mm512_unpacklo_epi32(v[0], v[1]), _mm512_unpackhi_epi32(v[0], v[1]));
    const __m512i b = _mm512_add_epi32(_mm512_unpacklo_epi32(v[2], v[3]), _mm512_unpackhi_epi32(v[2], v[3]));
    return _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
}

FN __m512i four_codes(const int8_t *x) {
    int32_t v;
    __builtin_memcpy(&v, x, 4);
    return _mm512_set1_epi32(v);
}

struct Int8 {
    static constexpr uint32_t kTokens = 4;      // of the streaming form
    static constexpr uint32_t kManyTokens = 5;  // from here on the matrix form is faster
    static constexpr uint32_t kPanels = 8;
    static constexpr FormatSet kFormats = FormatSet::quantized();
    template <Format F>
    static constexpr int32_t offset() {
        return Codes64<F>::kOffset;
    }

    // Four rows' dots with 64 codes of token t, from row `r` of the sixteen on, to groups 4 i .. 4 i + 3 (or two groups
    // of 32) of a chunk.
    template <bool kHalves>
    static FN void dots64(const __m512i *w, __m512i x, uint32_t i, uint32_t r, int32_t (*to)[kLanes]) {
        __m512i v[4];
#pragma GCC unroll 4
        for (uint32_t q = 0; q < 4; q++) v[q] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), w[q], x);
        const __m512i sums = add_lanes4(v);
        const auto put = [&](uint32_t g, __m128i four) __attribute__((always_inline)) {
            _mm_store_si128(reinterpret_cast<__m128i *>(to[g] + r), four);
        };
        if constexpr (kHalves) {
            put(4 * i, _mm512_castsi512_si128(sums));
            put(4 * i + 1, _mm512_extracti32x4_epi32(sums, 1));
            put(4 * i + 2, _mm512_extracti32x4_epi32(sums, 2));
            put(4 * i + 3, _mm512_extracti32x4_epi32(sums, 3));
        } else {
            const __m512i both = _mm512_add_epi32(sums, _mm512_shuffle_i32x4(sums, sums, 0xb1));
            put(2 * i, _mm512_castsi512_si128(both));
            put(2 * i + 1, _mm512_extracti32x4_epi32(both, 2));
        }
    }

    // Four rows from row `r` on with `tokens` tokens, over the span.
    template <Format F>
    static FN void dots_of_four(const SpanCall &call, uint32_t r, uint32_t tokens, SpanDots<kTokens> &dots) {
        constexpr bool kHalves = Decode<F>::group == 16;
        constexpr size_t kBytes = kChunk / Decode<F>::block * size_t{Decode<F>::bytes};
        // Eight rows further: what is read next but one.
        const size_t ahead = static_cast<size_t>(call.rows.row[kLanes - 1] - call.rows.row[0]) / 2;
        const std::byte *chunk[4];
#pragma GCC unroll 4
        for (uint32_t q = 0; q < 4; q++) chunk[q] = call.rows.row[r + q] + call.first * kBytes;
        const auto quarter = [&](uint32_t c, uint32_t i, bool one) __attribute__((always_inline)) {
            __m512i w[4];
#pragma GCC unroll 4
            for (uint32_t q = 0; q < 4; q++) w[q] = Codes64<F>::load(chunk[q], i, one);
            for (uint32_t t = 0; t < tokens; t++) {
                const int8_t *x = call.x[t] + kChunk * c + 64 * i;
                dots64<kHalves>(w, one ? _mm512_maskz_loadu_epi8(0xffffffffu, x) : load512(x), i, r, dots.of[t][c]);
            }
        };
        uint32_t c = 0;
        for (; (c + 1) * kChunkBlocks <= call.blocks; c++) {
#pragma GCC unroll 4
            for (uint32_t i = 0; i < 4; i++) {
                for (size_t line = 0; line < kBytes; line += 64) __builtin_prefetch(chunk[i] + ahead + line);
                quarter(c, i, false);
            }
#pragma GCC unroll 4
            for (uint32_t q = 0; q < 4; q++) chunk[q] += kBytes;
        }
        const uint32_t rest = call.blocks - c * kChunkBlocks;
        for (uint32_t i = 0; 2 * i < rest; i++) quarter(c, i, 2 * i + 1 == rest);
    }

    template <Format F>
    static void dots(const SpanCall &call, SpanDots<kTokens> &dots) {
        for (uint32_t r = 0; r < kLanes; r += 4) {
            if (call.tokens == 1)
                dots_of_four<F>(call, r, 1, dots);
            else
                dots_of_four<F>(call, r, call.tokens, dots);
        }
    }

    template <Format F>
    static void interleave(const Rows &rows, uint32_t chunk, uint32_t blocks, uint8_t (*codes)[kLanes][4]) {
        const size_t at = chunk * (kChunk / Decode<F>::block * size_t{Decode<F>::bytes});
        const auto quarter = [&](uint32_t i, bool one) __attribute__((always_inline)) {
            __m512i v[16];
#pragma GCC unroll 16
            for (uint32_t r = 0; r < 16; r++) v[r] = Codes64<F>::load(rows.row[r] + at, i, one);
#pragma GCC unroll 4
            for (uint32_t q = 0; q < 16; q += 4) transpose4(v[q], v[q + 1], v[q + 2], v[q + 3]);
#pragma GCC unroll 4
            for (uint32_t q = 0; q < 4; q++) {
                transpose128(v[q], v[q + 4], v[q + 8], v[q + 12]);
#pragma GCC unroll 4
                for (uint32_t p = 0; p < 4; p++) _mm512_store_si512(codes[16 * i + 4 * p + q], v[q + 4 * p]);
            }
        };
        if (blocks == kChunkBlocks) {
            for (uint32_t i = 0; i < 4; i++) quarter(i, false);
        } else {
            for (uint32_t i = 0; 2 * i < blocks; i++) quarter(i, 2 * i + 1 == blocks);
        }
    }

    static constexpr uint32_t kAtOnce = 6;  // tokens

    // What is made ready for the tokens at hand.
    struct Token {
        const int8_t *x;
        TokenChunk chunk;
    };

    // Adds `blocks` blocks of G panels to the sums of T tokens.
    template <uint32_t G, uint32_t T, bool kHalves, bool kBias>
    static void multiply_tokens(const Panel *panels, uint32_t blocks, const Token *token, float (*sums)[kListed][kLanes]) {
        const int8_t *x[T];
#pragma GCC unroll 6
        for (uint32_t t = 0; t < T; t++) x[t] = token[t].x;
        __m512 sum[G][T];
#pragma GCC unroll 12
        for (uint32_t i = 0; i < G * T; i++) sum[i / T][i % T] = _mm512_load_ps(sums[i / T][i % T]);
        constexpr uint32_t halves = kHalves ? 2 : 1, fours = 8 / halves;
        const auto dot_group = [&](uint32_t h, __m512i (&dot)[G][T]) __attribute__((always_inline)) {
#pragma GCC unroll 12
            for (uint32_t i = 0; i < G * T; i++)
                dot[i / T][i % T] =
                    kBias ? _mm512_setzero_si512() : _mm512_set1_epi32(token[i % T].chunk.minus_excess[h]);
#pragma GCC unroll 8
            for (uint32_t j = 0; j < fours; j++) {
                __m512i w[G];
#pragma GCC unroll 2
                for (uint32_t g = 0; g < G; g++) w[g] = _mm512_load_si512(panels[g].codes[fours * h + j]);
#pragma GCC unroll 6
                for (uint32_t t = 0; t < T; t++) {
                    const __m512i xs = four_codes(x[t] + 4 * (fours * h + j));
#pragma GCC unroll 2
                    for (uint32_t g = 0; g < G; g++) dot[g][t] = _mm512_dpbusd_epi32(dot[g][t], w[g], xs);
                }
            }
        };
        for (uint32_t b = 0; b < blocks; b++) {
            __m512i dot[G][T];
            if constexpr (kHalves) {
                __m512 both[G][T];
                dot_group(2 * b, dot);
#pragma GCC unroll 12
                for (uint32_t i = 0; i < G * T; i++)
                    both[i / T][i % T] = _mm512_mul_ps(_mm512_load_ps(panels[i / T].scales.scale[2 * b]),
                                                       _mm512_cvtepi32_ps(dot[i / T][i % T]));
                dot_group(2 * b + 1, dot);
#pragma GCC unroll 12
                for (uint32_t i = 0; i < G * T; i++) {
                    const uint32_t g = i / T, t = i % T;
                    both[g][t] = _mm512_fmadd_ps(_mm512_load_ps(panels[g].scales.scale[2 * b + 1]),
                                                 _mm512_cvtepi32_ps(dot[g][t]), both[g][t]);
                    sum[g][t] = _mm512_fmadd_ps(both[g][t], _mm512_set1_ps(token[t].chunk.x_scale[b]), sum[g][t]);
                }
            } else {
                dot_group(b, dot);
#pragma GCC unroll 12
                for (uint32_t i = 0; i < G * T; i++) {
                    const uint32_t g = i / T, t = i % T;
                    const __m512 scale = _mm512_mul_ps(_mm512_load_ps(panels[g].scales.scale[b]),
                                                       _mm512_set1_ps(token[t].chunk.x_scale[b]));
                    sum[g][t] = _mm512_fmadd_ps(scale, _mm512_cvtepi32_ps(dot[g][t]), sum[g][t]);
                }
            }
            if constexpr (kBias)
#pragma GCC unroll 2
                for (uint32_t h = halves * b; h < halves * (b + 1); h++)
#pragma GCC unroll 12
                    for (uint32_t i = 0; i < G * T; i++)
                        sum[i / T][i % T] = _mm512_fmadd_ps(_mm512_load_ps(panels[i / T].scales.bias[h]),
                                                            _mm512_set1_ps(token[i % T].chunk.scaled_total[h]),
                                                            sum[i / T][i % T]);
        }
#pragma GCC unroll 12
        for (uint32_t i = 0; i < G * T; i++) _mm512_store_ps(sums[i / T][i % T], sum[i / T][i % T]);
    }

    template <uint32_t T, bool kHalves, bool kBias>
    static void multiply_some(const MatrixCall &call, uint32_t first, const Token *token) {
        const auto sums = [&](uint32_t panel) {
            return reinterpret_cast<float(*)[kListed][kLanes]>(call.sums[panel][first]);
        };
        uint32_t panel = 0;
        for (; panel + 2 <= call.groups; panel += 2)
            multiply_tokens<2, T, kHalves, kBias>(call.panel + panel, call.blocks, token, sums(panel));
        if (panel < call.groups)
            multiply_tokens<1, T, kHalves, kBias>(call.panel + panel, call.blocks, token, sums(panel));
    }

    template <bool kHalves, bool kBias>
    static void prepare_some(const MatrixCall &call, uint32_t first, Token *token) {
        const uint32_t end = call.tokens - first < kAtOnce ? call.tokens : first + kAtOnce;
        for (uint32_t t = first; t < end; t++, token++) {
            const size_t x_block = size_t{call.x_row[t]} * (call.work.k / 32) + call.first;
            token->x = call.work.codes + 32 * x_block;
            for (uint32_t i = 0; i < kChunk; i += 64) __builtin_prefetch(token->x + i);
            prepare<kHalves, kBias>(call.work.scale + x_block, call.work.sums + 2 * x_block, call.blocks, call.offset,
                                    token->chunk);
        }
    }

    template <bool kHalves, bool kBias>
    static void multiply(const MatrixCall &call) {
        // Some tokens are made ready while those before them are multiplied: their scales and codes come from L2.
        Token token[2][kAtOnce];
        prepare_some<kHalves, kBias>(call, 0, token[0]);
        uint32_t t = 0, now = 0;
        for (; t + kAtOnce <= call.tokens; t += kAtOnce, now ^= 1) {
            if (t + kAtOnce < call.tokens) prepare_some<kHalves, kBias>(call, t + kAtOnce, token[now ^ 1]);
            multiply_some<kAtOnce, kHalves, kBias>(call, t, token[now]);
        }
        switch (call.tokens - t) {
            case 1:
                return multiply_some<1, kHalves, kBias>(call, t, token[now]);
            case 2:
                return multiply_some<2, kHalves, kBias>(call, t, token[now]);
            case 3:
                return multiply_some<3, kHalves, kBias>(call, t, token[now]);
            case 4:
                return multiply_some<4, kHalves, kBias>(call, t, token[now]);
            case 5:
                return multiply_some<5, kHalves, kBias>(call, t, token[now]);
            default:
                return;
        }
    }
};

}  // namespace
}  // namespace RIDGE_ISA
}  // namespace ridge::cpu
