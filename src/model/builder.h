// Builder: the verbs in which an architecture says its forward pass. Each verb appends one plain operation and returns
// the value it writes; values, weights and states are named after the tensors of the current layer:
//
//   b.rmsnorm(x, "attn_norm")  in layer 3 reads the weight blk.3.attn_norm.weight and writes the value "3.attn_norm"
//
// Outside the layers the prefix is empty: b.rmsnorm(x, "output_norm") reads output_norm.weight.
// Every tensor is checked on its first use: present, of the expected shape, of a format that can be there.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "model/model.h"

namespace ridge {

class Builder {
  public:
    // Whether a contraction adds <name>.bias.
    enum class Bias : uint8_t { if_present, required };
    struct KvStates {
        StateId k, v;
    };
    struct Qkv {
        ValueId q, k, v;
    };
    struct Routes {
        ValueId ids, weights;  // (m, n_experts_used) i32, f32
    };

    Builder(const gguf::File &file, const Hparams &hparams, const ModelOptions &options);

    const Hparams &h;

    void begin_layer(uint32_t layer);
    void begin_output();  // after the last layer

    // Tensors by name, inside a layer without its prefix.
    bool has(std::string_view name) const;
    WeightId matrix(std::string_view name, uint32_t n, uint32_t k, uint32_t experts = 1);
    WeightId vector(std::string_view name, uint32_t k);  // F32

    // The tables that `attend` reads: one, or more where layers with a window turn otherwise, or
    // queries grow with their position. Before the first layer.
    void rope_tables();
    ValueId embed(std::string_view name);                                        // (m, n_embd)
    ValueId rmsnorm(ValueId x, std::string_view name);                           // over all columns
    ValueId rmsnorm_heads(ValueId x, std::string_view name, uint32_t head_dim);  // head by head
    ValueId contract(ValueId x, std::string_view name, uint32_t n, Bias bias = Bias::if_present);
    // Rows [first, first + n) of a matrix of `all` rows, which holds several side by side. `out` names the result.
    ValueId contract_part(ValueId x, std::string_view name, std::string_view out, uint32_t first, uint32_t n,
                          uint32_t all);
    // `name` holds the matrices of all experts; writes a row per token and chosen expert.
    ValueId contract_experts(ValueId x, ValueId ids, std::string_view name, uint32_t n, Bias bias = Bias::if_present);
    // Declares the layer's "<layer>.k" and "<layer>.v" and stores this step's rows.
    KvStates kv_write(ValueId k, ValueId v);
    // Over the layer's window, with the model's caps; `with_sinks`: attn_sinks.weight.
    ValueId attention(ValueId q, KvStates kv, bool with_sinks = false);
    Qkv qkv(ValueId x, Bias bias = Bias::if_present);  // attn_q, attn_k, attn_v of x
    // What every architecture does with them, once they are normalised or not: q and k turn, k and v are stored, and
    // attention runs over what is stored.
    ValueId attend(Qkv in, RopePairs pairs, bool with_sinks = false);
    // ffn_gate, ffn_up, ffn_down of width n_ff, their names with `suffix`.
    ValueId feed_forward(ValueId x, uint32_t n_ff, GluKind kind = GluKind::silu, std::string_view suffix = "");
    ValueId glu(ValueId gate, ValueId up, GluKind kind = GluKind::silu);
    ValueId add(ValueId a, ValueId b, std::string_view name);                     // a + b
    ValueId add_branch(ValueId residual, ValueId branch, std::string_view name);  // residual + residual_scale * branch
    ValueId row_gate(ValueId x, ValueId gate);  // rows of x weighted by the sigmoid of gate (m, 1)
    // The n_experts_used most probable experts of each token, and their weights:
    //   chosen  the softmax over the logits of the chosen, which is their probabilities scaled to sum 1
    //   all     their probabilities as they are
    enum class Weights : uint8_t { chosen, all };
    Routes route(ValueId router_logits, Weights weights = Weights::chosen);
    // A feed-forward of experts: route, gate, up, glu, down, weighted sum.
    ValueId experts(ValueId x, Weights weights = Weights::chosen, GluKind kind = GluKind::silu,
                    Bias bias = Bias::if_present);
    ValueId moe_combine(ValueId x, ValueId weights);
    ValueId gather_outputs(ValueId x);  // (outputs, n): the rows whose logits are wanted
    // The output matrix where the file has one, else the (tied) embedding table, then logit_scale (which divides) and
    // the logits' soft cap; ends the program.
    void logits(ValueId x);
    void output(ValueId x);  // from the last layer on: the wanted rows, output_norm, logits

    Program take() { return std::move(p_); }

  private:
    std::string tensor_name(std::string_view name) const;
    std::string value_name(std::string_view name) const;
    // Checks and adds the tensor called `full`, or returns the weight it already is.
    WeightId weight(const std::string &full, uint32_t n, uint32_t k, uint32_t experts, bool is_vector);
    // The tables of a kind of layer: of its keys and of its queries.
    struct RopeTables {
        ValueId key = kNone, query = kNone;
    };
    RopeTable rope_table(std::string_view name, const RopeParams &rope);
    RopeTables push_rope_tables(const RopeParams &rope, const std::string &suffix);
    ValueId rope(ValueId x, ValueId table, RopePairs pairs);
    const RopeTables &layer_tables() const { return window() > 0 ? local_ : global_; }
    std::vector<float> rope_factors(std::string_view tensor) const;  // empty where the file lacks it
    uint32_t window() const { return h.window[static_cast<size_t>(layer_)]; }
    ValueId value(std::string_view name, uint32_t cols, ValueId rows_like = kNone, DType type = DType::f32);
    uint32_t cols(ValueId v) const { return p_.value(v).cols; }
    void push(Op op) { p_.nodes.push_back({std::move(op), 0, layer_}); }

    const gguf::File &file_;
    ModelOptions options_;
    Program p_;
    int32_t layer_ = -1;
    RopeTables global_, local_;
    std::unordered_map<std::string, WeightId> weights_;
};

}  // namespace ridge
