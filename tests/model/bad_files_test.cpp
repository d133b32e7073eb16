// Files that no program can be built from, and what the error says.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "model/model.h"
#include "model/tiny_file.h"

namespace ridge {
namespace {

using namespace test;

struct Bad {
    std::string what;
    std::string like;
    Edit edit;
    ErrorKind kind;
    std::vector<std::string> says;  // all of these
};

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
        {"sliding window",
         "tiny-qwen2",
         with_u32("qwen2.attention.sliding_window", 512),
         unsupported,
         {"sliding_window", "512"}},
        {"logit scale", l, with_f32("llama.logit_scale", 0.5f), unsupported, {"llama.logit_scale"}},
        {"not causal",
         l,
         with("llama.attention.causal", [](gguf::Writer &w) { w.add_bool("llama.attention.causal", false); }),
         unsupported,
         {"llama.attention.causal"}},
        {"qwen2 with experts",
         "tiny-qwen2",
         with_u32("qwen2.expert_count", 8),
         unsupported,
         {"qwen2.expert_count = 8"}},
        {"llama with experts but not how many are used",
         l,
         with_u32("llama.expert_count", 8),
         file,
         {"llama.expert_used_count"}},
        {"more experts used than there",
         m,
         with_u32("qwen3moe.expert_used_count", 13),
         file,
         {"qwen3moe.expert_used_count", "1 to 12"}},
        {"shared expert",
         m,
         with_u32("qwen3moe.expert_shared_feed_forward_length", 512),
         unsupported,
         {"qwen3moe.expert_shared_feed_forward_length", "512"}},
        {"width of the shared expert",
         "tiny-qwen2moe",
         with_u32("qwen2moe.expert_shared_feed_forward_length", 0),
         file,
         {"qwen2moe.expert_shared_feed_forward_length", "from 1"}},
        {"gate of gpt-oss",
         "tiny-gpt-oss",
         with_u32("gpt-oss.expert_gating_func", 2),
         unsupported,
         {"gpt-oss.expert_gating_func", "3"}},
        {"experts 0", m, with_u32("qwen3moe.expert_count", 0), file, {"qwen3moe.expert_count"}},
        {"expert gate", m, with_u32("qwen3moe.expert_gating_func", 2), unsupported, {"expert_gating_func"}},
        {"expert scale", m, with_f32("qwen3moe.expert_weights_scale", 2.5f), unsupported, {"expert_weights_scale"}},
    };
}

// How positions are stretched.
std::vector<Bad> bad_positions() {
    using enum ErrorKind;
    const std::string l = "tiny-llama", t = "tiny-mistral3", p = "tiny-phi3";
    return {
        {"unknown scaling",
         l,
         with_text("llama.rope.scaling.type", "dynamic"),
         unsupported,
         {"llama.rope.scaling.type", "dynamic", "linear", "yarn", "longrope"}},
        {"scaling type is a number", l, with_u32("llama.rope.scaling.type", 2), file, {"llama.rope.scaling.type"}},
        {"factor negative", t, with_f32("mistral3.rope.scaling.factor", -4), file, {"rope.scaling.factor", "-4"}},
        {"factor infinite",
         t,
         with_f32("mistral3.rope.scaling.factor", INFINITY),
         file,
         {"rope.scaling.factor", "inf"}},
        {"old factor 0", l, with_f32("llama.rope.scale_linear", 0), file, {"llama.rope.scale_linear", "0"}},
        {"original context 0",
         t,
         with_u32("mistral3.rope.scaling.original_context_length", 0),
         file,
         {"rope.scaling.original_context_length", "from 1"}},
        {"beta NaN",
         t,
         with_f32("mistral3.rope.scaling.yarn_beta_fast", std::nanf("")),
         file,
         {"rope.scaling.yarn_beta_fast", "nan"}},
        {"beta 0", t, with_f32("mistral3.rope.scaling.yarn_beta_slow", 0), file, {"rope.scaling.yarn_beta_slow"}},
        {"extrapolation above 1",
         t,
         with_f32("mistral3.rope.scaling.yarn_ext_factor", 2),
         file,
         {"rope.scaling.yarn_ext_factor", "2"}},
        {"attention factor 0", p, with_f32("phi3.rope.scaling.attn_factor", 0), file, {"rope.scaling.attn_factor"}},
        {"local base 0", "tiny-gemma3", with_f32("gemma3.rope.freq_base_swa", 0), file, {"gemma3.rope.freq_base_swa"}},
        {"longrope without short factors",
         p,
         without("rope_factors_short.weight"),
         file,
         {"rope_factors_short.weight", "rope_factors_long.weight"}},
        {"longrope without factors",
         l,
         with_text("llama.rope.scaling.type", "longrope"),
         file,
         {"rope_factors_short.weight", "rope_factors_long.weight", "longrope"}},
        {"too few long factors",
         p,
         tensor("rope_factors_long.weight", Format::F32, {32}),
         file,
         {"rope_factors_long.weight", "{32}", "{24}"}},
        {"long factor zero",
         p,
         tensor("rope_factors_long.weight", Format::F32, {24}),
         file,
         {"rope_factors_long.weight", "element 0"}},
        {"temperature",
         l,
         with_f32("llama.attention.temperature_scale", 0.1f),
         unsupported,
         {"llama.attention.temperature_scale", "0.1"}},
        {"temperature negative",
         t,
         with_f32("mistral3.attention.temperature_scale", -0.1f),
         file,
         {"mistral3.attention.temperature_scale", "-0.1"}},
        {"temperature of a part of each head",
         t,
         with_u32("mistral3.rope.dimension_count", 32),
         unsupported,
         {"temperature_scale", "32", "64"}},
        {"temperature of another length",
         t,
         with_u32("mistral3.attention.temperature_length", 4096),
         unsupported,
         {"mistral3.attention.temperature_length", "4096"}},
        {"factor that overflows", t, with_f32("mistral3.rope.scaling.factor", 1e-30f), file, {"rope.scaling.factor"}},
        {"attention factor without stretching",
         l,
         with_f32("llama.rope.scaling.attn_factor", 1.2f),
         unsupported,
         {"llama.rope.scaling.attn_factor", "1.2"}},
        {"longrope without long factors",
         p,
         without("rope_factors_long.weight"),
         file,
         {"rope_factors_short.weight", "rope_factors_long.weight is missing"}},
        {"no rotary positions",
         "tiny-granite",
         with("granite.rope.scaling.finetuned", flag("granite.rope.scaling.finetuned", false)),
         unsupported,
         {"granite.rope.scaling.finetuned", "rotary"}},
    };
}

