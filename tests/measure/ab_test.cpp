// Comparisons of levers: the statistics on samples that are known, the order of blocks, and kernels slowed by a spin,
// so that what is found and what is predicted can be held against the truth.
#include "measure/ab.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <set>

#include "backend/cpu/cpu.h"
#include "engine/fuse.h"
#include "runtime/tiny_model.h"
#include "support/forwarding.h"

namespace ridge::bench {
namespace {

// ---- Statistics

TEST(AbStats, QuantilesOfStudent) {
    const std::pair<unsigned, double> table[] = {{1, 12.7062},  {2, 4.30265},  {3, 3.18245},
                                                 {4, 2.77645},  {5, 2.57058},  {9, 2.26216},
                                                 {10, 2.22814}, {30, 2.04227}, {120, 1.97993}};
    for (const auto &[n, x] : table) {
        EXPECT_NEAR(student_quantile(0.95, n), x, 1e-4 * x) << n;
        EXPECT_NEAR(student_within(x, n), 0.95, 1e-5) << n;
    }
    EXPECT_EQ(student_within(0, 7), 0);
}

// Rounds of a machine whose blocks scatter by `scatter`; now and then one of the three is disturbed for long.
struct Machine {
    std::mt19937 random;
    double scatter = 0.01, disturbed = 0.05;
    double factor = 1;  // time of B by A, in truth

