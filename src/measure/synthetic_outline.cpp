// Standard deviations: a matrix with rows of k has 1/sqrt(k), which keeps the size of what it multiplies. The two
// matrices of a layer that write to the residual stream, or the norms behind them, have 1/sqrt(2 layers) of that, so
// that the stream's variance grows by a fixed amount through any depth. The output has 2/sqrt(n_embd), times what
// logits are divided by, and embeddings the same, but 1 where layers read them without a norm.
#include "measure/synthetic_outline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>
#include <utility>

namespace ridge {
namespace {

class Outline {
  public:
    explicit Outline(const ModelShape &shape)
        : s_(shape), to_residual_(1 / std::sqrt(2.0 * shape.n_layers)), stream_(embedding_sigma()) {
        if (s_.architecture.starts_with("gemma")) stream_ *= std::sqrt(static_cast<double>(s_.n_embd));
        add(TensorRole::token_embd, "token_embd.weight", {s_.n_embd, s_.n_vocab}, embedding_sigma());
        rope_factors();
        for (layer_ = 0; layer_ < s_.n_layers; layer_++) layer();
        layer_ = 0;
        vector("output_norm.weight", s_.n_embd, 1, 0.1);
        if (!s_.tied) add(TensorRole::output, "output.weight", {s_.n_embd, s_.n_vocab}, output_sigma());
    }
    std::vector<OutlinedTensor> tensors;

  private:
    double output_sigma() const {
        const float divisor = s_.features.scales.logits;
        return 2 * static_cast<double>(divisor > 0 ? divisor : 1) / std::sqrt(static_cast<double>(s_.n_embd));
    }
    double embedding_sigma() const { return s_.tied || s_.has(Part::norms_before) ? output_sigma() : 1; }

    void add(TensorRole role, std::string name, std::vector<uint64_t> shape, double sigma, double mean = 0) {
        OutlinedTensor e;
        e.tensor.name = std::move(name);
        e.tensor.shape = std::move(shape);
        e.tensor.sigma = sigma;
        e.tensor.mean = mean;
        e.role = role;
        e.layer = layer_;
        tensors.push_back(std::move(e));
    }
    std::string blk(std::string_view name) const { return fmt::format("blk.{}.{}", layer_, name); }
    void vector(std::string name, uint32_t n, double mean, double sigma) {
        add(TensorRole::f32, std::move(name), {n}, sigma, mean);
    }
    void norm(std::string_view name, uint32_t n, double mean = 1) {
        vector(blk(fmt::format("{}.weight", name)), n, mean, 0.1 * mean);
    }
    // <name>.weight and, with `bias`, <name>.bias.
    void matrix(TensorRole role, std::string_view name, uint32_t k, uint32_t n, double gain = 1, uint32_t experts = 1,
                bool bias = false) {
        std::vector<uint64_t> shape{k, n}, vectors{n};
        if (experts > 1) shape.push_back(experts), vectors.push_back(experts);
        add(role, blk(fmt::format("{}.weight", name)), std::move(shape), gain / std::sqrt(static_cast<double>(k)));
        if (bias) add(TensorRole::f32, blk(fmt::format("{}.bias", name)), std::move(vectors), 0.1 * gain);
    }

    void layer() {
        if (s_.has(Part::norms_before)) norm("attn_norm", s_.n_embd);
        attention();
        if (s_.has(Part::norms_after)) norm("post_attention_norm", s_.n_embd, 2 * stream_ * to_residual_);
        if (s_.has(Part::norms_before)) norm(s_.has(Part::sinks) ? "post_attention_norm" : "ffn_norm", s_.n_embd);
        if (s_.n_experts > 0)
            experts();
        else
            feed_forward();
        if (s_.has(Part::norms_after)) norm("post_ffw_norm", s_.n_embd, 2 * stream_ * to_residual_);
    }

