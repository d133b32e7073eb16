// Files that no program can be built from, and what the error says; and the hyper-parameters of those that can.
#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <string>

#include "core/error.h"
#include "model/model.h"
#include "model/tiny_file.h"

namespace ridge {
namespace {

using test::Edit;
using test::TempFile;
using test::TinyModel;
using test::write_edited;

using Add = std::function<void(gguf::Writer &)>;
Add u32(std::string key, uint32_t v) {
    return [=](gguf::Writer &w) { w.add_u32(key, v); };
}
Add f32(std::string key, float v) {
    return [=](gguf::Writer &w) { w.add_f32(key, v); };
}
Add text(std::string key, std::string v) {
    return [=](gguf::Writer &w) { w.add_string(key, v); };
}
Add ints(std::string key, std::vector<int32_t> v) {
    return [=](gguf::Writer &w) { w.add_i32s(key, v); };
}

struct Bad {
    std::string what;
    std::string like;
    Edit edit;
    ErrorKind kind;
    std::vector<std::string> says;  // all of these
};

Edit with(std::string key, Add add) {
    Edit e;
    e.keys.emplace(std::move(key), std::move(add));
    return e;
}
Edit with_u32(const std::string &key, uint32_t v) { return with(key, u32(key, v)); }
Edit with_f32(const std::string &key, float v) { return with(key, f32(key, v)); }
Edit with_text(const std::string &key, const std::string &v) { return with(key, text(key, v)); }
Edit without(std::string name) {
    Edit e;
    e.without.insert(std::move(name));
    return e;
}
Edit tensor(std::string name, Format f, std::vector<uint64_t> shape) {
    Edit e;
    e.tensors.emplace(std::move(name), std::pair(f, std::move(shape)));
    return e;
}

// Sizes that are missing, of another type, absurd or at odds with each other.
std::vector<Bad> bad_sizes() {
    using enum ErrorKind;
    const std::string l = "tiny-llama", m = "tiny-qwen3moe";
    std::vector<Bad> list = {
        {"no architecture", l, without("general.architecture"), file, {"general.architecture"}},
        {"other architecture",
         l,
         with_text("general.architecture", "mamba"),
         unsupported,
         {"mamba", "llama", "qwen2", "qwen3", "qwen3moe"}},
        {"architecture is a number", l, with_u32("general.architecture", 7), file, {"general.architecture"}},
        {"layers 0", l, with_u32("llama.block_count", 0), file, {"llama.block_count", "0", "1 to"}},
        {"layers absurd", l, with_u32("llama.block_count", 4000000000u), file, {"llama.block_count", "4000000000"}},
        {"layers text", l, with_text("llama.block_count", "three"), file, {"llama.block_count", "string"}},
        {"layers fraction", l, with_f32("llama.block_count", 3), file, {"llama.block_count", "f32"}},
        {"width absurd", l, with_u32("llama.embedding_length", 1u << 31), file, {"llama.embedding_length"}},
        {"ff absurd", l, with_u32("llama.feed_forward_length", 1u << 31), file, {"llama.feed_forward_length"}},
        {"context 0", l, with_u32("llama.context_length", 0), file, {"llama.context_length"}},
        {"heads 0", l, with_u32("llama.attention.head_count", 0), file, {"llama.attention.head_count"}},
        {"kv heads do not divide",
         l,
         with_u32("llama.attention.head_count_kv", 3),
         file,
         {"head_count_kv = 3", "does not divide", "head_count = 4"}},
        {"kv heads above heads", l, with_u32("llama.attention.head_count_kv", 8), file, {"head_count_kv"}},
        {"kv heads by layer",
         l,
         with("llama.attention.head_count_kv", ints("llama.attention.head_count_kv", {2, 4, 2})),
         unsupported,
         {"head_count_kv", "differs between layers"}},
        {"head odd", l, with_u32("llama.attention.key_length", 63), file, {"63", "even"}},
        {"head absurd", l, with_u32("llama.attention.key_length", 1u << 20), file, {"llama.attention.key_length"}},
        {"value length differs",
         l,
         with_u32("llama.attention.value_length", 32),
         unsupported,
         {"llama.attention.value_length", "32", "64"}},
        {"rotated above head", l, with_u32("llama.rope.dimension_count", 66), file, {"rope.dimension_count"}},
        {"rotated odd", l, with_u32("llama.rope.dimension_count", 33), file, {"rope.dimension_count", "odd"}},
    };
    for (const char *key : {"block_count", "embedding_length", "feed_forward_length", "context_length",
                            "attention.head_count", "attention.layer_norm_rms_epsilon"})
        list.push_back({fmt::format("no {}", key),
                        l,
                        without(fmt::format("llama.{}", key)),
                        file,
                        {fmt::format("llama.{}", key)}});
    for (const char *key : {"expert_count", "expert_used_count"})
        list.push_back({fmt::format("no {}", key),
                        m,
                        without(fmt::format("qwen3moe.{}", key)),
                        file,
                        {fmt::format("qwen3moe.{}", key)}});
    return list;
}

// Numbers out of range, and keys that ask for what no forward pass here does.
std::vector<Bad> bad_features() {
    using enum ErrorKind;
    const std::string l = "tiny-llama", m = "tiny-qwen3moe";
    return {
        {"eps 0", l, with_f32("llama.attention.layer_norm_rms_epsilon", 0), file, {"layer_norm_rms_epsilon"}},
        {"eps NaN",
         l,
         with_f32("llama.attention.layer_norm_rms_epsilon", std::nanf("")),
         file,
         {"layer_norm_rms_epsilon", "nan"}},
        {"eps negative",
         l,
         with_f32("llama.attention.layer_norm_rms_epsilon", -1e-5f),
         file,
         {"layer_norm_rms_epsilon"}},
        {"base infinite", l, with_f32("llama.rope.freq_base", INFINITY), file, {"rope.freq_base", "inf"}},
        {"base negative", l, with_f32("llama.rope.freq_base", -10000), file, {"rope.freq_base"}},
        {"yarn", l, with_text("llama.rope.scaling.type", "yarn"), unsupported, {"rope.scaling.type", "yarn", "linear"}},
        {"sliding window", l, with_u32("llama.attention.sliding_window", 512), unsupported, {"sliding_window", "512"}},
        {"logit scale", l, with_f32("llama.logit_scale", 0.5f), unsupported, {"llama.logit_scale"}},
        {"not causal",
         l,
         with("llama.attention.causal", [](gguf::Writer &w) { w.add_bool("llama.attention.causal", false); }),
         unsupported,
         {"llama.attention.causal"}},
        {"llama with experts", l, with_u32("llama.expert_count", 8), unsupported, {"llama.expert_count = 8"}},
        {"more experts used than there",
         m,
         with_u32("qwen3moe.expert_used_count", 13),
         file,
         {"qwen3moe.expert_used_count", "1 to 12"}},
        {"experts 0", m, with_u32("qwen3moe.expert_count", 0), file, {"qwen3moe.expert_count"}},
        {"expert gate", m, with_u32("qwen3moe.expert_gating_func", 2), unsupported, {"expert_gating_func"}},
        {"expert scale", m, with_f32("qwen3moe.expert_weights_scale", 2.5f), unsupported, {"expert_weights_scale"}},
    };
}

std::vector<Bad> bad_tensors() {
    using enum ErrorKind;
    const std::string l = "tiny-llama", m = "tiny-qwen3moe";
    std::vector<Bad> list = {
        {"matrix turned",
         l,
         tensor("blk.1.ffn_up.weight", Format::F32, {512, 256}),
         file,
         {"blk.1.ffn_up.weight", "{512, 256}", "{256, 512}"}},
        {"matrix with experts",
         l,
         tensor("blk.1.ffn_up.weight", Format::F32, {256, 512, 2}),
         file,
         {"blk.1.ffn_up.weight", "{256, 512, 2}"}},
        {"vocabulary too small",
         l,
         tensor("token_embd.weight", Format::F32, {256, 299}),
         file,
         {"token_embd.weight", "{256, 299}", "{256, 300}"}},
        {"norm too long",
         l,
         tensor("output_norm.weight", Format::F32, {257}),
         file,
         {"output_norm.weight", "{257}", "{256}"}},
        {"norm in F16",
         l,
         tensor("output_norm.weight", Format::F16, {256}),
         file,
         {"output_norm.weight", "F16", "F32"}},
        {"norm is a matrix",
         l,
         tensor("blk.0.attn_norm.weight", Format::F32, {256, 2}),
         file,
         {"blk.0.attn_norm.weight"}},
        {"bias too short", "tiny-qwen2", tensor("blk.1.attn_k.bias", Format::F32, {63}), file, {"blk.1.attn_k.bias"}},
        {"optional bias too short",
         l,
         tensor("blk.1.attn_output.bias", Format::F32, {255}),
         file,
         {"blk.1.attn_output.bias", "{255}", "{256}"}},
        {"head norm over all heads",
         "tiny-qwen3",
         tensor("blk.2.attn_q_norm.weight", Format::F32, {512}),
         file,
         {"blk.2.attn_q_norm.weight", "{512}", "{64}"}},
        {"rope factor zero",
         l,
         tensor("rope_freqs.weight", Format::F32, {32}),
         file,
         {"rope_freqs.weight", "element 0"}},
        {"rope factors too few",
         l,
         tensor("rope_freqs.weight", Format::F32, {16}),
         file,
         {"rope_freqs.weight", "{32}"}},
        {"an expert missing",
         m,
         tensor("blk.0.ffn_up_exps.weight", Format::F32, {256, 256, 11}),
         file,
         {"blk.0.ffn_up_exps.weight", "{256, 256, 11}", "{256, 256, 12}"}},
        {"router too small",
         m,
         tensor("blk.1.ffn_gate_inp.weight", Format::F32, {256, 11}),
         file,
         {"blk.1.ffn_gate_inp.weight"}},
    };
    for (const char *name : {"token_embd.weight", "output_norm.weight", "blk.0.attn_q.weight", "blk.2.ffn_norm.weight",
                             "blk.1.ffn_down.weight"})
        list.push_back({fmt::format("no {}", name), l, without(name), file, {name, "missing"}});
    list.push_back({"no q bias", "tiny-qwen2", without("blk.1.attn_q.bias"), file, {"blk.1.attn_q.bias", "missing"}});
    list.push_back(
        {"no head norm", "tiny-qwen3", without("blk.1.attn_k_norm.weight"), file, {"blk.1.attn_k_norm.weight"}});
    list.push_back({"no router", m, without("blk.1.ffn_gate_inp.weight"), file, {"blk.1.ffn_gate_inp.weight"}});
    return list;
}

void expect_errors(const std::vector<Bad> &list) {
    std::map<std::string, std::unique_ptr<TinyModel>> models;
    for (const Bad &bad : list) {
        SCOPED_TRACE(bad.what);
        auto &base = models[bad.like];
        if (!base) base = std::make_unique<TinyModel>(SynthOptions{.like = bad.like, .quant = "Q4_K_M"});
        const TempFile temp("bad.gguf");
        write_edited(base->file, bad.edit, temp.path());
        const gguf::File file = gguf::File::open(temp.path());
        try {
            build_program(file);
            ADD_FAILURE() << "was accepted";
        } catch (const Error &e) {
            EXPECT_EQ(e.kind(), bad.kind) << e.what();
            EXPECT_NE(std::string(e.what()).find(temp.path().filename().string()), std::string::npos) << e.what();
            for (const std::string &part : bad.says)
                EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what() << "\nlacks: " << part;
        }
    }
}

TEST(Hparams, BadSizesAreNamed) { expect_errors(bad_sizes()); }
TEST(Hparams, BadFeaturesAreNamed) { expect_errors(bad_features()); }
TEST(Tensors, BadOnesAreNamed) { expect_errors(bad_tensors()); }

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
        EXPECT_EQ(h.n_rot, s.head_dim);
        EXPECT_EQ(h.n_vocab, s.n_vocab);
        EXPECT_EQ(h.context_length, s.context_length);
        EXPECT_EQ(h.rms_eps, static_cast<double>(s.rms_eps));
        EXPECT_EQ(h.rope_base, static_cast<double>(s.rope_base));
        EXPECT_EQ(h.n_experts, s.n_experts);
        EXPECT_EQ(h.n_experts_used, s.n_experts_used);
        EXPECT_EQ(h.n_ff_expert, s.n_ff_expert);
    }
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
    EXPECT_EQ(h.rope_base, 10000.0);
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
