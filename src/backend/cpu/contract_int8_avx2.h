// The inner loops of contract with int8 for AVX2, and with RIDGE_ISA_AVXVNNI for its 256-bit vpdpbusd.
//
// A product is eight rows' codes, four each (contract_columns_avx2.h), times four activations broadcast from memory.
// With vpmaddubsw its lanes are sums of two products in 16 bits: |x| <= 127, so that up to codes of 15 eight of them
// can be added before vpmaddwd adds the two halves of a row's dword to 32 bits, up to 31 four, up to 63 two. Codes that
// need eight bits have their sign given to the activations instead (Q8_0, IQ4). vpdpbusd does all of that at once.
//
//   one token: eight rows at a time, multiplied as they are unpacked in registers.
//   more: panels of sixteen rows, unpacked once to [k / 4][16 rows][4]. Four tokens times sixteen rows are eight
//   registers of sums, two of codes, one of activations and one product; a block of 32 of eight rows and a token costs
//   6 loads for 8 vpmaddubsw. Of what Zen 5 does in a cycle (two multiplications, four operations, two loads) the
//   multiplications are the scarcest: with 4-bit codes 8 vpmaddubsw, a vpmaddwd, a vmulps and an fma, so at most 73% of
//   the rate of vpmaddubsw (64 products per cycle), 67% with a bias or 5-bit codes, 53% with the 6 bits and groups of 16
//   of Q6_K, 44% with 8 bits; of vpdpbusd 80%, 73% with a bias or groups of 16.
#pragma once

#include <utility>

#include "backend/cpu/contract_columns_avx2.h"
#include "backend/cpu/contract_grids_avx2.h"
#include "backend/cpu/contract_loops.h"
#include "backend/cpu/contract_scales_avx2.h"

