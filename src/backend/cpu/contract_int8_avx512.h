// The int8 kernels of contract and gate_up with AVX-512 and VNNI.
//
// vpdpbusd multiplies unsigned by signed bytes: formats without a bias have code + offset in their vectors, and offset
// times the sum of the activations is taken off again, exactly, in integers. The five formats with a bias have codes
// >= 0.
//
// Stored words of sixteen rows are transposed, then unpacked for all rows at once (contract_columns_avx512.h): a vector
// holds four codes of each of sixteen rows, and a vpdpbusd with four activations broadcast from memory advances sixteen
// rows by four codes. No sum crosses lanes.
//
//   one token: vectors of codes are used as they arise.
//   more: they are kept as [k / 4][16 rows][4]. Two panels of sixteen rows and six tokens are in registers: a
//   broadcast then serves two vpdpbusd, and of what Zen 5 does in a cycle (two vpdpbusd, two loads) the loads are not
//   the scarcer. A block of 32 costs 8 vpdpbusd and a multiplication and an fma in the same two pipes: at most 80% of
//   the rate of vpdpbusd, 73% with a bias or with two groups in a block.
#pragma once

#include "backend/cpu/contract_columns_avx512.h"
#if defined(RIDGE_ISA_AVX512VBMI)
#include "backend/cpu/contract_grids_avx512vbmi.h"
#endif
#include "backend/cpu/contract_loops.h"

