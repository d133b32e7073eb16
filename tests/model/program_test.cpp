// The programs of the four architectures: operations counted, weights all used, states and shapes as declared.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>

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

class Architectures : public testing::TestWithParam<const char *> {};
INSTANTIATE_TEST_SUITE_P(All, Architectures,
                         testing::Values("tiny-llama", "tiny-qwen2", "tiny-qwen3", "tiny-qwen3moe"));

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
    EXPECT_EQ(p.n_layers, layers);
    EXPECT_EQ(count<Embed>(p), 1u);
    EXPECT_EQ(count<RopeTable>(p), 1u);
    EXPECT_EQ(count<RmsNorm>(p), layers * (s.has_head_norms() ? 4 : 2) + 1);
    // q, k, v, attention output; gate, up, down; the router.
    EXPECT_EQ(count<Contract>(p), layers * 7 + experts + 1);
    EXPECT_EQ(count<Rope>(p), layers * 2);
    EXPECT_EQ(count<KvWrite>(p), layers);
    EXPECT_EQ(count<Attention>(p), layers);
    EXPECT_EQ(count<SiluMul>(p), layers);
    EXPECT_EQ(count<Add>(p), layers * 2);
    EXPECT_EQ(count<Softmax>(p), experts);
    EXPECT_EQ(count<TopK>(p), experts);
    EXPECT_EQ(count<Normalize>(p), experts);
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
    EXPECT_EQ(biases, s.has_qkv_bias() ? 3 * layers : 0);
}

TEST_P(Architectures, StatesAndLogitsAreDeclared) {
    const ModelShape &s = synthetic_shape(GetParam());
    const TinyModel model({.like = GetParam()});
    for (DType type : {DType::f16, DType::f32}) {
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
    const bool adjacent = synthetic_shape(GetParam()).architecture == "llama";
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
    for (const char *name : {"blk.1.attn_sinks.weight", "extra.weight"})
        e.tensors.emplace(name, std::pair(Format::F32, std::vector<uint64_t>{8}));
    const TempFile temp("extra.gguf");
    write_edited(base.file, e, temp.path());
    const gguf::File file = gguf::File::open(temp.path());
    EXPECT_EQ(unused_tensors(file, build_program(file)),
              (std::vector<std::string>{"blk.1.attn_sinks.weight", "extra.weight"}));
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
