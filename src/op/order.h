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

    // Sums of f32 over a row of n: lane l = 0..255 adds, from +0, columns 4 q .. 4 q + 3 for q = l, l + 256, l + 512, ..
    // ascending (squares by fma(x, x, sum), anything else by one addition); then within each run of 32 lanes lanes l and
    // l + 16 are added, then l and l + 8, l + 4, l + 2, l + 1; then the eight sums s of the runs: (s0 + s4) + (s2 + s6), and
    // that and (s1 + s5) + (s3 + s7). Missing elements count as +0. So a row of up to 128 needs one run of 32 lanes.
    f32_quads256,

    // Of bf16 weights and activations rounded to bf16 (nearest, ties to even): lane l = 0..15 takes columns 32 j + 2 l + 1
    // and 32 j + 2 l for j ascending, each product added with one rounding, subnormal operands and results taken for 0
    // (vdpbf16ps); then lanes as above.
    bf16_pairs16,

    // int8 dots: for blocks of 32 of k ascending, from one f32 accumulator that starts at +0; dots and totals (sums of
    // the activations' codes) are exact integers.
    //   one group of 32:    acc = fma(w_scale * x_scale, float(dot), acc)
    //   two groups of 16:   t = w_scale0 * float(dot0); t = fma(w_scale1, float(dot1), t); acc = fma(x_scale, t, acc)
    //   and with a bias, for each group: acc = fma(w_bias, x_scale * float(total), acc)
    int8_sequential,

    // On a GPU with waves of W lanes (32 or 64): lane l takes the groups of 32 columns l, l + W, l + 2 W, .. ascending, from an
    // accumulator that starts at +0; then the lanes are added in pairs, l and l xor W/2, then l xor W/4, .. 1.
    // int8_lanes: in a lane as in int8_sequential. f32_lanes: acc = fma(w, x, acc), columns ascending.
    int8_lanes,
    f32_lanes,

    // Of f32 products by 128 threads on a GPU: thread t takes the quads of columns t, t + 128, .. ascending, acc = fma(w, x,
    // acc); then the lanes of a wave are added as above, then the waves ascending.
    f32_quads128,

    // Of float weights with f32 activations, both split into a high and a low part of 11 significant bits (F16 and BF16
    // weights are high parts): four sums, of columns 64 i + 16 q .. 64 i + 16 q + 15 for i ascending. A sum takes eight
    // columns at a time, first of low weights with high activations (F32 weights only), then high with low, then high with
    // high; eight exact products and the sum are added as mma.sync does it. Then (sum 0 + sum 1) + (sum 2 + sum 3).
    tf32_split,

    // Of weights and activations rounded to f16, the latter after a division by the power of two that brings the largest
    // of their row to 2^13 .. 2^14, in the order and with the roundings of a machine's matrix units.
    f16_mma,

    // Softmax over the KV of one token and head: blocks of 64 positions, and segments of 8 blocks, aligned to multiples of
    // their size. A segment starts from m = -inf, o = 0 and l = 0 in each of 16 lanes; its blocks follow ascending:
    //   d_j = q . k_j in f32_lanes16; M = max(m, scale * max d); p_j = exp(fma(d_j, scale, -M)); c = exp(m - M)
    //   l = fma(l, c, sum of p) in lane j mod 16, that sum from +0 with j ascending
    //   o = o * c, then o = fma(p_j, v_j, o) with j ascending; m = M
    // where, with a soft cap, d_j is the capped score and scale 1. The first segment that the token sees is the total; each
    // later one (m', l', o') joins it, ascending:
    //   M = max(m, m'); c = exp(m - M); c' = exp(m' - M); l = fma(l', c', l * c); o = fma(o', c', o * c); m = M
    // At the end the lanes of l are added as in f32_lanes16. A sink s joins: M = max(m, s); c = exp(m - M); l = l * c +
    // exp(s - M); without one c = 1. out = o * (c * (1 / l)).
    softmax_blocks64,

    // Softmax over the KV of one token and head in chunks of whole units of 64 positions: as many units each as make at
    // most 32 chunks of those that the token sees, but one chunk of two units. A chunk is shared by 256 lanes in rows of
    // L (8 for heads of up to 64 values, 16 up to 128, 32), four positions of a row at a time; a lane has eight values.
    // d_j: fma over those ascending, then neighbours as sum_together in simt/kernels/attention_split.cu. A wave has one
    // running maximum, a lane its own sums; rows, waves and chunks are joined ascending, each by its distance to the
    // largest maximum. A wave of 64 lanes gives other bits than one of 32.
    softmax_split,

    // Softmax over the KV of one token and head by matrix instructions on 16-bit operands, in blocks of 64 positions
    // aligned to multiples of their size; backend/simt/kernels/attention_mma.cu says how. What an instruction adds in which
    // order, and how it rounds, is the machine's own: the same bits are promised on machines of one kind. Weights are
    // _split into two f16, or rounded once to _f16 or _bf16; _exp2: they are powers of 2 of scores times log2(e).
    softmax_mma_split,
    softmax_mma_split_exp2,
    softmax_mma_f16,
    softmax_mma_f16_exp2,
    softmax_mma_bf16,
    softmax_mma_bf16_exp2,
};

}  // namespace ridge
