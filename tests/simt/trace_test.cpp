// What a trace of an emulated GPU says of experts, beside the ids themselves; and that looking changes nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "engine/engine.h"
#include "engine/fuse.h"
#include "measure/trace_summary.h"
#include "runtime/model.h"
#include "runtime/tiny_model.h"
#include "simt/gpu.h"

namespace ridge::simt {
namespace {

constexpr uint32_t kPrompt = 40;

class EmulatedTrace : public testing::TestWithParam<GpuKind> {};
INSTANTIATE_TEST_SUITE_P(Of, EmulatedTrace, testing::Values(kNvidia, kGfx11, kGfx942), kind_name);

// What `tile` rows at a time, expert by expert, make of `ids`.
struct Count {
    uint32_t experts = 0, rows = 0, tile_rows = 0;
};
Count count(const std::vector<std::byte> &bytes, uint32_t tile) {
    std::vector<int32_t> ids(bytes.size() / sizeof(int32_t));
    std::memcpy(ids.data(), bytes.data(), bytes.size());
    std::map<int32_t, uint32_t> rows;
    for (const int32_t id : ids) rows[id]++;
    Count c;
    for (const auto &[id, n] : rows) c.experts++, c.rows += n, c.tile_rows += (n + tile - 1) / tile * tile;
    return c;
}

TEST_P(EmulatedTrace, ExpertsAndFullTilesAreCountedFromTheIds) {
    const Gpu gpu(GetParam());
    RIDGE_NEEDS_GPU(gpu);
    const auto device = gpu.open();
    const LeverSet can = device->fusions(), levers = LeverSet::defaults();
    EngineOptions o;
    o.limits = {.tokens = kPrompt, .outputs = 1, .sequences = 1, .pages = 2}, o.pages = 2, o.keep_values = true;
    WeightStore weights;
    Engine engine(fuse(test::tiny_model("tiny-qwen3moe").program, levers, {&can, 1}), {device.get()}, weights, o);
    const Program &p = engine.program();
    const std::vector<int32_t> tokens = test::some_tokens(kPrompt + 1);
    const auto step_of = [&](uint32_t first, uint32_t n) {
        StepBuffer step(o.limits);
        step.begin();
        for (uint32_t page = 0; page < o.limits.pages; page++) step.set_page(0, page, page);
        for (uint32_t t = first; t < first + n; t++) step.add(tokens[t], t, 0, t + 1 == first + n);
        return step;
    };

    // A prompt, in tiles; then one token, which has none.
    uint32_t first = 0;
    for (const uint32_t n : {kPrompt, 1u}) {
        const StepBuffer step = step_of(first, n);
        engine.run(step);
        const std::vector<float> untraced(engine.logits().begin(), engine.logits().end());
        StepTrace trace;
        engine.run(step, &trace);
        EXPECT_TRUE(std::equal(untraced.begin(), untraced.end(), engine.logits().begin(), engine.logits().end()));

        size_t seen = 0;
        for (const LaunchTrace &l : trace.launches) {
            const Op &op = p.nodes[l.node].op;
            const ValueId ids = expert_ids(op);
            if (ids == kNone) {
                EXPECT_EQ(l.experts + l.routed_rows + l.tile_rows, 0u);
                continue;
            }
            seen++;
            const Count c = count(engine.read_value(ids, n), GetParam().library == kNvidia.library ? 128 : 64);
            EXPECT_EQ(l.experts, c.experts);
            EXPECT_EQ(l.routed_rows, n > 1 ? c.rows : 0);
            EXPECT_EQ(l.tile_rows, n > 1 ? c.tile_rows : 0);
        }
        EXPECT_GE(seen, 2u);

        StepsSum sum(p);
        sum.add(trace);
        const std::string text = to_string(sum.result(), "step");
        EXPECT_EQ(text.find("tiles ") != std::string::npos, n > 1) << text;
        EXPECT_EQ(text.find("expect"), std::string::npos) << text;
        first += n;
    }
}

// A device that takes over from another in the middle of a step runs its part again to time it, from what it was given.
TEST_P(EmulatedTrace, LookingChangesNothingWhereAStepIsSplit) {
    const Gpu gpu(GetParam(), 2);
    RIDGE_NEEDS_GPU(gpu);
    struct Split {
        const char *place, *experts;
    };
    for (const Split &split : {Split{"", "cpu"}, Split{"cpu:1,0:1", ""}, Split{"0:1,1:1", ""}}) {
        DeviceChoice devices = gpu.choice({gpu.device(0), gpu.device(1), "cpu"});
        if (*split.place == 0) devices.names = {gpu.device(0), "cpu"};
        devices.place = split.place, devices.experts = split.experts;
        const auto model =
            Model::open(test::tiny_file("tiny-qwen3moe"), {.threads = 1, .devices = devices, .tokenizer = false});
        std::vector<float> logits[2];
        std::vector<StepTrace> steps;
        for (const bool traced : {false, true}) {
            const auto session = model->session({.context = 64, .batch = 16});
            if (traced) session->trace_to([&](const StepTrace &t) { steps.push_back(t); });
            session->evaluate(test::some_tokens(12));
            for (const int32_t token : {7, 8}) session->evaluate({&token, 1});
            const auto row = test::row(*session, 0);
            logits[traced ? 1 : 0].assign(row.begin(), row.end());
        }
        const std::string where = std::string(split.place) + split.experts;
        EXPECT_EQ(test::differing_bits(logits[0], logits[1]), 0u) << where;
        // Launches follow each other in the time of the step, on whichever device.
        ASSERT_EQ(steps.size(), 3u);
        for (const StepTrace &t : steps) {
            double last = 0;
            for (const LaunchTrace &l : t.launches) {
                EXPECT_GE(l.start, last - 1e-4) << where;
                EXPECT_LE(l.end, t.wall + 1e-4) << where;
                last = l.start;
            }
        }
    }
}

}  // namespace
}  // namespace ridge::simt
