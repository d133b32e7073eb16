#include "model/builder.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/error.h"

namespace ridge {
namespace {

constexpr std::string_view kRopeFactors = "rope_freqs.weight";

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

}  // namespace

Builder::Builder(const gguf::File &file, const Hparams &hparams, const ModelOptions &options)
    : h(hparams), file_(file), options_(options) {
    RIDGE_ASSERT(options.kv_type == DType::f16 || options.kv_type == DType::f32);
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
    if (!t.format)
        fail(ErrorKind::file, "{}: tensor {}: the format is {}, which holds no weights; expected one of {}",
             path_of(file_), t.name, t.format_name, format_names());

    Weight w;
    w.name = full;
    w.format = t.format->id;
    w.n = n, w.k = k, w.experts = experts;
    w.data = t.data;
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

ValueId Builder::rope_table() {
    RopeTable op;
    op.out = value("rope", h.n_rot);
    const uint32_t pairs = h.n_rot / 2;
    std::vector<float> factors(pairs, 1.0f);
    if (file_.find_tensor(kRopeFactors)) {
        const gguf::Tensor &t = require_tensor(file_, kRopeFactors, {pairs});
        check_shape(file_, t, {pairs});
        require_f32(file_, t);
        std::memcpy(factors.data(), t.data, pairs * sizeof(float));
    }
    for (uint32_t j = 0; j < pairs; j++) {
        const double factor = static_cast<double>(factors[j]);
        if (!(factor > 0 && std::isfinite(factor)))
            fail(ErrorKind::file, "{}: tensor {}: element {} is {}; frequencies are divided by it", path_of(file_),
                 kRopeFactors, j, factor);
        op.frequency.push_back(h.rope_scale * std::pow(h.rope_base, -2.0 * j / h.n_rot) / factor);
    }
    const ValueId out = op.out;
    push(std::move(op));
    return out;
}

ValueId Builder::embed(std::string_view name) {
    Embed op;
    op.table = matrix(fmt::format("{}.weight", name), h.n_vocab, h.n_embd);
    op.out = value("embed", h.n_embd);
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

ValueId Builder::contract_experts(ValueId x, ValueId ids, std::string_view name, uint32_t n) {
    Contract op;
    op.x = x;
    op.ids = ids;
    op.n_banks = 1;
    op.banks[0].weight = matrix(fmt::format("{}.weight", name), n, cols(x), h.n_experts);
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

ValueId Builder::attention(ValueId q, KvStates kv) {
    Attention op;
    op.q = q;
    op.k_state = kv.k, op.v_state = kv.v;
    op.out = value("attn", cols(q), q);
    op.heads = h.n_heads, op.kv_heads = h.n_kv_heads, op.head_dim = h.head_dim;
    op.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(h.head_dim)));
    push(op);
    return op.out;
}

ValueId Builder::silu_mul(ValueId gate, ValueId up) {
    SiluMul op;
    op.gate = gate, op.up = up;
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

Builder::Routes Builder::route(ValueId router_logits) {
    Softmax probabilities;
    probabilities.x = router_logits;
    probabilities.out = value("ffn_probs", cols(router_logits));
    push(probabilities);

    TopK best;
    best.x = probabilities.out;
    best.ids = value("ffn_experts", h.n_experts_used, kNone, DType::i32);
    best.weights = value("ffn_top", h.n_experts_used);
    push(best);

    Normalize scaled;
    scaled.x = best.weights;
    scaled.out = value("ffn_weights", h.n_experts_used);
    push(scaled);
    return {best.ids, scaled.out};
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
}

}  // namespace ridge
