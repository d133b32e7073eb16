// Synthetic models: the exact shapes, metadata and vocabulary size of known models, filled with seeded random weights.
//
// A file of 20 GB made in seconds measures and gates what the real one would, where nothing can be downloaded. Other
// GGUF readers load it too (llama.cpp wants tokens of their own in files called phi3). Weights are sane: activations
// stay near 1 through the depth, logits have a standard deviation near 2. A file depends on shape, quantization and
// seed alone, not on threads or machine.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "format/format.h"

namespace ridge {

// What architectures differ in, as far as their tensors show it.
enum class Part : uint8_t {
    norms_before,   // attn_norm, ffn_norm
    norms_after,    // post_attention_norm, post_ffw_norm
    head_norms,     // of every head of q and k
    row_norms,      // of q and k whole
    qkv_bias,       // attn_q, attn_k, attn_v
    all_biases,     // the others too: attn_output, the router, the experts
    sinks,          // attn_sinks
    fused,          // attn_qkv; ffn_up holds gate and up
    shared_expert,  // ffn_*_shexp
};

// What only some models have, and the metadata that says so.
struct ModelFeatures {
    enum class Stretch : uint8_t { none, linear, llama3, yarn, longrope };
    struct Rope {
        Stretch stretch = Stretch::none;  // llama3 and longrope have tensors of factors
        float factor = 1;
        uint32_t original_context = 0;
        uint32_t rotated = 0;      // elements of a head that turn; 0: all
        float log_multiplier = 0;  // rope.scaling.yarn_log_multiplier
    } rope = {};
    struct Window {
        uint32_t size = 0;
        uint32_t period = 0;  // > 0: the file lists the layers, of which every so many see everything
    } window = {};
    struct Caps {
        float scores = 0, logits = 0;
    } caps = {};
    struct Scales {
        float embedding = 0, residual = 0, attention = 0, logits = 0;
    } scales = {};
    float temperature = 0;
};

struct ModelShape {
    std::string_view name;          // "qwen3-8b"
    std::string_view architecture;  // "qwen3"
    std::string_view pre_tokenizer;
    uint32_t n_layers, n_embd, n_ff, n_heads, n_kv_heads, head_dim, n_vocab, context_length;
    bool tied;  // no output.weight: the embedding table is used
    float rope_base, rms_eps;
    ModelFeatures features = {};
    uint32_t n_experts = 0, n_experts_used = 0, n_ff_expert = 0, n_ff_shared = 0;

    bool has(Part p) const;
    uint32_t n_rot() const { return features.rope.rotated > 0 ? features.rope.rotated : head_dim; }
};

// Known models, then tiny ones of each architecture for gates (all rows are multiples of 256).
std::span<const ModelShape> synthetic_shapes();
// Throws Error{usage} that lists the names.
const ModelShape &synthetic_shape(std::string_view name);

// Names that SynthOptions::quant takes: the mixes of llama.cpp, by the names of its file types.
std::vector<std::string_view> synthetic_mixes();

struct SynthOptions {
    std::string like = "qwen3-8b";
    std::string quant = "Q4_K_M";  // a mix; with `pure` a format, for every matrix but routers
    bool pure = false;
    // 0: as many as the model has. With fewer of both, in proportion, a file is measured sooner and spends its time on
    // the same shapes.
    uint32_t layers = 0, vocab = 0;
    uint64_t seed = 0;
    unsigned threads = 0;  // 0: as many as the machine has
    // Regular expression searched in tensor names -> format; the first match decides.
    std::vector<std::pair<std::string, Format>> overrides;
    bool force = false;  // overwrite
    std::function<void(uint64_t done, uint64_t total)> progress = {};
};

struct SynthTensor {
    std::string name;
    std::vector<uint64_t> shape;  // fastest first
    Format format = Format::F32;
    double mean = 0, sigma = 0;
    std::vector<float> values;  // not empty: these and nothing random
};

struct SynthPlan {
    std::vector<SynthTensor> tensors;  // in file order
    uint32_t file_type = 0;            // general.file_type
    std::vector<std::string> notes;    // "blk.0.attn_q.weight: 576 is no multiple of 256: Q5_0 instead of Q4_K"
};

// What a file will hold. Throws Error{usage} for an unknown shape, quantization or pattern.
SynthPlan plan_synthetic(const SynthOptions &options);

// Writes it; returns the plan. Throws Error{usage} where `path` exists and `force` is not set, Error{limit} where the
// disk has too little room, Error{file} where writing fails (nothing is left behind).
SynthPlan write_synthetic(const std::filesystem::path &path, const SynthOptions &options);

}  // namespace ridge
