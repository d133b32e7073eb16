// Elementwise operations, softmax, and the routing of experts.
//
// softmax: e = exp(x - max x), out = e / sum e, the sum in Order::f32_lanes16: exp is within 1 ulp of the rounded
//   difference, the sum within (n/16 + 5) 2^-24 of the true sum of the e (all positive).
// moe_combine: one fused multiply-add per slot, slots ascending, from +0: the operation itself fixes the order.
#pragma once

#include <limits>

#include "backend/cpu/ops_tiles.h"

namespace ridge::cpu {
inline namespace RIDGE_ISA {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

[[gnu::flatten]] inline void softmax_row(const float *x, size_t n, float *out) {
    F32x16 largest = set1(kMinusInfinity);
    for_lanes(n, [&](auto ld, auto) { largest = maximum(largest, ld(x, kMinusInfinity)); });
    const F32x16 top = set1(reduce_max(largest));
    F32x16 sums = set1(0.0f);
    for_lanes(n, [&](auto ld, auto st) {
        const F32x16 e = exp_(ld(x, kMinusInfinity) - top);  // 0 in the lanes that are not there
        sums = sums + e;
        st(out, e);
    });
    const F32x16 sum = set1(reduce_add(sums));
    for_lanes(n, [&](auto ld, auto st) { st(out, ld(out, 0.0f) / sum); });
}

[[gnu::flatten]] inline void normalize_row(const float *x, size_t n, float *out) {
    F32x16 sums = set1(0.0f);
    for_lanes(n, [&](auto ld, auto) { sums = sums + ld(x, 0.0f); });
    const F32x16 sum = set1(reduce_add(sums));
    for_lanes(n, [&](auto ld, auto st) { st(out, ld(x, 0.0f) / sum); });
}

// Insertion into a sorted list of k. A NaN ranks as -inf, so k distinct ids come out whatever the input is.
inline void top_k_row(const float *x, uint32_t n, uint32_t k, int32_t *ids, float *weights) {
    const auto rank = [](float v) { return v == v ? v : kMinusInfinity; };
    uint32_t have = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (have == k && !(rank(x[i]) > rank(weights[k - 1]))) continue;
        uint32_t at = have < k ? have++ : k - 1;
        for (; at > 0 && rank(x[i]) > rank(weights[at - 1]); at--) {
            weights[at] = weights[at - 1];
            ids[at] = ids[at - 1];
        }
        weights[at] = x[i];
        ids[at] = static_cast<int32_t>(i);
    }
}

struct AddTile {
    static uint32_t count(const LaunchView &view) { return cut_elements(view, op_of<Add>(view).out).count(); }
    [[gnu::flatten]] static void run(const LaunchView &view, uint32_t tile, std::byte *) {
        const auto &op = op_of<Add>(view);
        const Range e = cut_elements(view, op.out).tile(tile);
        const float *a = view.ptr<float>(op.a) + e.first, *b = view.ptr<float>(op.b) + e.first;
        float *out = view.ptr<float>(op.out) + e.first;
        const F32x16 scale = set1(op.scale);
        for_lanes(e.last - e.first, [&](auto ld, auto st) { st(out, fma(ld(b, 0.0f), scale, ld(a, 0.0f))); });
    }
};

struct ScaleTile {
    static uint32_t count(const LaunchView &view) { return cut_elements(view, op_of<Scale>(view).out).count(); }
    [[gnu::flatten]] static void run(const LaunchView &view, uint32_t tile, std::byte *) {
        const auto &op = op_of<Scale>(view);
        const Range e = cut_elements(view, op.out).tile(tile);
        const float *x = view.ptr<float>(op.x) + e.first;
        float *out = view.ptr<float>(op.out) + e.first;
        const F32x16 scale = set1(op.scale), cap = set1(op.softcap);
        if (op.softcap > 0)
            for_lanes(e.last - e.first, [&](auto ld, auto st) { st(out, cap * tanh_(ld(x, 0.0f) * scale / cap)); });
        else
            for_lanes(e.last - e.first, [&](auto ld, auto st) { st(out, ld(x, 0.0f) * scale); });
    }
};

struct RowGateTile {
    static uint32_t count(const LaunchView &view) { return cut_rows(view, op_of<RowGate>(view).x).count(); }
    [[gnu::flatten]] static void run(const LaunchView &view, uint32_t tile, std::byte *) {
        const auto &op = op_of<RowGate>(view);
        const size_t n = view.cols(op.x);
        const Range rows = cut_rows(view, op.x).tile(tile);
        for (size_t i = rows.first; i < rows.last; i++) {
            const float *x = view.ptr<float>(op.x) + i * n;
            float *out = view.ptr<float>(op.out) + i * n;
            const F32x16 divisor = set1(1.0f) + exp_(set1(-view.ptr<float>(op.gate)[i]));
            for_lanes(n, [&](auto ld, auto st) { st(out, ld(x, 0.0f) / divisor); });
        }
    }
};

struct GluTile {
    static uint32_t count(const LaunchView &view) { return cut_elements(view, op_of<Glu>(view).out).count(); }
    [[gnu::flatten]] static void run(const LaunchView &view, uint32_t tile, std::byte *) {
        const auto &op = op_of<Glu>(view);
        const Range e = cut_elements(view, op.out).tile(tile);
        const float *gate = view.ptr<float>(op.gate) + e.first, *up = view.ptr<float>(op.up) + e.first;
        float *out = view.ptr<float>(op.out) + e.first;
        for_lanes(e.last - e.first, [&](auto ld, auto st) { st(out, glu(op.kind, ld(gate, 0.0f), ld(up, 0.0f))); });
    }
};

struct SoftmaxTile {
    static uint32_t count(const LaunchView &view) { return cut_rows(view, op_of<Softmax>(view).x).count(); }
    static void run(const LaunchView &view, uint32_t tile, std::byte *) {
        const auto &op = op_of<Softmax>(view);
        const size_t cols = view.cols(op.x);
        const Range rows = cut_rows(view, op.x).tile(tile);
        for (size_t i = rows.first; i < rows.last; i++)
            softmax_row(view.ptr<float>(op.x) + i * cols, cols, view.ptr<float>(op.out) + i * cols);
    }
};

struct NormalizeTile {
    static uint32_t count(const LaunchView &view) { return cut_rows(view, op_of<Normalize>(view).x).count(); }
    static void run(const LaunchView &view, uint32_t tile, std::byte *) {
        const auto &op = op_of<Normalize>(view);
        const size_t cols = view.cols(op.x);
        const Range rows = cut_rows(view, op.x).tile(tile);
        for (size_t i = rows.first; i < rows.last; i++)
            normalize_row(view.ptr<float>(op.x) + i * cols, cols, view.ptr<float>(op.out) + i * cols);
    }
};

struct TopKTile {
    static uint32_t count(const LaunchView &view) { return cut_rows(view, op_of<TopK>(view).x).count(); }
    static void run(const LaunchView &view, uint32_t tile, std::byte *) {
        const auto &op = op_of<TopK>(view);
        const uint32_t n = view.cols(op.x), k = view.cols(op.ids);
        const Range rows = cut_rows(view, op.x).tile(tile);
        for (size_t i = rows.first; i < rows.last; i++)
            top_k_row(view.ptr<float>(op.x) + i * n, n, k, view.ptr<int32_t>(op.ids) + i * k,
                      view.ptr<float>(op.weights) + i * k);
    }
};

struct MoeRouteTile {
    static constexpr uint32_t kMostExperts = 4096;
    static constexpr size_t kScratch = kMostExperts * sizeof(float);  // the softmax of one row