std::vector<Bad> bad_windows() {
    using enum ErrorKind;
    const std::string o = "tiny-olmo3", g = "tiny-gpt-oss", pattern = "olmo2.attention.sliding_window_pattern";
    return {
        {"no window where one must be",
         g,
         without("gpt-oss.attention.sliding_window"),
         file,
         {"gpt-oss.attention.sliding_window"}},
        {"window 0 where one must be",
         g,
         with_u32("gpt-oss.attention.sliding_window", 0),
         file,
         {"gpt-oss.attention.sliding_window", "from 1"}},
        {"window absurd",
         "tiny-mistral",
         with_u32("llama.attention.sliding_window", 1u << 31),
         file,
         {"llama.attention.sliding_window"}},
        {"window of text",
         o,
         with_text("olmo2.attention.sliding_window", "8"),
         file,
         {"olmo2.attention.sliding_window"}},
        {"windows of too few layers", o, with(pattern, ints(pattern, {1, 1, 0})), file, {pattern, "4 layers"}},
        {"windows of too many layers",
         o,
         with(pattern, ints(pattern, {1, 1, 1, 0, 1})),
         file,
         {pattern, "[1, 1, 1, 0, 1]", "4 layers"}},
        {"windows by text",
         o,
         with(pattern, strings(pattern, {"a", "b", "c", "d"})),
         file,
         {pattern, "array of string"}},
        {"window period absurd", o, with_u32(pattern, 1u << 31), file, {pattern}},
        {"window period of text", o, with_text(pattern, "4"), file, {pattern, "a flag for each of 4 layers"}},
    };
}

