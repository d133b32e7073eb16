// Whole models: what is measured, and what it is said to cost. Layers and vocabularies of synthetic files.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "core/error.h"
#include "measure/bench.h"
#include "measure/synthetic.h"

namespace ridge::bench {
namespace {

namespace fs = std::filesystem;

class Synthetic : public testing::Test {
  protected:
    ~Synthetic() override { fs::remove(path_); }
    std::unique_ptr<Model> open(const SynthOptions &o) {
        write_synthetic(path_, o);
        return Model::open(path_, {.threads = 1, .tokenizer = false});
    }
    fs::path path_ = fs::temp_directory_path() / ("ridge_bench_" + std::to_string(getpid()) + ".gguf");
};

std::vector<ModelResult> run(Model &model, ModelBenchOptions o, const std::vector<LeverSet> &levers) {
    for (const LeverSet &l : levers) o.sides.push_back({&model, l});
    std::vector<ModelResult> found;
    bench_model(o, [&](const ModelResult &r) { found.push_back(r); });
    return found;
}

using BenchModel = Synthetic;

TEST_F(BenchModel, TestsOfEveryKindInTurn) {
    const auto model = open({.like = "tiny-qwen3", .quant = "Q8_0"});
    ModelBenchOptions o;
    o.prompts = {20, 0}, o.answers = {3}, o.depths = {0, 200};
    o.repeats = 2, o.batch = 16, o.when_busy = WhenBusy::mark;
    const std::vector<ModelResult> found = run(*model, o, {LeverSet::defaults(), LeverSet::none()});
    std::vector<std::string> names;
    for (const ModelResult &r : found) {
        names.push_back(r.test() + " " + r.levers.to_string());
        EXPECT_EQ(r.rate.count(), 2U);
        EXPECT_GT(r.rate.least(), 1);
    }
    EXPECT_EQ(names,
              (std::vector<std::string>{"pp20 default", "pp20 none", "tg3 default", "tg3 none", "pp20 @ d200 default",
                                        "pp20 @ d200 none", "tg3 @ d200 default", "tg3 @ d200 none"}));
}

// By hand, from the shape: what one token multiplies, and reads.
TEST_F(BenchModel, CostOfAToken) {
    const SynthOptions synth{.like = "tiny-qwen3", .quant = "Q8_0"};
    const auto model = open(synth);
    const ModelShape &s = synthetic_shape("tiny-qwen3");
    ModelBenchOptions o;
    o.prompts = {}, o.answers = {1}, o.depths = {0, 128};
    o.repeats = 1, o.when_busy = WhenBusy::mark;
    const std::vector<ModelResult> found = run(*model, o, {LeverSet::defaults(), LeverSet::none()});
    ASSERT_EQ(found.size(), 4U);
    const double q = s.n_heads * s.head_dim, kv = s.n_kv_heads * s.head_dim;
    const double per_layer = s.n_embd * (q + 2 * kv) + q * s.n_embd + 3.0 * s.n_embd * s.n_ff;
    const double products = s.n_layers * per_layer + double{1} * s.n_embd * s.n_vocab;
    EXPECT_NEAR(found[0].int8 / products, 1, 0.01);
    EXPECT_EQ(found[1].int8, 0) << "without int8_dot all is f32";
    EXPECT_NEAR(found[1].f32 / products, 1, 0.01);
    EXPECT_NEAR(found[0].f32, 2.0 * s.n_layers * q, 1) << "one position: q.k and p.v";

    const double bytes = products * 34 / 32;
    EXPECT_NEAR(found[0].bytes / bytes, 1, 0.05);
    const double state = s.n_layers * 2 * kv * 2;  // of a position
    EXPECT_NEAR(found[2].bytes - found[0].bytes, 128 * state, 1);
    EXPECT_NEAR(found[2].f32 - found[0].f32, 128 * 2.0 * s.n_layers * q, 1);
}

TEST_F(BenchModel, WindowsBoundWhatIsRead) {
    const auto model = open({.like = "tiny-mistral", .quant = "Q8_0"});
    ModelBenchOptions o;
    o.prompts = {}, o.answers = {1}, o.depths = {100, 900};
    o.repeats = 1, o.when_busy = WhenBusy::mark;
    const std::vector<ModelResult> found = run(*model, o, {LeverSet::defaults()});
    EXPECT_EQ(found[0].bytes, found[1].bytes);
    EXPECT_EQ(found[0].f32, found[1].f32);
}

TEST_F(BenchModel, WhatCannotBeMeasuredIsRefused) {
    const auto model = open({.like = "tiny-qwen3", .quant = "Q8_0"});
    ModelBenchOptions o;
    o.prompts = {0}, o.answers = {0};
    EXPECT_THROW(run(*model, o, {LeverSet::defaults()}), Error);
    o.prompts = {2000};  // longer than the context it was trained for
    EXPECT_THROW(run(*model, o, {LeverSet::defaults()}), Error);
}

TEST_F(Synthetic, LayersAndVocabularyOfTheirOwn) {
    for (const char *like : {"tiny-llama", "tiny-gemma3", "tiny-qwen3moe", "tiny-gpt-oss", "tiny-olmo3"}) {
        SCOPED_TRACE(like);
        fs::remove(path_);
        const auto model = open({.like = like, .quant = "Q8_0", .layers = 5, .vocab = 350});
        EXPECT_EQ(model->hparams().n_layers, 5U);
        EXPECT_EQ(model->hparams().n_vocab, 350U);
        EXPECT_EQ(model->program().n_layers, 5U);
        EXPECT_NE(model->file().find_tensor("blk.4.attn_norm.weight") != nullptr ||
                      model->file().find_tensor("blk.4.post_attention_norm.weight") != nullptr,
                  false);
        EXPECT_EQ(model->file().find_tensor("blk.5.attn_q.weight"), nullptr);
        const auto session = model->session({.context = 16});
        const int32_t tokens[] = {1, 349};
        session->evaluate(tokens);
        for (const float x : session->logits()) ASSERT_TRUE(std::isfinite(x));
    }
    EXPECT_THROW(plan_synthetic({.like = "tiny-llama", .quant = "Q8_0", .vocab = 258}), Error);
}

}  // namespace
}  // namespace ridge::bench
