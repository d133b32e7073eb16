// One conversation with a model: a position, the state behind it, and the engine that moves it forward.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/place.h"

namespace ridge {

// What Want::token can be asked for: nothing, the token of the largest logit (lever argmax), or one that is drawn
// (lever sample), of which the largest is a case.
enum class Chooses : uint8_t { nothing, largest, drawn };

struct SessionOptions {
    uint32_t context = 0;  // positions there is room for; 0: default_context()
    uint32_t batch = 512;  // most tokens in one step; longer prompts take several
    LeverSet levers = LeverSet::defaults();
    DeviceMap map;
    Chooses chooses = Chooses::nothing;  // as far as the levers allow
};

// The context of a session that names none: what the model was trained for, but at most 8192, so that a model trained
// for 128k does not reserve its whole state unasked.
uint32_t default_context(uint32_t trained);
// `wanted`, or the default where that is 0. Throws Error{usage} where it is more than the model was trained for.
uint32_t checked_context(uint32_t wanted, uint32_t trained);

// What a session of `context` positions gives its engine.
EngineOptions engine_options(uint32_t context, uint32_t batch);
// The program that it runs: placed, fused as the devices can, connected.
Program prepared(Program plain, uint32_t context, std::span<Backend *const> devices, const SessionOptions &options);

// What a caller wants of the tokens of one `evaluate`: logits of the last or of all, or of the last only the token that
// comes next.
enum class Want : uint8_t { none, last, all, token };

class Session {
  public:
    // `plain` is the model's unfused program and `trained` the context it was trained for. Devices and weights must
    // outlive the session. Throws Error{usage} for a context beyond the trained one, Error{limit} where the
    // state does not fit into memory, Error{unsupported} where a kernel is missing.
    Session(const Program &plain, uint32_t trained, std::vector<Backend *> devices, WeightStore &weights,
            const SessionOptions &options);

    uint32_t context() const { return context_; }
    uint32_t position() const { return static_cast<uint32_t>(tokens_.size()); }
    std::span<const int32_t> tokens() const { return tokens_; }

    // Appends `tokens` and computes. Want::last: logits(0) is the last token's row. Want::all: a row per token, kept
    // for all steps. Want::token: choice() is the token that `draw` makes of the last one's logits, which stay where
    // they are. Precondition of that: chooses() is not nothing, and drawn where the draw's temperature is above 0.
    // Throws Error{limit} where they do not fit into the context or Error{usage} for an id outside the vocabulary, and
    // then has changed nothing. `progress(done, total)` is called between steps; when it answers false the rest is not
    // evaluated, and evaluate returns false with the session at the tokens that were.
    bool evaluate(std::span<const int32_t> tokens, Want want = Want::last,
                  const std::function<bool(size_t done, size_t total)> &progress = {}, const Draw &draw = {});
    std::span<const float> logits(size_t row = 0) const;
    Chooses chooses() const { return chooses_; }
    // Throws Error{device} where a logit was NaN or +infinity, or none was above -infinity.
    int32_t choice() const;

    // From now on every step is traced and handed to `sink`, before evaluate goes on; empty: no longer.
    void trace_to(std::function<void(const StepTrace &)> sink) { trace_sink_ = std::move(sink); }

    // Forgets everything from `position` on. Precondition: position <= this->position(). All state so far is per token,
    // so this is exact.
    void truncate(uint32_t position);

    Engine &engine() { return engine_; }

  private:
    uint32_t context_;
    uint32_t batch_;
    uint32_t vocabulary_;
    Engine engine_;
    Chooses chooses_;
    StepBuffer step_;
    std::vector<int32_t> tokens_;
    std::vector<float> all_logits_;  // (rows, vocabulary)
    size_t rows_ = 0;
    std::function<void(const StepTrace &)> trace_sink_;
    StepTrace trace_;
};

}  // namespace ridge
