// Which format each tensor of a quantized file has: the mixes that llama.cpp's file types stand for.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "format/format.h"
#include "measure/synthetic.h"

namespace ridge {

enum class TensorRole : uint8_t {
    token_embd,
    output,
    attn_q,
    attn_k,
    attn_v,
    attn_qkv,
    attn_output,
    ffn_gate,
    ffn_up,
    ffn_down,
    expert_gate,
    expert_up,
    expert_down,
    f32,  // norms, biases, routers, factors: never quantized
};

struct Mix {
    std::string_view name;  // "Q4_K_M"
    uint32_t file_type;     // general.file_type
    Format base;            // of a matrix that no rule names
};

std::span<const Mix> mixes();

// The format `mix` gives a matrix of this role in layer `layer` of `shape`, whose rows hold k weights; whether the row
// fits the format's blocks is not asked here (see fitting_format).
//
// Exact for models up to 69 B, dense and with experts, quantized without an importance matrix or,
// for the mixes that cannot be made without one (IQ1_*, IQ2_*, IQ3_XXS), with one.
Format mixed_format(const Mix &mix, const ModelShape &shape, TensorRole role, uint32_t layer, uint64_t k);

// `wanted`, or where rows of k weights do not divide into its blocks, what llama.cpp's quantizer takes instead.
Format fitting_format(Format wanted, uint64_t k);

// general.file_type of a file that is all `f`.
uint32_t pure_file_type(Format f);

}  // namespace ridge
