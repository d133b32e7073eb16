// The forward pass. Activations are (tokens, width); all tokens go through a layer together, and the mask of attention
// is in their positions.
#include "oracle/forward.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

#include "core/error.h"
#include "oracle/shape.h"
#include "oracle/weights.h"

namespace ridge::oracle {
namespace {

// Columns first .. first + n - 1 of x, (rows, width). Result: (rows, n).
Reals columns(RealSpan x, size_t width, size_t first, size_t n) {
    Reals out;
    for (size_t row = 0; row < x.size(); row += width)
        for (size_t j = 0; j < n; j++) out.push_back(x[row + first + j]);
    return out;
}

void multiply(Reals &x, double by) {
    for (double &v : x) v *= by;
}

}  // namespace

struct Model::Impl {
    Shape s;
    Weights weights;
    Reals margin;  // (positions)

    explicit Impl(const gguf::File &f) : s(read_shape(f)), weights(f) {}

    // Of rows of n elements.
    Reals norm(const std::string &name, RealSpan x, size_t n) {
        return rms_norm(x, weights.vector(name + ".weight", n), s.eps);
    }

    // Of every head, or where the tensor is as long as all of them together, of the row.
    Reals norm_heads(const std::string &name, RealSpan x, size_t heads) {
        const bool row = weights.matrix(name + ".weight").values.size() == heads * s.head_dim;
        return norm(name, x, row ? heads * s.head_dim : s.head_dim);
    }

    struct Heads {
        Reals q, k, v;  // (tokens, heads or kv_heads, head_dim)
    };
    Heads heads_of(const std::string &blk, RealSpan x) {
        const size_t q = s.heads * s.head_dim, kv = s.kv_heads * s.head_dim, all = q + 2 * kv;
        if (!weights.has(blk + "attn_qkv.weight"))
            return {weights.linear(blk + "attn_q", {s.width, q}, x), weights.linear(blk + "attn_k", {s.width, kv}, x),
                    weights.linear(blk + "attn_v", {s.width, kv}, x)};
        const Reals y = weights.linear(blk + "attn_qkv", {s.width, all}, x);
        return {columns(y, all, 0, q), columns(y, all, q, kv), columns(y, all, q + kv, kv)};
    }

    // x: (tokens, width). Result: as x.
    Reals attention_layer(const std::string &blk, RealSpan x, bool local, const Turns &turns,
                          std::span<const int32_t> positions) {
        auto [q, k, v] = heads_of(blk, x);
        if (s.arch.qk_norms) {
            q = norm_heads(blk + "attn_q_norm", q, s.heads);
            k = norm_heads(blk + "attn_k_norm", k, s.kv_heads);
        }
        const Rope how{s.arch.pairs, turns.frequencies, turns.magnitude};
        q = rope(how, q, s.heads, s.head_dim, positions);
        k = rope(how, k, s.kv_heads, s.head_dim, positions);
        const size_t row = s.heads * s.head_dim;
        for (size_t i = 0; i < q.size(); i++) q[i] *= s.temperature(positions[i / row]);

        AttentionShape shape{s.heads, s.kv_heads, s.head_dim, s.head_dim, s.attention_scale};
        shape.window = local ? s.window : 0;
        shape.softcap = s.score_cap;
        Reals sinks;
        if (weights.has(blk + "attn_sinks.weight")) sinks = weights.vector(blk + "attn_sinks.weight", s.heads);
        shape.sinks = sinks;
        const Reals y = attention(shape, q, k, v, positions, positions).sum;
        return weights.linear(blk + "attn_output", {row, s.width}, y);
    }

    // down(unit(gate(x), up(x))) with the tensors ffn_gate<suffix> and so on, of one expert where they hold several.
    Reals feed_forward(const std::string &blk, const std::string &suffix, RealSpan x, size_t expert = 0) {
        const std::string gate_name = blk + "ffn_gate" + suffix, up_name = blk + "ffn_up" + suffix;
        const size_t rows = weights.matrix(up_name + ".weight").rows_per_expert;
        const bool fused = !weights.has(gate_name + ".weight");
        const size_t n = fused ? rows / 2 : rows;
        Reals gate, up = weights.linear(up_name, {s.width, rows}, x, expert);
        if (fused) {
            gate = columns(up, rows, 0, n);
            up = columns(up, rows, rows - n, n);
        } else {
            gate = weights.linear(gate_name, {s.width, n}, x, expert);
        }
        const auto unit = s.arch.unit == Unit::silu ? silu_mul : s.arch.unit == Unit::gelu ? gelu_mul : clamped_mul;
        return weights.linear(blk + "ffn_down" + suffix, {n, s.width}, unit(gate, up), expert);
    }

