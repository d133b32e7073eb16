// Paged attention with an online softmax (Order::softmax_blocks64).
//
// For one token and head, positions in blocks of 64 aligned to multiples of 64 (a block is a page), ascending:
//   s_j = scale * (q . k_j), the dot in Order::f32_lanes16, soft-capped where the operation says so;
//   M = max(m, max s); p_j = exp(s_j - M); c = exp(m - M)
//   l = fma(l, c, sum p) with the p of absent positions +0 and lane j mod 16; o = o * c, then o = fma(p_j, v_j, o) for
//   j ascending; m = M.   At the end out = o / l. At the start m = -inf, l = 0; with a sink m = its score, l = 1.
// Every (token, head) takes exactly these steps, whichever tile it is in and whatever shares the tile, so the bits do
// not depend on how a step is cut or batched.
//
// A tile is one KV head and a run of tokens. Each block of keys and values is read once for all tokens of a sequence
// in the tile and all heads of the group; f16 is widened into scratch where it is used often (kReadsOfF16).
#pragma once

#include <type_traits>

#include "backend/cpu/ops_tiles.h"

namespace ridge::cpu {
inline namespace RIDGE_ISA {

constexpr uint32_t kAttentionBlock = 64;
static_assert(kAttentionBlock == kPageTokens, "a block lies in one page");

// Up to so many heads and tokens read a block as f16, more of them an f32 copy. Vector loads that widen are nearly free
// and the copy displaces the nearest cache: on Zen 5, eight heads of 128 that share a block, 1.3 times as fast without.
#if defined(RIDGE_ISA_AVX512) || defined(RIDGE_ISA_AVX2)
constexpr size_t kReadsOfF16 = 8;
#else
constexpr size_t kReadsOfF16 = 2;
#endif

struct OnlineSoftmax {
    float max, sum;
};

// The keys or values of one KV head in one block: row j at data + j * stride.
template <class T>
struct KvBlock {
    const T *data;
    size_t stride;
};

template <class T>
[[gnu::flatten]] inline float dot_row(const float *q, const T *k, uint32_t n) {
    F32x16 sum = set1(0.0f);
    for_lanes(n, [&](auto ld, auto) { sum = fma(ld(q, 0.0f), ld(k, 0.0f), sum); });
    return reduce_add(sum);
}

// out[j] = q . k_j for j in [first, last), four keys at a time.
template <class T>
[[gnu::flatten]] inline void dot_rows(const float *q, KvBlock<T> k, uint32_t n, uint32_t first, uint32_t last,
                                      float *out) {
    uint32_t j = first;
    for (; j + 4 <= last; j += 4) {
        const T *row = k.data + j * k.stride;
        F32x16 a = set1(0.0f), b = a, c = a, d = a;
        for_lanes(n, [&](auto ld, auto) {
            const F32x16 x = ld(q, 0.0f);
            a = fma(x, ld(row, 0.0f), a);
            b = fma(x, ld(row + k.stride, 0.0f), b);
            c = fma(x, ld(row + 2 * k.stride, 0.0f), c);
            d = fma(x, ld(row + 3 * k.stride, 0.0f), d);
        });
        reduce_add4(a, b, c, d, out + j);
    }
    for (; j < last; j++) out[j] = dot_row(q, k.data + j * k.stride, n);
}

// out = out * keep + sum_j p[j] v_j over [first, last), columns in groups of kChains registers.
template <class T>
[[gnu::flatten]] inline void add_values(const float *p, KvBlock<T> v, uint32_t n, uint32_t first, uint32_t last,
                                        float keep, float *out) {
    uint32_t d = 0;
    for (; d + kChains * kLanes <= n; d += kChains * kLanes) {
        F32x16 sum[kChains];
        for (uint32_t c = 0; c < kChains; c++) sum[c] = load(out + d + c * kLanes) * set1(keep);
        for (uint32_t j = first; j < last; j++) {
            const F32x16 weight = set1(p[j]);
            const T *row = v.data + j * v.stride + d;
            for (uint32_t c = 0; c < kChains; c++) sum[c] = fma(weight, load(row + c * kLanes), sum[c]);
        }
        for (uint32_t c = 0; c < kChains; c++) store(out + d + c * kLanes, sum[c]);
    }
    for_lanes(n - d, [&](auto ld, auto st) {
        F32x16 sum = ld(out + d, 0.0f) * set1(keep);
        for (uint32_t j = first; j < last; j++) sum = fma(set1(p[j]), ld(v.data + j * v.stride + d, 0.0f), sum);
        st(out + d, sum);
    });
}

[[gnu::flatten]] inline void cap_scores(float *s, uint32_t n, float scale, float cap) {
    for_lanes(n, [&](auto ld, auto st) { st(s, set1(cap) * tanh_(ld(s, 0.0f) * set1(scale) / set1(cap))); });
}

struct Scores {
    float scale, softcap;
};

// One block for one token and head: positions [first, last) of the block, counted from its start.
template <class T>
[[gnu::flatten]] inline void attend_block(const float *q, KvBlock<T> k, KvBlock<T> v, uint32_t n, Scores scores,
                                          uint32_t first, uint32_t last, OnlineSoftmax &state, float *out) {
    constexpr float kAbsent = -__builtin_inff();
    alignas(64) float p[kAttentionBlock];
    for (float &x : p) x = kAbsent;
    dot_rows(q, k, n, first, last, p);
    if (scores.softcap > 0) {
        cap_scores(p + first, last - first, scores.scale, scores.softcap);
        scores.scale = 1;
    }
    F32x16 largest = set1(state.max);
    for (uint32_t j = 0; j < kAttentionBlock; j += kLanes) {
        const F32x16 s = load(p + j) * set1(scores.scale);
        largest = maximum(largest, s);
        store(p + j, s);
    }
    const float top = reduce_max(largest);
    F32x16 sums = set1(0.0f);
    for (uint32_t j = 0; j < kAttentionBlock; j += kLanes) {
        const F32x16 e = exp_(load(p + j) - set1(top));
        sums = sums + e;
        store(p + j, e);
    }
    const float keep = exp_(state.max - top);
    state = {top, __builtin_fmaf(state.sum, keep, reduce_add(sums))};
    add_values(p, v, n, first, last, keep, out);
}

[[gnu::flatten]] inline void divide_row(float *x, uint32_t n, float by) {
    for_lanes(n, [&](auto ld, auto st) { st(x, ld(x, 0.0f) / set1(by)); });
}

struct AttentionTile {
    static constexpr uint32_t kMostTokens = 16, kMostGroup = 128, kMostHeadDim = 512;
    struct Scratch {
        alignas(64) float k[kAttentionBlock * kMostHeadDim];
        alignas(64) float v[kAttentionBlock * kMostHeadDim];
        OnlineSoftmax state[kMostTokens * kMostGroup];
    };

    static std::string_view refuses(const Program &program, const Op &op) {
        const auto &a = *std::get_if<Attention>(&op);
        const DType k = program.state(a.k_state).type, v = program.state(a.v_state).type;
        if (k != v || (k != DType::f16 && k != DType::f32)) return "k and v are not both f16 or both f32";
        if (!(a.scale > 0)) return "scale is not positive";
        if (a.heads / a.kv_heads > kMostGroup) return "more than 128 heads share a KV head";
        return a.head_dim > kMostHeadDim ? "head_dim is above 512" : "";
    }

    // Few tokens: one each, so that there are tiles for all workers. Many: runs that share each block of the KV.
    static Cut cut(const LaunchView &view) {
        const size_t tokens = view.step.tokens();
        const size_t run = tokens / 16 < 1 ? 1 : tokens / 16 > kMostTokens ? kMostTokens : tokens / 16;
        return {tokens, run};
    }
    static uint32_t count(const LaunchView &view) { return cut(view).count() * op_of<Attention>(view).kv_heads; }

    // Tiles with the same tokens follow each other: workers share the pages of a sequence.
    static void run(const LaunchView &view, uint32_t tile, std::byte *scratch) {
        const auto &op = op_of<Attention>(view);
        const Range tokens = cut(view).tile(tile / op.kv_heads);
        const int32_t *sequence = view.step.sequence();
        for (size_t first = tokens.first; first < tokens.last;) {
            size_t last = first + 1;
            while (last < tokens.last && sequence[last] == sequence[first]) last++;
            const Work work{view, op, {first, last}, tile % op.kv_heads, *reinterpret_cast<Scratch *>(scratch)};
            if (view.program.state(op.k_state).type == DType::f16)
                work.template all_blocks<F16>();
            else
                work.template all_blocks<float>();
            first = last;
        }
    }

    // Tokens of one sequence and one KV head.
    struct Work {
        const LaunchView &view;
        const Attention &op;
        Range tokens;
        uint32_t kv_head;
        Scratch &scratch;

        uint32_t group() const { return op.heads / op.kv_heads; }
        uint32_t position(size_t i) const { return static_cast<uint32_t>(view.step.position()[i]); }
        // First position that token i sees.
        uint32_t start(size_t i) const {
            const uint32_t seen = position(i) + 1;
            return op.window > 0 && seen > op.window ? seen - op.window : 0;
        }
        // Offset in q and out of the g-th head of the group.
        size_t head(size_t i, uint32_t g) const { return (i * op.heads + kv_head * size_t{group()} + g) * op.head_dim; }
        OnlineSoftmax &state(size_t i, uint32_t g) const { return scratch.state[(i - tokens.first) * group() + g]; }

        template <class T>
        void all_blocks() const {
            float *out = view.ptr<float>(op.out);
            const float *sinks = op.sinks == kNone ? nullptr : weight_f32(view, op.sinks) + kv_head * size_t{group()};
            uint32_t first = start(tokens.first), last = position(tokens.first);
            for (size_t i = tokens.first; i < tokens.last; i++) {
                first = start(i) < first ? start(i) : first;
                last = position(i) > last ? position(i) : last;
                for (uint32_t g = 0; g < group(); g++) {
                    state(i, g) =
                        sinks == nullptr ? OnlineSoftmax{-__builtin_inff(), 0.0f} : OnlineSoftmax{sinks[g], 1.0f};
                    for (uint32_t d = 0; d < op.head_dim; d++) out[head(i, g) + d] = 0.0f;
                }
            }
            for (uint32_t b = first / kAttentionBlock; b <= last / kAttentionBlock; b++) one_block<T>(b, first, last);
            for (size_t i = tokens.first; i < tokens.last; i++)
                for (uint32_t g = 0; g < group(); g++) {
                    divide_row(out + head(i, g), op.head_dim, state(i, g).sum);
                }
        }

        // Block b; the tokens see nothing outside [first, last].
        template <class T>
        void one_block(uint32_t b, uint32_t first, uint32_t last) const {
            const uint32_t base = b * kAttentionBlock;
            const size_t slot = view.step.slot(static_cast<uint32_t>(view.step.sequence()[tokens.first]), base);
            const size_t cols = size_t{op.kv_heads} * op.head_dim;
            const size_t at = slot * cols + size_t{kv_head} * op.head_dim;
            const KvBlock<T> k{view.state<T>(op.k_state) + at, cols}, v{view.state<T>(op.v_state) + at, cols};
            if constexpr (std::is_same_v<T, F16>) {
                if ((tokens.last - tokens.first) * group() > kReadsOfF16) {
                    const Range rows{first > base ? first - base : 0, in_block(last, base)};
                    each_token(base, widen(k, rows, scratch.k), widen(v, rows, scratch.v));
                    return;
                }
            }
            each_token(base, k, v);
        }

        // One past the last row of the block that a token at `position` sees.
        static uint32_t in_block(uint32_t position, uint32_t base) {
            const uint32_t rows = position + 1 - base;
            return rows < kAttentionBlock ? rows : kAttentionBlock;
        }

        [[gnu::flatten]] KvBlock<float> widen(KvBlock<F16> from, Range rows, float *to) const {
            for (size_t j = rows.first; j < rows.last; j++) {
                const F16 *x = from.data + j * from.stride;
                float *y = to + j * op.head_dim;
                for_lanes(op.head_dim, [&](auto ld, auto st) { st(y, ld(x, 0.0f)); });
            }
            return {to, op.head_dim};
        }

        template <class T>
        void each_token(uint32_t base, KvBlock<T> k, KvBlock<T> v) const {
            for (size_t i = tokens.first; i < tokens.last; i++) {
                if (position(i) < base || start(i) >= base + kAttentionBlock) continue;
                const uint32_t first = start(i) > base ? start(i) - base : 0, last = in_block(position(i), base);
                for (uint32_t g = 0; g < group(); g++)
                    attend_block(view.ptr<float>(op.q) + head(i, g), k, v, op.head_dim, {op.scale, op.softcap}, first,
                                 last, state(i, g), view.ptr<float>(op.out) + head(i, g));
            }
        }
    };
};

}  // namespace RIDGE_ISA
}  // namespace ridge::cpu
