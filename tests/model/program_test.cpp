// The programs of all architectures: operations counted, weights all used, states and shapes as declared.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <tuple>

#include "model/model.h"
#include "model/tiny_file.h"

namespace ridge {
namespace {

using test::Edit;
using test::TempFile;
using test::TinyModel;
using test::write_edited;

template <class T>
size_t count(const Program &p) {
    return static_cast<size_t>(
        std::count_if(p.nodes.begin(), p.nodes.end(), [](const Node &n) { return std::holds_alternative<T>(n.op); }));
}

// How often each weight is read.
std::vector<int> reads(const Program &p) {
    struct Visitor {
        std::vector<int> &n;
        void in(ValueId) {}
        void out(ValueId) {}
        void state(StateId) {}
        void weight(WeightId w) { n.at(static_cast<size_t>(w))++; }
    };
    std::vector<int> n(p.weights.size(), 0);
    for (const Node &node : p.nodes) visit_operands(node.op, Visitor{n});
    return n;
}

class Architectures : public testing::TestWithParam<std::string> {
  public:
    static std::vector<std::string> tiny() {
        std::vector<std::string> names;
        for (const ModelShape &s : synthetic_shapes())
            if (s.name.starts_with("tiny-")) names.emplace_back(s.name);
        return names;
    }
    static std::string name(const testing::TestParamInfo<std::string> &p) {
        std::string name = p.param.substr(5);
        std::replace(name.begin(), name.end(), '-', '_');
        return name;
    }
};
INSTANTIATE_TEST_SUITE_P(All, Architectures, testing::ValuesIn(Architectures::tiny()), Architectures::name);

// Tables of angles: layers with a window may have one of their own, and queries where they have a temperature.
size_t rope_tables(const ModelShape &s) {
    const bool local = s.features.window.size > 0 && (s.architecture == "gemma3" || s.architecture == "olmo2");
    return 1 + local + (s.features.temperature > 0);
}

TEST_P(Architectures, EveryTensorIsReadAndEveryOperationCounted) {
    const ModelShape &s = synthetic_shape(GetParam());
    const TinyModel model({.like = GetParam()});
    const Program p = build_program(model.file);
    EXPECT_NO_THROW(check(p));
    EXPECT_TRUE(unused_tensors(model.file, p).empty());
    for (size_t w = 0; w < p.weights.size(); w++) {
        const bool twice = s.tied && p.weights[w].name == "token_embd.weight";
        EXPECT_EQ(reads(p)[w], twice ? 2 : 1) << p.weights[w].name;
    }

    const size_t layers = s.n_layers, experts = s.n_experts ? layers : 0;
    const size_t shared = s.has(Part::shared_expert) ? layers : 0;
    const size_t norms = 2 * (size_t{s.has(Part::norms_before)} + s.has(Part::norms_after) + s.has(Part::head_norms) +
                              s.has(Part::row_norms));
    EXPECT_EQ(p.n_layers, layers);
    EXPECT_EQ(count<Embed>(p), 1u);
    EXPECT_EQ(count<RopeTable>(p), rope_tables(s));
    EXPECT_EQ(count<RmsNorm>(p), layers * norms + 1);
    // q, k, v, attention output; gate, up, down; the router; gate, up, down and weight of a shared expert; the logits.
    EXPECT_EQ(count<Contract>(p), layers * 7 + experts + 4 * shared + 1);
    EXPECT_EQ(count<Rope>(p), layers * 2);
    EXPECT_EQ(count<KvWrite>(p), layers);
    EXPECT_EQ(count<Attention>(p), layers);
    EXPECT_EQ(count<Glu>(p), layers + shared);
    EXPECT_EQ(count<Add>(p), layers * 2 + shared);
    EXPECT_EQ(count<RowGate>(p), shared);
    EXPECT_EQ(count<Scale>(p), s.features.caps.logits > 0 || s.features.scales.logits > 0 ? 1u : 0u);
    EXPECT_EQ(count<Softmax>(p), experts);
    EXPECT_EQ(count<TopK>(p), experts);
    EXPECT_EQ(count<Normalize>(p), s.architecture == "qwen2moe" ? 0 : experts);
    EXPECT_EQ(count<MoeCombine>(p), experts);
    EXPECT_EQ(count<GatherRows>(p), 1u);
    // Nothing fused, nothing quantised, nothing moved: that is for the engine to do.
    EXPECT_EQ(count<Quantize>(p) + count<Copy>(p) + count<AddRmsNorm>(p) + count<QkNormRope>(p) + count<GateUp>(p) +
                  count<MoeRoute>(p),
              0u);

    size_t biases = 0;
    for (const Node &n : p.nodes)
        if (const auto *c = std::get_if<Contract>(&n.op)) {
            EXPECT_EQ(c->n_banks, 1u);
            biases += c->banks[0].bias != kNone;
        }
    // Of all: attention output, router, gate, up, down.
    EXPECT_EQ(biases, layers * (3 * size_t{s.has(Part::qkv_bias)} + 5 * size_t{s.has(Part::all_biases)}));
}

// Windows, caps, scales, sinks and units reach the operations.
TEST_P(Architectures, FeaturesReachTheOperations) {
    const ModelShape &s = synthetic_shape(GetParam());
    const ModelFeatures &f = s.features;
    const TinyModel model({.like = GetParam()});
    const Hparams h = read_hparams(model.file);
    const Program p = build_program(model.file);
    const GluKind unit = s.architecture.starts_with("gemma") ? GluKind::gelu
                         : s.architecture == "gpt-oss"       ? GluKind::clamped
                                                             : GluKind::silu;
    size_t layer = 0, branches = 0;
    for (const Node &n : p.nodes) {
        if (const auto *a = std::get_if<Attention>(&n.op)) {
            EXPECT_EQ(a->window, h.window[layer++]);
            EXPECT_EQ(a->softcap, f.caps.scores);
            EXPECT_EQ(a->scale, static_cast<float>(h.attention_scale));
            EXPECT_EQ(a->sinks != kNone, s.has(Part::sinks));
        } else if (const auto *g = std::get_if<Glu>(&n.op)) {
            EXPECT_EQ(g->kind, unit);
        } else if (const auto *x = std::get_if<Add>(&n.op)) {
            branches += f.scales.residual > 0 && x->scale == f.scales.residual;
        } else if (const auto *logits = std::get_if<Scale>(&n.op)) {
            EXPECT_EQ(logits->softcap, f.caps.logits);
            EXPECT_EQ(logits->scale, f.scales.logits > 0 ? 1 / f.scales.logits : 1);
        } else if (const auto *e = std::get_if<Embed>(&n.op)) {
            EXPECT_EQ(e->scale, static_cast<float>(h.embedding_scale));
        }
    }
    EXPECT_EQ(branches, f.scales.residual > 0 ? 2 * s.n_layers : 0);
}

// Every rope of a layer reads the table of its kind, and the frequencies of that table are those of its kind.
TEST(Programs, LayersWithAWindowTurnByATableOfTheirOwn) {
    for (const char *like : {"tiny-gemma3", "tiny-olmo3"}) {
        const TinyModel model({.like = like});
        const Hparams h = read_hparams(model.file);
        const Program p = build_program(model.file);
        std::map<ValueId, const RopeTable *> tables;
        for (const Node &n : p.nodes) {
            if (const auto *t = std::get_if<RopeTable>(&n.op)) tables[t->out] = t;
            if (const auto *r = std::get_if<Rope>(&n.op)) {
                const bool local = h.window[static_cast<size_t>(n.layer)] > 0;
                const RopeParams &rope = local ? h.local_rope : h.rope;
                EXPECT_EQ(tables.at(r->table)->magnitude, rope.magnitude) << like << " layer " << n.layer;
                // The slowest pair: stretched by the whole factor, or plain.
                const double slowest = std::pow(rope.base, -(h.n_rot - 2.0) / h.n_rot);
                EXPECT_DOUBLE_EQ(tables.at(r->table)->frequency.back(), slowest / rope.factor);
            }
        }
    }
}

TEST(Programs, LongContextsHaveFrequenciesOfTheirOwn) {
    const TinyModel model({.like = "tiny-phi3"});
    const Program p = build_program(model.file);
    const auto &table = std::get<RopeTable>(p.nodes.front().op);
    ASSERT_EQ(table.frequency.size(), 24u);
    ASSERT_EQ(table.long_frequency.size(), 24u);
    EXPECT_EQ(table.long_above, 32u);
    for (size_t j = 0; j < 24; j++) {
        const double plain = std::pow(1e4, -static_cast<double>(j) / 24), step = static_cast<double>(j) / 23;
        EXPECT_NEAR(table.frequency[j], plain / (1 + 0.2 * step), 1e-6 * plain);
        EXPECT_NEAR(table.long_frequency[j], plain / std::pow(32, step), 1e-6 * plain);
    }
}

TEST(Programs, QueriesMayHaveATemperature) {
    const TinyModel model({.like = "tiny-mistral3"});
    const Program p = build_program(model.file);
    std::vector<const RopeTable *> tables;
    std::map<ValueId, int> ropes;  // by table
    for (const Node &n : p.nodes) {
        if (const auto *t = std::get_if<RopeTable>(&n.op)) tables.push_back(t);
        if (const auto *r = std::get_if<Rope>(&n.op)) ropes[r->table]++;
    }
    ASSERT_EQ(tables.size(), 2u);
    EXPECT_EQ(tables[0]->temperature, 0);
    EXPECT_EQ(tables[1]->temperature, static_cast<double>(0.2f));
    EXPECT_EQ(tables[1]->temperature_every, 8u);
    EXPECT_EQ(tables[0]->frequency, tables[1]->frequency);
    EXPECT_EQ(ropes[tables[0]->out], 2);
    EXPECT_EQ(ropes[tables[1]->out], 2);
}

// A part of a matrix is a weight of its own: its first row is where the part begins.
TEST(Programs, PartsOfAMatrixPointIntoIt) {
    const TinyModel model({.like = "tiny-phi3", .quant = "Q4_K_M"});
    const Program p = build_program(model.file);
    const std::tuple<const char *, const char *, uint32_t, uint32_t> parts[] = {
        {"blk.1.attn_qkv.weight[0:256]", "blk.1.attn_qkv.weight", 0, 256},
        {"blk.1.attn_qkv.weight[256:384]", "blk.1.attn_qkv.weight", 256, 128},
        {"blk.1.attn_qkv.weight[384:512]", "blk.1.attn_qkv.weight", 384, 128},
        {"blk.1.ffn_up.weight[0:512]", "blk.1.ffn_up.weight", 0, 512},
        {"blk.1.ffn_up.weight[512:1024]", "blk.1.ffn_up.weight", 512, 512},
    };
    for (const auto &[name, whole, first, n] : parts) {
        const auto w =
            std::find_if(p.weights.begin(), p.weights.end(), [&](const Weight &x) { return x.name == name; });
        ASSERT_NE(w, p.weights.end()) << name;
        const gguf::Tensor *t = model.file.find_tensor(whole);
        EXPECT_EQ(w->n, n);
        EXPECT_EQ(w->data, t->data + row_bytes(w->format, w->k) * first) << name;
        EXPECT_LE(w->data + w->bytes(), t->data + t->bytes) << name;
    }
}

TEST_P(Architectures, StatesAndLogitsAreDeclared) {
    const ModelShape &s = synthetic_shape(GetParam());
    const TinyModel model({.like = GetParam()});
    for (DType type : {DType::f16, DType::f32, DType::q8_0}) {
        const Program p = build_program(model.file, {.kv_type = type});
        ASSERT_EQ(p.states.size(), 2 * s.n_layers);
        for (uint32_t layer = 0; layer < s.n_layers; layer++)
            for (int which = 0; which < 2; which++) {
                const State &state = p.states[2 * layer + static_cast<uint32_t>(which)];
                EXPECT_EQ(state.name, fmt::format("{}.{}", layer, which == 0 ? "k" : "v"));
                EXPECT_EQ(state.per, State::Per::token);
                EXPECT_EQ(state.cols, s.n_kv_heads * s.head_dim);
                EXPECT_EQ(state.type, type);
            }
        EXPECT_EQ(p.value(p.logits).cols, s.n_vocab);
        EXPECT_EQ(p.value(p.logits).rows, Rows::outputs);
        EXPECT_EQ(p.nodes.front().layer, -1);
        EXPECT_EQ(p.nodes.back().layer, static_cast<int32_t>(s.n_layers));
        for (size_t i = 1; i < p.nodes.size(); i++) EXPECT_GE(p.nodes[i].layer, p.nodes[i - 1].layer);
    }
}

TEST_P(Architectures, PairsTurnAsTheFilesOfTheArchitectureHaveThem) {
    const TinyModel model({.like = GetParam()});
    const std::string_view architecture = synthetic_shape(GetParam()).architecture;
    const bool adjacent = architecture == "llama" || architecture == "mistral3" || architecture == "granite";
    for (const Node &n : build_program(model.file).nodes) {
        if (const auto *rope = std::get_if<Rope>(&n.op)) {
            EXPECT_EQ(rope->pairs, adjacent ? RopePairs::adjacent : RopePairs::halves);
        }
    }
}

TEST(Programs, RopeFactorsDivideFrequencies) {
    const TinyModel model({.like = "tiny-llama"});
    const Program p = build_program(model.file);
    const auto &table = std::get<RopeTable>(p.nodes.front().op);
    const gguf::Tensor *factors = model.file.find_tensor("rope_freqs.weight");
    ASSERT_NE(factors, nullptr);
    std::array<float, 32> f{};
    ASSERT_EQ(factors->bytes, sizeof f);
    std::memcpy(f.data(), factors->data, sizeof f);
    EXPECT_EQ(f.front(), 1.0f);  // the shortest wave keeps its length, the longest is stretched by the whole factor
    EXPECT_EQ(f.back(), 8.0f);
    for (size_t j = 0; j < f.size(); j++)
        EXPECT_DOUBLE_EQ(table.frequency[j], std::pow(1e4, -static_cast<double>(j) / 32) / static_cast<double>(f[j]));
}

TEST(Programs, OptionalBiasesAreAdded) {
    const TinyModel base({.like = "tiny-llama"});
    Edit e;
    e.tensors.emplace("blk.1.attn_output.bias", std::pair(Format::F32, std::vector<uint64_t>{256}));
    e.tensors.emplace("blk.2.ffn_gate.bias", std::pair(Format::F32, std::vector<uint64_t>{512}));
    const TempFile temp("biases.gguf");
    write_edited(base.file, e, temp.path());
    const gguf::File file = gguf::File::open(temp.path());
    const Program p = build_program(file);
    EXPECT_TRUE(unused_tensors(file, p).empty());
    EXPECT_EQ(p.weights.size(), build_program(base.file).weights.size() + 2);
}

TEST(Programs, TensorsThatNothingReadsAreListed) {
    const TinyModel base({.like = "tiny-qwen3"});
    Edit e;
    for (const char *name : {"blk.1.attn_rot_embd.weight", "extra.weight"})
        e.tensors.emplace(name, std::pair(Format::F32, std::vector<uint64_t>{8}));
    const TempFile temp("extra.gguf");
    write_edited(base.file, e, temp.path());
    const gguf::File file = gguf::File::open(temp.path());
    EXPECT_EQ(unused_tensors(file, build_program(file)),
              (std::vector<std::string>{"blk.1.attn_rot_embd.weight", "extra.weight"}));
}

TEST(Programs, MatricesMayBeInAnyFormat) {
    for (const FormatInfo &f : all_formats()) {
        const TinyModel model({.like = "tiny-qwen3moe", .quant = std::string(f.name), .pure = true});
        const Program p = build_program(model.file);
        const auto bank = std::find_if(p.weights.begin(), p.weights.end(),
                                       [](const Weight &w) { return w.name == "blk.1.ffn_down_exps.weight"; });
        ASSERT_NE(bank, p.weights.end());
        EXPECT_EQ(bank->format, f.id);
        EXPECT_EQ(bank->experts, 12u);
        const gguf::Tensor *t = model.file.find_tensor(bank->name);
        EXPECT_EQ(bank->data, t->data);
        EXPECT_EQ(bank->bytes(), t->bytes);
    }
}

}  // namespace
}  // namespace ridge