    Reals experts_layer(const std::string &blk, RealSpan x) {
        const Routes routes = route(weights.linear(blk + "ffn_gate_inp", {s.width, s.experts}, x), s.experts,
                                    s.experts_used, s.arch.normalise_routes);
        for (size_t i = 0; i < margin.size(); i++) margin[i] = std::min(margin[i], routes.margin[i]);
        Reals out(x.size(), 0.0);
        for (size_t i = 0; i < routes.ids.size(); i++) {
            const size_t t = i / s.experts_used;
            const RealSpan in = x.subspan(t * s.width, s.width);
            const Reals y = feed_forward(blk, "_exps", in, static_cast<size_t>(routes.ids[i]));
            for (size_t j = 0; j < s.width; j++) out[t * s.width + j] += routes.weights[i] * y[j];
        }
        if (!s.arch.shared_expert) return out;
        const Reals gate = weights.linear(blk + "ffn_gate_inp_shexp", {s.width, 1}, x);
        const Reals y = feed_forward(blk, "_shexp", x);
        for (size_t i = 0; i < out.size(); i++) out[i] += sigmoid(gate[i / s.width]) * y[i];
        return out;
    }

    // x + residual_scale * part(x), with the norms that stand around the part.
    template <class Part>
    Reals with_residual(const Reals &x, const std::string &before, const std::string &after, const Part &part) {
        Reals y = part(s.arch.norms_before ? norm(before, x, s.width) : x);
        if (s.arch.norms_after) y = norm(after, y, s.width);
        multiply(y, s.residual_scale);
        return add(x, y);
    }

    Reals embed(std::span<const int32_t> tokens) {
        const Matrix &table = weights.matrix("token_embd.weight");
        if (table.columns != s.width)
            fail(ErrorKind::file, "the oracle needs rows of {} in tensor token_embd.weight, not {}", s.width,
                 table.columns);
        Reals x;
        for (int32_t token : tokens) {
            if (token < 0 || static_cast<size_t>(token) >= s.vocab)
                fail(ErrorKind::usage, "token {} is not in the vocabulary of {}", token, s.vocab);
            x.insert(x.end(), table.row(static_cast<size_t>(token)), table.row(static_cast<size_t>(token)) + s.width);
        }
        multiply(x, s.embedding_scale);
        return x;
    }

    Logits forward(std::span<const int32_t> tokens, size_t context) {
        if (context == 0) context = tokens.size();
        margin.assign(tokens.size(), std::numeric_limits<double>::infinity());
        std::vector<int32_t> positions(tokens.size());
        std::iota(positions.begin(), positions.end(), 0);
        const Turns global = layer_turns(s, weights, false, context), local = layer_turns(s, weights, true, context);

        Reals x = embed(tokens);
        for (size_t layer = 0; layer < s.layers; layer++) {
            const std::string blk = fmt::format("blk.{}.", layer);
            const bool windowed = s.local[layer];
            x = with_residual(x, blk + "attn_norm", blk + "post_attention_norm", [&](RealSpan in) {
                return attention_layer(blk, in, windowed, windowed ? local : global, positions);
            });
            x = with_residual(x, blk + std::string(s.arch.ffn_norm), blk + "post_ffw_norm", [&](RealSpan in) {
                return s.experts != 0 ? experts_layer(blk, in) : feed_forward(blk, "", in);
            });
        }
        x = norm("output_norm", x, s.width);
        Logits result;
        result.positions = tokens.size(), result.vocab = s.vocab;
        result.values = weights.linear(weights.has("output.weight") ? "output" : "token_embd", {s.width, s.vocab}, x);
        multiply(result.values, 1 / s.logit_divisor);
        if (s.logit_cap != 0)
            for (double &logit : result.values) logit = softcap(logit, s.logit_cap);
        result.route_margin = std::move(margin);
        return result;
    }
};

Model::Model(const gguf::File &file) : impl_(std::make_unique<Impl>(file)) {}
Model::~Model() = default;
Model::Model(Model &&) noexcept = default;
size_t Model::vocab() const { return impl_->s.vocab; }
Logits Model::forward(std::span<const int32_t> tokens, size_t context) { return impl_->forward(tokens, context); }

}  // namespace ridge::oracle
