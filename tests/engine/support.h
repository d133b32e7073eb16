// For the tests of the engine: programs written by hand in the shape of real layers, and a backend that has rows but no
// kernels.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "core/error.h"
#include "engine/program.h"

namespace ridge::test {

// What varies between the architectures, as far as fusion and placement can see it.
struct Shape {
    uint32_t layers = 2;
    uint32_t embd = 64, heads = 4, kv_heads = 2, head_dim = 16, ff = 96, vocab = 50;
    uint32_t experts = 0, used = 0;  // > 0: a layer's feed-forward has experts
    bool qk_norm = false;            // qwen3
    bool qkv_bias = false;           // qwen2
    RopePairs pairs = RopePairs::halves;
    Format format = Format::Q8_0;
};
inline Shape llama() { return {.pairs = RopePairs::adjacent}; }
inline Shape qwen2() { return {.qkv_bias = true}; }
inline Shape qwen3() { return {.qk_norm = true}; }
inline Shape qwen3moe() { return {.experts = 8, .used = 2, .qk_norm = true}; }

// Appends plain operations; weights have no data.
class Hand {
  public:
    Program p;
    int32_t layer = -1;

    ValueId value(const std::string &name, uint32_t cols, uint32_t per_row = 1, DType type = DType::f32,
                  Rows rows = Rows::tokens) {
        return p.add_value({.name = name, .type = type, .rows = rows, .per_row = per_row, .cols = cols});
    }
    ValueId like(const std::string &name, ValueId v) {
        Value copy = p.value(v);
        copy.name = name;
        return p.add_value(copy);
    }
    WeightId matrix(const std::string &name, uint32_t n, uint32_t k, Format f, uint32_t experts = 1) {
        return p.add_weight({.name = name, .format = f, .n = n, .k = k, .experts = experts});
    }
    WeightId vector(const std::string &name, uint32_t k) { return p.add_weight({.name = name, .k = k}); }
    uint32_t push(Op op) {
        p.nodes.push_back({std::move(op), 0, layer});
        return static_cast<uint32_t>(p.nodes.size() - 1);
    }