    static std::string_view refuses(const Program &program, const Op &op) {
        const auto &route = *std::get_if<MoeRoute>(&op);
        const uint32_t experts = program.value(route.logits).cols;
        if (program.value(route.ids).cols > experts) return "more experts wanted than there are";
        return experts > kMostExperts ? "more than 4096 experts" : "";
    }
    static uint32_t count(const LaunchView &view) { return cut_rows(view, op_of<MoeRoute>(view).logits).count(); }
    static void run(const LaunchView &view, uint32_t tile, std::byte *scratch) {
        const auto &op = op_of<MoeRoute>(view);
        const uint32_t experts = view.cols(op.logits), k = view.cols(op.ids);
        float *probability = reinterpret_cast<float *>(scratch);
        const Range rows = cut_rows(view, op.logits).tile(tile);
        for (size_t i = rows.first; i < rows.last; i++) {
            float *weights = view.ptr<float>(op.weights) + i * k;
            softmax_row(view.ptr<float>(op.logits) + i * experts, experts, probability);
            top_k_row(probability, experts, k, view.ptr<int32_t>(op.ids) + i * k, weights);
            if (op.normalize) normalize_row(weights, k, weights);
        }
    }
};

struct MoeCombineTile {
    static uint32_t count(const LaunchView &view) { return cut_rows(view, op_of<MoeCombine>(view).out).count(); }
    [[gnu::flatten]] static void run(const LaunchView &view, uint32_t tile, std::byte *) {
        const auto &op = op_of<MoeCombine>(view);
        const size_t n = view.cols(op.out), slots = view.cols(op.weights);
        const Range rows = cut_rows(view, op.out).tile(tile);
        for (size_t i = rows.first; i < rows.last; i++) {
            const float *weights = view.ptr<float>(op.weights) + i * slots;
            const float *x = view.ptr<float>(op.x) + i * slots * n;
            float *out = view.ptr<float>(op.out) + i * n;
            for_lanes(n, [&](auto ld, auto st) { st(out, combine(weights, x, slots, n, ld)); });
        }
    }
};

}  // namespace RIDGE_ISA
}  // namespace ridge::cpu
