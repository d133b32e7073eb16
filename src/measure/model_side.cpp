#include "measure/model_side.h"

#include <fmt/format.h>

#include <algorithm>

namespace ridge::bench {
namespace {

// Precondition: the program has logits.
uint32_t vocabulary_of(const Program &p) { return p.value(p.logits).cols; }

}  // namespace

std::string ModelTest::test() const {
    std::string text = prompt > 0 ? fmt::format("pp{}", prompt) : fmt::format("tg{}", answer);
    if (depth > 0) text += fmt::format(" @ d{}", depth);
    return text;
}

void Side::run(const ModelTest &test) {
    evaluate(test.depth, test.prompt);
    for (uint32_t i = 0; i < test.answer; i++) evaluate(test.depth + i, 1);
}

Side::Side(Model &model, LeverSet levers, uint32_t context, uint32_t batch, Chooses chooses)
    : session_(model.session({.context = context, .batch = batch, .levers = levers, .chooses = chooses})),
      engine_(&session_->engine()),
      step_(engine_->options().limits),
      vocabulary_(vocabulary_of(engine_->program())) {
    for (uint32_t i = 0; i < step_.limits().pages; i++) step_.set_page(0, i, i);
    if (chooses == Chooses::drawn) sampler_.emplace(SamplerOptions{});
}

Side::Side(std::unique_ptr<Engine> engine)
    : own_(std::move(engine)),
      engine_(own_.get()),
      step_(engine_->options().limits),
      vocabulary_(vocabulary_of(engine_->program())) {
    for (uint32_t i = 0; i < step_.limits().pages; i++) step_.set_page(0, i, i);
}

void Side::fill(uint32_t depth) {
    if (depth == 0) return;
    const uint32_t real = std::min(depth, batch());
    evaluate(0, real);
    const uint32_t whole = std::max(real / kPageTokens, 1u);  // pages to copy
    const Program &p = engine_->program();
    for (size_t s = 0; s < p.states.size(); s++) {
        if (p.states[s].per != State::Per::token) continue;
        const auto id = static_cast<StateId>(s);
        std::vector<std::byte> bytes = engine_->read_state(id);
        const size_t page = bytes.size() / engine_->options().pages;
        for (size_t at = whole; at * kPageTokens < depth; at++)
            std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(at % whole * page), page,
                        bytes.begin() + static_cast<std::ptrdiff_t>(at * page));
        engine_->write_state(id, bytes);
    }
}

void Side::evaluate(uint32_t position, uint32_t tokens) {
    for (uint32_t done = 0; done < tokens;) {
        const uint32_t n = std::min(batch(), tokens - done);
        step_.begin();
        for (uint32_t i = 0; i < n; i++)
            step_.add(static_cast<int32_t>(random_() % vocabulary_), position + done + i, 0, done + i + 1 == tokens);
        const bool chooses = engine_->program().choice != kNone, is_last = done + n == tokens;
        if (sampler_ && is_last) step_.set_draw(0, sampler_->on_device(position + tokens));
        engine_->run(step_, traced_ ? &trace_ : nullptr, chooses ? Fetch::choice : Fetch::logits);
        if (sampler_ && is_last && !chooses) sampler_->sample(engine_->logits(), {}, position + tokens);
        if (traced_) {
            trace_.prompt = tokens > 1;
            traced_->add(trace_);
        }
        done += n;
    }
}

const StepBuffer &Side::make_step(uint32_t position, uint32_t tokens, bool all_logits) {
    step_.begin();
    for (uint32_t i = 0; i < tokens; i++)
        step_.add(static_cast<int32_t>(random_() % vocabulary_), position + i, 0, all_logits || i + 1 == tokens);
    return step_;
}

}  // namespace ridge::bench
