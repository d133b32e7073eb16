#include "op/bound.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace ridge::bound {

double gamma(double roundings) { return roundings * kU / (1 - roundings * kU); }

double depth(Order order, size_t terms) {
    if (order == Order::f32_lanes16 || order == Order::bf16_pairs16)
        return std::ceil(static_cast<double>(terms) / 16) + 4;
    if (order == Order::f32_quads256) return 4 * std::ceil(static_cast<double>(terms) / 1024) + 8;
    return static_cast<double>(terms);
}

double contract_f32(Order order, size_t k, double magnitude, bool bias) {
    return gamma(depth(order, k) + bias) * magnitude + static_cast<double>(k + 1) * kTiny;
}

double contract_bf16(Order order, size_t k, double magnitude, double factors, bool bias) {
    return gamma(depth(order, k) + bias) * magnitude + factors * 0x1p-126;
}

double contract_tf32(size_t k, double magnitude, double factors, bool bias) {
    const double steps = std::ceil(static_cast<double>(k) / 64);
    return gamma(28 + 6 * 10 * 2 * steps + 2 + bias) * magnitude + 4 * factors * 0x1p-126;
}

double contract_int8(Order order, size_t terms, double magnitude, double factors, bool bias) {
    const double n = static_cast<double>(terms), per_term = order == Order::int8_sequential ? 1 : 2;
    return gamma(n + per_term + bias) * magnitude + (factors + n + 1) * kTiny;
}

double contract_f16(size_t k, double magnitude, double small, bool bias) {
    const double additions = 2 * (static_cast<double>(k) * 17 / 16 + 2) + 4 + bias;
    return (0x1p-10 + 0x1p-20 + gamma(additions)) * magnitude + 1.01 * small + kTiny;
}

double rmsnorm(Order order, size_t width, double want, double weight) {
    const double relative = gamma((depth(order, width) + 2) / 2 + 4);
    return relative * std::fabs(want) + (std::fabs(weight) + 1) * kTiny;
}

double rope(double magnitude, double error) { return gamma(2) * (magnitude + error) + error + 3 * kTiny; }

double rope_table(double want, double angle, double magnitude) {
    const double in_double = (std::fabs(angle) + 9) * std::fabs(magnitude) * 0x1p-52;
    return kU * (std::fabs(want) + in_double) + in_double + kTiny;
}

double to_f16(double want, double error) { return error + 0x1p-11 * (std::fabs(want) + error) + 0x1p-25; }

double softmax_relative(Order order, size_t n, double distance, double spread) {
    const double numerator = std::expm1(kU * distance + kExp);
    const double denominator = std::expm1(kU * spread + kExp) + gamma(depth(order, n) + 1);
    return (numerator + denominator) / (1 - denominator) + 2 * gamma(2);
}

double softmax(Order order, size_t n, double want, double distance, double spread) {
    return softmax_relative(order, n, distance, spread) * want + 4 * kTiny;
}

double softcap(double cap) { return gamma(9) * cap + kTiny; }

namespace {

// What an order does to one weight until the softmax is complete.
struct SoftmaxSteps {
    double exps, products;  // exponentials, its own among them, and products with them
    double score = 0;       // relative error of a score's operands and sum beyond the dot's
    double reach = 0;       // of the score, relative to AttentionCase::reach
    double weight = 0;      // relative error of a weight and of the sum of values
    double least = 0;       // absolute one of a weight, the largest being 1
    bool exp2 = false;
};
bool is_mma(Order o) { return o >= Order::softmax_mma_split && o <= Order::softmax_mma_bf16_exp2; }
SoftmaxSteps softmax_steps(Order order, const AttentionCase &c) {
    const double n = static_cast<double>(c.length), blocks = std::floor(n / 64) + 2, segments = std::floor(n / 512) + 2;
    // A wave takes at least 32 positions of its chunk's units, two of them where there are no more, at a time; then
    // waves, chunks and a sink are joined.
    if (order == Order::softmax_split) {
        const double each = 2 * std::max(std::ceil(blocks / 32), n <= 128 ? 2.0 : 1.0);
        return {.exps = each + 4, .products = each + 3};
    }
    if (!is_mma(order)) return {.exps = blocks + 1, .products = blocks + 2 * segments};
    constexpr double kInstruction = 20 * 2 * kU;
    SoftmaxSteps s{.exps = blocks + 1, .products = blocks + 2, .reach = 0x1p-39, .least = 0x1p-40};
    s.score = 4 * kU + 2 * std::ceil(static_cast<double>(c.head_dim) / 16) * kInstruction;
    const bool f16 = order == Order::softmax_mma_f16 || order == Order::softmax_mma_f16_exp2;
    const bool split = order == Order::softmax_mma_split || order == Order::softmax_mma_split_exp2;
    s.weight = (split ? 4 * kU : f16 ? 0x1p-11 : 0x1p-8) + (split ? 2 : 1) * (std::floor(n / 16) + 2) * kInstruction;
    s.exp2 = order == Order::softmax_mma_split_exp2 || order == Order::softmax_mma_f16_exp2 ||
             order == Order::softmax_mma_bf16_exp2;
    return s;
}

}  // namespace

