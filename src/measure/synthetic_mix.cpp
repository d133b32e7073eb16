// The rules of the mixes, as facts of llama.cpp's quantizer (its file types and what they give each tensor), stated
// role by role. A rule that is not here leaves the mix's base format.
#include "measure/synthetic_mix.h"

#include <algorithm>
#include <initializer_list>

namespace ridge {
namespace {

using enum Format;

constexpr Mix kMixes[] = {
    {"F32", 0, F32},          {"F16", 1, F16},        {"BF16", 32, BF16},    {"Q4_0", 2, Q4_0},
    {"Q4_1", 3, Q4_1},        {"Q5_0", 8, Q5_0},      {"Q5_1", 9, Q5_1},     {"Q8_0", 7, Q8_0},
    {"Q2_K", 10, Q2_K},       {"Q2_K_S", 21, Q2_K},   {"Q3_K_S", 11, Q3_K},  {"Q3_K_M", 12, Q3_K},
    {"Q3_K_L", 13, Q3_K},     {"Q4_K_S", 14, Q4_K},   {"Q4_K_M", 15, Q4_K},  {"Q5_K_S", 16, Q5_K},
    {"Q5_K_M", 17, Q5_K},     {"Q6_K", 18, Q6_K},     {"IQ1_S", 24, IQ1_S},  {"IQ1_M", 31, IQ1_M},
    {"IQ2_XXS", 19, IQ2_XXS}, {"IQ2_XS", 20, IQ2_XS}, {"IQ2_S", 28, IQ2_XS}, {"IQ2_M", 29, IQ2_S},
    {"IQ3_XXS", 23, IQ3_XXS}, {"IQ3_XS", 22, IQ3_S},  {"IQ3_S", 26, IQ3_S},  {"IQ3_M", 27, IQ3_S},
    {"IQ4_NL", 25, IQ4_NL},   {"IQ4_XS", 30, IQ4_XS}, {"TQ1_0", 36, TQ1_0},  {"TQ2_0", 37, TQ2_0},
    {"MXFP4_MOE", 38, MXFP4},
};

// Layers that get more bits in the _M mixes: the first and the last eighth, and every third between.
bool more_bits(uint32_t layer, uint32_t n) { return layer < n / 8 || layer >= 7 * n / 8 || (layer - n / 8) % 3 == 2; }

// A mix by its name, and where in the model the question is asked.
struct Rules {
    std::string_view mix;
    Format base;
    uint32_t layer, n_layers, n_experts;
    bool wide_groups;  // four or more query heads share a key

    bool is(std::initializer_list<std::string_view> names) const {
        return std::find(names.begin(), names.end(), mix) != names.end();
    }
    bool first_eighth() const { return layer < n_layers / 8; }
    // The mixes below three bits have rules of their own.
    bool lowest() const { return mix.starts_with("IQ1_") || mix.starts_with("IQ2_"); }

