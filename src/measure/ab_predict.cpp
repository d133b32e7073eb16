// What a lever should change in the whole, from a trace of a step and the differing launches alone.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <optional>

#include "core/error.h"
#include "engine/trace.h"
#include "measure/ab.h"

namespace ridge::bench {
namespace {

constexpr unsigned kLeastSteps = 5, kMostSteps = 200;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// A launch in words that say the same where the launch is the same: its row, its operands by name.
std::string signature(const Program &p, const Choice &c) {
    struct Operands {
        const Program &p;
        std::string text;
        void in(ValueId v) { text += " " + p.value(v).name; }
        void out(ValueId v) { text += " >" + p.value(v).name; }
        void weight(WeightId w) { text += " " + p.weight(w).name; }
        void state(StateId s) { text += " " + p.state(s).name; }
    } operands{p, std::string(c.chosen ? c.chosen->name : "copy")};
    visit_operands(p.nodes[c.node].op, operands);
    return operands.text;
}

// Nodes that read matrices, whose time depends on where the weights lie; or of those the ones with expert ids.
std::vector<uint32_t> matrix_nodes(const Program &p, bool experts_only) {
    std::vector<uint32_t> nodes;
    for (uint32_t i = 0; i < p.nodes.size(); i++) {
        const Op &op = p.nodes[i].op;
        const bool reads_matrix = std::holds_alternative<Contract>(op) || std::holds_alternative<GateUp>(op);
        if (reads_matrix && (!experts_only || expert_ids(op) != kNone)) nodes.push_back(i);
    }
    return nodes;
}

// Traced steps; what one gives, for each.
template <class F>
Samples trace_steps(Side &a, const AbPhase &phase, double seconds, F &&each) {
    Samples samples;
    StepTrace trace;
    const double start = now();
    for (unsigned i = 0; i < kLeastSteps || (i < kMostSteps && now() - start < seconds); i++) {
        a.seed(i + 1);
        a.engine().run(a.make_step(phase.depth, phase.step_tokens(a.batch()), false), &trace);
        samples.add(each(trace));
    }
    return samples;
}

// Of the wall time, from the end of the launch before each of `nodes` to its own end.
double share_of(const StepTrace &t, const std::vector<uint32_t> &nodes) {
    double before = 0, sum = 0;
    for (const LaunchTrace &l : t.launches) {
        if (std::binary_search(nodes.begin(), nodes.end(), l.node)) sum += std::max(0.0, l.end - before);
        before = std::max(before, l.end);
    }
    return t.wall > 0 ? std::min(1.0, sum / t.wall) : 0;
}

// One side's launches alone.
class Alone {
  public:
    Alone(Side &s, const AbPhase &phase, const std::vector<uint32_t> &nodes) {
        if (nodes.empty()) return;
        s.seed(1);
        step_.emplace(s.make_step(phase.depth, phase.step_tokens(s.batch()), false));
        excerpt_ = s.engine().excerpt(nodes, *step_);
    }
    double run(unsigned times) {
        if (!excerpt_) return 0;
        const double start = now();
        for (unsigned i = 0; i < times; i++) excerpt_->run(*step_);
        return (now() - start) / times;
    }

  private:
    std::optional<StepBuffer> step_;
    std::unique_ptr<Excerpt> excerpt_;
};

// Both in turn, A B B A; a sample is long against waking the threads.
void measure_alone(Alone &a, Alone &b, double seconds, Prediction &p) {
    a.run(1), b.run(1);
    const double once = std::max({a.run(1), b.run(1), 1e-7});
    const auto times = static_cast<unsigned>(std::clamp(std::ceil(1e-3 / once), 1.0, 1e4));
    Samples in_a, in_b;
    std::vector<double> ratios;
    const double start = now();
    for (unsigned i = 0; i < kLeastSteps || (i < kMostSteps && now() - start < seconds); i++) {
        const double a1 = a.run(times), b1 = b.run(times), b2 = b.run(times), a2 = a.run(times);
        in_a.add((a1 + a2) / 2), in_b.add((b1 + b2) / 2);
        ratios.push_back(std::log((a1 + a2) / (b1 + b2)));
    }
    p.seconds_a = in_a.median(), p.seconds_b = in_b.median();
    if (p.launches_a > 0) p.k = p.launches_b > 0 ? estimate(ratios).ratio() : std::numeric_limits<double>::infinity();
}

}  // namespace

double Prediction::speedup() const {
    if (!unknown.empty()) return 1;
    return 1 / (1 - f * (1 - 1 / k) + added);
}

PlanDifference difference(Engine &a, Engine &b, uint32_t tokens, LeverActs acts) {
    if (acts == LeverActs::waiting || acts == LeverActs::submitting) return {};
    if (acts != LeverActs::launches) {
        const bool experts = acts == LeverActs::experts;
        return {matrix_nodes(a.program(), experts), matrix_nodes(b.program(), experts)};
    }
    const auto count = [tokens](Engine &e) {
        std::map<std::string, int> lines;
        for (const Choice &c : e.plan_for(tokens).choices) lines[signature(e.program(), c)]++;
        return lines;
    };
    const auto only = [tokens](Engine &e, std::map<std::string, int> others) {
        std::vector<uint32_t> nodes;
        for (const Choice &c : e.plan_for(tokens).choices)
            if (--others[signature(e.program(), c)] < 0) nodes.push_back(c.node);
        return nodes;
    };
    return {only(a, count(b)), only(b, count(a))};
}

Prediction predict(Side &a, Side &b, const AbPhase &phase, LeverActs acts, double seconds) {
    Prediction p;
    if (acts == LeverActs::waiting) {
        p.at_most = true, p.k = std::numeric_limits<double>::infinity();
        p.f = trace_steps(a, phase, seconds, [](const StepTrace &t) {
                  return t.wall > 0 ? t.waiting / (t.workers * t.wall) : 0;
              }).median();
        return p;
    }
    if (acts == LeverActs::submitting) {
        // On an H200 the time outside of launches said at most +4% where +22% and +28% were measured: launches that are
        // timed one by one do not tell how they overlap, nor how the host waits.
        p.unknown = "how launches overlap does not show in launches that are timed one by one";
        return p;
    }
    const PlanDifference d = difference(a.engine(), b.engine(), phase.step_tokens(a.batch()), acts);
    p.launches_a = d.a.size(), p.launches_b = d.b.size();
    if (d.empty()) return p;  // f = 0: nothing changes here
    try {
        Alone in_a(a, phase, d.a), in_b(b, phase, d.b);
        measure_alone(in_a, in_b, seconds / 2, p);
    } catch (const Error &e) {
        p.unknown = e.what();
        return p;
    }
    if (!d.a.empty()) {
        p.f = trace_steps(a, phase, seconds / 2, [&](const StepTrace &t) { return share_of(t, d.a); }).median();
    } else {
        const double f =
            trace_steps(b, phase, seconds / 2, [&](const StepTrace &t) { return share_of(t, d.b); }).median();
        p.added = f / (1 - f);
    }
    return p;
}

}  // namespace ridge::bench
