// One engine of a model, driven step by step with random tokens: what bench and ab measure. The steps are those that a
// session takes in greedy generation, where what the host does with logits is left out, or with a sampler of default
// options, which draws a token of each step's logits: on the device or on the host.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>

#include "measure/trace_summary.h"
#include "runtime/model.h"
#include "runtime/sampler.h"

namespace ridge::bench {

// What is run: a prompt at once or single tokens, after `depth` positions. One of the first two is 0.
struct ModelTest {
    uint32_t prompt = 0, answer = 0, depth = 0;

    uint32_t tokens() const { return prompt + answer; }
    uint32_t end() const { return depth + tokens(); }
    std::string test() const;  // "pp512", "tg128 @ d8192", as llama-bench calls them
};

class Side {
  public:
    Side(Model &model, LeverSet levers, uint32_t context, uint32_t batch, Chooses chooses = Chooses::largest);
    // An engine that belongs to no model file.
    explicit Side(std::unique_ptr<Engine> engine);

    LeverSet levers() const { return engine_->program().levers; }
    Engine &engine() { return *engine_; }
    const Engine &engine() const { return *engine_; }
    uint32_t batch() const { return step_.limits().tokens; }

    // Fills the state up to `depth`: a prompt for the first pages, copies of those for the rest.
    void fill(uint32_t depth);

    // Sides that are seeded alike evaluate the same tokens from then on.
    void seed(uint32_t value) { random_.seed(value); }
    // `tokens` random tokens from `position` on, in steps of a batch; the token that would follow the last one, or,
    // where the levers leave that to the host, its logits.
    void evaluate(uint32_t position, uint32_t tokens);
    void run(const ModelTest &test);
    // From now on `evaluate` is traced into `kept`; nullptr: no more.
    void trace_to(TraceKeeper *kept) { traced_ = kept; }
    // A step of `tokens` random tokens, with the logits of every one or of the last.
    // Precondition: as the step limits say.
    const StepBuffer &make_step(uint32_t position, uint32_t tokens, bool all_logits);

  private:
    std::unique_ptr<Session> session_;  // null where the engine is given
    std::unique_ptr<Engine> own_;
    Engine *engine_;
    StepBuffer step_;
    uint32_t vocabulary_;
    std::mt19937 random_{1};
    std::optional<Sampler> sampler_;  // where tokens are drawn
    TraceKeeper *traced_ = nullptr;
    StepTrace trace_;
};

}  // namespace ridge::bench
