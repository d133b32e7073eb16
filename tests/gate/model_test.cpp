// Whole models against the f64 forward pass, and mistakes in a model that this gate must notice.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>

#include "gguf/gguf.h"
#include "measure/gate_model.h"
#include "model/edited_file.h"
#include "model/model.h"
#include "runtime/tiny_model.h"

namespace ridge {
namespace {

TEST(ModelGate, EveryArchitectureAndLever) {
    const GateReport r = gate_models({.quick = true}, 2);
    std::printf("%s", to_string({{r.total()}}).c_str());
    EXPECT_TRUE(r.ok()) << to_string(r);
    for (const Architecture &a : architectures()) {
        const std::string prefix = fmt::format("model.tiny-{}.", a.name);
        const auto n = std::ranges::count_if(r.rows, [&](const GateRow &row) { return row.name.starts_with(prefix); });
        EXPECT_GE(n, 12) << a.name << " has no tiny shape, so its forward pass is not gated";
    }
}

// A copy of a model with some bytes of one tensor changed.
std::filesystem::path mutant(const std::filesystem::path &from, const test::TempDir &dir, std::string_view tensor,
                             const std::function<void(std::span<std::byte>)> &change) {
    std::ifstream in(from, std::ios::binary);
    std::string bytes{std::istreambuf_iterator<char>(in), {}};
    const gguf::File f = gguf::File::open(from);
    const gguf::Tensor *t = f.find_tensor(tensor);
    if (!t) throw std::logic_error("no tensor " + std::string(tensor));
    change(std::as_writable_bytes(std::span(bytes)).subspan(t->offset, t->bytes));
    const std::filesystem::path path = dir.path / "mutant.gguf";
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
}

// Seed of tokens whose first positions every router decides, also with activations as int8.
uint64_t decided_tokens(const char *like, const std::filesystem::path &file) {
    const gguf::File f = gguf::File::open(file);
    const double e = expected_error(build_program(f), read_hparams(f), true, DType::f16);
    for (uint64_t seed = 1;; seed++)
        if (ModelOracle(like, file, seed, 3).decided_positions(e) == 3) return seed;
}

// The f32 gate sees one weight of a norm changed by a hundredth, the int8 gate one that is lost.
TEST(ModelGate, MistakesAreNoticed) {
    const test::TempDir dir;
    const LeverSet f32 = LeverSet::defaults().without(Lever::int8_dot);
    for (const char *like : {"tiny-llama", "tiny-qwen2", "tiny-qwen3", "tiny-qwen3moe", "tiny-mistral3", "tiny-mixtral",
                             "tiny-qwen2moe", "tiny-gemma2", "tiny-gemma3", "tiny-phi3", "tiny-granite"}) {
        const std::filesystem::path file = test::tiny_file(like, "Q4_K_M");
        const ModelOracle oracle(like, file, decided_tokens(like, file));
        EXPECT_TRUE(oracle.compare(file, f32, DType::f32, 16, 1).ok());
        for (const char *tensor : {"blk.0.attn_norm.weight", "blk.1.ffn_norm.weight", "output_norm.weight"}) {
            const auto scaled = mutant(file, dir, tensor, [](std::span<std::byte> b) {
                float w;
                std::memcpy(&w, &b[40], sizeof w);
                w *= 1.01F;
                std::memcpy(&b[40], &w, sizeof w);
            });
            EXPECT_FALSE(oracle.compare(scaled, f32, DType::f32, 16, 1).ok()) << like << " " << tensor;
        }
        const auto lost = mutant(file, dir, "blk.0.attn_norm.weight",
                                 [](std::span<std::byte> b) { std::memset(b.data(), 0, b.size() / 4); });
        const GateRow whole = oracle.compare(file, LeverSet::defaults(), DType::f16, 16, 1);
        EXPECT_TRUE(whole.ok()) << like << ": " << whole.result.checked << " checked";
        const GateRow noticed = oracle.compare(lost, LeverSet::defaults(), DType::f16, 16, 1);
        EXPECT_GT(noticed.result.nbad, 0U) << like;
    }
}

// A copy of a model whose file says something else.
std::filesystem::path misread(const std::filesystem::path &from, const test::TempDir &dir, const test::Edit &edit) {
    const std::filesystem::path path = dir.path / "misread.gguf";
    test::write_edited(gguf::File::open(from), edit, path);
    return path;
}

struct Misreading {
    const char *like, *key;
    double value;  // < 0: as if the key were not there
    bool integer;
};
// What a forward pass that overlooks or misreads a key would do, with the tensors as they are.
constexpr Misreading kMisreadings[] = {
    {"tiny-mistral", "llama.attention.sliding_window", 9, true},
    {"tiny-mistral", "llama.attention.sliding_window", 7, true},
    {"tiny-mistral", "llama.attention.sliding_window", -1, true},
    {"tiny-gemma2", "gemma2.attention.sliding_window", 9, true},
    {"tiny-gemma2", "gemma2.attn_logit_softcapping", 0, false},
    {"tiny-gemma2", "gemma2.attn_logit_softcapping", 2.02, false},
    {"tiny-gemma2", "gemma2.final_logit_softcapping", 0, false},
    {"tiny-gemma2", "gemma2.final_logit_softcapping", 6.01, false},
    {"tiny-gemma3", "gemma3.attention.sliding_window", 7, true},
    {"tiny-gemma3", "gemma3.attention.sliding_window_pattern", 3, true},
    {"tiny-gemma3", "gemma3.rope.freq_base_swa", 1e6, false},
    {"tiny-gemma3", "gemma3.rope.scaling.factor", 4, false},
    {"tiny-granite", "granite.embedding_scale", -1, false},
    {"tiny-granite", "granite.residual_scale", 0.601, false},
    {"tiny-granite", "granite.attention.scale", -1, false},
    {"tiny-granite", "granite.attention.scale", 0.101, false},
    {"tiny-granite", "granite.logit_scale", 4.01, false},
    {"tiny-gpt-oss", "gpt-oss.attention.sliding_window", 9, true},
    {"tiny-gpt-oss", "gpt-oss.rope.freq_base_swa", 1e4, false},
    {"tiny-gemma2", "gemma2.rope.freq_base_swa", 9e3, false},
    {"tiny-gpt-oss", "gpt-oss.rope.scaling.factor", 31, false},
    {"tiny-gpt-oss", "gpt-oss.rope.scaling.original_context_length", 17, true},
    {"tiny-gpt-oss", "gpt-oss.rope.scaling.yarn_attn_factor", 1, false},
    {"tiny-mistral3", "mistral3.attention.temperature_scale", -1, false},
    {"tiny-mistral3", "mistral3.attention.temperature_scale", 0.21, false},
    {"tiny-mistral3", "mistral3.rope.scaling.yarn_log_multiplier", -1, false},
    {"tiny-mixtral", "llama.expert_used_count", 1, true},
    {"tiny-olmo3", "olmo2.attention.sliding_window", 7, true},
    {"tiny-olmo3", "olmo2.attention.sliding_window_pattern", 2, true},
    {"tiny-olmo3", "olmo2.rope.scaling.factor", 7, false},
    {"tiny-phi3", "phi3.attention.sliding_window", 13, true},
    {"tiny-phi3", "phi3.rope.scaling.attn_factor", 1, false},
    {"tiny-phi3", "phi3.rope.scaling.original_context_length", 100, true},
};

TEST(ModelGate, MisreadKeysAreNoticed) {
    const test::TempDir dir;
    const LeverSet f32 = LeverSet::defaults().without(Lever::int8_dot);
    std::map<std::string, std::unique_ptr<ModelOracle>> oracles;
    for (const Misreading &m : kMisreadings) {
        const std::filesystem::path file = test::tiny_file(m.like, "F32");
        auto &oracle = oracles[m.like];
        if (!oracle) {
            oracle = std::make_unique<ModelOracle>(m.like, file, 1);
            EXPECT_TRUE(oracle->compare(misread(file, dir, {}), f32, DType::f32, 16, 1).ok()) << m.like;
        }
        test::Edit edit;
        if (m.value < 0)
            edit.without.insert(m.key);
        else
            edit.keys.emplace(m.key, [&](gguf::Writer &w) {
                m.integer ? w.add_u32(m.key, static_cast<uint32_t>(m.value))
                          : w.add_f32(m.key, static_cast<float>(m.value));
            });
        EXPECT_FALSE(oracle->compare(misread(file, dir, edit), f32, DType::f32, 16, 1).ok()) << m.key << " " << m.value;
    }
}

// One number of every kind of tensor that only some models have, changed by a hundredth of what is usual there.
TEST(ModelGate, MistakesInEveryPartAreNoticed) {
    const std::pair<const char *, const char *> parts[] = {
        {"tiny-gemma2", "blk.0.post_attention_norm.weight"},
        {"tiny-gemma2", "blk.1.post_ffw_norm.weight"},
        {"tiny-gemma3", "blk.5.attn_q_norm.weight"},
        {"tiny-gemma3", "blk.0.attn_k_norm.weight"},
        {"tiny-olmo2", "blk.1.attn_q_norm.weight"},
        {"tiny-olmo2", "blk.0.attn_k_norm.weight"},
        {"tiny-gpt-oss", "blk.0.attn_sinks.weight"},
        {"tiny-gpt-oss", "blk.1.attn_output.bias"},
        {"tiny-gpt-oss", "blk.0.attn_v.bias"},
        {"tiny-gpt-oss", "blk.1.post_attention_norm.weight"},
        {"tiny-gpt-oss", "blk.0.ffn_gate_inp.bias"},
        {"tiny-gpt-oss", "blk.0.ffn_gate_exps.bias"},
        {"tiny-gpt-oss", "blk.0.ffn_up_exps.bias"},
        {"tiny-gpt-oss", "blk.1.ffn_down_exps.bias"},
        {"tiny-phi3", "rope_factors_long.weight"},
        {"tiny-qwen2moe", "blk.1.ffn_gate_inp_shexp.weight"},
    };
    const test::TempDir dir;
    const LeverSet f32 = LeverSet::defaults().without(Lever::int8_dot);
    std::map<std::string, std::unique_ptr<ModelOracle>> oracles;
    for (const auto &[like, tensor] : parts) {
        const std::filesystem::path file = test::tiny_file(like, "F32");
        auto &oracle = oracles[like];
        if (!oracle) {
            oracle = std::make_unique<ModelOracle>(like, file, 1);
            EXPECT_TRUE(oracle->compare(file, f32, DType::f32, 16, 1).ok()) << like;
        }
        const auto changed = mutant(file, dir, tensor, [](std::span<std::byte> b) {
            for (size_t at = 0; at < b.size(); at += 256 * sizeof(float)) {  // of each expert's bias one
                float w;
                std::memcpy(&w, &b[at + 4], sizeof w);
                w += 0.01F;
                std::memcpy(&b[at + 4], &w, sizeof w);
            }
        });
        EXPECT_FALSE(oracle->compare(changed, f32, DType::f32, 16, 1).ok()) << like << " " << tensor;
    }
}

}  // namespace
}  // namespace ridge
