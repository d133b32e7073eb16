// How far a correct kernel may be from the true result: the bounds of the gate, derived from the problem.
//
// u = 2^-24 is the relative error of one f32 rounding (to nearest), and a rounding to a subnormal adds at most 2^-150.
// A term that goes through r roundings on its way into a sum is off by a factor within 1 +- gamma(r),
// gamma(r) = r u / (1 - r u); so a sum of terms t is off by at most gamma(r) * sum |t|, r the longest way. Everything
// below counts such roundings. No constant is fitted to what a kernel happens to reach.
#pragma once

#include <cstddef>

#include "op/op.h"
#include "op/order.h"

namespace ridge::bound {

constexpr double kU = 0x1p-24;
constexpr double kTiny = 0x1p-150;  // rounding below the smallest normal number
// An exp of any backend is within 2 ulp, that is 4 u, and exact at 0 only by luck. Results that would be subnormal may
// also be rounded there.
constexpr double kExp = 4 * kU;
// exp overflows f32 from here on (88.72..); x / (1 + exp(t)) with t above it is a zero although the true value is not.
constexpr double kExpOverflow = 88.7;
constexpr double kExpVanishes = 104;  // exp(-x) is 0 in f32 from here on

double gamma(double roundings);

// Roundings between a product and the sum of `terms` of them, each added by one fma:
//   f32_lanes16  a lane adds ceil(terms / 16) of them, and four more additions join the lanes
//   f32_quads256 a lane adds 4 ceil(terms / 1024) of them, and eight more additions join the lanes
//   any other    one after the other, the worst order there is (or exact, where nothing is rounded: then more than
//                needed)
double depth(Order order, size_t terms);

// sum_j w_j x_j, w exact in f32. magnitude = sum |w_j x_j|, of a bias too; a bias costs one rounding more.
double contract_f32(Order order, size_t k, double magnitude, bool bias);

// sum_j w_j x_j of bf16 numbers, where w_j, x_j and sums are taken for 0 where they are subnormal: factors = sum of
// |w_j| + |x_j| + 1.
double contract_bf16(Order order, size_t k, double magnitude, double factors, bool bias);

// Order::tf32_split: both operands of a product are cut to 22 bits or a few more, which loses at most 6 u of each, and
// the product of the two low parts is left out, 16 u: 28 in all, in most cases 8. What an mma.sync of eight columns does to
// its nine addends is the machine's own: each may be cut to the last place of the largest, and so may the sum, 2 u each. A
// sum of ceil(k / 64) steps takes six of them a step; the four sums are joined by two additions. Subnormal operands, low
// parts and products may be taken for 0: factors = sum of |w_j| + |x_j| + 1.
double contract_tf32(size_t k, double magnitude, double factors, bool bias);

// sum over groups of w_scale * x_scale * integer and w_bias * (x_scale * total), the integers exact: |integer| <= 32 *
// 128 * 127 < 2^24.
//   int8_sequential  rounds a product of two factors and then once per term: terms + 1 (two groups of 16 are joined by
//                    two roundings and cost one in the sum, so no more)
//   any other        rounds also the product with the integer: terms + 2
// magnitude = sum over terms |product|; factors = sum of what a first product that is rounded to a subnormal is
// multiplied by: |integer|, or |w_bias|.
double contract_int8(Order order, size_t terms, double magnitude, double factors, bool bias);

// sum_j w_j x_j, both rounded to f16 (Order::f16_mma): 11 bits each, so a product is exact in f32 and off by 2^-10, and what
// is too small for an f16 by 2^-25, x after its division. The matrix unit may cut off where it should round, so an
// addition costs 2 u; there are at most k and one for every sixteen, then two products and a bias. magnitude = sum |w_j
// x_j|; small = 2^-25 (sum |x_j| + max(2^-13 max_row |x|, 2^-110) sum |w_j|), as rows are multiplied by 2^110 at most.
double contract_f16(size_t k, double magnitude, double small, bool bias);

// |want| is the true result, weight its factor. Sum of squares: depth(width) on positive terms; mean, + eps: two more;
// the root halves all that; root, reciprocal (or division), two products: four more.
double rmsnorm(Order order, size_t width, double want, double weight);

// a*c - b*s, each product and the difference rounded; magnitude = |a c| + |b s|. error: of a and b together, after
// their factors.
double rope(double magnitude, double error);

// Double cosine or sine rounded to f32; the angle itself is a product in double, libraries differ by an ulp there, and
// the magnitude may be worked out for the position: a quotient, a logarithm and three more roundings.
double rope_table(double want, double angle, double magnitude);

// f32 -> f16, to nearest. `error`: of the f32 value.
double to_f16(double want, double error);

// Softmax. A score's distance to the maximum is rounded (u * |distance|), exp has its own error; the denominator is a
// sum of such terms, then one division (or a reciprocal and a product). Relative to the true probability.
double softmax_relative(Order order, size_t n, double distance, double spread);
double softmax(Order order, size_t n, double want, double distance, double spread);

// softcap * tanh(x / softcap), x = scale * operand, rounded. How far, whatever x is: the argument is off by two
// roundings, and |a| tanh'(a) < 1/2 for every a, so that they cost one. tanh as 1 - 2 / (exp(2a) + 1) is off by at most
// kExp / 2 (2 e / (e + 1)^2 <= 1/2), four roundings of a quotient below 2 and one of the difference, 7 u of 1 in all
// (not of the result); the last product is rounded.
double softcap(double cap);

// What a head of attention looks like to its bound.
struct AttentionCase {
    size_t head_dim = 0, length = 0;  // length: visible positions
    double score = 0;                 // largest scale * sum |q k|
    double magnitude = 0;             // sum p |v|
    double largest_v = 0;
    double softcap = 0;  // 0: none
    double sink = 0;     // the head's, -inf or 0: none (a sink of 0 moves no distance)
    double reach = 0;    // largest scale * (largest |q|) * sum |k|
};
// Each score is off by at most e = gamma(dot + 2) * score, so its exponential by e^e, and the distances to the running
// maximum, which telescope over the blocks, by u * 2 * score in all. Every block of 64 costs an exp and two products
// (rescaling), every segment of 512 that is joined to the others as much; numerator and denominator are sums over the
// visible positions; at the end a division, or a reciprocal and two products. Order::softmax_split rescales once for each
// turn of a wave, and when waves and when chunks are joined.
// A soft cap shrinks errors (its slope is at most 1), adds softcap() of its own, and holds scores within +-softcap.
// A sink is one more term of the denominator, the first. It is exact, but distances may reach to it; where it lies more
// than kExpVanishes from every score, exp is 0 on one side and it adds no more.
//
// Orders softmax_mma_*: a matrix instruction adds 16 products to a sum. Machines shift them to the largest and cut off
// what is below 2^-23 of it, some in two steps of 8: at most 20 times 2 u of the sum of magnitudes. q is split into two f16,
// exact to 4 u of each value and 2^-39 of the largest (reach); so are weights, or to 2^-11 or 2^-8 (f16, bf16) of each and
// 2^-40 of the largest, which is below which they are taken for anything. log2(e), the factor with it and a sink's product
// with it are rounded.
double attention(Order order, const AttentionCase &c, double want);

// A gated unit is x / (1 + exp(t)) * up:
//   silu     x = gate            t = -gate, exact
//   gelu     x = gate            t = -2 sqrt(2/pi) (gate + 0.044715 gate^3): two constants and five operations rounded
//   clamped  x = min(gate, 7)    t = -1.702 x: a constant and a product rounded;   up is held to +-7, and 1 added
// r roundings of t cost |t| r u of the result where exp(t) prevails, and less than 0.3 r u where the 1 does (|t| e^t /
// (1 + e^t) < 0.28 for t < 0). Then exp, sum, quotient, product, and the 1 added: eight. t above kExpOverflow gives 0.
// The form x / 2 * (1 + tanh) of gelu, which cancels for negative x, is not within it.
double glu(GluKind kind, double gate, double up, double want);
// The same of operands that carry errors. The slope in gate is below 1.13 (gelu has the largest), in up 1.
double gate_up(GluKind kind, double gate, double gate_error, double up, double up_error, double want);
// x / (1 + exp(-gate)): exp, sum, quotient.
double row_gate(double gate, double want);

// x / sum x
double normalize(Order order, size_t n, double want, double sum, double magnitude);

}  // namespace ridge::bound
