// The forward pass. Activations are (tokens, width); all tokens go through a layer together, and the mask of attention
// is in their positions.
#include "oracle/forward.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/error.h"
#include "oracle/decode.h"

namespace ridge::oracle {
namespace {

// Calls work(i) for i = 0 .. n-1, split over the machine's threads where `steps` of work in each are worth one.
// Results do not depend on how.
template <class Work>
void for_each_row(size_t n, size_t steps, const Work &work) {
    constexpr size_t kWorthAThread = 1 << 21;
    const size_t most = std::clamp<size_t>(std::thread::hardware_concurrency(), 1, 16);
    const size_t threads = std::clamp<size_t>(n * steps / kWorthAThread, 1, most);
    const size_t share = (n + threads - 1) / threads;
    auto run = [&](size_t first) {
        for (size_t i = first; i < std::min(n, first + share); i++) work(i);
    };
    std::vector<std::jthread> others;
    for (size_t first = share; first < n; first += share) others.emplace_back(run, first);
    run(0);
}

// A matrix of `rows` rows (of all experts, one after the other) and `columns` columns.
struct Matrix {
    size_t rows = 0, columns = 0, rows_per_expert = 0;
    std::vector<float> values;
    const float *row(size_t r) const { return values.data() + r * columns; }
};

struct Shape {
    bool neox = false;  // halves of a head turn together, not neighbours
    bool head_norms = false;
    bool experts = false;
    size_t layers = 0, width = 0, heads = 0, kv_heads = 0, head_dim = 0, rotated = 0, vocab = 0;
    size_t n_experts = 0, n_used = 0;
    double eps = 0, base = 0, rope_scale = 1;
};

Shape read_shape(const gguf::File &f) {
    const std::string arch(f.get_string("general.architecture"));
    const auto u = [&](const char *key) { return static_cast<size_t>(f.get_u64(arch + key)); };
    const auto u_or = [&](const char *key, size_t absent) { return f.find(arch + key) ? u(key) : absent; };
    Shape s;
    if (arch == "qwen2" || arch == "qwen3" || arch == "qwen3moe")
        s.neox = true;
    else if (arch != "llama")
        fail(ErrorKind::unsupported, "the oracle has no forward pass for the architecture '{}'", arch);
    s.head_norms = arch.starts_with("qwen3");
    s.experts = arch == "qwen3moe";
    s.layers = u(".block_count");
    s.width = u(".embedding_length");
    s.heads = u(".attention.head_count");
    s.kv_heads = u_or(".attention.head_count_kv", s.heads);
    s.head_dim = u_or(".attention.key_length", s.width / s.heads);
    s.rotated = u_or(".rope.dimension_count", s.head_dim);
    s.eps = f.get_f64(arch + ".attention.layer_norm_rms_epsilon");
    s.base = f.get_f64(arch + ".rope.freq_base", 10000.0);
    if (f.get_string(arch + ".rope.scaling.type", "none") == "linear")
        s.rope_scale = 1 / f.get_f64(arch + ".rope.scaling.factor", 1.0);
    if (s.experts) {
        s.n_experts = u(".expert_count");
        s.n_used = u(".expert_used_count");
    }
    const gguf::Tensor *table = f.find_tensor("token_embd.weight");
    if (!table) fail(ErrorKind::file, "the oracle finds no tensor token_embd.weight");
    s.vocab = table->shape[1];
    return s;
}

}  // namespace

struct Model::Impl {
    const gguf::File &file;
    Shape s;
    std::unordered_map<std::string, Matrix> matrices;  // decoded so far
    Reals margin;  // (positions)

    explicit Impl(const gguf::File &f) : file(f), s(read_shape(f)) {}

    const gguf::Tensor &tensor(const std::string &name) const {
        const gguf::Tensor *t = file.find_tensor(name);
        if (!t) fail(ErrorKind::file, "the oracle finds no tensor {}", name);
        return *t;
    }

    // A whole tensor by name, decoded on its first use.
    const Matrix &matrix(const std::string &name) {
        if (const auto known = matrices.find(name); known != matrices.end()) return known->second;
        const gguf::Tensor &t = tensor(name);
        Matrix m;
        m.columns = t.shape[0];
        m.rows_per_expert = t.shape[1];
        m.rows = t.shape[1] * t.shape[2];
        const size_t weights = block_weights(t.type), bytes = block_bytes(t.type);
        if (m.columns % weights != 0 || m.rows * (m.columns / weights) * bytes != t.bytes)
            fail(ErrorKind::file, "the oracle cannot read tensor {}: {} bytes for {} rows of {}", name, t.bytes, m.rows,
                 m.columns);
        m.values.resize(m.rows * m.columns);
        const auto *data = reinterpret_cast<const unsigned char *>(t.data);
        const size_t row_bytes = m.columns / weights * bytes;
        for_each_row(m.rows, 64 * m.columns, [&](size_t r) {
            const Reals row = decode(t.type, data + r * row_bytes, m.columns);
            std::transform(row.begin(), row.end(), m.values.begin() + static_cast<std::ptrdiff_t>(r * m.columns),
                           [](double x) { return static_cast<float>(x); });
        });
        return matrices.emplace(name, std::move(m)).first->second;
    }

    Reals vector(const std::string &name) {
        const Matrix &m = matrix(name);
        return Reals(m.values.begin(), m.values.end());
    }