namespace ridge::cpu {
inline namespace RIDGE_ISA {
namespace {

FN __m512i four_codes(const int8_t *x) {
    int32_t v;
    __builtin_memcpy(&v, x, 4);
    return _mm512_set1_epi32(v);
}

template <Format F>
constexpr Bytes64 kOrder = [] {
    Bytes64 t = {};
    for (u32 i = 0; i < 64; i++) t.byte[i] = static_cast<uint8_t>(i / 32 * 32 + Columns<F>::column(i % 32 / 4, i % 4));
    return t;
}();

struct Int8 {
    static constexpr uint32_t kTokens = 1;      // of the streaming form
    static constexpr uint32_t kManyTokens = 2;  // from here on the matrix form is faster
    static constexpr uint32_t kPanels = 4;      // with activations at hand they fill L1
    static constexpr FormatSet kFormats = FormatSet::quantized();
    template <Format F>
    static constexpr size_t kBytes = kChunk / Decode<F>::block *size_t{Decode<F>::bytes};
    template <Format F>
    static constexpr uint32_t kLines = (kLanes * kBytes<F> + 63) / 64;  // of memory, of sixteen rows
    // Of those the lines that are asked for while others are fetched; the rest while codes are handed out, 64 times.
    template <Format F>
    static constexpr uint32_t kFirstLines = kLines<F> - kLines<F> / 2;
    template <Format F, uint32_t call>
    static FN void ask_rest(Later &later) {
        constexpr uint32_t rest = kLines<F> / 2;
        later.ask<(call + 1) * rest / 64 - call * rest / 64>();
    }
    template <Format F>
    static constexpr int32_t offset() {
        return Columns<F>::kOffset;
    }

    // A chunk that does not lie whole in sixteen rows an equal distance apart (the last columns, the last rows of a
    // matrix), brought together.
    template <Format F>
    struct ShortChunk {
        alignas(64) std::byte bytes[kChunkRows][kBytes<F>] = {};
        SixteenRows rows{bytes[0], kBytes<F>};
        ShortChunk(const Rows &from, size_t at, uint32_t blocks) {
            const size_t some = Decode<F>::block == 32 ? blocks * size_t{Decode<F>::bytes} : kBytes<F>;
            for (uint32_t r = 0; r < kChunkRows; r++) __builtin_memcpy(bytes[r], from.row[r] + at, some);
        }
    };
    // Whether all rows are there; of a single one they all are.
    static FN bool all_apart(const Rows &rows) {
        return rows.row[kChunkRows - 1] - rows.row[0] == (kChunkRows - 1) * (rows.row[1] - rows.row[0]);
    }

    // Puts a chunk of sixteen rows into a panel.
    template <Format F>
    struct ToPanel {
        static constexpr bool kHalves = Decode<F>::group == 16, kBias = Decode<F>::has_bias;
        static constexpr bool kNatural = true;
        Panel &panel;
        Later later;
        template <uint32_t g, uint32_t j, uint32_t shift>
        FN void codes(Const<g>, Const<j>, Const<shift>, __m512i v) {
            ask_rest<F, 8 * g + j>(later);
            _mm512_store_si512(panel.codes[8 * g + j], shr(v, shift));
        }
        template <uint32_t g, class... V>
        FN void scale(Const<g>, V... v) const {
            const __m512 s[] = {v...};
            constexpr uint32_t n = kHalves ? 2 : 1;
            static_assert(sizeof...(v) == (kBias ? 2 * n : n));
            for (uint32_t i = 0; i < n; i++) {
                _mm512_store_ps(panel.scales.scale[n * g + i], s[i]);
                if constexpr (kBias) _mm512_store_ps(panel.scales.bias[n * g + i], s[n + i]);
            }
        }
    };
    // Half of the lines from `later` on are asked for while the rows are fetched, the others while they are unpacked.
    template <Format F>
    static void unpack_whole(const SixteenRows &rows, size_t at, Panel &panel, const std::byte *later) {
        __m512i w[Columns<F>::kWords];
        Columns<F>::fetch(rows, at, w);
        ToPanel<F> to{panel, {later + 64 * kFirstLines<F>}};
        Columns<F>::unpack(w, to);
    }
    template <Format F>
    static void unpack(const Rows &rows, uint32_t first, uint32_t blocks, Panel &panel, const std::byte *later) {
        const size_t at = first / kChunkBlocks * kBytes<F>;
        Later half{later};
        if (blocks < kChunkBlocks || !all_apart(rows))
            unpack_whole<F>(ShortChunk<F>(rows, at, blocks).rows, 0, panel, later);
        else
            unpack_whole<F>(SixteenRows{rows.row[0], static_cast<size_t>(rows.row[1] - rows.row[0]), &half}, at, panel,
                            later);
    }

    // Multiplies a chunk of sixteen rows with one token.
    template <Format F>
    struct ToSum {
        static constexpr bool kHalves = Decode<F>::group == 16, kBias = Decode<F>::has_bias;
        static constexpr bool kNatural = false;
        static constexpr bool kSplit = kHalves || !Columns<F>::kOneShift;
        const int8_t *x;
        const TokenChunk &token;
        const uint32_t blocks;  // what lies behind them is not added: it would make +0 of -0
        __m512 &sum;
        Later later;
        __m512i dot[kChunkBlocks][2];
        FN ToSum(const int8_t *x_, const TokenChunk &token_, uint32_t blocks_, __m512 &sum_, Later later_)
            : x(x_), token(token_), blocks(blocks_), sum(sum_), later(later_) {}
        template <uint32_t g, uint32_t j, uint32_t shift>
        FN void codes(Const<g>, Const<j>, Const<shift>, __m512i v) {
            constexpr uint32_t half = kSplit ? j / 4 : 0, i = kHalves ? 2 * g + half : g;
            constexpr bool excess = !kBias && (kHalves || half == 0);
            constexpr uint32_t per = kSplit ? 4 : 8;
            ask_rest<F, 8 * g + j>(later);
            __m512i &to = dot[g][half];
            if constexpr (j % per == 0)
                to = excess && shift == 0 ? _mm512_set1_epi32(token.minus_excess[i]) : _mm512_setzero_si512();
            to = _mm512_dpbusd_epi32(to, v, four_codes(x + 32 * g + 4 * j));
            if constexpr (j % per == per - 1) {
                if constexpr (shift != 0) {
                    to = _mm512_srai_epi32(to, shift);
                    if constexpr (excess) to = _mm512_add_epi32(to, _mm512_set1_epi32(token.minus_excess[i]));
                }
            }
        }
        template <uint32_t g>
        FN void add_bias(__m512 bias, uint32_t i) {
            sum = _mm512_fmadd_ps(bias, _mm512_set1_ps(token.scaled_total[i]), sum);
        }
        template <uint32_t g>
        FN void whole(__m512 scale) {
            __m512i d = dot[g][0];
            if constexpr (kSplit) d = _mm512_add_epi32(d, dot[g][1]);
            sum = _mm512_fmadd_ps(_mm512_mul_ps(scale, _mm512_set1_ps(token.x_scale[g])), _mm512_cvtepi32_ps(d), sum);
        }
        template <uint32_t g>
        FN void halves(__m512 a, __m512 b) {
            const __m512 first = _mm512_mul_ps(a, _mm512_cvtepi32_ps(dot[g][0]));
            const __m512 both = _mm512_fmadd_ps(b, _mm512_cvtepi32_ps(dot[g][1]), first);
            sum = _mm512_fmadd_ps(both, _mm512_set1_ps(token.x_scale[g]), sum);
        }
        template <uint32_t g>
        FN void scale(Const<g>, __m512 a) {
            if (g < blocks) whole<g>(a);
        }
        template <uint32_t g>
        FN void scale(Const<g>, __m512 a, __m512 b) {
            if (g >= blocks) return;
            if constexpr (kHalves) {
                halves<g>(a, b);
            } else {
                whole<g>(a);
                sum = _mm512_fmadd_ps(b, _mm512_set1_ps(token.scaled_total[g]), sum);
            }
        }
        template <uint32_t g>
        FN void scale(Const<g>, __m512 a, __m512 b, __m512 bias_a, __m512 bias_b) {
            if (g >= blocks) return;
            halves<g>(a, b);
            sum = _mm512_fmadd_ps(bias_a, _mm512_set1_ps(token.scaled_total[2 * g]), sum);
            sum = _mm512_fmadd_ps(bias_b, _mm512_set1_ps(token.scaled_total[2 * g + 1]), sum);
        }
    };

    // A chunk's products with 256 codes at x.
    template <Format F>
    static FN void add_chunk(const __m512i *words, const int8_t *x, const TokenChunk &token, uint32_t blocks,
                             __m512 &sum, Later later) {
#if defined(RIDGE_ISA_AVX512VBMI)
        if constexpr (requires { Columns<F>::column(0, 0); }) {
            alignas(64) int8_t ordered[kChunk];
            for (uint32_t i = 0; i < kChunk; i += 64)
                _mm512_store_si512(ordered + i, _mm512_permutexvar_epi8(vector(kOrder<F>), _mm512_loadu_si512(x + i)));
            Columns<F>::unpack(words, ToSum<F>(ordered, token, blocks, sum, later));
            return;
        }
#endif
        Columns<F>::unpack(words, ToSum<F>(x, token, blocks, sum, later));
    }

    // Sums of sixteen rows for one token. While a chunk is multiplied the next one is fetched, and the lines of as many
    // bytes of the next sixteen rows: memory is read in the order it lies.
    template <Format F>
    static void stream(const Work &w, const Rows &rows, uint32_t, StreamScratch<Int8> &s, float (*sums)[kLanes]) {
        constexpr bool kHalves = Decode<F>::group == 16, kBias = Decode<F>::has_bias;
        const int8_t *x = w.codes + size_t{s.x_row[0]} * w.k;
        const size_t x_block = size_t{s.x_row[0]} * (w.k / 32);
        const auto prepare_blocks = [&](uint32_t first, uint32_t blocks) __attribute__((always_inline)) {
            prepare<kHalves, kBias>(w.scale + x_block + first, w.sums + 2 * (x_block + first), blocks, offset<F>(),
                                    s.token);
        };
        const auto step = static_cast<size_t>(rows.row[1] - rows.row[0]);
        const std::byte *next = rows.row[0] + kLanes * step;  // sixteen rows
        Later later{next};
        const SixteenRows apart{rows.row[0], step, &later};
        const uint32_t whole = all_apart(rows) ? w.k / kChunk : 0;
        __m512 sum = _mm512_setzero_ps();
        __m512i words[2][Columns<F>::kWords];
        if (whole > 0) Columns<F>::fetch(apart, 0, words[0]);
        for (uint32_t c = 0; c < whole; c++, next += kLanes * kBytes<F>) {
            // The lines' first half, the second one in add_chunk.
            later.next = next;
            if (c + 1 < whole)
                Columns<F>::fetch(apart, (c + 1) * kBytes<F>, words[(c + 1) % 2]);
            else
                later.ask<kFirstLines<F>>();
            prepare_blocks(kChunkBlocks * c, kChunkBlocks);
            add_chunk<F>(words[c % 2], x + kChunk * c, s.token, kChunkBlocks, sum,
                         {next + 64 * kFirstLines<F>});
        }
        for (uint32_t first = whole * kChunkBlocks, all = w.k / 32; first < all; first += kChunkBlocks) {
            const uint32_t blocks = all - first < kChunkBlocks ? all - first : kChunkBlocks;
            Columns<F>::fetch(ShortChunk<F>(rows, first / kChunkBlocks * kBytes<F>, blocks).rows, 0, words[0]);
            prepare_blocks(first, blocks);
            alignas(64) int8_t padded[kChunk] = {};
            __builtin_memcpy(padded, x + 32 * first, 32 * blocks);
            add_chunk<F>(words[0], padded, s.token, blocks, sum, {next});
        }
        _mm512_store_ps(sums[0], sum);
    }

    static constexpr uint32_t kAtOnce = 6;  // tokens

    // What is made ready for the tokens at hand.
    struct Token {
        const int8_t *x;
        TokenChunk chunk;
    };

    // Adds `blocks` blocks of G panels to the sums of T tokens.
    template <uint32_t G, uint32_t T, bool kHalves, bool kBias>
    static void multiply_tokens(const Panel *panels, uint32_t blocks, const Token *token,
                                float (*sums)[kListed][kLanes]) {
        const int8_t *x[T];
#pragma GCC unroll 6
        for (uint32_t t = 0; t < T; t++) x[t] = token[t].x;
        __m512 sum[G][T];
#pragma GCC unroll 12
        for (uint32_t i = 0; i < G * T; i++) sum[i / T][i % T] = _mm512_load_ps(sums[i / T][i % T]);
        constexpr uint32_t halves = kHalves ? 2 : 1, fours = 8 / halves;
        const auto dot_group = [&](uint32_t h, __m512i(&dot)[G][T]) __attribute__((always_inline)) {
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
                        sum[i / T][i % T] =
                            _mm512_fmadd_ps(_mm512_load_ps(panels[i / T].scales.bias[h]),
                                            _mm512_set1_ps(token[i % T].chunk.scaled_total[h]), sum[i / T][i % T]);
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
