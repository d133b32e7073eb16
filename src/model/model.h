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

// How far the positions of one kind of layer turn queries and keys (rope.scaling.*).
struct RopeParams {
    enum class Scaling : uint8_t { none, linear, yarn, longrope };
    double base = 10000;  // freq_base, freq_base_swa
    Scaling scaling = Scaling::none;
    double factor = 1;                     // rope.scaling.factor
    uint32_t original_context = 0;         // that the model was first trained for: yarn and longrope
    double magnitude = 1;                  // of cosines and sines: the attention factor
    double beta_fast = 32, beta_slow = 1;  // yarn: turns within the original context where its ramp starts and ends
    double extrapolation = 1;              // yarn: weight of the frequencies that are left as they were
    bool whole_pairs = true;               // yarn: the ramp starts and ends at whole pairs
    bool factors = true;                   // the factors of rope_freqs.weight count, where the file has it
    bool operator==(const RopeParams &) const = default;
};

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

    double attention_scale = 0;  // attention.scale; 1 / sqrt(head_dim) where the file has none

    // Rotary positions; rope.h has the formulas.
    uint32_t n_rot = 0;     // rope.dimension_count, even; head_dim where the file has none
    RopeParams rope;        // of layers that see everything
    RopeParams local_rope;  // of layers with a window

    // Queries at position p are longer by 1 + temperature * ln(1 + floor(p / temperature_every)); 0: they are not.
    double temperature = 0;          // attention.temperature_scale
    uint32_t temperature_every = 0;  // rope.scaling.original_context_length

    // Sliding windows: how many positions layer i sees, its own among them; 0: all. Not empty.
    std::vector<uint32_t> window;

    double embedding_scale = 1, residual_scale = 1, logit_scale = 1;
    double attention_softcap = 0, logit_softcap = 0;  // attn_logit_softcapping, final_logit_softcapping; 0: none

    // Experts; all zero for a model without.
    uint32_t n_experts = 0;       // expert_count
    uint32_t n_experts_used = 0;  // expert_used_count
    uint32_t n_ff_expert = 0;  // expert_feed_forward_length; where the file has none n_ff / n_experts_used, or n_ff of
                               // a whole layer where experts are optional
    uint32_t n_ff_shared = 0;  // expert_shared_feed_forward_length, of the expert that every token uses; else n_ff
};

struct ModelOptions {
    DType kv_type = DType::f16;  // f32, f16, or q8_0 where head_dim is a multiple of 32
};

class Builder;

// What the forward pass of an architecture honours; a file that asks for more is refused.
enum Trait : unsigned {
    kExperts = 1,             // every layer has experts
    kMaybeExperts = 2,        // they are optional
    kSharedExpert = 4,        // and one that every token uses
    kPlainExpertWeights = 8,  // experts count with their probabilities as they are, not scaled to sum 1
    kWindow = 16,             // attention.sliding_window
    kNeedsWindow = 32,        // which must be there
    kPlainLocalRope = 64,     // layers with a window do not stretch their positions
    kScales = 128,            // embedding_scale, residual_scale, logit_scale (which must be there)
    kSoftcap = 256,           // attn_logit_softcapping, final_logit_softcapping
    kTemperature = 512,       // attention.temperature_scale
    kExactRamp = 1024,        // YaRN's ramp does not start and end at whole pairs
};

struct Architecture {
    std::string_view name;  // general.architecture
    void (*build)(Builder &) = nullptr;
    unsigned traits = 0;         // of Trait
    uint32_t window = 0;         // where the file does not say
    uint32_t window_period = 0;  // with windows: every so many layers one sees everything; 0: none does
    double local_rope_base = 0;  // of layers with a window, where the file does not say; 0: that of the others
    double score_softcap = 0, logit_softcap = 0;  // where the file does not say
    bool root_embedding = false;                  // embeddings are scaled by sqrt(n_embd)
    uint32_t layers_scaled_by_width = 0;  // the model of so many layers scales scores by 1 / sqrt(n_embd / n_heads)
    bool has(Trait t) const { return (traits & t) != 0; }
};

// In the order of architectures.def.
const std::vector<Architecture> &architectures();

// The row of the file's general.architecture. Throws Error{unsupported} that lists what is supported.
const Architecture &architecture_of(const gguf::File &file);

// Throws Error{file} naming the key that is missing or out of range, Error{unsupported} for a key that asks for what no
// forward pass here does.
Hparams read_hparams(const gguf::File &file);

// The forward pass, unfused, all on device 0. Weights point into the file's mapping. Throws Error{file} naming a tensor
// that is missing, misshapen or in a format that cannot be, with what was expected and found, Error{usage} for a
// kv_type that does not fit the heads.
Program build_program(const gguf::File &file, const ModelOptions &options = {});

// Names of the file's tensors that `program`, built from it, does not read; in file order.
std::vector<std::string> unused_tensors(const gguf::File &file, const Program &program);

}  // namespace ridge
