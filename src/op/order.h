// Reduction orders: in which order a sum of floats is taken. A kernel row names its own.
#pragma once

#include <cstdint>

namespace ridge {

// Rows with the same id give the same bits for the same problem, whatever the number of tokens, threads, splits or
// lanes.
enum class Order : uint8_t {
    // No reduction, or one that is exact.
    exact,

    // Sums of f32 products over k: lane l = 0..15 adds fma(w, x) for k = l, l+16, l+32, ... ascending; then lanes l and
    // l+8 are added, then l and l+4, l+2, l+1. Missing elements count as +0.
    f32_lanes16,

    // int8 dots: for blocks of 32 of k ascending, from one f32 accumulator that starts at +0; dots and totals (sums of
    // the activations' codes) are exact integers.
    //   one group of 32:    acc = fma(w_scale * x_scale, float(dot), acc)
    //   two groups of 16:   t = w_scale0 * float(dot0); t = fma(w_scale1, float(dot1), t); acc = fma(x_scale, t, acc)
    //   and with a bias, for each group: acc = fma(w_bias, x_scale * float(total), acc)
    int8_sequential,

    // Softmax over the KV: blocks of 64 positions ascending; inside a block lanes as in f32_lanes16 for q.k; running
    // maximum, sum and output rescaled once per block.
    softmax_blocks64,
};

}  // namespace ridge