    explicit Machine(unsigned seed) : random(seed) {}
    AbRounds rounds(size_t n) {
        std::normal_distribution<double> noise(0, scatter);
        std::uniform_real_distribution<double> any(0, 1);
        const auto block = [&] { return noise(random) + (any(random) < disturbed ? any(random) : 0); };
        AbRounds r;
        for (size_t i = 0; i < n; i++) {
            const double a = block();
            r.b.push_back(std::log(factor) + block() - a);
            r.a.push_back(block() - a);
        }
        return r;
    }
    Verdict judge(size_t n) {
        const AbRounds r = rounds(n);
        return bench::judge(estimate(r.b), estimate(r.a), 10);
    }
};

TEST(AbStats, IntervalsHoldTheTruthAsOftenAsTheySay) {
    for (const size_t n : {12U, 40U, 200U}) {
        size_t held = 0;
        constexpr size_t kRuns = 1000;
        for (unsigned seed = 0; seed < kRuns; seed++) {
            Machine m(seed);
            m.factor = 0.9;
            const Estimate e = estimate(m.rounds(n).b);
            held += e.ratio_low() <= 0.9 && 0.9 <= e.ratio_high() ? 1 : 0;
        }
        EXPECT_GE(held, kRuns * 92 / 100) << n;
        EXPECT_LE(held, kRuns * 99 / 100) << n;
    }
}

TEST(AbStats, DisturbedRoundsDoNotMoveTheEstimate) {
    Machine m(5);
    m.factor = 1.05;
    EXPECT_NEAR(estimate(m.rounds(200).b).ratio(), 1.05, 0.005);
    std::vector<double> x(20, 0.01);
    x[3] = 5, x[8] = -7;
    EXPECT_NEAR(estimate(x).log, 0.01, 1e-12);
    EXPECT_EQ(estimate({}).samples, 0U);
    EXPECT_TRUE(std::isinf(estimate(std::vector<double>{0.1}).half));
}

TEST(AbStats, TheSameIsFlat) {
    constexpr size_t kRuns = 1000;
    size_t flat = 0;
    for (unsigned seed = 0; seed < kRuns; seed++) flat += Machine(seed).judge(60).outcome == Outcome::flat ? 1 : 0;
    EXPECT_GE(flat, kRuns * 95 / 100);
}

TEST(AbStats, AChangeThatCanBeToldIsFound) {
    constexpr size_t kRuns = 300;
    size_t slower = 0, quicker = 0;
    for (unsigned seed = 0; seed < kRuns; seed++) {
        Machine m(seed);
        m.factor = 1.01;
        const Verdict v = m.judge(400);
        EXPECT_LE(v.resolution, 0.01) << seed;
        EXPECT_LE(v.seconds_for_1_percent, 10) << seed;
        slower += v.outcome == Outcome::hurts ? 1 : 0;
        m.factor = 1 / 1.01;
        quicker += m.judge(400).outcome == Outcome::helps ? 1 : 0;
    }
    EXPECT_GE(slower, kRuns * 95 / 100);
    EXPECT_GE(quicker, kRuns * 95 / 100);
}

// A measurement that is too short says how long it would have to be; then it is long enough.
TEST(AbStats, TooShortSaysHowLong) {
    constexpr size_t kRuns = 100;
    size_t found = 0, finite = 0;
    for (unsigned seed = 0; seed < kRuns; seed++) {
        Machine m(seed);
        m.scatter = 0.03, m.factor = 1.01;
        const Verdict v = m.judge(60);
        EXPECT_GT(v.resolution, 0.01) << seed;
        EXPECT_GT(v.seconds_for_1_percent, 10) << seed;
        if (!std::isfinite(v.seconds_for_1_percent)) continue;
        finite++;
        found += m.judge(static_cast<size_t>(60 * v.seconds_for_1_percent / 10)).outcome == Outcome::hurts ? 1 : 0;
    }
    EXPECT_GE(finite, kRuns * 90 / 100);
    EXPECT_GE(found, finite * 90 / 100);
}

Estimate of(double ratio, double half) { return {std::log(ratio), half, 50}; }

TEST(AbStats, Verdicts) {
    const Estimate quiet = of(1, 0.002);
    EXPECT_EQ(judge(of(0.95, 0.004), quiet, 10).outcome, Outcome::helps);
    EXPECT_EQ(judge(of(1.05, 0.004), quiet, 10).outcome, Outcome::hurts);
    EXPECT_EQ(judge(of(1.002, 0.004), quiet, 10).outcome, Outcome::flat) << "the interval holds 1";
    // Surely different, and yet by no more than two sides of the same levers.
    const Verdict v = judge(of(0.985, 0.004), of(1.012, 0.004), 10);
    EXPECT_EQ(v.outcome, Outcome::flat);
    EXPECT_FALSE(v.above_noise);
    EXPECT_NEAR(v.floor, std::log(1.012) + 0.004, 1e-12);
    EXPECT_TRUE(std::isinf(v.seconds_for_1_percent)) << "no length takes away what is not chance";
    EXPECT_TRUE(judge(of(0.95, 0.2), quiet, 10).above_noise);
    EXPECT_EQ(judge(of(0.95, 0.2), quiet, 10).outcome, Outcome::flat);
    EXPECT_EQ(judge(of(1, 0.001), quiet, 10).seconds_for_1_percent, 10);
}

TEST(Prediction, TheFormula) {
    Prediction p;
    p.f = 0.5, p.k = 2;
    EXPECT_DOUBLE_EQ(p.speedup(), 4.0 / 3);
    p.k = std::numeric_limits<double>::infinity();
    EXPECT_DOUBLE_EQ(p.speedup(), 2);
    p.k = 0.5;  // slower
    EXPECT_DOUBLE_EQ(p.speedup(), 1 / 1.5);
    p = {};
    EXPECT_EQ(p.speedup(), 1);
    p.added = 0.25;
    EXPECT_DOUBLE_EQ(p.speedup(), 0.8);
}

// ---- Rounds

TEST(Interleave, EveryRoundIsAPalindromeAndPlacesAreEven) {
    std::vector<std::vector<size_t>> order;  // per round
    const auto block = [&](size_t side) {
        return [&order, side](uint32_t round) {
            if (order.size() <= round) order.resize(round + 1);
            order[round].push_back(side);
            return 1.0;
        };
    };
    const AbRounds r = interleave({block(0), block(1), block(2)}, 0, WhenBusy::mark, "test");
    ASSERT_EQ(order.size(), 6U);
    std::set<std::vector<size_t>> different;
    std::map<std::pair<size_t, size_t>, int> at;  // side, place
    for (const std::vector<size_t> &round : order) {
        ASSERT_EQ(round.size(), 6U);
        for (size_t i = 0; i < 3; i++) {
            EXPECT_EQ(round[i], round[5 - i]);
            at[{round[i], i}]++;
        }
        different.insert(round);
    }
    EXPECT_EQ(different.size(), 6U);
    EXPECT_EQ(at.size(), 9U);
    for (const auto &[where, times] : at) EXPECT_EQ(times, 2);
    EXPECT_EQ(r.b.size(), 6U);
}

TEST(Interleave, ADriftIsNoDifference) {
    double clock = 1;  // every block takes longer than the one before
    const auto block = [&](double factor) { return [&clock, factor](uint32_t) { return (clock += 0.01) * factor; }; };
    const AbRounds r = interleave({block(1), block(1.1), block(1)}, 0, WhenBusy::mark, "test");
    for (size_t i = 0; i < r.b.size(); i++) {
        EXPECT_NEAR(std::exp(r.b[i]), 1.1, 1e-9);
        EXPECT_NEAR(r.a[i], 0, 1e-9);
    }
}

// ---- Engines

#if defined(__x86_64__)
constexpr Lever kSwitch = Lever::neon;  // no row of this machine has it
#else
constexpr Lever kSwitch = Lever::avx2;
#endif

void spin(std::chrono::microseconds time) {
    const auto start = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - start < time) {
    }
}

// The CPU with one operation slowed: each of its launches spins, unless kSwitch is on.
class Slowed final : public test::Forwarding {
  public:
    static constexpr std::chrono::microseconds kSpin{150};
    Slowed(std::unique_ptr<Backend> cpu, const Program &program, OpKind op) : Forwarding(std::move(cpu)) {
        const std::span<const Kernel> rows = inner().kernels();
        kernels_.assign(rows.begin(), rows.end());
        for (const Node &n : program.nodes)
            if (n.op.index() == op) {
                planned_ = *legal_rows(program, n.op, inner(), 1).front();
                break;
            }
        Kernel k = planned_;
        k.name = "slowed", k.lever = Lever::none, k.rank = 1000;
        k.tile.run = [](const LaunchView &view, uint32_t tile, std::byte *scratch) {
            if (tile == 0) spin(kSpin);
            planned_.tile.run(view, tile, scratch);
        };
        kernels_.push_back(k);
        k = planned_;
        k.name = "quick", k.lever = kSwitch, k.rank = 1001;
        kernels_.push_back(k);
    }
    std::span<const Kernel> kernels() const override { return kernels_; }

