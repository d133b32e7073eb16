#include "runtime/session.h"

#include <algorithm>

#include "core/error.h"
#include "engine/fuse.h"

namespace ridge {
namespace {

// A context beyond the original one of longrope turns positions by other frequencies, from the first one on.
void set_context(Program &p, uint32_t context) {
    for (Node &n : p.nodes)
        if (RopeTable *table = std::get_if<RopeTable>(&n.op))
            if (!table->long_frequency.empty() && context > table->long_above) table->frequency = table->long_frequency;
}

// What the levers leave of what is asked for.
Chooses chosen_by(const SessionOptions &o) {
    const Lever needs = o.chooses == Chooses::drawn ? Lever::sample : Lever::argmax;
    return o.levers.has(needs) ? o.chooses : Chooses::nothing;
}

}  // namespace

Program prepared(Program p, uint32_t context, std::span<Backend *const> devices, const SessionOptions &o) {
    set_context(p, context);
    if (const Chooses chooses = chosen_by(o); chooses != Chooses::nothing) {
        Value ids = p.value(p.logits);
        ids.name = "choice", ids.type = DType::i32, ids.cols = 1;
        p.choice = p.add_value(ids);
        const Op op = chooses == Chooses::drawn ? Op{Sample{p.logits, p.choice}} : Op{ArgMax{p.logits, p.choice}};
        p.nodes.push_back({op, 0, static_cast<int32_t>(p.n_layers)});
    }
    place(p, o.map);
    std::vector<LeverSet> fusions;
    for (const Backend *d : devices) fusions.push_back(d->fusions());
    p = fuse(std::move(p), o.levers, fusions);
    insert_copies(p);
    return p;
}

namespace {

uint32_t pages_for(uint32_t positions) { return (positions + kPageTokens - 1) / kPageTokens; }

// Most rows of logits in one step: with a vocabulary of 152k each takes 0.6 MB, on the device and again on the host.
constexpr uint32_t kOutputs = 32;

}  // namespace

EngineOptions engine_options(uint32_t context, uint32_t batch) {
    EngineOptions o;
    o.limits = {.tokens = std::min(batch, context),
                .outputs = std::min({batch, context, kOutputs}),
                .sequences = 1,
                .pages = pages_for(context)};
    o.pages = o.limits.pages;
    return o;
}

uint32_t default_context(uint32_t trained) { return std::min(trained, 8192U); }

uint32_t checked_context(uint32_t wanted, uint32_t trained) {
    if (wanted == 0) return default_context(trained);
    if (wanted > trained)
        fail(ErrorKind::usage,
             "a context of {} positions was asked for, but the model was trained for {}; use --context {} or less",
             wanted, trained, trained);
    return wanted;
}

Session::Session(const Program &plain, uint32_t trained, std::vector<Backend *> devices, WeightStore &weights,
                 const SessionOptions &options)
    : context_(checked_context(options.context, trained)),
      batch_(std::clamp(options.batch, 1U, context_)),
      vocabulary_(plain.value(plain.logits).cols),
      engine_(prepared(plain, context_, devices, options), devices, weights, engine_options(context_, batch_)),
      chooses_(chosen_by(options)),
      step_(engine_.options().limits) {
    engine_.prepare();
    // One sequence has the identity page table.
    for (uint32_t i = 0; i < step_.limits().pages; i++) step_.set_page(0, i, i);
    tokens_.reserve(context_);
}

bool Session::evaluate(std::span<const int32_t> tokens, Want want, const std::function<bool(size_t, size_t)> &progress,
                       const Draw &draw) {
    if (tokens.size() > context_ - tokens_.size())
        fail(ErrorKind::limit,
             "{} more tokens do not fit: {} of {} positions are taken; use a larger --context or a shorter text",
             tokens.size(), tokens_.size(), context_);
    for (int32_t t : tokens)
        if (t < 0 || static_cast<uint32_t>(t) >= vocabulary_)
            fail(ErrorKind::usage, "token {} is outside the vocabulary of {}", t, vocabulary_);
    RIDGE_ASSERT(want != Want::token || chooses_ >= (draw.temperature > 0 ? Chooses::drawn : Chooses::largest));
    rows_ = 0;
    all_logits_.clear();
    const uint32_t most = want == Want::all ? engine_.options().limits.outputs : batch_;
    for (size_t done = 0; done < tokens.size();) {
        const size_t n = std::min<size_t>(most, tokens.size() - done);
        const bool is_last = done + n == tokens.size();
        step_.begin();
        for (size_t i = 0; i < n; i++)
            step_.add(tokens[done + i], static_cast<uint32_t>(tokens_.size() + i), 0,
                      want == Want::all || (want != Want::none && is_last && i + 1 == n));
        if (want == Want::token && is_last) step_.set_draw(0, draw);
        engine_.run(step_, trace_sink_ ? &trace_ : nullptr, want == Want::token ? Fetch::choice : Fetch::logits);
        if (trace_sink_) {
            trace_.prompt = tokens.size() > 1;
            trace_sink_(trace_);
        }
        tokens_.insert(tokens_.end(), tokens.begin() + static_cast<std::ptrdiff_t>(done),
                       tokens.begin() + static_cast<std::ptrdiff_t>(done + n));
        done += n;
        const std::span<const float> out = engine_.logits();
        rows_ += out.size() / vocabulary_;
        all_logits_.insert(all_logits_.end(), out.begin(), out.end());
        if (progress && !progress(done, tokens.size()) && done < tokens.size()) return false;
    }
    return true;
}

std::span<const float> Session::logits(size_t row) const {
    RIDGE_ASSERT(row < rows_);
    return std::span(all_logits_).subspan(row * vocabulary_, vocabulary_);
}

int32_t Session::choice() const {
    RIDGE_ASSERT(!engine_.choice().empty());
    const int32_t id = engine_.choice().back();
    if (id < 0)
        fail(ErrorKind::device,
             "the model's logits hold a NaN or an infinity: the weights are damaged or a kernel is wrong; `ridge gate` "
             "tells which");
    return id;
}

void Session::truncate(uint32_t position) {
    RIDGE_ASSERT(position <= tokens_.size());
    tokens_.resize(position);
}

}  // namespace ridge
