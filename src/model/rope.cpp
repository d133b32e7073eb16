#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace ridge {
namespace {

// The pair, as a real number, that makes `turns` turns within the original context.
double pair_of(const RopeParams &rope, uint32_t n_rot, double turns) {
    return n_rot * std::log(rope.original_context / (turns * 2 * std::numbers::pi)) / (2 * std::log(rope.base));
}

// Share of pair j's plain frequency, the rest being divided by the factor: 1 for fast pairs, 0 for slow ones.
double kept(const RopeParams &rope, uint32_t n_rot, uint32_t j) {
    double first = pair_of(rope, n_rot, rope.beta_fast), last = pair_of(rope, n_rot, rope.beta_slow);
    if (rope.whole_pairs) first = std::floor(first), last = std::ceil(last);
    first = std::max(first, 0.0), last = std::min(last, n_rot - 1.0);
    if (first == last) last += 0.001;  // a step
    return (1 - std::clamp((j - first) / (last - first), 0.0, 1.0)) * rope.extrapolation;
}

}  // namespace

std::vector<double> rope_frequencies(const RopeParams &rope, uint32_t n_rot, std::span<const float> factors) {
    std::vector<double> frequency(n_rot / 2);
    for (uint32_t j = 0; j < frequency.size(); j++) {
        double f = std::pow(rope.base, -2.0 * j / n_rot);
        if (!factors.empty()) f /= static_cast<double>(factors[j]);
        if (rope.scaling == RopeParams::Scaling::linear) f /= rope.factor;
        if (rope.scaling == RopeParams::Scaling::yarn) {
            const double share = kept(rope, n_rot, j);
            f = f * share + f / rope.factor * (1 - share);
        }
        frequency[j] = f;
    }
    return frequency;
}

double yarn_magnitude(double factor) { return factor <= 1 ? 1 : 0.1 * std::log(factor) + 1; }

double longrope_magnitude(double factor, double original_context) {
    return factor <= 1 ? 1 : std::sqrt(1 + std::log(factor) / std::log(original_context));
}

}  // namespace ridge