namespace ridge::cpu {
inline namespace RIDGE_ISA {

FN __m256i four_codes(const int8_t *x) {
    int32_t v;
    __builtin_memcpy(&v, x, 4);
    return _mm256_set1_epi32(v);
}

// What the products with a format's codes look like.
struct Product {
    uint32_t sums;   // so many are added in 16 bits
    int32_t factor;  // and then multiplied by this
    bool is_signed;
};

// DotSum: factor times the dot of eight rows with kFours * 4 activations. add(j, w, xs) adds four of them, j = 0 ..
// kFours - 1.
#if defined(RIDGE_ISA_AVXVNNI)

constexpr Product product_of(Coding c) { return {1, c.factor, false}; }

struct Weights8 {
    __m256i codes;
};
template <Product>
FN Weights8 weights8(__m256i codes) {
    return {codes};
}
template <Product>
FN SignedCode weights8(SignedCode code) {
    return code;
}

template <Product P, uint32_t kFours>
struct DotSum {
    __m256i sum;
    FN void add(uint32_t j, const Weights8 &w, __m256i xs) {
        sum = _mm256_dpbusd_avx_epi32(j == 0 ? _mm256_setzero_si256() : sum, w.codes, xs);
    }
    FN void add(uint32_t j, const SignedCode &w, __m256i xs) {
        add(j, Weights8{w.magnitude}, _mm256_sign_epi8(xs, w.sign));
    }
    FN __m256i dot() const { return P.factor == 2 ? _mm256_slli_epi32(sum, 1) : sum; }
};

#else

constexpr Product product_of(Coding c) {
    // A lane of vpmaddubsw's result is the sum of two products.
    const int32_t n = 32767 / (2 * 127 * c.most);
    return {n >= 8 ? 8u : n >= 4 ? 4u : n >= 2 ? 2u : 1u, c.factor, c.is_signed};
}

struct Weights8 {
    __m256i codes, magnitudes;
};
template <Product P>
FN Weights8 weights8(__m256i codes) {
    return {codes, P.is_signed ? _mm256_abs_epi8(codes) : codes};
}
template <Product P>
FN SignedCode weights8(SignedCode code) {
    return code;
}

// A compiler that makes a tree of a chain of sums needs more registers than there are.
FN void in_turn(__m256i &sum) { asm("" : "+x"(sum)); }

template <Product P, uint32_t kFours>
struct DotSum {
    static constexpr uint32_t kSums = P.sums < kFours ? P.sums : kFours;
    __m256i sum16, sum32;
    FN void add(uint32_t j, const Weights8 &w, __m256i xs) {
        add_pairs(j, _mm256_maddubs_epi16(w.magnitudes, P.is_signed ? _mm256_sign_epi8(xs, w.codes) : xs));
    }
    FN void add(uint32_t j, const SignedCode &w, __m256i xs) {
        add_pairs(j, _mm256_maddubs_epi16(w.magnitude, _mm256_sign_epi8(xs, w.sign)));
    }
    FN void add_pairs(uint32_t j, __m256i pairs) {
        sum16 = j % kSums == 0 ? pairs : _mm256_add_epi16(sum16, pairs);
        in_turn(sum16);
        if (j % kSums != kSums - 1) return;
        const __m256i sums = _mm256_madd_epi16(sum16, _mm256_set1_epi16(P.factor));
        sum32 = j < kSums ? sums : _mm256_add_epi32(sum32, sums);
        if (kSums < kFours) in_turn(sum32);
    }
    FN __m256i dot() const { return sum32; }
};

#endif

// What codes are with one token.
template <Format F>
constexpr Coding stream_coding() {
    if constexpr (requires { Columns<F>::kPairs; })
        return Columns<F>::kPairs;
    else
        return Columns<F>::kCoding;
}

struct Stream {
    static constexpr uint32_t kTokens = 1;
    static constexpr FormatSet kFormats = FormatSet::quantized();
    template <Format F>
    static constexpr int32_t offset() {
        return stream_coding<F>().offset;
    }

    // Of eight rows whose codes are code(j).
    template <Product P, uint32_t kFours, class Code>
    static FN __m256i dot_fours(Code code, const int8_t *x) {
        DotSum<P, kFours> sum;
#pragma GCC unroll 8
        for (uint32_t j = 0; j < kFours; j++) sum.add(j, weights8<P>(code(j)), four_codes(x + 4 * j));
        return sum.dot();
    }

    template <Format F>
    static void dots(const SpanCall &call, SpanDots<kTokens> &dots) {
        constexpr bool kHalves = Decode<F>::group == 16;
        constexpr Product kProduct = product_of(stream_coding<F>());
        constexpr size_t kBytes = kChunk / Decode<F>::block * size_t{Decode<F>::bytes};
        const auto row_bytes = static_cast<size_t>(call.rows.row[1] - call.rows.row[0]);
        for (uint32_t r = 0; r < kLanes; r += 8) {
            const Rows8 rows = call.rows.row + r;
            for (uint32_t b = 0, c = 0; b < call.blocks; b += kChunkBlocks, c++) {
                const size_t at = (call.first + c) * kBytes;
                // The same columns sixteen rows ahead: eight streams are more than the hardware follows by itself. A row with
                // each of the eight groups, since of a burst Zen 5 leaves out most.
                const auto ask = [&](uint32_t g) __attribute__((always_inline)) {
                    for (size_t line = 0; line < kBytes; line += 64)
                        __builtin_prefetch(rows[g] + kLanes * row_bytes + at + line);
                };
                const int8_t *x = call.x[0] + 32 * b;
                int32_t(*to)[kLanes] = dots.of[0][c];
                const auto put = [&](uint32_t g, __m256i dot) __attribute__((always_inline)) {
                    _mm256_store_si256(reinterpret_cast<__m256i *>(to[g] + r), dot);
                };
                const uint32_t some = call.blocks - b < kChunkBlocks ? call.blocks - b : kChunkBlocks;
                Columns<F>::visit(
                    rows, at, some, [&](uint32_t g, auto code) __attribute__((always_inline)) {
                        ask(g);
                        if constexpr (kHalves) {
                            put(2 * g, dot_fours<kProduct, 4>(code, x + 32 * g));
                            const auto last = [&](uint32_t j) __attribute__((always_inline)) { return code(j + 4); };
                            put(2 * g + 1, dot_fours<kProduct, 4>(last, x + 32 * g + 16));
                        } else {
                            put(g, dot_fours<kProduct, 8>(code, x + 32 * g));
                        }
                    });
            }
        }
    }
};

struct Matrix8 {
    static constexpr uint32_t kManyTokens = 2;  // from here on it is faster
    static constexpr uint32_t kPanels = 4;
    static constexpr FormatSet kFormats = FormatSet::quantized();
    template <Format F>
    static constexpr int32_t offset() {
        return Columns<F>::kCoding.offset;
    }

    template <Format F>
    static FN __m256i unsigned_code(__m256i code) {
        return code;
    }
    template <Format F>
    static FN __m256i unsigned_code(SignedCode code) {
        return Columns<F>::unsigned_code(code);
    }

    template <Format F>
    static void interleave(const Rows &rows, uint32_t chunk, uint32_t blocks, uint8_t (*codes)[kLanes][4]) {
        constexpr size_t kBytes = kChunk / Decode<F>::block * size_t{Decode<F>::bytes};
        for (uint32_t r = 0; r < kLanes; r += 8)
            Columns<F>::visit(
                rows.row + r, chunk * kBytes, blocks, [&](uint32_t g, auto code) __attribute__((always_inline)) {
#pragma GCC unroll 8
                    for (uint32_t j = 0; j < 8; j++)
                        _mm256_store_si256(reinterpret_cast<__m256i *>(codes[8 * g + j][r]), unsigned_code<F>(code(j)));
                });
    }

    static constexpr uint32_t kAtOnce = 4;  // tokens

    // What is made ready for the tokens at hand.
    struct Token {
        const int8_t *x;
        TokenChunk chunk;
    };

    // Of sixteen rows with T tokens, from x[t] + at on.
    template <Product P, uint32_t kFours, uint32_t T>
    static FN void dot_tile(const uint8_t (*codes)[kLanes][4], const int8_t *const (&x)[T], uint32_t at,
                            __m256i (&dot)[T][2]) {
        DotSum<P, kFours> sum[T][2];
#pragma GCC unroll 8
        for (uint32_t j = 0; j < kFours; j++) {
            Weights8 w[2];
#pragma GCC unroll 2
            for (uint32_t h = 0; h < 2; h++)
                w[h] = weights8<P>(_mm256_load_si256(reinterpret_cast<const __m256i *>(codes[j][8 * h])));
#pragma GCC unroll 8
            for (uint32_t t = 0; t < T; t++) {
                const __m256i xs = four_codes(x[t] + at + 4 * j);
#pragma GCC unroll 2
                for (uint32_t h = 0; h < 2; h++) sum[t][h].add(j, w[h], xs);
            }
        }
#pragma GCC unroll 16
        for (uint32_t i = 0; i < 2 * T; i++) dot[i / 2][i % 2] = sum[i / 2][i % 2].dot();
    }

    // Adds `blocks` blocks of a panel to the sums of T tokens.
    template <Product P, bool kHalves, bool kBias, uint32_t T>
    static void multiply_tokens(const Panel &panel, uint32_t blocks, const Token *token, float (*sums)[kLanes]) {
        const int8_t *x[T];
#pragma GCC unroll 8
        for (uint32_t t = 0; t < T; t++) x[t] = token[t].x;
        for (uint32_t b = 0; b < blocks; b++) {
            __m256i dot[T][2];
            const auto value = [&](uint32_t t, uint32_t h, uint32_t group) __attribute__((always_inline)) {
                if constexpr (kBias || P.is_signed) return _mm256_cvtepi32_ps(dot[t][h]);
                const __m256i minus_excess = _mm256_set1_epi32(token[t].chunk.minus_excess[group]);
                return _mm256_cvtepi32_ps(_mm256_add_epi32(dot[t][h], minus_excess));
            };
            const auto scale = [&](uint32_t group, uint32_t h) __attribute__((always_inline)) {
                return _mm256_load_ps(panel.scales.scale[group] + 8 * h);
            };
            const auto add_bias = [&](uint32_t t, uint32_t h, uint32_t group, __m256 sum)
                __attribute__((always_inline)) {
                return _mm256_fmadd_ps(_mm256_load_ps(panel.scales.bias[group] + 8 * h),
                                       _mm256_set1_ps(token[t].chunk.scaled_total[group]), sum);
            };
            __m256 both[T][2];
            if constexpr (kHalves) {
                dot_tile<P, 4, T>(panel.codes + 8 * b, x, 32 * b, dot);
#pragma GCC unroll 16
                for (uint32_t i = 0; i < 2 * T; i++)
                    both[i / 2][i % 2] = _mm256_mul_ps(scale(2 * b, i % 2), value(i / 2, i % 2, 2 * b));
                dot_tile<P, 4, T>(panel.codes + 8 * b + 4, x, 32 * b + 16, dot);
            } else {
                dot_tile<P, 8, T>(panel.codes + 8 * b, x, 32 * b, dot);
            }
#pragma GCC unroll 16
            for (uint32_t i = 0; i < 2 * T; i++) {
                const uint32_t t = i / 2, h = i % 2;
                const __m256 x_scale = _mm256_set1_ps(token[t].chunk.x_scale[b]);
                __m256 sum = _mm256_load_ps(sums[t] + 8 * h);
                if constexpr (kHalves) {
                    both[t][h] = _mm256_fmadd_ps(scale(2 * b + 1, h), value(t, h, 2 * b + 1), both[t][h]);
                    sum = _mm256_fmadd_ps(both[t][h], x_scale, sum);
                    if constexpr (kBias) sum = add_bias(t, h, 2 * b + 1, add_bias(t, h, 2 * b, sum));
                } else {
                    sum = _mm256_fmadd_ps(_mm256_mul_ps(scale(b, h), x_scale), value(t, h, b), sum);
                    if constexpr (kBias) sum = add_bias(t, h, b, sum);
                }
                _mm256_store_ps(sums[t] + 8 * h, sum);
            }
        }
    }

    template <bool kHalves, bool kBias>
    static void prepare_some(const MatrixCall &call, uint32_t first, uint32_t count, Token *token) {
        for (uint32_t t = first; t < first + count; t++, token++) {
            const size_t x_block = size_t{call.x_row[t]} * (call.work.k / 32) + call.first;
            token->x = call.work.codes + 32 * x_block;
            for (uint32_t i = 0; i < kChunk; i += 64) __builtin_prefetch(token->x + i);
            prepare<kHalves, kBias>(call.work.scale + x_block, call.work.sums + 2 * x_block, call.blocks, call.offset,
                                    token->chunk);
        }
    }

    template <Product P, bool kHalves, bool kBias>
    static void multiply_as(const MatrixCall &call) {
        struct ByTokens {
            void (*multiply[kAtOnce])(const Panel &, uint32_t blocks, const Token *, float (*sums)[kLanes]);
        };
        static constexpr auto kByTokens = []<uint32_t... T>(std::integer_sequence<uint32_t, T...>) {
            return ByTokens{{multiply_tokens<P, kHalves, kBias, T + 1>...}};
        }
        (std::make_integer_sequence<uint32_t, kAtOnce>());
        // Some tokens are made ready while those before them are multiplied: their scales and codes come from L2.
        Token token[2][kAtOnce];
        const auto some = [&](uint32_t t) { return call.tokens - t < kAtOnce ? call.tokens - t : kAtOnce; };
        prepare_some<kHalves, kBias>(call, 0, some(0), token[0]);
        for (uint32_t t = 0, now = 0; t < call.tokens; t += kAtOnce, now ^= 1) {
            const uint32_t next = t + some(t);
            if (next < call.tokens) prepare_some<kHalves, kBias>(call, next, some(next), token[now ^ 1]);
            for (uint32_t g = 0; g < call.groups; g++)
                kByTokens.multiply[some(t) - 1](call.panel[g], call.blocks, token[now], call.sums[g] + t);
        }
    }
    template <Format F>
    static constexpr auto multiply_for =
        multiply_as<product_of(Columns<F>::kCoding), Decode<F>::group == 16, Decode<F>::has_bias>;
};

}  // namespace RIDGE_ISA
}  // namespace ridge::cpu