    ValueId rope_table(uint32_t cols) {
        const ValueId out = value("table", cols);
        push(RopeTable{out, std::vector<double>(cols / 2, 0.5)});
        return out;
    }
    ValueId embed(uint32_t cols, uint32_t vocab) {
        const ValueId out = value("embd", cols);
        push(Embed{matrix("token_embd", vocab, cols, Format::Q8_0), out});
        return out;
    }
    ValueId norm(ValueId x, const std::string &name, uint32_t width = 0, float eps = 1e-5F) {
        const ValueId out = like(name, x);
        if (width == 0) width = p.value(x).cols;
        push(RmsNorm{x, out, vector(name + ".weight", width), width, eps});
        return out;
    }
    ValueId contract(ValueId x, const std::string &name, uint32_t n, Format f = Format::Q8_0, bool bias = false) {
        const ValueId out = value(name, n, p.value(x).per_row, DType::f32, p.value(x).rows);
        Contract c{.x = x, .n_banks = 1};
        c.banks[0] = {matrix(name + ".weight", n, p.value(x).cols, f), bias ? vector(name + ".bias", n) : kNone, out};
        push(c);
        return out;
    }
    ValueId contract_experts(ValueId x, ValueId ids, const std::string &name, uint32_t n, uint32_t experts,
                             Format f = Format::Q8_0) {
        const ValueId out = value(name, n, p.value(ids).cols);
        Contract c{.x = x, .ids = ids, .n_banks = 1};
        c.banks[0] = {matrix(name + ".weight", n, p.value(x).cols, f, experts), kNone, out};
        push(c);
        return out;
    }
    ValueId rope(ValueId x, ValueId table, uint32_t head_dim, const std::string &name,
                 RopePairs pairs = RopePairs::halves) {
        const ValueId out = like(name, x);
        push(Rope{x, out, table, head_dim, pairs});
        return out;
    }
    std::pair<StateId, StateId> kv_write(ValueId k, ValueId v, const std::string &name) {
        const StateId ks = p.add_state({.name = name + ".k", .cols = p.value(k).cols});
        const StateId vs = p.add_state({.name = name + ".v", .cols = p.value(v).cols});
        push(KvWrite{k, v, ks, vs});
        return {ks, vs};
    }
    ValueId add(ValueId a, ValueId b, const std::string &name) {
        const ValueId out = like(name, a);
        push(Add{a, b, out});
        return out;
    }
    ValueId glu(ValueId gate, ValueId up, const std::string &name) {
        const ValueId out = like(name, gate);
        push(Glu{gate, up, out});
        return out;
    }
    std::pair<ValueId, ValueId> route(ValueId logits, uint32_t used, const std::string &name, bool normalize = true) {
        const ValueId probabilities = like(name + ".p", logits);
        push(Softmax{logits, probabilities});
        const ValueId ids = value(name + ".ids", used, 1, DType::i32), top = value(name + ".top", used);
        push(TopK{probabilities, ids, top});
        if (!normalize) return {ids, top};
        const ValueId weights = value(name + ".weights", used);
        push(Normalize{top, weights});
        return {ids, weights};
    }
    void finish(ValueId x, const Shape &s) {
        layer = static_cast<int32_t>(s.layers);
        const ValueId rows = value("outputs", s.embd, 1, DType::f32, Rows::outputs);
        push(GatherRows{x, rows});
        p.logits = contract(norm(rows, "output_norm"), "logits", s.vocab, s.format);
        p.n_layers = s.layers;
    }
};

inline Program forward(const Shape &s) {
    Hand h;
    const ValueId table = h.rope_table(s.head_dim);
    ValueId x = h.embed(s.embd, s.vocab);
    for (uint32_t l = 0; l < s.layers; l++) {
        h.layer = static_cast<int32_t>(l);
        const std::string at = std::to_string(l) + ".";
        const ValueId in = h.norm(x, at + "attn_norm");
        ValueId q = h.contract(in, at + "q", s.heads * s.head_dim, s.format, s.qkv_bias);
        ValueId k = h.contract(in, at + "k", s.kv_heads * s.head_dim, s.format, s.qkv_bias);
        const ValueId v = h.contract(in, at + "v", s.kv_heads * s.head_dim, s.format, s.qkv_bias);
        if (s.qk_norm) q = h.norm(q, at + "q_norm", s.head_dim);
        q = h.rope(q, table, s.head_dim, at + "q_rope", s.pairs);
        if (s.qk_norm) k = h.norm(k, at + "k_norm", s.head_dim);
        k = h.rope(k, table, s.head_dim, at + "k_rope", s.pairs);
        const auto [ks, vs] = h.kv_write(k, v, std::to_string(l));
        const ValueId attn = h.like(at + "attn", q);
        h.push(Attention{q, attn, ks, vs, s.heads, s.kv_heads, s.head_dim, 0.25F});
        x = h.add(x, h.contract(attn, at + "attn_out", s.embd, s.format), at + "attn_residual");
        const ValueId ffn = h.norm(x, at + "ffn_norm");
        if (s.experts == 0) {
            const ValueId gate = h.contract(ffn, at + "gate", s.ff, s.format);
            const ValueId up = h.contract(ffn, at + "up", s.ff, s.format);
            x = h.add(x, h.contract(h.glu(gate, up, at + "act"), at + "down", s.embd, s.format), at + "residual");
            continue;
        }
        const auto [ids, weights] =
            h.route(h.contract(ffn, at + "router", s.experts, Format::F32), s.used, at + "route");
        const ValueId gate = h.contract_experts(ffn, ids, at + "gate", s.ff, s.experts, s.format);
        const ValueId up = h.contract_experts(ffn, ids, at + "up", s.ff, s.experts, s.format);
        const ValueId down =
            h.contract_experts(h.glu(gate, up, at + "act"), ids, at + "down", s.embd, s.experts, s.format);
        const ValueId moe = h.value(at + "moe", s.embd);
        h.push(MoeCombine{down, weights, moe});
        x = h.add(x, moe, at + "residual");
    }
    h.finish(x, s);
    return h.p;
}

template <class T>
size_t count(const Program &p) {
    size_t n = 0;
    for (const Node &node : p.nodes) n += std::holds_alternative<T>(node.op) ? 1 : 0;
    return n;
}

// The only T of a program.
template <class T>
const T &only(const Program &p) {
    const T *found = nullptr;
    for (const Node &n : p.nodes)
        if (const T *o = std::get_if<T>(&n.op)) {
            if (found) throw std::runtime_error("more than one " + std::string(T::kName));
            found = o;
        }
    if (!found) throw std::runtime_error("no " + std::string(T::kName));
    return *found;
}

inline std::string name_of(const Program &p, ValueId v) { return v == kNone ? "none" : p.value(v).name; }

// The message of the exception E that `f` throws; a failure where it throws none.
template <class E>
std::string thrown(const std::function<void()> &f) {
    try {
        f();
    } catch (const E &e) {
        return e.what();
    }
    ADD_FAILURE() << "nothing was thrown";
    return {};
}

inline std::string error_of(ErrorKind kind, const std::function<void()> &f) {
    try {
        f();
    } catch (const Error &e) {
        EXPECT_EQ(e.kind(), kind) << e.what();
        return e.what();
    }
    ADD_FAILURE() << "nothing was thrown";
    return {};
}

inline void expect_words(const std::string &text, const std::vector<std::string> &words) {
    for (const std::string &w : words) EXPECT_NE(text.find(w), std::string::npos) << "no '" << w << "' in: " << text;
}

// Rows to choose among and memory to plan over; nothing runs.
class TableBackend final : public Backend {
  public:
    std::string name;
    std::vector<Kernel> rows;
    Features has = 0;
    explicit TableBackend(std::string n, std::vector<Kernel> r = {}) : name(std::move(n)), rows(std::move(r)) {}

    DeviceInfo info() const override { return {name, "a table", 0, 0}; }
    std::span<const Kernel> kernels() const override { return rows; }
    Features features() const override { return has; }
    std::string feature_names(Features f) const override { return "feature" + std::to_string(f); }
    Buffer allocate(size_t bytes, std::string_view) override { return {1, bytes, nullptr}; }
    Buffer load(const Weight &w, Layout) override { return {2, w.bytes(), nullptr}; }
    void upload(const Buffer &, size_t, std::span<const std::byte>) override {}
    void download(const Buffer &, size_t, std::span<std::byte>) override {}
    std::unique_ptr<Executable> compile(const Program &, const Bindings &, std::vector<Launch>) override {
        return nullptr;
    }
};

}  // namespace ridge::test
