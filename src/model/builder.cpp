#include "model/builder.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/error.h"
#include "model/rope.h"

namespace ridge {
namespace {

// "{k} F32" or "{k, n} in any of F32, F16, ...": a shape as GGUF tools print it, fastest dimension first.
std::string shape_text(const std::vector<uint64_t> &shape) { return fmt::format("{{{}}}", fmt::join(shape, ", ")); }

std::string path_of(const gguf::File &file) { return file.paths().front().string(); }

// Throws unless `t` has exactly `shape` (trailing ones may be left out in the file).
void check_shape(const gguf::File &file, const gguf::Tensor &t, const std::vector<uint64_t> &shape) {
    std::array<uint64_t, 4> full{1, 1, 1, 1};
    std::copy(shape.begin(), shape.end(), full.begin());
    if (t.shape == full) return;
    const std::vector<uint64_t> found(t.shape.begin(), t.shape.begin() + std::clamp<uint32_t>(t.n_dims, 1, 4));
    fail(ErrorKind::file, "{}: tensor {}: the shape is {}; the hyper-parameters ask for {}", path_of(file), t.name,
         shape_text(found), shape_text(shape));
}

const gguf::Tensor &require_tensor(const gguf::File &file, std::string_view name, const std::vector<uint64_t> &shape) {
    if (const gguf::Tensor *t = file.find_tensor(name)) return *t;
    fail(ErrorKind::file, "{}: the tensor {} is missing; expected one of shape {}", path_of(file), name,
         shape_text(shape));
}

void require_f32(const gguf::File &file, const gguf::Tensor &t) {
    if (!t.format || t.format->id != Format::F32)
        fail(ErrorKind::file, "{}: tensor {}: the format is {}; expected F32, as norms, biases and factors have",
             path_of(file), t.name, t.format_name);
}

// A matrix as the file has it.
Weight whole_weight(const gguf::File &file, const gguf::Tensor &t) {
    if (!t.format)
        fail(ErrorKind::file, "{}: tensor {}: the format is {}, which holds no weights; expected one of {}",
             path_of(file), t.name, t.format_name, format_names());
    Weight w;
    w.name = t.name;
    w.format = t.format->id;
    w.k = static_cast<uint32_t>(t.shape[0]), w.n = static_cast<uint32_t>(t.shape[1]);
    w.data = t.data;
    return w;
}

}  // namespace

Builder::Builder(const gguf::File &file, const Hparams &hparams, const ModelOptions &options)
    : h(hparams), file_(file), options_(options) {
    RIDGE_ASSERT(is_kv_type(options.kv_type));
    if (options.kv_type == DType::q8_0 && h.head_dim % 32 != 0)
        fail(ErrorKind::usage,
             "{}: keys and values in q8_0 are stored in blocks of 32, which heads of {} do not fill; use --kv f16",
             path_of(file), h.head_dim);
    p_.n_layers = h.n_layers;
}

void Builder::begin_layer(uint32_t layer) { layer_ = static_cast<int32_t>(layer); }
void Builder::begin_output() { layer_ = static_cast<int32_t>(h.n_layers); }

std::string Builder::tensor_name(std::string_view name) const {
    const bool inside = layer_ >= 0 && layer_ < static_cast<int32_t>(h.n_layers);
    return inside ? fmt::format("blk.{}.{}", layer_, name) : std::string(name);
}

std::string Builder::value_name(std::string_view name) const {
    const bool inside = layer_ >= 0 && layer_ < static_cast<int32_t>(h.n_layers);
    return inside ? fmt::format("{}.{}", layer_, name) : std::string(name);
}

ValueId Builder::value(std::string_view name, uint32_t cols, ValueId rows_like, DType type) {
    Value v;
    v.name = value_name(name);
    v.type = type;
    v.cols = cols;
    if (rows_like != kNone) {
        v.rows = p_.value(rows_like).rows;
        v.per_row = p_.value(rows_like).per_row;
    }
    return p_.add_value(std::move(v));
}

WeightId Builder::weight(const std::string &full, uint32_t n, uint32_t k, uint32_t experts, bool is_vector) {
    if (const auto known = weights_.find(full); known != weights_.end()) {
        const Weight &w = p_.weight(known->second);
        RIDGE_ASSERT(w.n == n && w.k == k && w.experts == experts);
        return known->second;
    }
    std::vector<uint64_t> shape{k};
    if (!is_vector) shape.push_back(n);
    if (experts > 1) shape.push_back(experts);
    const gguf::Tensor &t = require_tensor(file_, full, shape);
    check_shape(file_, t, shape);
    if (is_vector) require_f32(file_, t);
    Weight w = whole_weight(file_, t);
    w.n = n, w.k = k, w.experts = experts;
    RIDGE_ASSERT(w.bytes() == t.bytes);  // what gguf::File::open checked
    const WeightId id = p_.add_weight(std::move(w));
    weights_.emplace(full, id);
    return id;
}

bool Builder::has(std::string_view name) const { return file_.find_tensor(tensor_name(name)) != nullptr; }

WeightId Builder::matrix(std::string_view name, uint32_t n, uint32_t k, uint32_t experts) {
    return weight(tensor_name(name), n, k, experts, false);
}

WeightId Builder::vector(std::string_view name, uint32_t k) { return weight(tensor_name(name), 1, k, 1, true); }

std::vector<float> Builder::rope_factors(std::string_view tensor) const {
    if (!file_.find_tensor(tensor)) return {};
    const uint32_t pairs = h.n_rot / 2;
    const gguf::Tensor &t = require_tensor(file_, tensor, {pairs});
    check_shape(file_, t, {pairs});
    require_f32(file_, t);
    std::vector<float> factors(pairs);
    std::memcpy(factors.data(), t.data, pairs * sizeof(float));
    for (uint32_t j = 0; j < pairs; j++)
        if (!(factors[j] > 0 && std::isfinite(factors[j])))
            fail(ErrorKind::file, "{}: tensor {}: element {} is {}; frequencies are divided by it", path_of(file_),
                 tensor, j, factors[j]);
    return factors;
}

RopeTable Builder::rope_table(std::string_view name, const RopeParams &rope) {
    RopeTable op;
    op.out = value(name, h.n_rot);
    op.magnitude = rope.magnitude;
    if (rope.scaling == RopeParams::Scaling::longrope) {
        const std::vector<float> near = rope_factors(kRopeShort), far = rope_factors(kRopeLong);
        if (near.empty() || far.empty())
            fail(ErrorKind::file, "{}: longrope needs the tensors {} and {}, and {} is missing", path_of(file_),
                 kRopeShort, kRopeLong, near.empty() ? kRopeShort : kRopeLong);
        op.frequency = rope_frequencies(rope, h.n_rot, near);
        op.long_frequency = rope_frequencies(rope, h.n_rot, far);
        op.long_above = rope.original_context;
    } else {
        op.frequency =
            rope_frequencies(rope, h.n_rot, rope.factors ? rope_factors(kRopeFactors) : std::vector<float>());
    }
    const auto finite = [](double x) { return std::isfinite(x); };
    if (!finite(op.magnitude) || !std::ranges::all_of(op.frequency, finite) ||
        !std::ranges::all_of(op.long_frequency, finite))
        fail(ErrorKind::file,
             "{}: {}.rope.freq_base, rope.scaling.* and the factor tensors give positions that turn by no "
             "finite angle",
             path_of(file_), h.architecture);
    return op;
}

Builder::RopeTables Builder::push_rope_tables(const RopeParams &rope, const std::string &suffix) {
    RopeTable op = rope_table("rope" + suffix, rope);
    RopeTables tables{op.out, op.out};
    push(op);
    if (h.temperature == 0) return tables;
    op.out = tables.query = value("rope_query" + suffix, h.n_rot);
    op.temperature = h.temperature;
    op.temperature_every = h.temperature_every;
    push(std::move(op));
    return tables;
}

void Builder::rope_tables() {
    const bool all_local = std::ranges::all_of(h.window, [](uint32_t w) { return w > 0; });
    const bool any_local = std::ranges::any_of(h.window, [](uint32_t w) { return w > 0; });
    const bool alike = h.local_rope == h.rope;
    if (!all_local || alike) global_ = local_ = push_rope_tables(h.rope, "");
    if (any_local && !alike) local_ = push_rope_tables(h.local_rope, "_local");
}

ValueId Builder::embed(std::string_view name) {
    Embed op;
    op.table = matrix(fmt::format("{}.weight", name), h.n_vocab, h.n_embd);
    op.out = value("embed", h.n_embd);
    op.scale = static_cast<float>(h.embedding_scale);
    push(op);
    return op.out;
}

ValueId Builder::rmsnorm(ValueId x, std::string_view name) { return rmsnorm_heads(x, name, cols(x)); }

ValueId Builder::rmsnorm_heads(ValueId x, std::string_view name, uint32_t head_dim) {
    RmsNorm op;
    op.x = x;
    op.weight = vector(fmt::format("{}.weight", name), head_dim);
    op.out = value(name, cols(x), x);
    op.width = head_dim;
    op.eps = static_cast<float>(h.rms_eps);
    push(op);
    return op.out;
}

ValueId Builder::contract(ValueId x, std::string_view name, uint32_t n, Bias bias) {
    Contract op;
    op.x = x;
    op.n_banks = 1;
    op.banks[0].weight = matrix(fmt::format("{}.weight", name), n, cols(x));
    const std::string bias_name = fmt::format("{}.bias", name);
    if (bias == Bias::required || has(bias_name)) op.banks[0].bias = vector(bias_name, n);
    op.banks[0].out = value(name, n, x);
    push(op);
    return op.banks[0].out;
}

ValueId Builder::contract_part(ValueId x, std::string_view name, std::string_view out, uint32_t first, uint32_t n,
                               uint32_t all) {
    const std::string full = fmt::format("{}.weight", name);
    if (has(fmt::format("{}.bias", name)))
        fail(ErrorKind::unsupported, "{}: the tensor {} is a bias of several matrices, which '{}' runs without here",
             path_of(file_), tensor_name(fmt::format("{}.bias", name)), h.architecture);
    const gguf::Tensor &t = require_tensor(file_, tensor_name(full), {cols(x), all});
    check_shape(file_, t, {cols(x), all});
    Weight part = whole_weight(file_, t);
    part.n = n;
    part.name += fmt::format("[{}:{}]", first, first + n);
    part.data += row_bytes(part.format, part.k) * first;
    Contract op;
    op.x = x;
    op.n_banks = 1;
    op.banks[0].weight = p_.add_weight(std::move(part));
    op.banks[0].out = value(out, n, x);
    push(op);
    return op.banks[0].out;
}

ValueId Builder::contract_experts(ValueId x, ValueId ids, std::string_view name, uint32_t n, Bias bias) {
    Contract op;
    op.x = x;
    op.ids = ids;
    op.n_banks = 1;
    op.banks[0].weight = matrix(fmt::format("{}.weight", name), n, cols(x), h.n_experts);
    const std::string bias_name = fmt::format("{}.bias", name);
    if (bias == Bias::required || has(bias_name))
        op.banks[0].bias = weight(tensor_name(bias_name), 1, n, h.n_experts, true);
    op.banks[0].out = value(name, n);
    p_.values.back().per_row = cols(ids);
    push(op);
    return op.banks[0].out;
}

ValueId Builder::rope(ValueId x, ValueId table, RopePairs pairs) {
    Rope op;
    op.x = x;
    op.table = table;
    op.out = value(p_.value(x).name.substr(p_.value(x).name.find('.') + 1) + "_rope", cols(x), x);
    op.head_dim = h.head_dim;
    op.pairs = pairs;
    push(op);
    return op.out;
}

Builder::KvStates Builder::kv_write(ValueId k, ValueId v) {
    auto state = [&](std::string_view name) {
        return p_.add_state({value_name(name), State::Per::token, h.n_kv_heads * h.head_dim, options_.kv_type, 0});
    };
    KvWrite op;
    op.k = k, op.v = v;
    op.k_state = state("k");
    op.v_state = state("v");
    push(op);
    return {op.k_state, op.v_state};
}

ValueId Builder::attention(ValueId q, KvStates kv, bool with_sinks) {
    Attention op;
    op.q = q;
    op.k_state = kv.k, op.v_state = kv.v;
    op.out = value("attn", cols(q), q);
    op.heads = h.n_heads, op.kv_heads = h.n_kv_heads, op.head_dim = h.head_dim;
    op.scale = static_cast<float>(h.attention_scale);
    op.window = window();
    op.softcap = static_cast<float>(h.attention_softcap);
    if (with_sinks) op.sinks = vector("attn_sinks.weight", h.n_heads);
    push(op);
    return op.out;
}

Builder::Qkv Builder::qkv(ValueId x, Bias bias) {
    const ValueId q = contract(x, "attn_q", h.n_heads * h.head_dim, bias);
    const ValueId k = contract(x, "attn_k", h.n_kv_heads * h.head_dim, bias);
    const ValueId v = contract(x, "attn_v", h.n_kv_heads * h.head_dim, bias);
    return {q, k, v};
}

ValueId Builder::attend(Qkv in, RopePairs pairs, bool with_sinks) {
    const RopeTables &tables = layer_tables();
    const ValueId q = rope(in.q, tables.query, pairs), k = rope(in.k, tables.key, pairs);
    return attention(q, kv_write(k, in.v), with_sinks);
}

ValueId Builder::feed_forward(ValueId x, uint32_t n_ff, GluKind kind, std::string_view suffix) {
    const ValueId gate = contract(x, fmt::format("ffn_gate{}", suffix), n_ff);
    const ValueId up = contract(x, fmt::format("ffn_up{}", suffix), n_ff);
    return contract(glu(gate, up, kind), fmt::format("ffn_down{}", suffix), h.n_embd);
}

ValueId Builder::glu(ValueId gate, ValueId up, GluKind kind) {
    Glu op;
    op.gate = gate, op.up = up, op.kind = kind;
    op.out = value("ffn_act", cols(gate), gate);
    push(op);
    return op.out;
}

ValueId Builder::add(ValueId a, ValueId b, std::string_view name) {
    Add op;
    op.a = a, op.b = b;
    op.out = value(name, cols(a), a);
    push(op);
    return op.out;
}

ValueId Builder::add_branch(ValueId residual, ValueId branch, std::string_view name) {
    const ValueId out = add(residual, branch, name);
    std::get<Add>(p_.nodes.back().op).scale = static_cast<float>(h.residual_scale);
    return out;
}

ValueId Builder::row_gate(ValueId x, ValueId gate) {
    RowGate op;
    op.x = x, op.gate = gate;
    op.out = value("ffn_shared_out", cols(x), x);
    push(op);
    return op.out;
}

Builder::Routes Builder::route(ValueId router_logits, Weights weights) {
    Softmax probabilities;
    probabilities.x = router_logits;
    probabilities.out = value("ffn_probs", cols(router_logits));
    push(probabilities);

    TopK best;
    best.x = probabilities.out;
    best.ids = value("ffn_experts", h.n_experts_used, kNone, DType::i32);
    best.weights = value("ffn_top", h.n_experts_used);
    push(best);
    if (weights == Weights::all) return {best.ids, best.weights};

    Normalize scaled;
    scaled.x = best.weights;
    scaled.out = value("ffn_weights", h.n_experts_used);
    push(scaled);
    return {best.ids, scaled.out};
}

ValueId Builder::experts(ValueId x, Weights weights, GluKind kind, Bias bias) {
    const Routes routes = route(contract(x, "ffn_gate_inp", h.n_experts, bias), weights);
    const ValueId gate = contract_experts(x, routes.ids, "ffn_gate_exps", h.n_ff_expert, bias);
    const ValueId up = contract_experts(x, routes.ids, "ffn_up_exps", h.n_ff_expert, bias);
    const ValueId down = contract_experts(glu(gate, up, kind), routes.ids, "ffn_down_exps", h.n_embd, bias);
    return moe_combine(down, routes.weights);
}

ValueId Builder::moe_combine(ValueId x, ValueId weights) {
    MoeCombine op;
    op.x = x, op.weights = weights;
    op.out = value("ffn_out", cols(x));
    push(op);
    return op.out;
}

ValueId Builder::gather_outputs(ValueId x) {
    GatherRows op;
    op.x = x;
    op.out = value("wanted", cols(x));
    p_.values.back().rows = Rows::outputs;
    push(op);
    return op.out;
}

void Builder::output(ValueId x) {
    begin_output();
    logits(rmsnorm(gather_outputs(x), "output_norm"));
}

void Builder::logits(ValueId x) {
    const bool tied = !has("output.weight");
    Contract op;
    op.x = x;
    op.n_banks = 1;
    op.banks[0].weight = matrix(tied ? "token_embd.weight" : "output.weight", h.n_vocab, h.n_embd);
    if (has("output.bias")) op.banks[0].bias = vector("output.bias", h.n_vocab);
    op.banks[0].out = value("logits", h.n_vocab, x);
    push(op);
    p_.logits = op.banks[0].out;
    if (h.logit_scale == 1 && h.logit_softcap == 0) return;
    Scale scale;
    scale.x = p_.logits;
    scale.scale = static_cast<float>(1 / h.logit_scale);
    scale.softcap = static_cast<float>(h.logit_softcap);
    scale.out = p_.logits = value("scaled_logits", h.n_vocab, x);
    push(scale);
}

}  // namespace ridge
