// From logits to a token: a fixed chain of named steps.
//
// The choice depends on the logits, the options, the seed, the index of the draw and the tokens before it, and on
// nothing else: no state is carried from draw to draw, ties go to the lower id, sums run over sorted candidates in
// double (op/sampling.h). So a session that is truncated and replayed draws the same tokens, and a device that draws by
// Sample (op/op.h) draws what the host would.
//
// Order: logit bias, penalties, then (temperature 0: the largest logit, done) top-k, typical, top-p, min-p,
// temperature, draw. Top-k to min-p look at the distribution at temperature 1, so each keeps its meaning whatever the
// temperature.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "engine/step.h"

namespace ridge {

struct SamplerOptions {
    float temperature = 0.7F;  // 0: greedy
    uint32_t top_k = 40;       // 0: off
    float top_p = 0.95F;       // 1: off
    float min_p = 0.05F;       // 0: off
    float typical_p = 1;       // 1: off
    float repetition_penalty =
        1;                        // 1: off; logits of seen tokens are divided (positive) or multiplied (negative) by it
    float presence_penalty = 0;   // subtracted once from a seen token
    float frequency_penalty = 0;  // subtracted per occurrence
    uint32_t penalty_window = 64;         // how many of the last tokens count as seen; 0: all
    std::map<int32_t, float> logit_bias;  // added; -infinity bans
    uint64_t seed = 0;

    bool penalizes() const { return repetition_penalty != 1 || presence_penalty != 0 || frequency_penalty != 0; }
    // Whether logits are taken as the model gives them.
    bool takes_logits() const { return !penalizes() && logit_bias.empty(); }
    // The largest logit, of equals the lowest token: nothing is drawn.
    bool takes_largest() const { return temperature == 0 && takes_logits(); }
    // A draw that Sample can make.
    bool draws_from_few() const;
};

// Throws Error{usage} naming the option out of range.
void validate(const SamplerOptions &options);

// A token that survived, with its probability among the survivors.
struct Candidate {
    int32_t id;
    double logit;
    double probability;
};

class Sampler {
  public:
    explicit Sampler(SamplerOptions options);
    const SamplerOptions &options() const { return options_; }

    // Draw number `draw` of a sequence whose tokens so far are `history`. Throws Error{device} where a logit is NaN or
    // +infinity, Error{usage} where the logit biases ban every token.
    int32_t sample(std::span<const float> logits, std::span<const int32_t> history, uint64_t draw);

    // The candidates of the last `sample`, most likely first (one for greedy): what was cut and what was kept.
    std::span<const Candidate> candidates() const { return candidates_; }

    // What Sample needs to make draw number `draw` of a sequence. Precondition: takes_largest() or draws_from_few().
    Draw on_device(uint64_t draw) const;

  private:
    void apply_penalties(std::span<const int32_t> history);
    void keep_top_k();
    void keep_typical();
    void weigh(double temperature);

    SamplerOptions options_;
    std::vector<double> logits_;
    std::vector<Candidate> candidates_;
    std::vector<double> weights_, sums_;  // of the candidates, as op/sampling.h has them
};

// Uniform in [0, 1), 53 bits, a pure function of seed and counter (SplitMix64, Steele et al. 2014).
double uniform(uint64_t seed, uint64_t counter);

}  // namespace ridge
