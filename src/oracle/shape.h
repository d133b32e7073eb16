// What a file says about its model: which of the features that architectures differ in it has, and its numbers.
//
// An architecture is one row of the table in shape.cpp. A file names its tensors and keys as llama.cpp's converters do.
#pragma once

#include <string_view>
#include <vector>

#include "gguf/gguf.h"
#include "oracle/ops.h"
#include "oracle/weights.h"

namespace ridge::oracle {

enum class Unit { silu, gelu, clamped };  // of the feed-forward network: silu_mul, gelu_mul, clamped_mul

// What the name of an architecture stands for. Where a file has the tensors for it, any architecture may have biases,
// q, k and v as one matrix (attn_qkv), gate and up as one (ffn_up, the gate's rows first), sinks, and an output matrix.
struct Architecture {
    std::string_view name;  // general.architecture
    RopePairs pairs = RopePairs::halves;
    Unit unit = Unit::silu;
    bool norms_before = true;  // attn_norm and ffn_norm: of what goes into attention and feed-forward network
    bool norms_after = false;  // post_attention_norm and post_ffw_norm: of what comes out, before it is added
    bool qk_norms = false;     // attn_q_norm, attn_k_norm: of every head, or as long as a row of q and k: of the row
    std::string_view ffn_norm = "ffn_norm";
    bool embedding_by_root = false;  // embeddings are multiplied by the root of their width

    // Experts, where the file has any.
    bool normalise_routes = true;  // the weights of the chosen sum to 1
    bool shared_expert = false;    // one more, weighted by a sigmoid

    // Where the file has attention.sliding_window: of every `period` layers the last sees all positions and the others
    // only a window; 0: none sees all. The file's attention.sliding_window_pattern, where it is there, goes before.
    size_t period = 0;
    double local_base = 0;  // of RoPE in layers with a window, where rope.freq_base_swa is not there; 0: as elsewhere
    bool local_plain = false;  // RoPE in layers with a window is not scaled

    bool yarn_whole_pairs = true;
    // The number of layers that tells the one model of a family whose scores are scaled by the root of width / heads
    // and not by that of the size of a head. No key says it.
    size_t layers_scaled_by_width = 0;
};

enum class RopeScaling { none, linear, yarn, longrope };

struct Shape {
    Architecture arch;
    size_t layers = 0, width = 0, heads = 0, kv_heads = 0, head_dim = 0, vocab = 0;
    size_t experts = 0, experts_used = 0;
    double eps = 0;
    double embedding_scale = 1, residual_scale = 1, logit_divisor = 1;
    double attention_scale = 0;  // 0: 1/sqrt(head_dim)
    double score_cap = 0, logit_cap = 0;
    size_t window = 0;
    std::vector<bool> local;       // (layers): those with the window
    double temperature_slope = 0;  // q is scaled by 1 + slope * ln(1 + floor(position / original_context))

    // RoPE
    size_t rotated = 0;
    double base = 0, local_base = 0;
    RopeScaling scaling = RopeScaling::none;
    double factor = 1;  // of linear and yarn
    double magnitude = 1;
    size_t original_context = 0;
    double beta_fast = 32, beta_slow = 1;

    double temperature(int32_t position) const;
};

// Throws Error{unsupported} for an architecture without a row and an unknown rope.scaling.type, Error{file} for what is
// missing or cannot be.
Shape read_shape(const gguf::File &file);

struct Turns {
    Reals frequencies;  // (rotated / 2), radians per position
    double magnitude = 1;
};
// How the heads of a layer, with or without a window, turn in a context of so many positions: from the shape and from
// the tensors rope_freqs.weight, rope_factors_short.weight and rope_factors_long.weight.
Turns layer_turns(const Shape &s, Weights &weights, bool local, size_t context);

}  // namespace ridge::oracle
