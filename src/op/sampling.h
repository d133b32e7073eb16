// From sorted candidates to the one that is drawn: the one text of the host's sampler and of every row of Sample
// (op.h), in the common subset of C++, CUDA and HIP.
//
// A draw must be the same token wherever it is made, so no bit is left to a library or a compiler: sums have an order,
// and all is made of additions, multiplications and divisions that are rounded once each (nothing is contracted
// anywhere, cmake/options.cmake and cmake/simt.cmake).
//
// Of n candidates, the largest logit first, of equals the lower id:
//   cut[i]    = exp(logit[i] - logit[0])                   what top-p and min-p look at: as if the temperature were 1
//   weight[i] = exp((logit[i] - logit[0]) / temperature)   what is drawn from
// The first kept(..) candidates are left, and drawn(..) is the place of the one among them that is taken.
#pragma once

#include "format/dialect.h"

namespace ridge::sampling {

using dialect::u32;
using u64 = uint64_t;
using f64 = double;

constexpr u32 kMostCandidates = 128;  // the largest top-k of Sample

// e^x for x <= 0, within 1.1 ulp: half for the last addition, a quarter each for r and the sum before it, the rest for
// the other terms. 0 below -708, where e^x would soon be subnormal. Precondition: no NaN.
// x = n ln 2 + r with |r| <= ln 2 / 2; the Taylor series of e^r up to r^13 / 13! leaves out 2^-57 of it.
FN f64 exp(f64 x) {
    if (x < -708) return 0;
    constexpr f64 magic = 0x1.8p52;  // adding it rounds to a whole number, which is then in the low bits
    const f64 shifted = x * 0x1.71547652b82fep+0 + magic;
    const f64 whole = shifted - magic;
    // ln 2 in two parts: the product with the first, of 32 bits, is exact.
    const f64 r = (x - whole * 0x1.62e42feep-1) - whole * 0x1.a39ef35793c76p-33;
    f64 p = 1.0 / 6227020800;
    p = p * r + 1.0 / 479001600;
    p = p * r + 1.0 / 39916800;
    p = p * r + 1.0 / 3628800;
    p = p * r + 1.0 / 362880;
    p = p * r + 1.0 / 40320;
    p = p * r + 1.0 / 5040;
    p = p * r + 1.0 / 720;
    p = p * r + 1.0 / 120;
    p = p * r + 1.0 / 24;
    p = p * r + 1.0 / 6;
    p = p * r + 1.0 / 2;
    p = 1 + (r + r * r * p);
    const u64 n = __builtin_bit_cast(u64, shifted) - __builtin_bit_cast(u64, magic);
    return p * __builtin_bit_cast(f64, (n + 1023) << 52);
}

// sum[i] = weight[0] + .. + weight[i], ascending.
FN void add_up(const f64 *__restrict weight, f64 *__restrict sum, u32 n) {
    f64 so_far = 0;
    for (u32 i = 0; i < n; i++) sum[i] = so_far = so_far + weight[i];
}

// Where `past` begins to hold among 0 .. n - 1; n where it does nowhere. By halves, so also where an ulp makes it hold,
// fail and hold again the answer is the same everywhere.
template <class Past>
FN u32 first(u32 n, Past past) {
    u32 low = 0, high = n;
    while (low < high) {
        const u32 middle = (low + high) / 2;
        if (past(middle))
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

// How many top-p and min-p leave, at least 1: the fewest that hold the share top_p of the mass (1 and above: all), of
// those the ones that are at least min_p times as likely as the first. `sum` is that of `cut`.
FN u32 kept(const f64 *cut, const f64 *sum, u32 n, f64 top_p, f64 min_p) {
    u32 left = n;
    if (top_p < 1) {
        const f64 mass = top_p * sum[n - 1];
        left = first(n, [&](u32 i) { return sum[i] >= mass; }) + 1;
    }
    return first(left, [&](u32 i) { return cut[i] < min_p; });
}

// The place that `uniform`, in [0, 1), falls on. `sum` is that of `weight`; n what is kept.
FN u32 drawn(const f64 *sum, u32 n, f64 uniform) {
    const f64 at = uniform * sum[n - 1];
    return first(n - 1, [&](u32 i) { return sum[i] > at; });
}

}  // namespace ridge::sampling