    // x: (tokens, k) times the rows [first, first + n) of m. Result: (tokens, n).
    static Reals times(const Matrix &m, size_t first, size_t n, RealSpan x) {
        const size_t k = m.columns, tokens = x.size() / k;
        if (x.size() != tokens * k || first + n > m.rows)
            fail(ErrorKind::file, "the oracle meets a matrix that does not fit");
        Reals turned(x.size());  // (k, tokens): the tokens of one k side by side
        for (size_t t = 0; t < tokens; t++)
            for (size_t j = 0; j < k; j++) turned[j * tokens + t] = x[t * k + j];
        Reals out(tokens * n);
        for_each_row(n, k * tokens, [&](size_t i) {
            const float *w = m.row(first + i);
            Reals sum(tokens, 0.0);
            for (size_t j = 0; j < k; j++) {
                const double wj = static_cast<double>(w[j]);
                for (size_t t = 0; t < tokens; t++) sum[t] += wj * turned[j * tokens + t];
            }
            for (size_t t = 0; t < tokens; t++) out[t * n + i] = sum[t];
        });
        return out;
    }

    // <name>.weight x + <name>.bias, the latter where the file has it.
    Reals linear(const std::string &name, RealSpan x) {
        const Matrix &m = matrix(name + ".weight");
        Reals out = times(m, 0, m.rows, x);
        if (file.find_tensor(name + ".bias")) {
            const Reals bias = vector(name + ".bias");
            for (size_t i = 0; i < out.size(); i++) out[i] += bias[i % m.rows];
        }
        return out;
    }

    Reals norm(const std::string &name, RealSpan x) { return rms_norm(x, vector(name + ".weight"), s.eps); }

    Reals attention_layer(const std::string &blk, RealSpan x, const Rope &how, std::span<const int32_t> positions) {
        Reals q = linear(blk + "attn_q", x), k = linear(blk + "attn_k", x);
        const Reals v = linear(blk + "attn_v", x);
        if (s.head_norms) {  // (tokens * heads, head_dim)
            q = norm(blk + "attn_q_norm", q);
            k = norm(blk + "attn_k_norm", k);
        }
        q = rope(how, q, s.heads, s.head_dim, positions);
        k = rope(how, k, s.kv_heads, s.head_dim, positions);
        const AttentionShape shape{s.heads, s.kv_heads, s.head_dim, s.head_dim, 0};
        return linear(blk + "attn_output", oracle::attention(shape, q, k, v, positions, positions).sum);
    }

    Reals experts_layer(const std::string &blk, RealSpan x) {
        const Routes routes = route(linear(blk + "ffn_gate_inp", x), s.n_experts, s.n_used, true);
        for (size_t i = 0; i < margin.size(); i++) margin[i] = std::min(margin[i], routes.margin[i]);
        const Matrix &gate = matrix(blk + "ffn_gate_exps.weight"), &up = matrix(blk + "ffn_up_exps.weight"),
                     &down = matrix(blk + "ffn_down_exps.weight");
        const auto one = [](const Matrix &m, int32_t expert, RealSpan in) {
            return times(m, static_cast<size_t>(expert) * m.rows_per_expert, m.rows_per_expert, in);
        };
        Reals out(x.size(), 0.0);
        for (size_t i = 0; i < routes.ids.size(); i++) {
            const size_t t = i / s.n_used;
            const RealSpan in = x.subspan(t * s.width, s.width);
            const int32_t e = routes.ids[i];
            const Reals y = one(down, e, oracle::silu_mul(one(gate, e, in), one(up, e, in)));
            for (size_t j = 0; j < s.width; j++) out[t * s.width + j] += routes.weights[i] * y[j];
        }
        return out;
    }

    Logits forward(std::span<const int32_t> tokens) {
        margin.assign(tokens.size(), std::numeric_limits<double>::infinity());
        std::vector<int32_t> positions(tokens.size());
        std::iota(positions.begin(), positions.end(), 0);
        Reals factors;
        if (file.find_tensor("rope_freqs.weight")) factors = vector("rope_freqs.weight");
        Rope how;
        how.pairs = s.neox ? RopePairs::halves : RopePairs::adjacent;
        how.rotated = s.rotated, how.base = s.base, how.scale = s.rope_scale, how.factors = factors;

        const Matrix &table = matrix("token_embd.weight");
        Reals x;
        for (int32_t token : tokens) {
            if (token < 0 || static_cast<size_t>(token) >= s.vocab)
                fail(ErrorKind::usage, "token {} is not in the vocabulary of {}", token, s.vocab);
            x.insert(x.end(), table.row(static_cast<size_t>(token)), table.row(static_cast<size_t>(token)) + s.width);
        }
        for (size_t layer = 0; layer < s.layers; layer++) {
            const std::string blk = fmt::format("blk.{}.", layer);
            x = oracle::add(x, attention_layer(blk, norm(blk + "attn_norm", x), how, positions));
            const Reals in = norm(blk + "ffn_norm", x);
            x = oracle::add(x, s.experts ? experts_layer(blk, in)
                                         : linear(blk + "ffn_down", oracle::silu_mul(linear(blk + "ffn_gate", in),
                                                                                     linear(blk + "ffn_up", in))));
        }
        x = norm("output_norm", x);
        Logits result;
        result.positions = tokens.size(), result.vocab = s.vocab;
        result.values = linear(file.find_tensor("output.weight") ? "output" : "token_embd", x);
        result.route_margin = std::move(margin);
        return result;
    }
};

Model::Model(const gguf::File &file) : impl_(std::make_unique<Impl>(file)) {}
Model::~Model() = default;
Model::Model(Model &&) noexcept = default;
size_t Model::vocab() const { return impl_->s.vocab; }
Logits Model::forward(std::span<const int32_t> tokens) { return impl_->forward(tokens); }

}  // namespace ridge::oracle