std::vector<Bad> bad_scales() {
    using enum ErrorKind;
    const std::string g = "tiny-granite", c = "tiny-gemma2";
    std::vector<Bad> list;
    for (const char *name : {"embedding_scale", "residual_scale", "logit_scale", "attention.scale"}) {
        const std::string key = fmt::format("granite.{}", name);
        list.push_back({fmt::format("{} negative", name), g, with_f32(key, -0.5f), file, {key, "-0.5"}});
        list.push_back({fmt::format("{} NaN", name), g, with_f32(key, std::nanf("")), file, {key, "nan"}});
        list.push_back({fmt::format("{} infinite", name), g, with_f32(key, INFINITY), file, {key, "inf"}});
        list.push_back({fmt::format("{} is text", name), g, with_text(key, "1"), file, {key, "string"}});
    }
    for (const char *name : {"embedding_scale", "residual_scale", "logit_scale"}) {
        const std::string key = fmt::format("gemma2.{}", name);
        list.push_back({fmt::format("{} of gemma2", name), c, with_f32(key, 2), unsupported, {key, "2", "'gemma2'"}});
    }
    list.push_back({"logit_scale missing", g, without("granite.logit_scale"), file, {"granite.logit_scale"}});
    list.push_back({"logit_scale vanishes", g, with_f32("granite.logit_scale", 1e-30f), file, {"granite.logit_scale"}});
    list.push_back({"clamped projections",
                    "tiny-olmo2",
                    with_f32("olmo2.attention.clamp_kqv", 8),
                    unsupported,
                    {"olmo2.attention.clamp_kqv", "8"}});
    for (const char *name : {"attn_logit_softcapping", "final_logit_softcapping"}) {
        const std::string key = fmt::format("gemma2.{}", name), other = fmt::format("granite.{}", name);
        list.push_back({fmt::format("{} negative", name), c, with_f32(key, -30), file, {key, "-30"}});
        list.push_back({fmt::format("{} NaN", name), c, with_f32(key, std::nanf("")), file, {key, "nan"}});
        list.push_back({fmt::format("{} of granite", name), g, with_f32(other, 30), unsupported, {other, "30"}});
    }
    return list;
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
        {"no sinks", "tiny-gpt-oss", without("blk.1.attn_sinks.weight"), file, {"blk.1.attn_sinks.weight", "missing"}},
        {"no bias of experts",
         "tiny-gpt-oss",
         without("blk.0.ffn_up_exps.bias"),
         file,
         {"blk.0.ffn_up_exps.bias", "missing"}},
        {"no bias of the router",
         "tiny-gpt-oss",
         without("blk.0.ffn_gate_inp.bias"),
         file,
         {"blk.0.ffn_gate_inp.bias", "missing"}},
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

// Of the parts that only some architectures have.
std::vector<Bad> bad_parts() {
    using enum ErrorKind;
    const std::string p = "tiny-phi3", g = "tiny-gpt-oss", s = "tiny-qwen2moe";
    std::vector<Bad> list = {
        {"bias of a fused matrix",
         p,
         tensor("blk.1.attn_qkv.bias", Format::F32, {512}),
         unsupported,
         {"blk.1.attn_qkv.bias", "phi3"}},
        {"bias of gate and up",
         p,
         tensor("blk.0.ffn_up.bias", Format::F32, {1024}),
         unsupported,
         {"blk.0.ffn_up.bias", "phi3"}},
        {"fused matrix too small",
         p,
         tensor("blk.0.attn_qkv.weight", Format::F32, {256, 511}),
         file,
         {"blk.0.attn_qkv.weight", "{256, 511}", "{256, 512}"}},
        {"up without gate",
         p,
         tensor("blk.1.ffn_up.weight", Format::F32, {256, 512}),
         file,
         {"blk.1.ffn_up.weight", "{256, 512}", "{256, 1024}"}},
        {"bias of too few experts",
         g,
         tensor("blk.0.ffn_down_exps.bias", Format::F32, {256, 5}),
         file,
         {"blk.0.ffn_down_exps.bias", "{256, 5}", "{256, 6}"}},
        {"bias of one expert",
         g,
         tensor("blk.1.ffn_up_exps.bias", Format::F32, {256}),
         file,
         {"blk.1.ffn_up_exps.bias", "{256}", "{256, 6}"}},
        {"bias of experts in F16",
         g,
         tensor("blk.1.ffn_gate_exps.bias", Format::F16, {256, 6}),
         file,
         {"blk.1.ffn_gate_exps.bias", "F16", "F32"}},
        {"sinks too few",
         g,
         tensor("blk.1.attn_sinks.weight", Format::F32, {2}),
         file,
         {"blk.1.attn_sinks.weight", "{2}", "{8}"}},
        {"sinks in F16",
         g,
         tensor("blk.1.attn_sinks.weight", Format::F16, {8}),
         file,
         {"blk.1.attn_sinks.weight", "F16", "F32"}},
        {"shared gate too short",
         s,
         tensor("blk.0.ffn_gate_inp_shexp.weight", Format::F32, {255}),
         file,
         {"blk.0.ffn_gate_inp_shexp.weight", "{255}"}},
        {"norm of a row as long as a head",
         "tiny-olmo2",
         tensor("blk.0.attn_q_norm.weight", Format::F32, {64}),
         file,
         {"blk.0.attn_q_norm.weight", "{64}", "{256}"}},
    };
    const std::pair<std::string, std::string> needed[] = {
        {g, "blk.1.attn_output.bias"},
        {g, "blk.0.post_attention_norm.weight"},
        {s, "blk.1.ffn_gate_inp_shexp.weight"},
        {s, "blk.0.ffn_up_shexp.weight"},
        {s, "blk.1.attn_k.bias"},
        {p, "blk.0.attn_qkv.weight"},
        {"tiny-gemma2", "blk.1.post_ffw_norm.weight"},
        {"tiny-gemma3", "blk.5.attn_k_norm.weight"},
        {"tiny-olmo2", "blk.0.post_attention_norm.weight"},
        {"tiny-mixtral", "blk.1.ffn_gate_inp.weight"},
        {"tiny-granite", "blk.2.ffn_norm.weight"},
    };
    for (const auto &[like, name] : needed)
        list.push_back({fmt::format("no {}", name), like, without(name), file, {name, "missing"}});
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
TEST(Hparams, BadPositionsAreNamed) { expect_errors(bad_positions()); }
TEST(Hparams, BadWindowsAreNamed) { expect_errors(bad_windows()); }
TEST(Hparams, BadScalesAreNamed) { expect_errors(bad_scales()); }
TEST(Tensors, BadOnesAreNamed) { expect_errors(bad_tensors()); }
TEST(Tensors, BadPartsAreNamed) { expect_errors(bad_parts()); }

}  // namespace
}  // namespace ridge
