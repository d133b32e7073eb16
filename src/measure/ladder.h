// The ladder of attention's precision on a device: the same prompts continued under levers that differ in how
// attention's weights are rounded and how their exponentials are taken, each beside a rung that computes in f32
// throughout.
//
// Every rung attends to prompts and to single tokens alike, so that what a rung does to a text is not diluted by steps
// that another kernel takes. A device whose rows know none of these levers gives the same bits on all rungs.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "measure/repetition.h"
#include "runtime/model.h"
#include "runtime/sampler.h"

namespace ridge {

struct Rung {
    std::string_view name;    // "bf16, exp2"
    std::string_view levers;  // edits to the levers of all rungs
};
// The first is f32 throughout, the one that the others are compared with.
std::span<const Rung> ladder_rungs();

struct LadderOptions {
    std::vector<std::string> prompts;
    std::vector<SamplerOptions> samplers;
    uint32_t tokens = 64;  // of a continuation
    LeverSet levers = LeverSet::defaults();
};

// A continuation by one sampler.
struct LadderText {
    std::vector<int32_t> tokens;
    std::string text;
    Repetition repetition;
    uint32_t agrees = 0;  // tokens that are those of the first rung
};
struct LadderResult {
    std::string_view rung;
    size_t prompt = 0;
    uint32_t prompt_tokens = 0;
    double kl = 0;    // of the first token's distribution, from that of the first rung
    double most = 0;  // largest difference of its logits
    std::vector<LadderText> texts;
};

// All prompts rung by rung; `each` gets a result when it is there.
void climb(Model &model, const LadderOptions &options, const std::function<void(const LadderResult &)> &each);

}  // namespace ridge
