// One lever on against off: what the difference should be, and what it is.
//
// Two engines of the same model, A with the lever off and B with it on, take turns in one process, beside a second
// engine of A: how far two engines of the same levers are apart, measured in the same rounds, is what noise can do
// here. A round runs a block of each in some order and then in the reverse order (A B A' A' B A), so that a drift hits
// all alike, and the six orders follow each other. All three evaluate the same tokens.
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <vector>

#include "measure/ab_stats.h"
#include "measure/bench.h"
#include "measure/model_side.h"

namespace ridge::bench {

// What a block does.
struct AbPhase : ModelTest {
    uint32_t step_tokens(uint32_t batch) const { return prompt > 0 ? std::min(prompt, batch) : 1; }
    std::string_view name() const { return prompt > 0 ? "prefill" : depth > 0 ? "decode at depth" : "decode"; }
};

// ---- What it should be

// A change of some launches by a factor k, measured alone, changes the whole by
//   speed-up = 1 / (1 - f (1 - 1/k))
// (Amdahl's law; in the paper's section "The cross-backend law and model-level dilution", whose first-order form
// 1 + f (1 - 1/k) this equals for small f (1 - 1/k)). f is the share of the critical path that those launches take,
// from a traced step of A: a launch takes the time from the end of the launch before it to its own end, so that the
// wait in front of it is its own. k is the time of those launches of A alone, one after the other on the operands of a
// real step, by the time of the launches that B has in their place. Where A has none, B adds their time to the step.
struct Prediction {
    double f = 0;
    double k = 1;          // infinite where B has no launches in their place
    double added = 0;      // where B only adds launches: their share of B's step, by the rest of it
    bool at_most = false;  // what the lever could give if its work took no time: where it changes no launch
    std::string unknown;   // why there is no prediction; empty: there is one
    size_t launches_a = 0, launches_b = 0;  // that differ
    double seconds_a = 0, seconds_b = 0;    // of those, alone

    double speedup() const;
};

// Nodes whose launches in a step of `tokens` tokens can differ by a lever that acts like that: where it changes
// launches, those that the other side's plan does not have (other rows, operations or operands).
struct PlanDifference {
    std::vector<uint32_t> a, b;
    bool empty() const { return a.empty() && b.empty(); }
};
PlanDifference difference(Engine &a, Engine &b, uint32_t tokens, LeverActs acts);

// Takes `seconds` or so. `acts`: of the lever that differs.
Prediction predict(Side &a, Side &b, const AbPhase &phase, LeverActs acts, double seconds);

// ---- What it is

// Seconds of blocks, round by round. A block is given the number of its round and answers with the seconds it took.
using AbBlock = std::function<double(uint32_t round)>;
struct AbRounds {
    std::vector<double> b, a;      // logarithms: time of B by A, of the second A by A
    Samples seconds_a, seconds_b;  // of a block
    double took = 0;               // seconds, of all rounds that count
    std::string contended;
};
// A, B, the second A. Rounds that others disturb are left out, and with WhenBusy::refuse, too many of them end the
// measurement with Error{limit}; `what` is for its text.
AbRounds interleave(const std::array<AbBlock, 3> &blocks, double seconds, WhenBusy when_busy, std::string_view what);

// Of the same tokens: logits of B beside those of A.
struct LogitsDifference {
    uint32_t positions = 0;
    uint32_t same_choice = 0;  // positions with the same most likely token
    uint32_t same_bits = 0;
    double most = 0;  // largest |difference|
    double kl = 0;    // mean over the positions, of B from A
};
LogitsDifference compare_logits(Side &a, Side &b);

struct AbResult {
    Lever lever = Lever::none;  // none: A against A
    LeverSet levers_a = LeverSet::none(), levers_b = LeverSet::none();
    AbPhase phase;
    Prediction predicted;
    LogitsDifference logits;
    Estimate b, a;  // time of B by A; of the second A by A
    Verdict verdict;
    double seconds_a = 0, seconds_b = 0;  // per token, median
    double took = 0;
    std::string contended;

    double speedup() const { return 1 / b.ratio(); }
};

struct AbOptions {
    uint32_t prompt = 128, answer = 16, depth = 0;  // 0 prompt or answer: that phase is left out
    uint32_t batch = 512;
    double seconds = 20;  // of rounds, for each phase
    WhenBusy when_busy = WhenBusy::refuse;

    std::vector<AbPhase> phases() const;
    uint32_t context() const;  // positions that all of it needs
};

// `off` and `on` differ in `lever` alone; with Lever::none they are alike. `predicted` is called with a result that has
// a prediction and nothing measured yet, `measured` with all of it, for each phase.
// Throws Error{usage} where the sides differ in placement or threads, Error{limit} where the machine stays busy.
void ab(const AbOptions &options, Lever lever, ModelSide off, ModelSide on,
        const std::function<void(const AbResult &)> &predicted, const std::function<void(const AbResult &)> &measured);
// The same of engines that belong to no model file; a second engine of A is the third.
void ab(const AbOptions &options, Lever lever, std::array<Side *, 3> sides,
        const std::function<void(const AbResult &)> &predicted, const std::function<void(const AbResult &)> &measured);

// What sides choose to compare `lever`: drawing a token takes part in no other comparison.
inline Chooses chosen_for(Lever lever) { return lever == Lever::sample ? Chooses::drawn : Chooses::largest; }

// Why `lever` changes nothing that these phases run, with `threads` threads and the other levers as in `base`; empty
// where it does.
std::string not_applicable(const AbOptions &options, Lever lever, LeverSet base, Model &model, unsigned threads);

}  // namespace ridge::bench
