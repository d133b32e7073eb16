#include "measure/ab.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include "core/error.h"
#include "measure/quiet.h"
#include "oracle/ops.h"

namespace ridge::bench {
namespace {

constexpr unsigned kLeastRounds = 6;
// A block is long against waking the threads, where there is time for enough of them.
constexpr double kBlockSeconds = 0.02;
constexpr uint32_t kMostRepeats = 10000;
// Of the comparison of logits: a prompt, then single tokens.
constexpr uint32_t kComparedPrompt = 32, kComparedSteps = 4;

// Every order of three sides; each is followed by its reverse.
constexpr std::array<std::array<size_t, 3>, 6> kOrders = {
    {{0, 1, 2}, {2, 0, 1}, {1, 2, 0}, {2, 1, 0}, {1, 0, 2}, {0, 2, 1}}};

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Calls `each` with the logits of both sides, position by position.
template <class F>
void for_logits(Side &a, Side &b, uint32_t position, uint32_t tokens, F &&each) {
    const auto run = [&](Side &s) {
        s.seed(position + 1);
        s.engine().run(s.make_step(position, tokens, true));
        return s.engine().logits();
    };
    const std::span<const float> x = run(a), y = run(b);
    const size_t vocabulary = x.size() / tokens;
    for (size_t i = 0; i < tokens; i++)
        each(x.subspan(i * vocabulary, vocabulary), y.subspan(i * vocabulary, vocabulary));
}

void refuse_other_placement(const ModelSide &off, const ModelSide &on) {
    const auto a = off.model->devices(), b = on.model->devices();
    for (size_t i = 0; i < std::max(a.size(), b.size()); i++) {
        const std::string x = i < a.size() ? a[i]->info().description : "nothing";
        const std::string y = i < b.size() ? b[i]->info().description : "nothing";
        if (x != y)
            fail(ErrorKind::usage, "the two sides do not run on the same: device {} is {} for one and {} for the other",
                 i, x, y);
    }
    if (off.model->placed().flags != on.model->placed().flags)
        fail(ErrorKind::usage, "the two sides are not placed alike: {} and {}; give one of them",
             off.model->placed().flags, on.model->placed().flags);
}

}  // namespace

std::vector<AbPhase> AbOptions::phases() const {
    std::vector<AbPhase> list;
    if (prompt > 0) list.push_back({{prompt, 0, depth}});
    if (answer > 0) list.push_back({{0, answer, depth}});
    return list;
}

uint32_t AbOptions::context() const {
    uint32_t most = kComparedPrompt + kComparedSteps;
    for (const AbPhase &p : phases()) most = std::max(most, p.end());
    return most;
}

AbRounds interleave(const std::array<AbBlock, 3> &blocks, double seconds, WhenBusy when_busy, std::string_view what) {
    AbRounds result;
    const double start = now();
    unsigned disturbed = 0;
    for (uint32_t round = 0, counted = 0; counted < kLeastRounds || now() - start < seconds; round++) {
        QuietWatch watch;
        const double round_start = now();
        std::array<double, 3> took{};
        const std::array<size_t, 3> &order = kOrders[round % kOrders.size()];
        for (size_t i = 0; i < 3; i++) took[order[i]] += blocks[order[i]](round);
        for (size_t i = 3; i-- > 0;) took[order[i]] += blocks[order[i]](round);
        const std::string why = watch.lap().reason();
        if (!why.empty() && when_busy == WhenBusy::refuse) {
            if (++disturbed > counted + 10)
                fail(
                    ErrorKind::limit,
                    "the machine is not quiet: {}, in {} rounds of {}; --force measures all the same and marks what it "
                    "measured",
                    why, disturbed, what);
            continue;
        }
        if (!why.empty()) result.contended = why;
        result.b.push_back(std::log(took[1] / took[0]));
        result.a.push_back(std::log(took[2] / took[0]));
        result.seconds_a.add(took[0] / 2);
        result.seconds_b.add(took[1] / 2);
        result.took += now() - round_start;
        counted++;
    }
    return result;
}

LogitsDifference compare_logits(Side &a, Side &b) {
    LogitsDifference d;
    const StepLimits &limits = a.engine().options().limits;
    const auto each = [&](std::span<const float> x, std::span<const float> y) {
        d.positions++;
        d.same_bits += std::memcmp(x.data(), y.data(), x.size_bytes()) == 0 ? 1 : 0;
        d.same_choice +=
            std::max_element(x.begin(), x.end()) - x.begin() == std::max_element(y.begin(), y.end()) - y.begin() ? 1
                                                                                                                 : 0;
        for (size_t i = 0; i < x.size(); i++) d.most = std::max(d.most, std::abs(double{x[i]} - y[i]));
        d.kl += oracle::kl_divergence(oracle::Reals(x.begin(), x.end()), oracle::Reals(y.begin(), y.end()));
    };
    const uint32_t prompt = std::min({kComparedPrompt, limits.tokens, limits.outputs});
    for_logits(a, b, 0, prompt, each);
    for (uint32_t i = 0; i < kComparedSteps; i++) for_logits(a, b, prompt + i, 1, each);
    d.kl /= d.positions;
    return d;
}

void ab(const AbOptions &options, Lever lever, std::array<Side *, 3> sides,
        const std::function<void(const AbResult &)> &predicted, const std::function<void(const AbResult &)> &measured) {
    const LogitsDifference logits = compare_logits(*sides[0], *sides[1]);
    for (Side *s : sides) s->seed(1), s->fill(options.depth);
    for (const AbPhase &phase : options.phases()) {
        AbResult r;
        r.lever = lever, r.phase = phase, r.logits = logits;
        r.levers_a = sides[0]->levers(), r.levers_b = sides[1]->levers();
        double unit = 0;  // seconds of a phase, once, warm
        for (Side *s : sides) {
            s->run(phase);
            const double start = now();
            s->run(phase);
            unit = std::max(unit, now() - start);
        }
        if (lever == Lever::none)
            r.predicted.unknown = "both sides are the same";
        else
            r.predicted = predict(*sides[0], *sides[1], phase, info(lever).acts, std::min(2.0, options.seconds / 4));
        predicted(r);

        const double block = std::min(kBlockSeconds, options.seconds / (6 * kLeastRounds));
        const auto repeats = static_cast<uint32_t>(std::clamp(std::ceil(block / unit), 1.0, double{kMostRepeats}));
        std::array<AbBlock, 3> blocks;
        for (size_t i = 0; i < sides.size(); i++)
            blocks[i] = [&phase, s = sides[i], repeats](uint32_t round) {
                s->seed(round + 1);
                s->evaluate(phase.depth, 1);  // this engine's threads and memory are there again
                const double start = now();
                for (uint32_t n = 0; n < repeats; n++) s->run(phase);
                return now() - start;
            };
        const AbRounds rounds = interleave(blocks, options.seconds, options.when_busy, phase.test());
        r.b = estimate(rounds.b), r.a = estimate(rounds.a);
        r.verdict = judge(r.b, r.a, rounds.took);
        const double tokens = static_cast<double>(repeats) * phase.tokens();
        r.seconds_a = rounds.seconds_a.median() / tokens, r.seconds_b = rounds.seconds_b.median() / tokens;
        r.took = rounds.took, r.contended = rounds.contended;
        measured(r);
    }
}

void ab(const AbOptions &options, Lever lever, ModelSide off, ModelSide on,
        const std::function<void(const AbResult &)> &predicted, const std::function<void(const AbResult &)> &measured) {
    refuse_other_placement(off, on);
    const Chooses chooses = chosen_for(lever);
    Side a(*off.model, off.levers, options.context(), options.batch, chooses);
    Side b(*on.model, on.levers, options.context(), options.batch, chooses);
    Side second(*off.model, off.levers, options.context(), options.batch, chooses);
    ab(options, lever, {&a, &b, &second}, predicted, measured);
}

std::string not_applicable(const AbOptions &options, Lever lever, LeverSet base, Model &model, unsigned threads) {
    const LeverInfo &l = info(lever);
    if (l.acts == LeverActs::waiting)
        return threads > 1 ? std::string() : "it changes how workers wait for each other, and there is one";
    if (l.acts == LeverActs::submitting)
        return std::any_of(model.devices().begin(), model.devices().end(), [](const auto &d) { return d->captures(); })
                   ? std::string()
                   : "it changes how launches are submitted to a GPU, and there is none";
    if (l.acts == LeverActs::weights)
        return pages_of(base.with(lever)) != pages_of(base.without(lever))
                   ? std::string()
                   : "another lever decides where the weights lie";
    Side a(model, base.without(lever), options.context(), options.batch, chosen_for(lever));
    Side b(model, base.with(lever), options.context(), options.batch, chosen_for(lever));
    for (const AbPhase &p : options.phases())
        if (!difference(a.engine(), b.engine(), p.step_tokens(options.batch), l.acts).empty()) return {};
    return l.acts == LeverActs::experts ? "the model has no experts"
                                        : "it changes no launch of this model on this machine";
}

}  // namespace ridge::bench
