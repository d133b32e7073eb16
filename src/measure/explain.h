// Why a model runs as fast as it does: per phase the regime with its evidence, per class of launches what binds it and
// what improving it could give, and what to do next.
#pragma once

#include <string>
#include <vector>

#include "measure/bench_stats.h"
#include "measure/model_side.h"
#include "measure/quiet.h"
#include "measure/regime.h"

namespace ridge {

struct PhaseOptions {
    uint32_t prompt = 0, answer = 0;  // one of them is 0: a prompt at once, or so many steps of one token
    uint32_t depth = 0;               // positions before either; filled before (Side::fill)
    unsigned repeats = 3;             // of a prompt
    WhenBusy when_busy = WhenBusy::refuse;
};

// Something that could be done.
struct Advice {
    std::string what;
    double most = 0;  // times as fast the phase could get by it; 0: not known without trying
};

struct Phase {
    std::string name;  // "prefill pp512", "decode tg32 @ d4096"
    PhaseOptions options;
    Samples rate;            // tokens per second, without tracing
    double step_tokens = 1;  // of one step, on average
    double launches = 0;     // in a step
    double traced = 0;       // seconds of a traced step
    double overhead = 0;     // of that what tracing is estimated to have added
    StepTimes times;         // means of the traced steps
    RegimeVerdict verdict;
    std::vector<std::string> rows;  // kernel rows of each class, as in times
    std::vector<Advice> next;       // the most promising first
    std::string contended;          // by what; empty: by nothing
};

// Runs the phase with and without tracing, in turn. Throws Error{limit} where the machine stays busy and that is to be
// refused.
Phase explain_phase(bench::Side &side, const CeilingFigures &ceilings, const PhaseOptions &options);

// What to do next; at most five things with a bound, then what only a trial can tell. The program says what could be
// changed: its formats, its state, its levers.
std::vector<Advice> next_steps(const Program &p, const StepTimes &times, const RegimeVerdict &verdict,
                               const CeilingFigures &ceilings);

// What cannot help in this regime, with the bound that says so.
std::string not_worth(const RegimeVerdict &verdict);

}  // namespace ridge
