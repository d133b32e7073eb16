#include "measure/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string_view>
#include <thread>

#include "core/error.h"
#include "measure/trace_summary.h"

namespace ridge {
namespace {

using bench::Side;

// The means over the traced steps.
void put_into(Phase &phase, const StepsTime &t) {
    const auto n = static_cast<double>(t.steps);
    phase.step_tokens = static_cast<double>(t.tokens) / n, phase.launches = static_cast<double>(t.launches) / n;
    phase.traced = t.wall / n, phase.overhead = t.overhead / n;
    StepTimes &to = phase.times;
    to.wall = std::max(phase.traced - phase.overhead, 1e-9), to.workers = t.workers;
    to.barriers = static_cast<double>(t.barriers) / n, to.waiting = t.waiting / n, to.logits = t.logits / n;
    to.classes.clear(), phase.rows.clear();
    for (const ClassTime &c : t.classes) {
        to.classes.push_back(
            {.name = c.name,
             .launches = static_cast<double>(c.launches) / n,
             .seconds = c.seconds / n,
             .busy = c.busy / n,
             .bytes = c.memory / n,
             .traffic = c.cost.bytes() / n,
             .int8 = c.int8 / n,
             .bf16 = c.bf16 / n,
             .f32 = c.f32 / n,
             .tile_fill = c.tile_rows > 0 ? static_cast<double>(c.routed_rows) / static_cast<double>(c.tile_rows) : 0});
        std::string rows;
        for (const std::string_view r : c.rows) rows += (rows.empty() ? "" : ", ") + std::string(r);
        phase.rows.push_back(rows);
    }
}

// The steps of a phase; each is traced where there is a sum to add it to. Seconds.
double run_steps(Side &side, const PhaseOptions &o, StepsSum *sum) {
    double seconds = 0;
    StepTrace trace;
    const auto step = [&](uint32_t position, uint32_t tokens) {
        const StepBuffer &buffer = side.make_step(position, tokens, false);
        const auto start = std::chrono::steady_clock::now();
        side.engine().run(buffer, sum != nullptr ? &trace : nullptr);
        seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        if (sum != nullptr) sum->add(trace);
    };
    for (uint32_t done = 0; done < o.prompt; done += side.batch())
        step(o.depth + done, std::min(side.batch(), o.prompt - done));
    for (uint32_t i = 0; i < o.answer; i++) step(o.depth + i, 1);
    return seconds;
}

std::string phase_name(const PhaseOptions &o) {
    return (o.prompt > 0 ? "prefill " : "decode ") + bench::ModelTest{o.prompt, o.answer, o.depth}.test();
}

// ---- advice

double percent(double share) { return 100 * share; }

// The matrices of a class that Q4_K could hold, whose rows are whole blocks of it.
struct Matrices {
    const Program &p;
    double bytes = 0, as_q4_k = 0;
    void weight(WeightId id) {
        const Weight &w = p.weight(id);
        if (w.k % 256 != 0 || w.n < 2) return;
        bytes += static_cast<double>(w.bytes());
        as_q4_k += static_cast<double>(w.bytes()) / static_cast<double>(row_bytes(w.format, w.k)) *
                   static_cast<double>(row_bytes(Format::Q4_K, w.k));
    }
    void in(ValueId) {}
    void out(ValueId) {}
    void state(StateId) {}
};

// What would be left of a class's bytes; 0 where it has no such matrices.
double q4_k_share(const Program &p, std::string_view class_wanted) {
    Matrices m{p};
    for (const Node &n : p.nodes)
        if (!std::holds_alternative<Embed>(n.op) && class_name(p, n.op) == class_wanted) visit_operands(n.op, m);
    return m.bytes > 0 ? m.as_q4_k / m.bytes : 0;
}

// How much smaller q8_0 is than the state that attention reads; 1 where it is q8_0.
double q8_0_share(const Program &p) {
    for (const Node &n : p.nodes)
        if (const Attention *a = std::get_if<Attention>(&n.op)) {
            const State &s = p.state(a->k_state);
            if (s.cols % 32 != 0) return 1;
            return static_cast<double>(row_bytes(DType::q8_0, s.cols)) / static_cast<double>(row_bytes(s.type, s.cols));
        }
    return 1;
}

}  // namespace

std::vector<Advice> next_steps(const Program &p, const StepTimes &times, const RegimeVerdict &verdict,
                               const CeilingFigures &ceilings) {
    constexpr double kWorth = 1.02;  // less is below what a comparison resolves
    constexpr size_t kMost = 5;
    std::vector<Advice> list;
    for (size_t i = 0; i < times.classes.size(); i++) {
        const LaunchClass &c = times.classes[i];
        const ClassVerdict &v = verdict.classes[i];
        if (v.bound == Regime::bandwidth) {
            // Fewer bytes, at the speed at which they are read now.
            const bool state = c.name == "attention";
            const double left = state ? q8_0_share(p) : q4_k_share(p, c.name);
            if (left > 0 && left < 0.95)
                list.push_back(
                    {state
                         ? fmt::format("fewer bytes of state: --kv q8_0 leaves {:.0f}% of them", percent(left))
                         : fmt::format("fewer bytes of weights: Q4_K would leave {:.0f}% of {}", percent(left), c.name),
                     speedup(v.f, left)});
            list.push_back({fmt::format("read {} faster: at {:.0f}% of the bandwidth now", c.name, percent(v.share)),
                            v.to_ceiling});
        } else if (v.bound == Regime::compute) {
            list.push_back({fmt::format("a faster kernel for {}: at {:.0f}% of the rate of its arithmetic now", c.name,
                                        percent(v.share)),
                            v.to_ceiling});
        } else {
            list.push_back(
                {fmt::format("eliminate work in {}: {:.0f} launches a step, at {:.0f}% of the nearer ceiling", c.name,
                             c.launches, percent(v.share)),
                 v.to_ceiling});
        }
    }
    if (times.barriers > 0) {
        list.push_back({fmt::format("fewer or cheaper launches: {:.0f} barriers a step, {:.0f}% of the time is outside "
                                    "launches",
                                    times.barriers, percent(verdict.outside)),
                        speedup(verdict.outside, 0)});
        // What one costs here, beside what one costs when nothing else is going on.
        const double each = verdict.outside * times.wall / times.barriers, quiet = ceilings.get("barrier");
        if (quiet > 0 && verdict.regime == Regime::host && each > 4 * quiet)
            list.back().what +=
                fmt::format(" ({:.1f} us per barrier, {:.1f} us measured alone)", each * 1e6, quiet * 1e6);
    } else {
        list.push_back({fmt::format("less work between launches: {:.0f}% of the time", percent(verdict.outside)),
                        speedup(verdict.outside, 0)});
    }
    if (times.workers > 1 && verdict.regime == Regime::host)
        list.push_back({fmt::format("fewer threads than {}: they meet at every barrier", times.workers), 0});
    std::erase_if(list, [](const Advice &a) { return a.most > 0 && a.most < kWorth; });
    std::stable_sort(list.begin(), list.end(), [](const Advice &a, const Advice &b) { return a.most > b.most; });
    if (list.size() > kMost) list.resize(kMost);
    // Levers that ship on and were switched off, where this regime is one that they should surface in.
    std::string off;
    for (const LeverInfo &l : all_levers())
        if (l.on_by_default && !p.levers.has(l.id) &&
            l.surfaces_in.find(name(verdict.regime)) != std::string_view::npos)
            off += (off.empty() ? "" : ", ") + std::string(l.name);
    if (!off.empty()) list.push_back({"switch on the levers that are off and should surface here: " + off, 0});
    return list;
}

std::string not_worth(const RegimeVerdict &v) {
    double arithmetic = 0;  // share of the time in launches that arithmetic binds
    for (const ClassVerdict &c : v.classes)
        if (c.bound == Regime::compute) arithmetic += c.f * (1 - c.share);
    const double launches = speedup(v.outside, 0), faster = speedup(arithmetic, 0);
    switch (v.regime) {
        case Regime::bandwidth:
            return fmt::format("faster arithmetic (at most {:.2f}x), fewer launches (at most {:.2f}x)", faster,
                               launches);
        case Regime::compute:
            return fmt::format("fewer bytes of weights (read in {:.0f}% of the time), fewer launches (at most {:.2f}x)",
                               percent(v.read_share), launches);
        case Regime::host:
            return fmt::format("faster kernels: all launches together take {:.0f}% of the time",
                               percent(1 - v.outside));
        case Regime::busy:
            break;
    }
    return fmt::format(
        "fewer bytes (read in {:.0f}% of the time), fewer launches that do the same work (at most {:.2f}x)",
        percent(std::min(v.read_share, 1.0)), launches);
}

Phase explain_phase(Side &side, const CeilingFigures &ceilings, const PhaseOptions &o) {
    RIDGE_ASSERT((o.prompt > 0) != (o.answer > 0));
    Phase phase;
    phase.name = phase_name(o);
    phase.options = o;
    const unsigned repeats = o.prompt > 0 ? std::max(o.repeats, 1U) : 1;
    PhaseOptions warm = o;
    warm.answer = std::min(o.answer, 1U);
    run_steps(side, warm, nullptr);
    constexpr unsigned kTries = 4;
    for (unsigned attempt = 1;; attempt++) {
        QuietWatch watch;
        phase.rate = {};
        StepsSum sum(side.engine().program());
        for (unsigned r = 0; r < repeats; r++) {
            phase.rate.add((o.prompt + o.answer) / run_steps(side, o, nullptr));
            run_steps(side, o, &sum);
        }
        phase.contended = watch.lap().reason();
        if (phase.contended.empty() || o.when_busy == WhenBusy::mark) {
            put_into(phase, sum.result());
            break;
        }
        if (attempt == kTries)
            fail(ErrorKind::limit,
                 "the machine is not quiet: {}, in each of {} tries to measure {}; --force measures all the same and "
                 "marks what it measured",
                 phase.contended, kTries, phase.name);
        std::this_thread::sleep_for(std::chrono::milliseconds(500));
    }
    phase.verdict = judge(phase.times, ceilings);
    phase.next = next_steps(side.engine().program(), phase.times, phase.verdict, ceilings);
    return phase;
}

}  // namespace ridge
