// The weighted sum of the rows that the experts of a token gave (MoeCombine), a quad of columns at a time.
#pragma once

#include "backend/simt/kernels/sums.cuh"

namespace ridge::simt {

// Quad q of sum_s weights[row, s] * x[row * slots + s, :], s ascending; x has n columns.
DEVICE f32x4 combined_quad(const f32 *x, const f32 *weights, u32 row, u32 slots, u32 q, u32 n, bool aligned) {
    constexpr u32 kAtOnce = 8;
    f32x4 sum = {};
    for (u32 first = 0; first < slots; first += kAtOnce) {
        f32x4 v[kAtOnce];
        f32 weight[kAtOnce];
        for_rounds<kAtOnce>(0, [&](u32 r) {
            if (first + r >= slots) return;
            const u64 i = u64{row} * slots + first + r;
            weight[r] = load(weights + i);
            v[r] = load_quad(x + i * n, q, n, aligned);
        });
        for_rounds<kAtOnce>(0, [&](u32 r) {
            if (first + r < slots)
                sum = each(v[r], sum, [&](f32 p, f32 so_far) { return fma(weight[r], p, so_far); });
        });
    }
    return sum;
}

}  // namespace ridge::simt