double attention(Order order, const AttentionCase &c, double want) {
    const double n = static_cast<double>(c.length);
    const SoftmaxSteps r = softmax_steps(order, c);
    const Order dot = order == Order::softmax_blocks64 ? Order::f32_lanes16 : order;
    // An instruction's parts are counted; what they split adds 2^-11 of itself to the magnitudes.
    const double dot_error = is_mma(order) ? (1 + 0x1p-10) * r.score + gamma(2) : gamma(depth(dot, c.head_dim) + 2);
    double score_error = dot_error * c.score + r.reach * c.reach, score = c.score;
    if (c.softcap > 0) score_error += softcap(c.softcap), score = std::min(score, c.softcap);
    if (std::isfinite(c.sink)) score = std::max(score, std::min(std::fabs(c.sink), score + kExpVanishes));
    if (r.exp2) score_error += gamma(3) * score;
    const double exponent = score_error + kU * (2 * score + 2 * score_error) + (kExp + kU) * r.exps;
    const double roundings = gamma(n + r.products) + (1 + 0x1p-10) * r.weight;
    const double relative = std::expm1(exponent) * (1 + roundings) + roundings;
    const double underflow = (n * r.exps * c.largest_v + 1) * 8 * kTiny + n * r.least * c.largest_v;
    return (c.magnitude + std::fabs(want)) * relative / (1 - relative) + 3 * kU * std::fabs(want) + underflow;
}

namespace {

// x / (1 + exp(t)) * up, and how many roundings t has.
struct Unit {
    double x, t, roundings, up;
};
Unit unit(GluKind kind, double gate, double up) {
    switch (kind) {
        case GluKind::gelu:
            return {gate, -2 * std::sqrt(2 / std::numbers::pi) * (gate + 0.044715 * gate * gate * gate), 7, up};
        case GluKind::clamped:
            return {std::min(gate, 7.0), -1.702 * std::min(gate, 7.0), 2, std::clamp(up, -7.0, 7.0) + 1};
        case GluKind::silu:
            break;
    }
    return {gate, -gate, 0, up};
}

}  // namespace

double glu(GluKind kind, double gate, double up, double want) {
    const Unit f = unit(kind, gate, up);
    const double reach = std::clamp(f.t, 0.3, kExpOverflow + 1);
    const double overflow = f.t > kExpOverflow ? std::fabs(want) : 0;
    const double relative = std::expm1(reach * gamma(f.roundings) + gamma(8));
    return relative * std::fabs(want) + (std::fabs(f.up) + 1) * kTiny + overflow;
}

double gate_up(GluKind kind, double gate, double gate_error, double up, double up_error, double want) {
    constexpr double kSlope = 1.13;
    const Unit f = unit(kind, gate, up);
    const double activated = std::fabs(f.x / (1 + std::exp(f.t)));
    const double operands = kSlope * gate_error * (std::fabs(f.up) + up_error) + activated * up_error;
    const double most = std::fabs(want) + operands;
    return operands + glu(kind, gate - gate_error, std::fabs(up) + up_error, most);
}

double row_gate(double gate, double want) {
    const double overflow = -gate > kExpOverflow ? std::fabs(want) : 0;
    return gamma(6) * std::fabs(want) + kTiny + overflow;
}

double normalize(Order order, size_t n, double want, double sum, double magnitude) {
    const double denominator = gamma(depth(order, n)) * magnitude / std::fabs(sum);
    return (denominator / (1 - denominator) + 2 * gamma(2)) * std::fabs(want) + 2 * kTiny;
}

}  // namespace ridge::bound
