// Norms, rotary embedding, the write to the KV state, and their fused forms. One function per row of numbers; plain and
// fused tiles call the same ones, which is why a fused form equals its parts bit for bit.
//
// rmsnorm: ss = sum of squares in Order::f32_lanes16, out = (x * (1 / sqrt(ss / n + eps))) * weight. Relative to the
//   true value ss is off by at most (n/16 + 5) 2^-24 (all terms are positive), which the square root halves, and the
//   remaining five operations add at most 2^-24 each. Below the smallest normal number a product is off by up to
//   2^-150 instead: (1 + |weight|) 2^-150 in all.
// rope: two products and one sum per element, each rounded.
#pragma once

#include "backend/cpu/kv_q8_0.h"
#include "backend/cpu/ops_tiles.h"

namespace ridge::cpu {
inline namespace RIDGE_ISA {

[[gnu::flatten]] inline void rmsnorm_row(const float *x, const float *weight, float eps, size_t n, float *out) {
    F32x16 squares = set1(0.0f);
    for_lanes(n, [&](auto ld, auto) {
        const F32x16 v = ld(x, 0.0f);
        squares = fma(v, v, squares);
    });
    const float mean = reduce_add(squares) / static_cast<float>(n);
    const F32x16 scale = set1(1.0f / __builtin_sqrtf(mean + eps));
    for_lanes(n, [&](auto ld, auto st) { st(out, ld(x, 0.0f) * scale * ld(weight, 0.0f)); });
}

// One head; `table` holds n_rot/2 pairs (cos, sin). x and out may be the same.
inline void rope_head(const float *x, const float *table, uint32_t n_rot, uint32_t head_dim, RopePairs pairs,
                      float *out) {
    const uint32_t half = n_rot / 2;
    const uint32_t stride = pairs == RopePairs::halves ? 1 : 2, partner = pairs == RopePairs::halves ? half : 1;
    for (uint32_t j = 0; j < half; j++) {
        const float cosine = table[2 * j], sine = table[2 * j + 1];
        const float a = x[stride * j], b = x[stride * j + partner];
        out[stride * j] = a * cosine - b * sine;
        out[stride * j + partner] = a * sine + b * cosine;
    }
    for (uint32_t j = n_rot; j < head_dim; j++) out[j] = x[j];
}

// n values from column `offset` on of a state's row at `slot`. Of q8_0 whole blocks.
[[gnu::flatten]] inline void state_row(const LaunchView &view, StateId id, size_t slot, size_t offset, const float *x,
                                       size_t n) {
    const State &state = view.program.state(id);
    const size_t at = slot * state.cols + offset;
    if (state.type == DType::q8_0) {
        write_q8_0(x, n, view.state<Q8Block>(id) + at / 32);
    } else if (state.type == DType::f16) {
        F16 *out = view.state<F16>(id) + at;
        for_lanes(n, [&](auto ld, auto st) { st(out, ld(x, 0.0f)); });
    } else {
        float *out = view.state<float>(id) + at;
        for_lanes(n, [&](auto ld, auto st) { st(out, ld(x, 0.0f)); });
    }
}

// The row of per-token state that belongs to token i of the step.
inline size_t slot_of(const StepView &step, size_t i) {
    return step.slot(static_cast<uint32_t>(step.sequence()[i]), static_cast<uint32_t>(step.position()[i]));
}

struct RmsNormTile {
    static uint32_t count(const LaunchView &view) { return cut_rows(view, op_of<RmsNorm>(view).x).count(); }
    static void run(const LaunchView &view, uint32_t tile, std::byte *) {
        const auto &op = op_of<RmsNorm>(view);
        const size_t cols = view.cols(op.x);
        const Range rows = cut_rows(view, op.x).tile(tile);
        const float *x = view.ptr<float>(op.x), *weight = weight_f32(view, op.weight);
        float *out = view.ptr<float>(op.out);
        for (size_t at = rows.first * cols; at < rows.last * cols; at += op.width)
            rmsnorm_row(x + at, weight, op.eps, op.width, out + at);
    }
};

struct AddRmsNormTile {
    static uint32_t count(const LaunchView &view) { return cut_rows(view, op_of<AddRmsNorm>(view).a).count(); }
    [[gnu::flatten]] static void run(const LaunchView &view, uint32_t tile, std::byte *) {
        const auto &op = op_of<AddRmsNorm>(view);
        const size_t cols = view.cols(op.a);
        const F32x16 scale = set1(op.scale);
        const Range rows = cut_rows(view, op.a).tile(tile);
        for (size_t i = rows.first; i < rows.last; i++) {
            const float *a = view.ptr<float>(op.a) + i * cols;
            float *sum = view.ptr<float>(op.sum) + i * cols;
            if (op.slots != kNone) {
                const size_t slots = view.cols(op.slots);
                const float *b = view.ptr<float>(op.b) + i * slots * cols;
                const float *weights = view.ptr<float>(op.slots) + i * slots;
                for_lanes(cols, [&](auto ld, auto st) {
                    st(sum, fma(combine(weights, b, slots, cols, ld), scale, ld(a, 0.0f)));
                });
            } else {
                const float *b = view.ptr<float>(op.b) + i * cols;
                for_lanes(cols, [&](auto ld, auto st) { st(sum, fma(ld(b, 0.0f), scale, ld(a, 0.0f))); });
            }
            rmsnorm_row(sum, weight_f32(view, op.weight), op.eps, cols, view.ptr<float>(op.out) + i * cols);
        }
    }
};

struct RopeTile {
    static uint32_t count(const LaunchView &view) { return cut_rows(view, op_of<Rope>(view).x).count(); }
    static void run(const LaunchView &view, uint32_t tile, std::byte *) {
        const auto &op = op_of<Rope>(view);
        const size_t cols = view.cols(op.x), n_rot = view.cols(op.table);
        const Range rows = cut_rows(view, op.x).tile(tile);
        for (size_t i = rows.first; i < rows.last; i++)
            for (size_t h = 0; h < cols; h += op.head_dim)
                rope_head(view.ptr<float>(op.x) + i * cols + h, view.ptr<float>(op.table) + i * n_rot,
                          static_cast<uint32_t>(n_rot), op.head_dim, op.pairs, view.ptr<float>(op.out) + i * cols + h);
    }
};

struct KvWriteTile {
    static uint32_t count(const LaunchView &view) { return cut_rows(view, op_of<KvWrite>(view).k).count(); }
    static void run(const LaunchView &view, uint32_t tile, std::byte *) {
        const auto &op = op_of<KvWrite>(view);
        const size_t k_cols = view.cols(op.k), v_cols = view.cols(op.v);
        const Range rows = cut_rows(view, op.k).tile(tile);
        for (size_t i = rows.first; i < rows.last; i++) {
            const size_t slot = slot_of(view.step, i);
            state_row(view, op.k_state, slot, 0, view.ptr<float>(op.k) + i * k_cols, k_cols);
            state_row(view, op.v_state, slot, 0, view.ptr<float>(op.v) + i * v_cols, v_cols);
        }
    }
};

struct QkNormRopeTile {
    static constexpr uint32_t kMostHeadDim = 1024;
    static constexpr size_t kScratch = kMostHeadDim * sizeof(float);  // one head between norm, rope and state

    static std::string_view refuses(const Program &, const Op &op) {
        return std::get_if<QkNormRope>(&op)->head_dim > kMostHeadDim ? "head_dim is above 1024" : "";
    }
    static uint32_t count(const LaunchView &view) { return cut_rows(view, op_of<QkNormRope>(view).q).count(); }
    static void run(const LaunchView &view, uint32_t tile, std::byte *scratch) {
        const auto &op = op_of<QkNormRope>(view);
        const size_t q_cols = view.cols(op.q), k_cols = view.cols(op.k), v_cols = view.cols(op.v);
        const size_t n_rot = view.cols(op.table);
        float *head = reinterpret_cast<float *>(scratch);
        const Range rows = cut_rows(view, op.q).tile(tile);
        for (size_t i = rows.first; i < rows.last; i++) {
            const float *table = view.ptr<float>(op.table) + i * n_rot;
            const auto norm_rope = [&](const float *x, WeightId norm, float *out) {
                if (norm != kNone) {
                    rmsnorm_row(x, weight_f32(view, norm), op.eps, op.head_dim, head);
                    x = head;
                }
                rope_head(x, table, static_cast<uint32_t>(n_rot), op.head_dim, op.pairs, out);
            };
            for (size_t h = 0; h < q_cols; h += op.head_dim)
                norm_rope(view.ptr<float>(op.q) + i * q_cols + h, op.q_norm,
                          view.ptr<float>(op.q_out) + i * q_cols + h);
            const size_t slot = slot_of(view.step, i);
            for (size_t h = 0; h < k_cols; h += op.head_dim) {
                norm_rope(view.ptr<float>(op.k) + i * k_cols + h, op.k_norm, head);
                state_row(view, op.k_state, slot, h, head, op.head_dim);
            }
            state_row(view, op.v_state, slot, 0, view.ptr<float>(op.v) + i * v_cols, v_cols);
        }
    }
};

}  // namespace RIDGE_ISA
}  // namespace ridge::cpu