    void attention() {
        const uint32_t q = s_.n_heads * s_.head_dim, kv = s_.n_kv_heads * s_.head_dim;
        const bool bias = s_.has(Part::qkv_bias);
        if (s_.has(Part::fused)) {
            matrix(TensorRole::attn_qkv, "attn_qkv", s_.n_embd, q + 2 * kv);
        } else {
            matrix(TensorRole::attn_q, "attn_q", s_.n_embd, q, 1, 1, bias);
            matrix(TensorRole::attn_k, "attn_k", s_.n_embd, kv, 1, 1, bias);
            matrix(TensorRole::attn_v, "attn_v", s_.n_embd, kv, 1, 1, bias);
        }
        if (s_.has(Part::head_norms)) norm("attn_q_norm", s_.head_dim), norm("attn_k_norm", s_.head_dim);
        if (s_.has(Part::row_norms)) norm("attn_q_norm", q), norm("attn_k_norm", kv);
        if (s_.has(Part::sinks)) vector(blk("attn_sinks.weight"), s_.n_heads, 0, 1);
        matrix(TensorRole::attn_output, "attn_output", q, s_.n_embd, to_residual_, 1, s_.has(Part::all_biases));
    }

    void feed_forward() {
        if (s_.has(Part::fused)) {
            matrix(TensorRole::ffn_up, "ffn_up", s_.n_embd, 2 * s_.n_ff);
        } else {
            matrix(TensorRole::ffn_gate, "ffn_gate", s_.n_embd, s_.n_ff);
            matrix(TensorRole::ffn_up, "ffn_up", s_.n_embd, s_.n_ff);
        }
        matrix(TensorRole::ffn_down, "ffn_down", s_.n_ff, s_.n_embd, to_residual_);
    }

    void experts() {
        const uint32_t n = s_.n_experts, ff = s_.n_ff_expert;
        const bool bias = s_.has(Part::all_biases);
        matrix(TensorRole::f32, "ffn_gate_inp", s_.n_embd, n, 1, 1, bias);
        matrix(TensorRole::expert_gate, "ffn_gate_exps", s_.n_embd, ff, 1, n, bias);
        matrix(TensorRole::expert_up, "ffn_up_exps", s_.n_embd, ff, 1, n, bias);
        matrix(TensorRole::expert_down, "ffn_down_exps", ff, s_.n_embd, to_residual_, n, bias);
        if (!s_.has(Part::shared_expert)) return;
        vector(blk("ffn_gate_inp_shexp.weight"), s_.n_embd, 0, 1 / std::sqrt(static_cast<double>(s_.n_embd)));
        matrix(TensorRole::ffn_gate, "ffn_gate_shexp", s_.n_embd, s_.n_ff_shared);
        matrix(TensorRole::ffn_up, "ffn_up_shexp", s_.n_embd, s_.n_ff_shared);
        matrix(TensorRole::ffn_down, "ffn_down_shexp", s_.n_ff_shared, s_.n_embd, to_residual_);
    }

    // A tensor that holds factor(j) for every pair j.
    template <class Factor>
    void factors(std::string name, Factor &&factor) {
        vector(std::move(name), s_.n_rot() / 2, 0, 0);
        for (uint32_t j = 0; j < s_.n_rot() / 2; j++)
            tensors.back().tensor.values.push_back(static_cast<float>(factor(j)));
    }

    void rope_factors() {
        const ModelFeatures::Rope &rope = s_.features.rope;
        const double factor = static_cast<double>(rope.factor), last = s_.n_rot() / 2 - 1;
        // Long waves are stretched by the factor, short ones not at all, those between in part.
        if (rope.stretch == ModelFeatures::Stretch::llama3)
            factors("rope_freqs.weight", [&](uint32_t j) {
                const double turn = std::pow(static_cast<double>(s_.rope_base), 2.0 * j / s_.n_rot());
                const double waves = rope.original_context / (2 * std::numbers::pi * turn);  // in the original context
                const double share = std::clamp((waves - 1) / (4 - 1), 0.0, 1.0);
                return 1 / ((1 - share) / factor + share);
            });
        // From 1 to the factor for long contexts; a little above 1 for others.
        if (rope.stretch == ModelFeatures::Stretch::longrope) {
            factors("rope_factors_long.weight", [&](uint32_t j) { return std::pow(factor, j / last); });
            factors("rope_factors_short.weight", [&](uint32_t j) { return 1 + 0.2 * j / last; });
        }
    }

    const ModelShape &s_;
    double to_residual_, stream_;  // stream_: the size of what enters the first layer
    uint32_t layer_ = 0;
};

}  // namespace

std::vector<OutlinedTensor> outline(const ModelShape &shape) { return std::move(Outline(shape).tensors); }

}  // namespace ridge