  private:
    std::vector<Kernel> kernels_;
    static inline Kernel planned_;
};

class AbEngines : public testing::Test {
  protected:
    std::unique_ptr<Side> side(Backend &device, const Program &plain, LeverSet levers) {
        const EngineOptions options{.limits = {.tokens = 64, .outputs = 32, .pages = 4}, .pages = 4};
        return std::make_unique<Side>(
            std::make_unique<Engine>(fuse(plain, levers), std::vector<Backend *>{&device}, weights_, options));
    }
    std::vector<AbResult> compare(const AbOptions &o, Lever lever, Side &a, Side &b, Side &second) {
        std::vector<AbResult> found;
        ab(
            o, lever, {&a, &b, &second}, [&](const AbResult &r) { EXPECT_EQ(r.took, 0) << "nothing measured yet"; },
            [&](const AbResult &r) { found.push_back(r); });
        return found;
    }
    WeightStore weights_;
};

// The time that a step changes by is known: a spin in each launch of the operation.
TEST_F(AbEngines, ASpinOfKnownLengthIsFoundAndForetold) {
    const Program &plain = test::tiny_model("tiny-qwen3").program;
    for (const OpKind op : {kind<Attention>(), kind<GateUp>()}) {
        SCOPED_TRACE(op_name(op));
        const LeverSet on = LeverSet::defaults().with(kSwitch), off = on.without(kSwitch);
        Slowed device(make_cpu_backend({.threads = 1}), fuse(plain, off), op);
        const auto a = side(device, plain, off), b = side(device, plain, on), second = side(device, plain, off);
        AbOptions o;
        o.prompt = 0, o.answer = 4, o.seconds = 0.5, o.when_busy = WhenBusy::mark;
        const std::vector<AbResult> found = compare(o, kSwitch, *a, *b, *second);
        ASSERT_EQ(found.size(), 1U);
        const AbResult &r = found[0];
        EXPECT_EQ(r.predicted.unknown, "");
        EXPECT_EQ(r.predicted.launches_a, plain.n_layers);
        EXPECT_EQ(r.predicted.launches_b, plain.n_layers);
        EXPECT_EQ(r.logits.same_bits, r.logits.positions);
        EXPECT_EQ(r.logits.same_choice, r.logits.positions);
        const double truth = plain.n_layers * std::chrono::duration<double>(Slowed::kSpin).count();
        const double change = r.seconds_a - r.seconds_b;
        const double foretold = r.seconds_a * (1 - 1 / r.predicted.speedup());
        if (!r.contended.empty())
            GTEST_SKIP() << "the machine is not quiet: " << r.contended << "; change by truth " << change / truth
                         << ", foretold by change " << foretold / change;
        EXPECT_EQ(r.verdict.outcome, Outcome::helps);
        EXPECT_TRUE(r.verdict.above_noise);
        EXPECT_NEAR(change / truth, 1, 0.1);
        EXPECT_NEAR(foretold / change, 1, 0.1) << "f " << r.predicted.f << " k " << r.predicted.k;
    }
}

TEST_F(AbEngines, DifferencesOfPlans) {
    const auto cpu = make_cpu_backend({.threads = 1});
    const Program &plain = test::tiny_model("tiny-qwen3moe").program;
    const LeverSet all = LeverSet::defaults();
    const auto base = side(*cpu, plain, all);
    const auto without = [&](Lever l) {
        const auto other = side(*cpu, plain, all.without(l));
        return difference(other->engine(), base->engine(), 1, info(l).acts);
    };
    EXPECT_TRUE(difference(base->engine(), base->engine(), 1, LeverActs::launches).empty());
    const PlanDifference qkv = without(Lever::qkv);
    EXPECT_EQ(qkv.a.size(), 3 * qkv.b.size());
    EXPECT_EQ(qkv.b.size(), plain.n_layers);
    EXPECT_TRUE(std::is_sorted(qkv.a.begin(), qkv.a.end()));
    const PlanDifference route = without(Lever::moe_route);
    EXPECT_EQ(route.b.size(), plain.n_layers);
    EXPECT_GE(route.a.size(), 2 * plain.n_layers);
    EXPECT_EQ(without(Lever::moe_by_slot).a.size(), 2 * plain.n_layers) << "gate_up and down of each layer";
    EXPECT_TRUE(without(Lever::ahead).empty());
    EXPECT_GT(without(Lever::huge_pages).a.size(), 2 * plain.n_layers);

    // Quantising in every reader adds launches once several launches read a value.
    const LeverSet split = all.without(Lever::qkv);
    const auto once = side(*cpu, plain, split), folded = side(*cpu, plain, split.with(Lever::fold_quantize));
    const PlanDifference fold = difference(once->engine(), folded->engine(), 1, LeverActs::launches);
    EXPECT_TRUE(fold.a.empty());
    EXPECT_EQ(fold.b.size(), 2 * plain.n_layers);
    const Prediction p = predict(*once, *folded, {0, 1, 0}, LeverActs::launches, 0.05);
    EXPECT_GT(p.added, 0);
    EXPECT_LT(p.speedup(), 1);
    EXPECT_GT(p.seconds_b, 0);
}

TEST_F(AbEngines, ArithmeticOfTheSidesIsCompared) {
    const auto cpu = make_cpu_backend({.threads = 1});
    const Program &plain = test::tiny_model("tiny-qwen3").program;
    const LeverSet all = LeverSet::defaults();
    const auto a = side(*cpu, plain, all), f32 = side(*cpu, plain, all.without(Lever::int8_dot));
    const LogitsDifference same = compare_logits(*a, *a), d = compare_logits(*f32, *a);
    EXPECT_EQ(same.positions, 36U);
    EXPECT_EQ(same.same_bits, same.positions);
    EXPECT_EQ(same.most, 0);
    EXPECT_EQ(same.kl, 0);
    EXPECT_LT(d.same_bits, d.positions);
    EXPECT_GT(d.most, 0);
    EXPECT_GT(d.kl, 0);
    EXPECT_LT(d.kl, 0.1);
    EXPECT_GT(d.same_choice, d.positions / 2);
}

// Alone, a launch gives what it gives in a step, whatever lies in the memory that values share.
TEST_F(AbEngines, AnExcerptHasTheOperandsOfAStep) {
    const auto cpu = make_cpu_backend({.threads = 2});
    const Program &plain = test::tiny_model("tiny-qwen3moe").program;
    const auto s = side(*cpu, plain, LeverSet::defaults());
    Engine &e = s->engine();
    s->seed(3);
    const StepBuffer step = s->make_step(0, 9, true);
    const Plan &plan = e.plan_for(9);
    struct Outputs {
        std::vector<ValueId> of{};
        void in(ValueId) {}
        void out(ValueId v) { of.push_back(v); }
        void weight(WeightId) {}
        void state(StateId) {}
    };
    size_t compared = 0;
    for (uint32_t n = 0; n < plan.choices.size(); n++) {
        Outputs outputs;
        visit_operands(e.program().nodes[n].op, outputs);
        for (uint32_t i = 0; i <= n; i++) e.run_node(i, *plan.choices[i].chosen, step);
        std::vector<std::vector<std::byte>> want;
        const auto rows = [&](ValueId v) { return rows_of(e.program().value(v), 9, 9); };
        for (const ValueId v : outputs.of) want.push_back(e.read_value(v, rows(v)));
        const uint32_t nodes[] = {n};
        const auto excerpt = e.excerpt(nodes, step);
        for (const ValueId v : outputs.of)
            e.write_value(
                v, std::vector<std::byte>(rows(v) * row_bytes(e.program().value(v).type, e.program().value(v).cols)));
        excerpt->run(step);
        for (size_t i = 0; i < outputs.of.size(); i++, compared++)
            EXPECT_EQ(e.read_value(outputs.of[i], rows(outputs.of[i])), want[i]) << to_string(e.program()) << n;
    }
    EXPECT_GT(compared, 20U);
}

}  // namespace
}  // namespace ridge::bench
