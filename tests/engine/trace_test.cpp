// Traces of steps: every launch once, in order, with times that add up; and the bits that a step has without one.
#include "engine/trace.h"

#include <cstring>
#include <numeric>
#include <set>

#include "backend/cpu/cpu.h"
#include "engine/fuse.h"
#include "engine/support.h"
#include "runtime/tiny_model.h"

namespace ridge::test {
namespace {

std::vector<StepTrace> traced(Session &s, std::span<const int32_t> tokens, Want want = Want::last) {
    std::vector<StepTrace> steps;
    s.trace_to([&](const StepTrace &t) { steps.push_back(t); });
    s.evaluate(tokens, want);
    s.trace_to({});
    return steps;
}

void expect_sane(const StepTrace &t, const Program &p, bool every_node = true) {
    std::set<uint32_t> nodes;
    double before = 0, busy = 0;
    for (const LaunchTrace &l : t.launches) {
        SCOPED_TRACE("node " + std::to_string(l.node));
        ASSERT_LT(l.node, p.nodes.size());
        EXPECT_TRUE(nodes.empty() || l.node > *nodes.rbegin()) << "in the order of the program";
        nodes.insert(l.node);
        const bool is_copy = std::holds_alternative<Copy>(p.nodes[l.node].op);
        EXPECT_EQ(l.kernel == nullptr, is_copy);
        if (!is_copy) {
            EXPECT_EQ(l.kernel->op, p.nodes[l.node].op.index());
            EXPECT_EQ(l.device, p.nodes[l.node].device);
        }
        EXPECT_GE(l.tiles, 1U);
        EXPECT_LE(l.start, l.end);
        EXPECT_GE(l.start, before) << "launches that follow each other do not overlap";
        EXPECT_GT(l.busy, 0);
        EXPECT_LE(l.busy, (l.end - l.start) * std::min(l.workers, l.tiles) * (1 + 1e-9) + 1e-12);
        busy += l.busy;
        before = l.end;
    }
    EXPECT_LE(before, t.wall);
    EXPECT_LE(busy + t.waiting, t.wall * t.workers * (1 + 1e-9));
    EXPECT_GT(t.overhead, 0);
    EXPECT_LE(t.logits, t.wall);
    if (every_node) {
        EXPECT_EQ(nodes.size(), p.nodes.size());
    }
}

class Traced : public testing::TestWithParam<const char *> {};

TEST_P(Traced, EveryLaunchOnceInOrder) {
    const TinyModel &m = tiny_model(GetParam());
    for (unsigned threads : {1U, 2U, 3U})
        for (LeverSet levers : {LeverSet::defaults(), LeverSet::none()}) {
            const auto cpu = make_cpu_backend({.threads = threads});
            WeightStore weights;
            const auto s =
                session_of(m, {cpu.get()}, weights, {.context = 64, .batch = 16, .levers = levers, .map = {}});
            const Program &p = s->engine().program();
            const std::vector<StepTrace> prompt = traced(*s, some_tokens(20));
            ASSERT_EQ(prompt.size(), 2U);
            for (size_t i = 0; i < 2; i++) {
                SCOPED_TRACE("step " + std::to_string(i));
                EXPECT_TRUE(prompt[i].prompt);
                EXPECT_EQ(prompt[i].workers, threads);
                EXPECT_EQ(prompt[i].count.tokens, i == 0 ? 16U : 4U);
                EXPECT_EQ(prompt[i].count.outputs, i == 0 ? 0U : 1U);
                // Nobody wants the logits of the first step, so what makes them has no tiles.
                expect_sane(prompt[i], p, i == 1);
                EXPECT_LT(prompt[0].launches.size(), p.nodes.size());
                EXPECT_EQ(prompt[i].barriers > 0, threads > 1);
            }
            const int32_t token = 3;
            const std::vector<StepTrace> answer = traced(*s, {&token, 1});
            ASSERT_EQ(answer.size(), 1U);
            EXPECT_FALSE(answer[0].prompt);
            expect_sane(answer[0], p);
            EXPECT_EQ(answer[0].count.kv_positions, 21);
            EXPECT_EQ(answer[0].count.kv_rows, 21);
            EXPECT_GE(answer[0].wall - answer[0].logits, answer[0].launches.back().end);
        }
}

INSTANTIATE_TEST_SUITE_P(Each, Traced, testing::Values("tiny-llama", "tiny-qwen3moe", "tiny-gemma3"),
                         [](const auto &tested) {
                             std::string n = tested.param;
                             std::replace(n.begin(), n.end(), '-', '_');
                             return n;
                         });

TEST(Trace, ChangesNoBits) {
    for (const char *like : {"tiny-qwen3", "tiny-qwen3moe"}) {
        const TinyModel &m = tiny_model(like);
        const auto cpu = make_cpu_backend({.threads = 2});
        WeightStore weights;
        const auto a = session_of(m, {cpu.get()}, weights, {.context = 64, .batch = 16, .map = {}}),
                   b = session_of(m, {cpu.get()}, weights, {.context = 64, .batch = 16, .map = {}});
        size_t steps = 0;
        b->trace_to([&](const StepTrace &) { steps++; });
        const std::vector<int32_t> tokens = some_tokens(40);
        EXPECT_EQ(
            differing_bits(all_logits(*a, std::span(tokens).first(37)), all_logits(*b, std::span(tokens).first(37))),
            0U);
        for (size_t i = 37; i < 40; i++)
            EXPECT_EQ(differing_bits(all_logits(*a, std::span(tokens).subspan(i, 1)),
                                     all_logits(*b, std::span(tokens).subspan(i, 1))),
                      0U);
        EXPECT_EQ(steps, 3U + 3U);
        b->trace_to({});
        b->truncate(39);
        b->evaluate(std::span(tokens).last(1));
        EXPECT_EQ(steps, 6U);
    }
}

TEST(Trace, CopiesBetweenDevices) {
    const TinyModel &m = tiny_model("tiny-qwen3");
    const auto a = make_cpu_backend({.name = "a", .threads = 1}), b = make_cpu_backend({.name = "b", .threads = 2});
    WeightStore weights;
    const auto s = session_of(m, {a.get(), b.get()}, weights, {.context = 64, .map = {{0, 1}}});
    const Program &p = s->engine().program();
    const std::vector<StepTrace> steps = traced(*s, some_tokens(5));
    ASSERT_EQ(steps.size(), 1U);
    expect_sane(steps[0], p);
    EXPECT_EQ(steps[0].workers, 2U);
    size_t copies = 0;
    for (const LaunchTrace &l : steps[0].launches) {
        if (l.kernel) continue;
        copies++;
        EXPECT_EQ(l.device, p.value(std::get<Copy>(p.nodes[l.node].op).out).device);
    }
    EXPECT_EQ(copies, count<Copy>(p));
    EXPECT_GT(copies, 0U);
}

// The experts are counted from the ids that the launch read.
TEST(Trace, ExpertsWithTokens) {
    const TinyModel &m = tiny_model("tiny-qwen3moe");
    for (LeverSet levers : {LeverSet::defaults(), LeverSet::none()}) {
        const auto cpu = make_cpu_backend({.threads = 2});
        WeightStore weights;
        const auto s = session_of(m, {cpu.get()}, weights, {.context = 64, .levers = levers, .map = {}});
        const Program &p = s->engine().program();
        for (size_t tokens : {size_t{1}, size_t{30}})
            for (const StepTrace &t : traced(*s, some_tokens(tokens))) {
                size_t counted = 0;
                for (const LaunchTrace &l : t.launches) {
                    const Op &op = p.nodes[l.node].op;
                    const ValueId ids = expert_ids(op);
                    if (ids == kNone) {
                        EXPECT_EQ(l.experts, 0U);
                        continue;
                    }
                    counted++;
                    const uint32_t total = expert_total(p, op), slots = p.value(ids).cols;
                    if (tokens == 1) {
                        EXPECT_EQ(l.experts, slots) << "a token's experts differ";
                    }
                    EXPECT_GE(l.experts, slots);
                    EXPECT_LE(l.experts, total);
                    EXPECT_EQ(t.count_of(p, l).expert_share, static_cast<double>(l.experts) / total);
                }
                EXPECT_GT(counted, 0U);
                EXPECT_GT(t.count.expert_share, 0);
                EXPECT_LE(t.count.expert_share, 1);
            }
    }
}

// The ids of the last layer's experts are read back and counted the long way.
TEST(Trace, ExpertsAreThoseOfTheIds) {
    const TinyModel &m = tiny_model("tiny-qwen3moe");
    Program p = fuse(m.program, LeverSet::defaults());
    // Cut after the first launch that reads ids: nothing takes their memory afterwards.
    size_t cut = 0;
    while (expert_ids(p.nodes[cut].op) == kNone) cut++;
    p.nodes.resize(cut + 1);
    p.logits = kNone;
    const ValueId ids = expert_ids(p.nodes[cut].op);
    const auto cpu = make_cpu_backend({.threads = 2});
    WeightStore weights;
    Engine engine(std::move(p), {cpu.get()}, weights, {.limits = {.tokens = 32, .outputs = 1, .pages = 1}, .pages = 1});
    StepBuffer step(engine.options().limits);
    step.set_page(0, 0, 0);
    for (uint32_t tokens : {1U, 2U, 3U, 32U}) {
        step.begin();
        for (uint32_t i = 0; i < tokens; i++) step.add(some_tokens(32, tokens)[i], i, 0, false);
        StepTrace t;
        engine.run(step, &t);
        const std::vector<std::byte> bytes = engine.read_value(ids, tokens);
        std::vector<int32_t> read(bytes.size() / sizeof(int32_t));
        std::memcpy(read.data(), bytes.data(), bytes.size());
        EXPECT_EQ(t.launches.back().experts, std::set<int32_t>(read.begin(), read.end()).size());
    }
}

TEST(Trace, CountsExperts) {
    EXPECT_EQ(count_experts(nullptr, 0, 8), 0U);
    const std::vector<int32_t> ids{5, 5, 0, 7, -1, 8, 7};
    EXPECT_EQ(count_experts(ids.data(), ids.size(), 8), 3U) << "-1 and 8 are no experts";
    std::vector<int32_t> many(10000);
    std::iota(many.begin(), many.end(), 0);
    EXPECT_EQ(count_experts(many.data(), many.size(), 9000), 9000U) << "more than one pass";
    EXPECT_EQ(count_experts(many.data(), many.size(), 4097), 4097U);
}

// By hand: two sequences, and what a window of 4 leaves of them.
TEST(Trace, PositionsWithAndWithoutWindow) {
    Hand h;
    const ValueId q = h.value("q", 8), out = h.value("out", 8);
    const StateId k = h.p.add_state({.name = "k", .cols = 8}), v = h.p.add_state({.name = "v", .cols = 8});
    for (uint32_t window : {0U, 4U}) h.push(Attention{q, out, k, v, 1, 1, 8, 1, window});
    StepBuffer step({.tokens = 8, .outputs = 1, .sequences = 3, .pages = 1});
    step.begin();
    for (uint32_t i = 0; i < 3; i++) step.add(0, 10 + i, 0, false);  // sees 11, 12, 13; of the window 4 each
    for (uint32_t i = 0; i < 5; i++) step.add(0, i, 2, false);       // sees 1 .. 5; 1, 2, 3, 4, 4
    StepTrace t;
    t.begin(h.p, step.view());
    const StepCount all = t.count_of(h.p, {.node = 0}), windowed = t.count_of(h.p, {.node = 1});
    EXPECT_EQ(all.kv_positions, 11 + 12 + 13 + 15);
    EXPECT_EQ(all.kv_rows, 13 + 5);
    EXPECT_EQ(windowed.kv_positions, 12 + 14);
    EXPECT_EQ(windowed.kv_rows, 6 + 5) << "7 .. 12, and all 5";
    EXPECT_EQ(t.count.kv_rows, all.kv_rows);
    EXPECT_EQ(all.expert_share, -1);
}

TEST(Trace, AStampCostsNextToNothing) {
    EXPECT_GT(stamp_cost(), 0);
    EXPECT_LT(stamp_cost(), 20e-6);
    EXPECT_EQ(stamp_cost(), stamp_cost());
}

}  // namespace
}  // namespace ridge::test