    Format token_embd() const {
        if (is({"IQ2_XXS", "IQ2_XS", "IQ1_S", "IQ1_M"})) return Q2_K;
        if (is({"IQ2_S", "IQ2_M", "IQ3_XXS"})) return IQ3_S;
        if (is({"TQ1_0", "TQ2_0"})) return Q4_K;
        return base;
    }
    Format output(uint64_t k) const {
        if (k % info(base).block != 0) return Q8_0;
        if (lowest() || is({"IQ3_XXS"})) return Q5_K;
        return base == Q8_0 ? Q8_0 : Q6_K;
    }
    Format attn_v() const {
        if (lowest()) {
            if (wide_groups || n_experts >= 4) return Q4_K;
            return is({"IQ2_S", "IQ2_M"}) ? IQ3_S : Q2_K;
        }
        if (n_experts == 8) return Q8_0;
        if (is({"Q2_K"})) return wide_groups ? Q4_K : Q3_K;
        if (is({"Q2_K_S", "IQ3_XXS", "IQ3_XS", "IQ3_S"})) return wide_groups ? Q4_K : base;
        if (is({"IQ3_M"})) return Q4_K;
        if (is({"Q3_K_M"})) return layer < 2 ? Q5_K : Q4_K;
        if (is({"Q3_K_L"})) return Q5_K;
        if (is({"IQ4_NL", "IQ4_XS"})) return wide_groups ? Q5_K : base;
        if (is({"Q4_K_M", "Q5_K_M"})) return more_bits(layer, n_layers) ? Q6_K : base;
        if (is({"Q4_K_S"})) return layer < 4 ? Q5_K : base;
        return base;
    }
    Format attn_k() const {
        if (n_experts == 8) return lowest() ? Q4_K : Q8_0;
        return attn_q();
    }
    Format attn_qkv() const {
        if (is({"Q3_K_M", "Q3_K_L", "IQ3_M"})) return Q4_K;
        if (is({"Q4_K_M"})) return Q5_K;
        if (is({"Q5_K_M"})) return Q6_K;
        return base;
    }
    Format attn_q() const {
        if (is({"IQ3_XS"})) return IQ3_XXS;
        if (is({"IQ3_XXS"})) return IQ2_S;
        return base;
    }
    Format attn_output() const {
        if (n_experts == 8) {
            const bool raised = lowest() || is({"Q2_K", "Q3_K_S", "Q3_K_M", "Q4_K_S", "Q4_K_M", "IQ3_XXS", "IQ3_XS",
                                                "IQ3_S", "IQ3_M", "IQ4_NL", "IQ4_XS"});
            return raised ? Q5_K : base;
        }
        if (is({"IQ1_S", "IQ1_M"})) return IQ2_XXS;
        if (is({"IQ2_S", "IQ2_M", "IQ3_XXS"})) return IQ3_S;
        if (is({"Q2_K"})) return Q3_K;
        if (is({"Q3_K_M", "IQ3_M"})) return Q4_K;
        if (is({"Q3_K_L"})) return Q5_K;
        return base;
    }
    Format ffn_gate_or_up() const {
        const bool middle = !first_eighth() && layer < 7 * n_layers / 8;
        return is({"IQ3_XS"}) && middle ? IQ3_XXS : base;
    }
    Format ffn_down() const {
        if (lowest()) {
            if (!first_eighth()) return base;
            return is({"IQ2_S", "IQ2_M"}) ? IQ3_S : Q2_K;
        }
        if (is({"Q2_K"})) return Q3_K;
        if (is({"Q2_K_S", "IQ3_M"})) {
            const bool raised = is({"IQ3_M"}) && n_experts == 8 && more_bits(layer, n_layers);
            return first_eighth() || raised ? Q4_K : base;
        }
        if (is({"Q3_K_M"})) return layer < n_layers / 16 ? Q5_K : Q4_K;
        if (is({"Q3_K_L"})) return Q5_K;
        if (is({"Q4_K_M", "Q5_K_M"})) return more_bits(layer, n_layers) ? Q6_K : base;
        if (is({"IQ4_NL", "IQ4_XS", "Q4_K_S"})) return first_eighth() ? Q5_K : base;
        return base;
    }
};

}  // namespace

std::span<const Mix> mixes() { return kMixes; }

Format mixed_format(const Mix &mix, const ModelShape &shape, TensorRole role, uint32_t layer, uint64_t k) {
    const Rules r{mix.name, mix.base, layer, shape.n_layers, shape.n_experts, shape.n_heads / shape.n_kv_heads >= 4};
    const bool is_expert =
        role == TensorRole::expert_gate || role == TensorRole::expert_up || role == TensorRole::expert_down;
    if (role == TensorRole::f32) return F32;
    if (info(mix.base).is_float()) return mix.base;
    if (mix.name == "MXFP4_MOE") return is_expert ? MXFP4 : Q8_0;
    switch (role) {
        case TensorRole::token_embd:
            return shape.tied ? r.output(k) : r.token_embd();
        case TensorRole::output:
            return r.output(k);
        case TensorRole::attn_q:
            return r.attn_q();
        case TensorRole::attn_k:
            return r.attn_k();
        case TensorRole::attn_qkv:
            return r.attn_qkv();
        case TensorRole::attn_v:
            return r.attn_v();
        case TensorRole::attn_output:
            return r.attn_output();
        case TensorRole::ffn_gate:
        case TensorRole::ffn_up:
        case TensorRole::expert_gate:
        case TensorRole::expert_up:
            return r.ffn_gate_or_up();
        case TensorRole::ffn_down:
        case TensorRole::expert_down:
            return r.ffn_down();
        case TensorRole::f32:
            break;
    }
    return F32;
}

Format fitting_format(Format wanted, uint64_t k) {
    Format f = wanted;
    if (k % info(f).block != 0) {
        switch (f) {
            case Q2_K:
            case Q3_K:
            case TQ1_0:
            case TQ2_0:
                f = Q4_0;
                break;
            case Q4_K:
                f = Q5_0;
                break;
            case Q5_K:
                f = Q5_1;
                break;
            case Q6_K:
                f = Q8_0;
                break;
            default:
                f = info(f).block == 256 ? IQ4_NL : f;
                break;
        }
    }
    return k % info(f).block == 0 ? f : F16;
}

uint32_t pure_file_type(Format f) {
    switch (f) {  // the mixes that share a base: the one that is quoted most
        case Q3_K:
            return 12;
        case Q4_K:
            return 15;
        case Q5_K:
            return 17;
        case IQ2_XS:
            return 20;
        case IQ2_S:
            return 28;
        case IQ3_S:
            return 26;
        default:
            break;
    }
    for (const Mix &m : kMixes)
        if (m.base == f) return m.file_type;
    return 0;
}

}  // namespace ridge
