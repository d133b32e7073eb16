#include "runtime/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>

#include "core/error.h"
#include "op/sampling.h"

namespace ridge {
namespace {

uint64_t splitmix(uint64_t x) {
    x += 0x9e3779b97f4a7c15U;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31);
}

bool more_likely(const Candidate &a, const Candidate &b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

void require(bool ok, const char *option, double value, const char *range) {
    if (!ok) fail(ErrorKind::usage, "{} is {}, but must be {}", option, value, range);
}

}  // namespace

double uniform(uint64_t seed, uint64_t counter) {
    return static_cast<double>(splitmix(splitmix(seed) ^ counter) >> 11) * 0x1p-53;
}

bool SamplerOptions::draws_from_few() const {
    return temperature > 0 && typical_p >= 1 && top_k >= 1 && top_k <= sampling::kMostCandidates && takes_logits();
}

// The negated forms also refuse NaN.
void validate(const SamplerOptions &o) {
    require(o.temperature >= 0 && o.temperature <= 100, "temperature", o.temperature, "between 0 and 100");
    require(o.top_p > 0 && o.top_p <= 1, "top-p", o.top_p, "above 0 and at most 1");
    require(o.min_p >= 0 && o.min_p <= 1, "min-p", o.min_p, "between 0 and 1");
    require(o.typical_p > 0 && o.typical_p <= 1, "typical-p", o.typical_p, "above 0 and at most 1");
    require(o.repetition_penalty > 0 && o.repetition_penalty <= 100, "repetition penalty", o.repetition_penalty,
            "above 0 and at most 100");
    require(std::abs(o.presence_penalty) <= 100, "presence penalty", o.presence_penalty, "between -100 and 100");
    require(std::abs(o.frequency_penalty) <= 100, "frequency penalty", o.frequency_penalty, "between -100 and 100");
    for (const auto &[id, bias] : o.logit_bias)
        if (!(bias < std::numeric_limits<float>::infinity()))
            fail(ErrorKind::usage, "the logit bias of token {} is {}, but must be a number or -inf", id, bias);
}

Sampler::Sampler(SamplerOptions options) : options_(std::move(options)) { validate(options_); }

int32_t Sampler::sample(std::span<const float> logits, std::span<const int32_t> history, uint64_t draw) {
    logits_.assign(logits.begin(), logits.end());
    for (size_t i = 0; i < logits_.size(); i++)
        if (!(logits_[i] < std::numeric_limits<double>::infinity()))
            fail(ErrorKind::device,
                 "the model's logit of token {} is {}: the weights are damaged or a kernel is wrong; "
                 "`ridge gate` tells which",
                 i, logits_[i]);
    for (const auto &[id, bias] : options_.logit_bias) {
        if (id < 0 || static_cast<size_t>(id) >= logits_.size())
            fail(ErrorKind::usage, "logit bias names token {}, but the vocabulary ends at {}", id, logits_.size() - 1);
        logits_[static_cast<size_t>(id)] += bias;
    }
    apply_penalties(history);

    candidates_.clear();
    for (size_t i = 0; i < logits_.size(); i++)
        if (logits_[i] > -std::numeric_limits<double>::infinity())
            candidates_.push_back({static_cast<int32_t>(i), logits_[i], 0});
    if (candidates_.empty())
        fail(ErrorKind::usage, "the logit biases ban every token of the vocabulary; nothing can be drawn");
    if (options_.temperature == 0) {
        const Candidate best = *std::min_element(candidates_.begin(), candidates_.end(), more_likely);
        candidates_ = {{best.id, best.logit, 1}};
        return best.id;
    }
    keep_top_k();
    keep_typical();
    weigh(1);
    candidates_.resize(sampling::kept(weights_.data(), sums_.data(), static_cast<uint32_t>(candidates_.size()),
                                      options_.top_p, options_.min_p));
    weigh(options_.temperature);
    return candidates_[sampling::drawn(sums_.data(), static_cast<uint32_t>(candidates_.size()),
                                       uniform(options_.seed, draw))]
        .id;
}

Draw Sampler::on_device(uint64_t draw) const {
    const SamplerOptions &o = options_;
    if (o.takes_largest()) return {};
    RIDGE_ASSERT(o.draws_from_few());
    return {o.temperature, o.top_p, o.min_p, o.top_k, uniform(o.seed, draw)};
}

void Sampler::apply_penalties(std::span<const int32_t> history) {
    const SamplerOptions &o = options_;
    if (!o.penalizes()) return;
    if (o.penalty_window != 0 && history.size() > o.penalty_window) history = history.last(o.penalty_window);
    std::unordered_map<int32_t, uint32_t> seen;
    for (int32_t t : history)
        if (t >= 0 && static_cast<size_t>(t) < logits_.size()) seen[t]++;
    for (const auto &[id, count] : seen) {
        double &l = logits_[static_cast<size_t>(id)];
        l = l > 0 ? l / o.repetition_penalty : l * o.repetition_penalty;
        l -= o.presence_penalty + static_cast<double>(o.frequency_penalty) * count;
    }
}

// Leaves the candidates sorted, most likely first.
void Sampler::keep_top_k() {
    const size_t k = options_.top_k == 0 ? candidates_.size() : std::min<size_t>(options_.top_k, candidates_.size());
    std::partial_sort(candidates_.begin(), candidates_.begin() + static_cast<std::ptrdiff_t>(k), candidates_.end(),
                      more_likely);
    candidates_.resize(k);
}

// The candidates' weights, their sums and probabilities.
void Sampler::weigh(double temperature) {
    const size_t n = candidates_.size();
    weights_.resize(n), sums_.resize(n);
    for (size_t i = 0; i < n; i++)
        weights_[i] = sampling::exp((candidates_[i].logit - candidates_[0].logit) / temperature);
    sampling::add_up(weights_.data(), sums_.data(), static_cast<uint32_t>(n));
    for (size_t i = 0; i < n; i++) candidates_[i].probability = weights_[i] / sums_.back();
}

// Locally typical sampling (Meister et al. 2022): the smallest set, taken by distance of surprise from the entropy,
// that holds the mass.
void Sampler::keep_typical() {
    if (options_.typical_p >= 1) return;
    weigh(1);
    double entropy = 0;
    for (const Candidate &c : candidates_)
        if (c.probability > 0) entropy -= c.probability * std::log(c.probability);
    auto distance = [&](const Candidate &c) {
        return c.probability > 0 ? std::abs(-std::log(c.probability) - entropy)
                                 : std::numeric_limits<double>::infinity();
    };
    std::stable_sort(candidates_.begin(), candidates_.end(),
                     [&](const Candidate &a, const Candidate &b) { return distance(a) < distance(b); });
    double mass = 0;
    size_t n = 0;
    while (n < candidates_.size() && mass < options_.typical_p) mass += candidates_[n++].probability;
    candidates_.resize(std::max<size_t>(n, 1));
    std::sort(candidates_.begin(), candidates_.end(), more_likely);
}

}  // namespace ridge
