// How far a correct kernel may be from the true result: the bounds of the gate, derived from the problem.
//
// u = 2^-24 is the relative error of one f32 rounding (to nearest), and a rounding to a subnormal adds at most 2^-150.
// A term that goes through r roundings on its way into a sum is off by a factor within 1 +- gamma(r),
// gamma(r) = r u / (1 - r u); so a sum of terms t is off by at most gamma(r) * sum |t|, r the longest way. Everything
// below counts such roundings. No constant is fitted to what a kernel happens to reach.
#pragma once

#include <cstddef>

#include "op/order.h"

namespace ridge::bound {

constexpr double kU = 0x1p-24;
constexpr double kTiny = 0x1p-150;  // rounding below the smallest normal number
// An exp of any backend is within 2 ulp, that is 4 u, and exact at 0 only by luck. Results that would be subnormal may
// also be rounded there.
constexpr double kExp = 4 * kU;
// exp overflows f32 from here on (88.72..); silu(x) of -x above it is a zero although the true value is not.
constexpr double kExpOverflow = 88.7;

double gamma(double roundings);

// Roundings between a product and the sum of `terms` of them, each added by one fma:
//   f32_lanes16  a lane adds ceil(terms / 16) of them, and four more additions join the lanes
//   any other    one after the other, the worst order there is (or exact, where nothing is rounded: then more than
//                needed)
double depth(Order order, size_t terms);

// sum_j w_j x_j, w exact in f32. magnitude = sum |w_j x_j|, of a bias too; a bias costs one rounding more.
double contract_f32(Order order, size_t k, double magnitude, bool bias);

// sum over groups of (w_scale * x_scale) * integer, the integers exact: |integer| <= 32 * 128 * 127 < 2^24.
//   int8_sequential  rounds the product of the scales and then once per term: terms + 1
//   any other        rounds also the product with the integer: terms + 2
// magnitude = sum over terms |scale * scale * integer|; integers = sum |integer|, by which a product of scales that is
// rounded to a subnormal is multiplied.
double contract_int8(Order order, size_t terms, double magnitude, double integers, bool bias);

// |want| is the true result, weight its factor. Sum of squares: depth(width) on positive terms; mean, + eps: two more;
// the root halves all that; root, reciprocal (or division), two products: four more.
double rmsnorm(Order order, size_t width, double want, double weight);

// a*c - b*s, each product and the difference rounded; magnitude = |a c| + |b s|. error: of a and b together, after
// their factors.
double rope(double magnitude, double error);

// Double cosine or sine rounded to f32; the angle itself is a product in double, and libraries differ by an ulp there.
double rope_table(double want, double angle, double magnitude);

// f32 -> f16, to nearest. `error`: of the f32 value.
double to_f16(double want, double error);

// Softmax. A score's distance to the maximum is rounded (u * |distance|), exp has its own error; the denominator is a
// sum of such terms, then one division (or a reciprocal and a product). Relative to the true probability.
double softmax_relative(Order order, size_t n, double distance, double spread);
double softmax(Order order, size_t n, double want, double distance, double spread);

// What a head of attention looks like to its bound.
struct AttentionCase {
    size_t head_dim = 0, length = 0;  // length: visible positions
    double score = 0;                 // largest scale * sum |q k|
    double magnitude = 0;             // sum p |v|
    double largest_v = 0;
};
// Each score is off by at most e = gamma(dot + 2) * score, so its exponential by e^e, and the distances to the running
// maximum, which telescope over the blocks, by u * 2 * score in all. Every block of 64 costs an exp and two products
// (rescaling); numerator and denominator are sums over the visible positions; at the end one division.
double attention(Order order, const AttentionCase &c, double want);

// silu(x): an exp (weakened by the 1 next to it), a sum, a division; `up`: times up, one product.
double silu_mul(double gate, double up, double want);
// The same of operands that carry errors: |silu'| < 1.1.
double gate_up(double gate, double gate_error, double up, double up_error, double want);

// x / sum x
double normalize(Order order, size_t n, double want, double sum, double magnitude);

}  // namespace ridge::bound
