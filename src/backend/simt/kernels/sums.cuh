// Rows of f32 in quads (four neighbouring columns), one block of kRowThreads or one run of 32 lanes to a row, and their sums
// in Order::f32_quads256 (op/order.h): the same bits from a block, from a run, and with waves of 32 and of 64 lanes.
#pragma once

#include "backend/simt/device.h"

namespace ridge::simt {

constexpr u32 kRowThreads = 256, kRun = 32, kRuns = kRowThreads / kRun;

DEVICE u32 run() { return thread() / kRun; }
DEVICE u32 run_lane() { return thread() % kRun; }

// Sums of eight runs, in shared memory or registers.
DEVICE f32 add_runs(const f32 *s) { return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7])); }

// The sum of a value of every thread. `scratch`: kRuns floats of shared memory that nothing else is kept in until the
// next barrier.
DEVICE f32 add_block(f32 v, f32 *scratch) {
    v = sum_lanes(v, kRun);
    if (run_lane() == 0) scratch[run()] = v;
    sync();
    return add_runs(scratch);
}
// The largest; of a NaN the result is either.
DEVICE f32 max_block(f32 v, f32 *scratch) {
    v = max_lanes(v, kRun);
    if (run_lane() == 0) scratch[run()] = v;
    sync();
    for (u32 i = 0; i < kRuns; i++) v = max(v, scratch[i]);
    return v;
}

// Columns 4 q .. 4 q + 3 of a row of n; those that are not there are `rest`. `aligned`: n is a multiple of 4.
DEVICE f32x4 load_quad(const f32 *row, u32 q, u32 n, bool aligned, f32 rest = 0) {
    const u32 at = 4 * q;
    if (aligned) {
        if (at < n) return load(reinterpret_cast<const f32x4 *>(row + at));
        return {rest, rest, rest, rest};
    }
    f32x4 v = {rest, rest, rest, rest};
    if (at < n) v.x = load(row + at);
    if (at + 1 < n) v.y = load(row + at + 1);
    if (at + 2 < n) v.z = load(row + at + 2);
    if (at + 3 < n) v.w = load(row + at + 3);
    return v;
}
DEVICE void store_quad(f32 *row, u32 q, u32 n, bool aligned, const f32x4 &v) {
    const u32 at = 4 * q;
    if (aligned) {
        if (at < n) store(reinterpret_cast<f32x4 *>(row + at), v);
        return;
    }
    if (at < n) store(row + at, v.x);
    if (at + 1 < n) store(row + at + 1, v.y);
    if (at + 2 < n) store(row + at + 2, v.z);
    if (at + 3 < n) store(row + at + 3, v.w);
}

// f(x) for each of four.
template <class F>
DEVICE f32x4 each(const f32x4 &v, F f) {
    return {f(v.x), f(v.y), f(v.z), f(v.w)};
}
template <class F>
DEVICE f32x4 each(const f32x4 &a, const f32x4 &b, F f) {
    return {f(a.x, b.x), f(a.y, b.y), f(a.z, b.z), f(a.w, b.w)};
}
DEVICE f32 add_squares(f32 sum, const f32x4 &v) {
    return fma(v.w, v.w, fma(v.z, v.z, fma(v.y, v.y, fma(v.x, v.x, sum))));
}
DEVICE f32 add_quad(f32 sum, const f32x4 &v) { return (((sum + v.x) + v.y) + v.z) + v.w; }

// f(round) for R rounds, unrolled, so that what it indexes by them stays in registers; with R = 0 for `any` of them.
template <u32 R, class F>
DEVICE void for_rounds(u32 any, F f) {
    if constexpr (R > 0) {
#pragma unroll
        for (u32 r = 0; r < R; r++) f(r);
    } else {
        for (u32 r = 0; r < any; r++) f(r);
    }
}

// The factor of RmsNorm, given the sum of n squares.
DEVICE f32 norm_factor(f32 squares, u32 n, f32 eps) {
    return divide(1.0f, sqrt(divide(squares, static_cast<f32>(n)) + eps));
}

}  // namespace ridge::simt
