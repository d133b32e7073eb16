// The arithmetic of one block of 64 positions: scores, softmax and weighted values of many rows (a row is one head of
// one token). Both products are register tiles of R rows by V vectors, so that an operand that is loaded once meets R
// or V others; attention.h says what is computed, this file how.
//
// Scores of many rows: keys lie transposed, 64 positions side by side, and a row's element is broadcast. The dot's
// sixteen lanes (Order::f32_lanes16) are then sixteen chains over d, joined as reduce_add joins lanes. Of few rows:
// keys are read as the state has them, lanes over d, and sums are taken of many accumulators at once. The same
// additions. Weighted values: lanes over d, a row's weight is broadcast.
#pragma once

#include <type_traits>

#include "backend/cpu/attention_kv.h"
#include "backend/cpu/attention_simd.h"
#include "backend/cpu/ops_tiles.h"

namespace ridge::cpu {
inline namespace RIDGE_ISA {

constexpr uint32_t kAttentionBlock = 64;

// Registers. AVX-512 has 32 of a vector each: 6 x 4 sums, 4 vectors and a broadcast are 29, and need 10 loads for 24
// multiply-adds (two and two a cycle). AVX2 has 16 of half a vector: 6 sums of two, one vector of two and a broadcast.
// Dots of few rows: 16 sums, and 4 of two.
#if defined(RIDGE_ISA_AVX512)
constexpr uint32_t kTileVectors = 4, kDots = 16;
#else
constexpr uint32_t kTileVectors = 1, kDots = 4;
#endif
constexpr uint32_t kTileRows = 6;

// Positions [first, last) of a block that a row sees.
struct Seen {
    uint32_t first, last;
};

// What rows carry from block to block; row r has 16 of `sum`, by lanes, and `dim` of `out`.
struct SoftmaxRows {
    float *max, *sum, *out;
};

// body(R, r) for rows [r, last) in tiles of R = most, then of 4, 2 and 1 that fit.
template <uint32_t most, class Body>
inline void for_row_tiles(uint32_t r, uint32_t last, Body &&body) {
    for (; r + most <= last; r += most) body(std::integral_constant<uint32_t, most>{}, r);
    constexpr uint32_t less = most > 4 ? 4 : most / 2;
    if constexpr (less > 0) for_row_tiles<less>(r, last, body);
}

// ---- Scores

// s[r][16 v + l] = q_r . k of R rows and V vectors of positions. keys: chunk c of chain i in row i * chunks + c of 64
// positions, the i-th chain being lane l = i with its bits reversed (0 8 4 12 2 ...): so every sum meets its partner at
// once, and at most four wait. waiting[w]: of 2^w chains.
template <uint32_t R, uint32_t V>
[[gnu::noinline, gnu::flatten]] inline void score_tile(const float *q, uint32_t dim, const float *keys, float *s) {
    constexpr uint32_t kReversed[16] = {0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15};
    alignas(64) float waiting[4][R][V * kLanes];
    for (uint32_t i = 0; i < 16; i++) {
        F32x16 sum[R][V];
#pragma GCC unroll 8
        for (uint32_t r = 0; r < R; r++)
#pragma GCC unroll 4
            for (uint32_t v = 0; v < V; v++) sum[r][v] = set1(0.0f);
        for (uint32_t d = kReversed[i]; d < dim; d += kLanes, keys += kAttentionBlock) {
            F32x16 k[V];
#pragma GCC unroll 4
            for (uint32_t v = 0; v < V; v++) k[v] = load(keys + v * kLanes);
#pragma GCC unroll 8
            for (uint32_t r = 0; r < R; r++) {
                const F32x16 x = set1(q[r * dim + d]);
#pragma GCC unroll 4
                for (uint32_t v = 0; v < V; v++) sum[r][v] = fma(x, k[v], sum[r][v]);
            }
        }
        // Joined with the `done` sums that it completes, it waits in turn or is the whole.
        const auto join = [&](auto done) {
#pragma GCC unroll 8
            for (uint32_t r = 0; r < R; r++)
#pragma GCC unroll 4
                for (uint32_t v = 0; v < V; v++) {
                    F32x16 x = sum[r][v];
                    for (uint32_t w = 0; w < done(); w++) x = load(&waiting[w][r][v * kLanes]) + x;
                    store(done() == 4 ? s + r * kAttentionBlock + v * kLanes : &waiting[done() % 4][r][v * kLanes], x);
                }
        };
        using std::integral_constant;
        if ((i & 1) == 0)
            join(integral_constant<uint32_t, 0>{});
        else if ((i & 2) == 0)
            join(integral_constant<uint32_t, 1>{});
        else if ((i & 4) == 0)
            join(integral_constant<uint32_t, 2>{});
        else if ((i & 8) == 0)
            join(integral_constant<uint32_t, 3>{});
        else
            join(integral_constant<uint32_t, 4>{});
    }
}

// The positions [seen.first, seen.last) and what shares a vector, or two, with them.
template <uint32_t R>
inline void score_columns(const float *q, uint32_t dim, const float *keys, Seen seen, float *s) {
    constexpr uint32_t kStep = kTileVectors > 1 ? 2 : 1;
    for (uint32_t v = seen.first / kLanes / kStep * kStep; v * kLanes < seen.last;) {
        const bool full = kTileVectors > kStep && v % kTileVectors == 0 && (v + kStep) * kLanes < seen.last;
        if (full)
            score_tile<R, kTileVectors>(q, dim, keys + v * kLanes, s + v * kLanes);
        else
            score_tile<R, kStep>(q, dim, keys + v * kLanes, s + v * kLanes);
        v += full ? kTileVectors : kStep;
    }
}

// Keys transposed, for score_tile: the positions that share 16 with [seen.first, seen.last). n: the head's size, dim:
// that rounded up to 16.
template <DType type>
[[gnu::flatten]] inline void transpose_keys(KvRows<type> k, uint32_t n, uint32_t dim, Seen seen, float *to) {
    constexpr uint32_t kReversed[16] = {0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15};
    const uint32_t chunks = dim / kLanes;
    for (uint32_t j = seen.first / kLanes * kLanes; j < seen.last; j += kLanes)
        for (uint32_t c = 0; c < chunks; c++) {
            const auto place = [&](uint32_t l) { return to + (kReversed[l] * chunks + c) * kAttentionBlock + j; };
            const uint32_t d = c * kLanes, left = n - d;
            if (left >= kLanes)
                transpose16([&](uint32_t i) { return k.load(j + i, d); }, place);
            else
                transpose16([&](uint32_t i) { return k.load_part(j + i, d, left); }, place);
        }
}

// s[r][j] = q_r . k_j of R rows, lanes over d; the j that share K with [seen.first, seen.last).
template <uint32_t R, DType type>
[[gnu::noinline, gnu::flatten]] inline void score_rows(const float *q, uint32_t dim, KvRows<type> k, Seen seen,
                                                       float *s, const Later &later) {
    constexpr uint32_t K = kDots / R;
    for (uint32_t j = seen.first / K * K; j < seen.last; j += K) {
        F32x16 sum[kDots];
#pragma GCC unroll 16
        for (uint32_t i = 0; i < kDots; i++) sum[i] = set1(0.0f);
        constexpr uint32_t N = Kv<type>::together;
        for (uint32_t d = 0; d < dim; d += N * kLanes) {
            F32x16 x[R][N];
#pragma GCC unroll 8
            for (uint32_t r = 0; r < R; r++)
#pragma GCC unroll 2
                for (uint32_t c = 0; c < N; c++) x[r][c] = load(q + r * dim + d + c * kLanes);
#pragma GCC unroll 16
            for (uint32_t i = 0; i < K; i++) {
                F32x16 key[N];
                k.load(j + i, d, key);
#pragma GCC unroll 2
                for (uint32_t c = 0; c < N; c++)
#pragma GCC unroll 8
                    for (uint32_t r = 0; r < R; r++) sum[r * K + i] = fma(x[r][c], key[c], sum[r * K + i]);
            }
        }
        float dots[kDots];
        reduce_add_all(sum, dots);
        for (uint32_t r = 0; r < R; r++) __builtin_memcpy(s + r * kAttentionBlock + j, dots + r * K, K * sizeof(float));
        for (uint32_t i = 0; i < K; i++) later.ask(j + i);
    }
}

// ---- Softmax

struct Scores {
    float scale, softcap;
};

// The vectors that hold [seen.first, seen.last).
inline Seen in_vectors(Seen seen) { return {seen.first / kLanes * kLanes, (seen.last + kLanes - 1) / kLanes * kLanes}; }

// Caps the scores that a row sees, -inf in what shares a vector with them, and gives the larger of `max` and the
// largest.
[[gnu::flatten]] inline float top_score(float *s, Seen seen, Scores how, float max) {
    const Seen all = in_vectors(seen);
    if (how.softcap > 0)
        for (uint32_t j = all.first; j < all.last; j += kLanes)
            store(s + j, set1(how.softcap) * tanh_(load(s + j) * set1(how.scale) / set1(how.softcap)));
    for (uint32_t j = all.first; j < seen.first; j++) s[j] = -__builtin_inff();
    for (uint32_t j = seen.last; j < all.last; j++) s[j] = -__builtin_inff();
    F32x16 largest = load(s + all.first);
    for (uint32_t j = all.first + kLanes; j < all.last; j += kLanes) largest = maximum(largest, load(s + j));
    const float top = reduce_max(largest) * (how.softcap > 0 ? 1.0f : how.scale);
    return max > top ? max : top;
}

// Scores of rows [first, last) become weights; maxima and sums move on. keep[r]: what the row's values are now worth.
// In passes over sixteen rows, whose dependent steps then overlap.
[[gnu::flatten]] inline void softmax_block(float *s, const Seen *seen, Scores how, uint32_t first, uint32_t last,
                                           SoftmaxRows rows, float *keep) {
    const F32x16 scale = set1(how.softcap > 0 ? 1.0f : how.scale);
    for (uint32_t r0 = first; r0 < last; r0 += kLanes) {
        const uint32_t n = last - r0 < kLanes ? last - r0 : kLanes;
        float top[kLanes];
        for (uint32_t i = 0; i < n; i++)
            top[i] = top_score(s + (r0 + i) * kAttentionBlock, seen[r0 + i], how, rows.max[r0 + i]);
        store_part(keep + r0, exp_(load_part(rows.max + r0, n, 0.0f) - load_part(top, n, 0.0f)), n);
        store_part(rows.max + r0, load_part(top, n, 0.0f), n);
        for (uint32_t r = r0; r < r0 + n; r++) {
            float *p = s + r * kAttentionBlock;
            const Seen all = in_vectors(seen[r]);
            const F32x16 below = set1(-top[r - r0]);
            F32x16 sum = set1(0.0f);
            for (uint32_t j = all.first; j < all.last; j += kLanes) {
                const F32x16 e = exp_(fma(load(p + j), scale, below));
                sum = sum + e;
                store(p + j, e);
            }
            store(rows.sum + r * kLanes, fma(load(rows.sum + r * kLanes), set1(keep[r]), sum));
        }
    }
}

// ---- Values

inline constexpr float kOnes[8] = {1, 1, 1, 1, 1, 1, 1, 1};

// out_r = out_r * keep_r + sum_j p_r[j] v_j, j ascending, of R rows and V vectors from column d on.
template <uint32_t R, uint32_t V, DType type>
[[gnu::noinline, gnu::flatten]] inline void value_tile(const float *p, KvRows<type> v, Seen seen, uint32_t d,
                                                       const float *keep, float *out, uint32_t dim,
                                                       const Later &later) {
    F32x16 sum[R][V];
#pragma GCC unroll 8
    for (uint32_t r = 0; r < R; r++)
#pragma GCC unroll 8
        for (uint32_t c = 0; c < V; c++) sum[r][c] = load(out + r * dim + d + c * kLanes) * set1(keep[r]);
    for (uint32_t j = seen.first; j < seen.last; j++) {
        constexpr uint32_t N = V > 1 ? Kv<type>::together : 1;
        F32x16 x[V];
#pragma GCC unroll 8
        for (uint32_t c = 0; c < V; c += N) {
            F32x16 part[N];
            v.load(j, d + c * kLanes, part);
#pragma GCC unroll 2
            for (uint32_t i = 0; i < N; i++) x[c + i] = part[i];
        }
#pragma GCC unroll 8
        for (uint32_t r = 0; r < R; r++) {
            const F32x16 weight = set1(p[r * kAttentionBlock + j]);
#pragma GCC unroll 8
            for (uint32_t c = 0; c < V; c++) sum[r][c] = fma(weight, x[c], sum[r][c]);
        }
        later.ask(j);
    }
#pragma GCC unroll 8
    for (uint32_t r = 0; r < R; r++)
#pragma GCC unroll 8
        for (uint32_t c = 0; c < V; c++) store(out + r * dim + d + c * kLanes, sum[r][c]);
}

// All columns from d on, V vectors at a time and then fewer; each pass asks for the same columns of later rows.
template <uint32_t R, uint32_t V, DType type>
inline void value_columns(const float *p, KvRows<type> v, Seen seen, uint32_t d, const float *keep, float *out,
                          uint32_t dim, const Later &later) {
    for (; d + V * kLanes <= dim; d += V * kLanes) {
        Later part = later;
        if (later.row_bytes > 0) part.data += Kv<type>::bytes(d), part.row_bytes = Kv<type>::bytes(V * kLanes);
        value_tile<R, V>(p, v, seen, d, keep, out, dim, part);
    }
    if constexpr (V > 1)
        if (d < dim) value_columns<R, V / 2>(p, v, seen, d, keep, out, dim, later);
}

// Few rows take more columns at once, so that as many sums are on their way.
template <uint32_t R, DType type>
inline void add_values(const float *p, KvRows<type> v, Seen seen, const float *keep, float *out, uint32_t dim,
                       const Later &later = {}) {
    constexpr uint32_t kWide = kTileVectors > 1 ? (R >= 4 ? 4 : 8) : (R >= 4 ? 1 : 4 / R);
    value_columns<R, kWide>(p, v, seen, 0, keep, out, dim, later);
}

// The same of R rows of which not all see the same positions: `seen` and its neighbours grow with the row. What only
// some see is added row by row: a weight of 0 would not do, since 0 times infinity is no number.
template <uint32_t R, DType type>
inline void add_ragged_values(const float *p, KvRows<type> v, const Seen *seen, const float *keep, float *out,
                              uint32_t dim) {
    const Seen common = {seen[R - 1].first, seen[0].last > seen[R - 1].first ? seen[0].last : seen[R - 1].first};
    const auto one = [&](uint32_t r, Seen part, const float *kept) {
        add_values<1>(p + r * kAttentionBlock, v, part, kept, out + r * dim, dim);
    };
    const auto smaller = [](uint32_t a, uint32_t b) { return a < b ? a : b; };
    for (uint32_t r = 0; r < R; r++) one(r, {seen[r].first, smaller(common.first, seen[r].last)}, keep + r);
    add_values<R>(p, v, common, kOnes, out, dim);
    for (uint32_t r = 0; r < R; r++) one(r, {common.last, seen[r].last}, kOnes);
}

}  // namespace RIDGE_ISA
}  // namespace ridge::cpu
