// Sample on emulated GPUs: the host's tokens, of single rows and of whole answers.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "runtime/generate.h"
#include "runtime/model.h"
#include "runtime/sampled_rows.h"
#include "runtime/tiny_model.h"
#include "simt/gpu.h"

namespace ridge::simt {
namespace {

class EmulatedSample : public testing::TestWithParam<GpuKind> {};
INSTANTIATE_TEST_SUITE_P(Of, EmulatedSample, testing::Values(kNvidia, kGfx11, kGfx942), kind_name);

TEST_P(EmulatedSample, DrawsWhatTheHostDraws) {
    const Gpu gpu(GetParam());
    RIDGE_NEEDS_GPU(gpu);
    const auto device = gpu.open();
    struct Case {
        uint32_t n, rows, rounds;
    };
    size_t draws = 0;
    // One block, two, several; rows that are not aligned; as many logits as Qwen3 has, and more than 64 blocks hold at
    // a time.
    for (const Case c : {Case{1, 3, 5},
                         {2, 5, 20},
                         {127, 50, 20},
                         {1000, 40, 40},
                         {4096, 5, 20},
                         {5001, 5, 20},
                         {40000, 4, 5},
                         {151936, 2, 2},
                         {270001, 1, 2}}) {
        gpu.set("order_seed", c.n);
        const test::Agreement a = test::agreement(*device, c.n, c.rows, c.rounds, c.n);
        EXPECT_EQ(a.differ, 0u) << c.n;
        draws += a.draws;
        fmt::print("n={}: {} draws, {:.0f}% not the largest\n", c.n, a.draws, 100 * a.spread);
    }
    EXPECT_GT(draws, 2700u);
}

// Steps of one token are captured and replayed: what a draw needs comes with the step.
TEST_P(EmulatedSample, WritesWhatTheHostWrites) {
    const Gpu gpu(GetParam());
    RIDGE_NEEDS_GPU(gpu);
    const auto model =
        Model::open(test::tiny_file("tiny-qwen3"), {.threads = 1, .devices = gpu.choice({gpu.device()})});
    const std::vector<int32_t> prompt = test::some_tokens(9);
    const auto write = [&](Chooses chooses, uint64_t seed) {
        const auto session = model->session({.context = 64, .batch = 16, .chooses = chooses});
        EXPECT_EQ(session->chooses(), chooses);
        SamplerOptions o;
        o.temperature = 1.5F, o.min_p = 0, o.seed = seed;
        Sampler sampler(o);
        return generate(*session, model->tokenizer(), sampler, prompt, {.max_tokens = 24, .ignore_end = true}).tokens;
    };
    const std::vector<int32_t> host = write(Chooses::nothing, 1);
    EXPECT_EQ(host.size(), 24u);
    EXPECT_EQ(write(Chooses::drawn, 1), host);
    EXPECT_NE(write(Chooses::drawn, 2), host);
}

}  // namespace
}  // namespace ridge::simt
