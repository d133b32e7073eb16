// Whole models, as llama-bench measures them: prompts in steps of a batch, answers token by token, random tokens,
// logits of the last one.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "core/error.h"
#include "measure/bench.h"
#include "measure/model_side.h"
#include "measure/quiet.h"
#include "op/cost.h"

namespace ridge::bench {
namespace {

std::vector<ModelTest> tests_of(const ModelBenchOptions &o) {
    std::vector<ModelTest> list;
    for (const uint32_t d : o.depths) {
        for (const uint32_t p : o.prompts)
            if (p > 0) list.push_back({p, 0, d});
        for (const uint32_t n : o.answers)
            if (n > 0) list.push_back({0, n, d});
    }
    return list;
}

// What one step must read and compute.
struct StepCost {
    double bytes = 0, int8 = 0, f32 = 0;
};

StepCost cost_of_step(const Program &p, uint32_t position, uint32_t tokens, bool wants_logits) {
    StepCost sum;
    const StepCount count{.tokens = tokens, .outputs = wants_logits ? 1u : 0u};
    for (const Node &n : p.nodes) {
        const Cost c = cost(p, n.op, count);
        sum.bytes += c.weight_bytes;
        if (std::holds_alternative<Contract>(n.op) || std::holds_alternative<GateUp>(n.op))
            (matrices_of(p, n.op).input == DType::f32 ? sum.f32 : sum.int8) += c.flops / 2;
        const Attention *a = std::get_if<Attention>(&n.op);
        if (!a) continue;
        const auto seen = [a](uint32_t positions, uint32_t window) {
            return static_cast<double>(a->window > 0 ? std::min(positions, window) : positions);
        };
        const State &k = p.state(a->k_state), &v = p.state(a->v_state);
        const double row = static_cast<double>(row_bytes(k.type, k.cols) + row_bytes(v.type, v.cols));
        sum.bytes += row * seen(position + tokens, a->window + tokens - 1);
        for (uint32_t i = 0; i < tokens; i++)
            sum.f32 += 2.0 * a->heads * a->head_dim * seen(position + i + 1, a->window);
    }
    return sum;
}

void warm_up(Side &s, const ModelTest &t) { s.evaluate(t.depth, t.prompt > 0 ? t.prompt : 1); }

// Tokens per second.
double measure(Side &s, const ModelTest &t) {
    const auto start = std::chrono::steady_clock::now();
    s.run(t);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    return t.tokens() / took.count();
}

TraceKeeper trace(Side &s, const ModelTest &t) {
    TraceKeeper kept;
    s.trace_to(&kept);
    measure(s, t);
    s.trace_to(nullptr);
    return kept;
}

StepCost cost_per_token(const Side &s, const ModelTest &t) {
    StepCost sum;
    const auto add = [&](uint32_t position, uint32_t tokens, bool wants_logits) {
        const StepCost c = cost_of_step(s.engine().program(), position, tokens, wants_logits);
        sum.bytes += c.bytes, sum.int8 += c.int8, sum.f32 += c.f32;
    };
    const uint32_t batch = s.batch();
    for (uint32_t done = 0; done < t.prompt; done += batch)
        add(t.depth + done, std::min(batch, t.prompt - done), done + batch >= t.prompt);
    for (uint32_t i = 0; i < t.answer; i++) add(t.depth + i, 1, true);
    const double tokens = t.tokens();
    return {sum.bytes / tokens, sum.int8 / tokens, sum.f32 / tokens};
}

// A round is every side once. One that others disturbed does not count, but is taken again.
void measure_rounds(std::vector<Side> &sides, const ModelTest &t, const ModelBenchOptions &o,
                    std::vector<ModelResult> &results) {
    unsigned disturbed = 0;
    for (unsigned r = 0; r < o.repeats;) {
        QuietWatch watch;
        std::vector<double> rates;
        rates.reserve(sides.size());
        for (Side &s : sides) rates.push_back(measure(s, t));
        const Contention during = watch.lap();
        const std::string why = during.reason();
        if (!why.empty() && o.when_busy == WhenBusy::refuse) {
            if (++disturbed > o.repeats + 3)
                fail(
                    ErrorKind::limit,
                    "the machine is not quiet: {}, in {} rounds of {}; --force measures all the same and marks what it "
                    "measured",
                    why, disturbed, results[0].test());
            continue;
        }
        for (size_t s = 0; s < sides.size(); s++) {
            results[s].rate.add(rates[s]);
            results[s].clock = during.clock_after;
            if (!why.empty()) results[s].contended = why;
        }
        r++;
    }
}

}  // namespace

uint32_t ModelBenchOptions::context() const {
    uint32_t most = 0;
    for (const ModelTest &t : tests_of(*this)) most = std::max(most, t.end());
    return most;
}

void bench_model(const ModelBenchOptions &options, const std::function<void(const ModelResult &)> &emit) {
    const std::vector<ModelTest> tests = tests_of(options);
    if (tests.empty()) fail(ErrorKind::usage, "there is nothing to measure: -p and -n are 0");
    const uint32_t context = options.context();
    uint32_t depth = 0;
    for (const ModelTest &t : tests) depth = std::max(depth, t.depth);
    std::vector<Side> sides;
    sides.reserve(options.sides.size());
    for (const ModelSide &s : options.sides) sides.emplace_back(*s.model, s.levers, context, options.batch).fill(depth);
    for (const ModelTest &t : tests) {
        std::vector<ModelResult> results;
        for (Side &s : sides) {
            warm_up(s, t);
            const StepCost c = cost_per_token(s, t);
            ModelResult r{t};
            r.levers = s.levers();
            r.bytes = c.bytes, r.int8 = c.int8, r.f32 = c.f32;
            results.push_back(std::move(r));
        }
        measure_rounds(sides, t, options, results);
        for (const ModelResult &r : results) emit(r);
        for (size_t s = 0; options.trace && s < sides.size(); s++)
            options.trace(results[s], sides[s].engine(), trace(sides[s], t));
    }
}

}  // namespace ridge::bench
