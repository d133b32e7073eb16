// Models: from an open GGUF file to a program of plain operations.
//
// An architecture is one file, arch_<name>.cpp, with its forward pass as a list of operations, and one row in
// architectures.def. What is the same for all of them (hyper-parameters, checks of tensors) is here and in builder.h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/program.h"
#include "gguf/gguf.h"
#include "op/types.h"

namespace ridge {

// The hyper-parameters under `<architecture>.*`, in the ranges that the operations rely on.
struct Hparams {
    std::string architecture;
    uint32_t n_layers = 0;        // block_count
    uint32_t n_embd = 0;          // embedding_length
    uint32_t n_ff = 0;            // feed_forward_length; 0 where every layer has experts and the file has none
    uint32_t n_heads = 0;         // attention.head_count
    uint32_t n_kv_heads = 0;      // attention.head_count_kv, divides n_heads; n_heads where the file has none
    uint32_t head_dim = 0;        // attention.key_length = value_length; n_embd / n_heads where the file has none
    uint32_t n_vocab = 0;         // tokenizer.ggml.tokens, else vocab_size, else rows of token_embd.weight
    uint32_t context_length = 0;  // that the model was trained for
    double rms_eps = 0;           // attention.layer_norm_rms_epsilon

    // Rotary positions. Pair j turns by position * rope_scale * rope_base^(-2j / n_rot) / factor[j], the factors being
    // those of rope_freqs.weight where the file has it.
    uint32_t n_rot = 0;        // rope.dimension_count, even; head_dim where the file has none
    double rope_base = 10000;  // rope.freq_base
    double rope_scale = 1;     // 1 / rope.scaling.factor where rope.scaling.type is "linear"

    // Experts; all zero for an architecture without.
    uint32_t n_experts = 0;       // expert_count
    uint32_t n_experts_used = 0;  // expert_used_count
    uint32_t n_ff_expert = 0;     // expert_feed_forward_length; n_ff / n_experts_used where the file has none
};

struct ModelOptions {
    DType kv_type = DType::f16;  // f16 or f32
};

class Builder;

struct Architecture {
    std::string_view name;  // general.architecture
    bool has_experts;
    void (*build)(Builder &);
};

// In the order of architectures.def.
const std::vector<Architecture> &architectures();

// The row of the file's general.architecture. Throws Error{unsupported} that lists what is supported.
const Architecture &architecture_of(const gguf::File &file);

// Throws Error{file} naming the key that is missing or out of range, Error{unsupported} for a key that asks for what no
// forward pass here does.
Hparams read_hparams(const gguf::File &file);

// The forward pass, unfused, all on device 0. Weights point into the file's mapping. Throws Error{file} naming a tensor
// that is missing, misshapen or in a format that cannot be, with what was expected and found.
Program build_program(const gguf::File &file, const ModelOptions &options = {});

// Names of the file's tensors that `program`, built from it, does not read; in file order.
std::vector<std::string> unused_tensors(const gguf::File &file, const Program &program);

}  // namespace ridge
