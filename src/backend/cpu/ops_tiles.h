// How the operations other than contractions are cut into tiles, and how their kernels reach what they work on.
//
// A tile is about kTileElements of f32: small enough that a prefill splits evenly over many workers, large enough that
// handing it out (an atomic add) does not count, so one token of a small model is one tile. The cut depends on the
// shapes alone and no result depends on the cut.
#pragma once

#include <cstddef>
#include <cstdint>
#include <variant>

#include "backend/backend.h"
#include "backend/cpu/simd.h"

namespace ridge::cpu {
inline namespace RIDGE_ISA {

constexpr size_t kTileElements = 8192;

struct Range {
    size_t first, last;  // half open
};

// `items` cut into runs of `per_tile`.
struct Cut {
    size_t items, per_tile;
    uint32_t count() const { return static_cast<uint32_t>((items + per_tile - 1) / per_tile); }
    Range tile(uint32_t t) const {
        const size_t first = t * per_tile, last = first + per_tile;
        return {first, last < items ? last : items};
    }
};

// Whole rows of a value.
inline Cut cut_rows(const LaunchView &view, ValueId v) {
    const size_t cols = view.cols(v);
    return {view.rows(v), cols >= kTileElements ? 1 : kTileElements / cols};
}
// Elements of a value whose rows do not matter.
inline Cut cut_elements(const LaunchView &view, ValueId v) { return {view.rows(v) * view.cols(v), kTileElements}; }

template <class T>
const T &op_of(const LaunchView &view) {
    return *std::get_if<T>(&view.op);
}
inline const float *weight_f32(const LaunchView &view, WeightId w) {
    return reinterpret_cast<const float *>(view.weight(w));
}

// body(load, store) for every 16 elements of [0, n), the last time for what is left; load(p, rest) and store(p, v) take
// pointers to element 0. Whoever calls it is [[gnu::flatten]]: body must be inlined for its sums to stay in registers.
template <class Body>
void for_lanes(size_t n, Body &&body) {
    size_t i = 0;
    for (; i + kLanes <= n; i += kLanes)
        body([i](const auto *p, float) { return load(p + i); }, [i](auto *p, F32x16 v) { store(p + i, v); });
    if (const auto left = static_cast<uint32_t>(n - i); left > 0)
        body([i, left](const auto *p, float rest) { return load_part(p + i, left, rest); },
             [i, left](auto *p, F32x16 v) { store_part(p + i, v, left); });
}

// Sixteen elements of sum_s weights[s] * x[s, :], s ascending, as `load` of for_lanes has them; x has n columns.
template <class Load>
F32x16 combine(const float *weights, const float *x, size_t slots, size_t n, Load load) {
    F32x16 sum = set1(0.0f);
    for (size_t s = 0; s < slots; s++) sum = fma(set1(weights[s]), load(x + s * n, 0.0f), sum);
    return sum;
}

}  // namespace RIDGE_ISA
}  // namespace ridge::cpu
