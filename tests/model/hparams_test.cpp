// The hyper-parameters that files have, state and imply.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "model/model.h"
#include "model/tiny_file.h"

namespace ridge {
namespace {

using namespace test;

TEST(Hparams, AreThoseOfTheShape) {
    for (const ModelShape &s : synthetic_shapes()) {
        if (!s.name.starts_with("tiny-")) continue;
        const TinyModel model({.like = std::string(s.name)});
        const Hparams h = read_hparams(model.file);
        EXPECT_EQ(h.architecture, s.architecture);
        EXPECT_EQ(h.n_layers, s.n_layers);
        EXPECT_EQ(h.n_embd, s.n_embd);
        EXPECT_EQ(h.n_ff, s.n_ff);
        EXPECT_EQ(h.n_heads, s.n_heads);
        EXPECT_EQ(h.n_kv_heads, s.n_kv_heads);
        EXPECT_EQ(h.head_dim, s.head_dim);
        EXPECT_EQ(h.n_rot, s.n_rot());
        EXPECT_EQ(h.n_vocab, s.n_vocab);
        EXPECT_EQ(h.context_length, s.context_length);
        EXPECT_EQ(h.rms_eps, static_cast<double>(s.rms_eps));
        EXPECT_EQ(h.rope.base, static_cast<double>(s.rope_base));
        EXPECT_EQ(h.n_experts, s.n_experts);
        EXPECT_EQ(h.n_experts_used, s.n_experts_used);
        EXPECT_EQ(h.n_ff_expert, s.n_ff_expert);
        EXPECT_EQ(h.n_ff_shared, s.n_ff_shared);

        const ModelFeatures &f = s.features;
        const auto or_one = [](float x) { return x > 0 ? static_cast<double>(x) : 1; };
        EXPECT_EQ(h.attention_softcap, static_cast<double>(f.caps.scores));
        EXPECT_EQ(h.logit_softcap, static_cast<double>(f.caps.logits));
        const bool gemma = s.architecture.starts_with("gemma");
        EXPECT_EQ(h.embedding_scale, gemma ? std::sqrt(s.n_embd) : or_one(f.scales.embedding));
        EXPECT_EQ(h.residual_scale, or_one(f.scales.residual));
        EXPECT_EQ(h.logit_scale, or_one(f.scales.logits));
        EXPECT_EQ(h.attention_scale, f.scales.attention > 0 ? static_cast<double>(f.scales.attention)
                                                            : 1 / std::sqrt(static_cast<double>(s.head_dim)));
        EXPECT_EQ(h.temperature, static_cast<double>(f.temperature));
    }
}

// Which layers have a window: of an architecture's own period, of the file's period, or as the file lists them.
TEST(Hparams, WindowsOfLayers) {
    const auto windows = [](const char *like, const Edit &edit) {
        const TinyModel base({.like = like});
        const TempFile temp("window.gguf");
        write_edited(base.file, edit, temp.path());
        return read_hparams(gguf::File::open(temp.path())).window;
    };
    using List = std::vector<uint32_t>;
    const std::string pattern = "attention.sliding_window_pattern";
    EXPECT_EQ(windows("tiny-llama", {}), (List{0, 0, 0}));
    EXPECT_EQ(windows("tiny-mistral", {}), (List{8, 8}));
    EXPECT_EQ(windows("tiny-gemma2", {}), (List{8, 0}));
    EXPECT_EQ(windows("tiny-gpt-oss", {}), (List{8, 0}));
    EXPECT_EQ(windows("tiny-gemma3", {}), (List{8, 8, 8, 8, 8, 0}));
    EXPECT_EQ(windows("tiny-olmo2", {}), (List{0, 0}));
    EXPECT_EQ(windows("tiny-olmo3", {}), (List{8, 8, 8, 0}));
    EXPECT_EQ(windows("tiny-olmo3", without("olmo2." + pattern)), (List{8, 8, 8, 0}));
    EXPECT_EQ(windows("tiny-olmo3", with("olmo2." + pattern, ints("olmo2." + pattern, {0, 1, 0, 1}))),
              (List{0, 8, 0, 8}));
    EXPECT_EQ(windows("tiny-gemma3", with_u32("gemma3." + pattern, 2)), (List{8, 0, 8, 0, 8, 0}));
    EXPECT_EQ(windows("tiny-gemma3", with_u32("gemma3." + pattern, 0)), (List{8, 8, 8, 8, 8, 8}));
    EXPECT_EQ(windows("tiny-gemma3", with_u32("gemma3." + pattern, 1)), (List{0, 0, 0, 0, 0, 0}));
    EXPECT_EQ(windows("tiny-gemma3", with_u32("gemma3.attention.sliding_window", 0)), List(6, 0));
}

// What stretches positions, and where.
TEST(Hparams, StretchedPositions) {
    using Scaling = RopeParams::Scaling;
    const auto read = [](const char *like) { return read_hparams(TinyModel({.like = like}).file); };
    const Hparams gemma = read("tiny-gemma3");
    EXPECT_EQ(gemma.rope.scaling, Scaling::linear);
    EXPECT_EQ(gemma.rope.factor, 8);
    EXPECT_EQ(gemma.local_rope, (RopeParams{.base = 10000, .factors = false}));
    const Hparams olmo = read("tiny-olmo3");
    EXPECT_EQ(olmo.rope.scaling, Scaling::yarn);
    EXPECT_EQ(olmo.rope.original_context, 16u);
    EXPECT_DOUBLE_EQ(olmo.rope.magnitude, 1 + 0.1 * std::log(8));
    EXPECT_EQ(olmo.local_rope, (RopeParams{.base = 5e5, .factors = false}));
    const Hparams oss = read("tiny-gpt-oss");
    EXPECT_EQ(oss.rope.scaling, Scaling::yarn);
    EXPECT_FALSE(oss.rope.whole_pairs);
    EXPECT_EQ(oss.local_rope, oss.rope);
    const Hparams mistral = read("tiny-mistral3");
    EXPECT_TRUE(mistral.rope.whole_pairs);
    EXPECT_DOUBLE_EQ(mistral.rope.magnitude, 1);  // the multiplier takes it back
    EXPECT_EQ(mistral.temperature_every, 8u);
    const Hparams phi = read("tiny-phi3");
    EXPECT_EQ(phi.rope.scaling, Scaling::longrope);  // by its tensors
    EXPECT_EQ(phi.rope.original_context, 32u);
    EXPECT_NEAR(phi.rope.magnitude, std::sqrt(1 + std::log(32) / std::log(32)), 1e-6);
    EXPECT_EQ(read("tiny-llama").rope.scaling, Scaling::none);

    const auto edited = [](const char *like, const Edit &e) {
        const TinyModel base({.like = like});
        const TempFile temp("edited.gguf");
        write_edited(base.file, e, temp.path());
        return read_hparams(gguf::File::open(temp.path()));
    };
    // 0 is how some files say that there is no multiplier.
    const double yarn = 1 + 0.1 * std::log(mistral.rope.factor);
    EXPECT_DOUBLE_EQ(edited("tiny-mistral3", with_f32("mistral3.rope.scaling.yarn_log_multiplier", 0)).rope.magnitude,
                     yarn);
    // attn_factor multiplies YaRN's own magnitude, yarn_attn_factor replaces it.
    EXPECT_DOUBLE_EQ(edited("tiny-mistral3", with_f32("mistral3.rope.scaling.attn_factor", 0.5f)).rope.magnitude, 0.5);
    EXPECT_DOUBLE_EQ(edited("tiny-mistral3", with_f32("mistral3.rope.scaling.yarn_attn_factor", 0.5f)).rope.magnitude,
                     0.5);
    EXPECT_EQ(edited("tiny-gpt-oss", with_f32("gpt-oss.rope.freq_base_swa", 500)).local_rope.base, 500);
}

// What files leave out has the value that other readers give it.
TEST(Hparams, DefaultsWhereKeysAreAbsent) {
    const TinyModel base({.like = "tiny-llama"});
    Edit e;
    for (const char *key :
         {"llama.attention.key_length", "llama.attention.value_length", "llama.rope.freq_base",
          "llama.rope.dimension_count", "llama.vocab_size", "llama.attention.head_count_kv", "tokenizer.ggml.tokens"})
        e.without.insert(key);
    const TempFile temp("defaults.gguf");
    write_edited(base.file, e, temp.path());
    const Hparams h = read_hparams(gguf::File::open(temp.path()));
    EXPECT_EQ(h.head_dim, 64u);
    EXPECT_EQ(h.n_rot, 64u);
    EXPECT_EQ(h.rope.base, 10000.0);
    EXPECT_EQ(h.n_kv_heads, h.n_heads);
    EXPECT_EQ(h.n_vocab, 300u);
}

TEST(Hparams, ArraysOfEqualElementsCountAsOne) {
    const TinyModel base({.like = "tiny-llama"});
    const TempFile temp("array.gguf");
    write_edited(base.file, with("llama.attention.head_count_kv", ints("llama.attention.head_count_kv", {2, 2, 2})),
                 temp.path());
    EXPECT_EQ(read_hparams(gguf::File::open(temp.path())).n_kv_heads, 2u);
}

TEST(Hparams, LinearScalingDividesFrequencies) {
    const TinyModel base({.like = "tiny-qwen2"});
    Edit e = with_text("qwen2.rope.scaling.type", "linear");
    e.keys.emplace("qwen2.rope.scaling.factor", f32("qwen2.rope.scaling.factor", 4));
    const TempFile temp("linear.gguf");
    write_edited(base.file, e, temp.path());
    const gguf::File file = gguf::File::open(temp.path());
    const Program plain = build_program(base.file), scaled = build_program(file);
    const auto &a = std::get<RopeTable>(plain.nodes.front().op), &b = std::get<RopeTable>(scaled.nodes.front().op);
    ASSERT_EQ(a.frequency.size(), 32u);
    for (size_t j = 0; j < a.frequency.size(); j++) {
        EXPECT_DOUBLE_EQ(a.frequency[j], std::pow(1e6, -static_cast<double>(j) / 32));
        EXPECT_DOUBLE_EQ(b.frequency[j], a.frequency[j] / 4);
    }
}

}  // namespace
}  // namespace ridge
