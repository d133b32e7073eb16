// check(): programs in the shape of real models pass; every way of breaking one is told, naming node and operand.
#include <algorithm>
#include <functional>
#include <stdexcept>

#include "engine/support.h"

namespace ridge::test {
namespace {

template <class T>
T &node_of(Program &p, size_t nth = 0) {
    for (Node &n : p.nodes)
        if (T *o = std::get_if<T>(&n.op); o && nth-- == 0) return *o;
    throw std::runtime_error("no " + std::string(T::kName));
}
Value &value(Program &p, ValueId v) { return p.values[static_cast<size_t>(v)]; }

TEST(Check, ModelsPass) {
    for (const Shape &s : {llama(), qwen2(), qwen3(), qwen3moe()}) EXPECT_NO_THROW(check(forward(s)));
    EXPECT_NO_THROW(check(Program{}));
    Program p = forward({.head_dim = 32});
    for (State &s : p.states) s.type = DType::q8_0;
    EXPECT_NO_THROW(check(p));
}

struct Breakage {
    const char *name;
    Shape shape;
    std::function<void(Program &)> apply;
    std::vector<std::string> words;  // of the message
};

// In a layer of `forward`, op by op, then what concerns the whole program.
std::vector<Breakage> breakages() {
    return {
        {"ReadsWhatIsNotThere",
         llama(),
         [](Program &p) { node_of<Add>(p).a = 9999; },
         {"(add)", "input does not exist"}},
        {"ReadsNone", llama(), [](Program &p) { node_of<Add>(p).b = kNone; }, {"(add)", "input does not exist"}},
        {"WritesWhatIsNotThere",
         llama(),
         [](Program &p) { node_of<Add>(p).out = kNone; },
         {"(add)", "output does not exist"}},
        {"WeightIsNotThere",
         llama(),
         [](Program &p) { node_of<RmsNorm>(p).weight = 9999; },
         {"(rmsnorm)", "weight does not exist"}},
        {"StateIsNotThere",
         llama(),
         [](Program &p) { node_of<KvWrite>(p).v_state = 9999; },
         {"(kv_write)", "state does not exist"}},
        {"ReadBeforeWritten",
         llama(),
         [](Program &p) { std::swap(p.nodes[1], p.nodes[2]); },
         {"program node 1 (rmsnorm)", "reads embd before it is written"}},
        {"ReadsItsOwnOutput",
         llama(),
         [](Program &p) { node_of<Add>(p).b = node_of<Add>(p).out; },
         {"(add)", "reads 0.attn_residual before it is written"}},
        {"WrittenTwice", llama(), [](Program &p) { p.nodes.push_back(p.nodes[1]); }, {"(embed)", "writes embd twice"}},
        {"WritesAnInput",
         llama(),
         [](Program &p) { p.inputs = {node_of<Embed>(p).out}; },
         {"(embed)", "writes embd twice"}},
        {"ReadsAnotherDevice",
         llama(),
         [](Program &p) {
             value(p, node_of<Embed>(p).out).device = 1;
             p.nodes[1].device = 1;
         },
         {"program node 2 (rmsnorm)", "reads embd on another device"}},
        {"WritesAnotherDevice",
         llama(),
         [](Program &p) { value(p, node_of<Embed>(p).out).device = 1; },
         {"(embed)", "writes embd on another device"}},
        {"StateOfAnotherDevice",
         llama(),
         [](Program &p) { p.states[0].device = 1; },
         {"(kv_write)", "uses 0.k on another device"}},
        {"LogitsNeverWritten", llama(), [](Program &p) { p.nodes.pop_back(); }, {"logits", "never written"}},
        {"LogitsNotThere", llama(), [](Program &p) { p.logits = 9999; }, {"logits 9999"}},
        {"LogitsNotOutputs", llama(), [](Program &p) { p.logits = node_of<Embed>(p).out; }, {"logits embd"}},
        {"InputNotThere", llama(), [](Program &p) { p.inputs = {-7}; }, {"input -7"}},

        {"EmbedWidth", llama(), [](Program &p) { p.weights[0].k = 32; }, {"(embed)", "width"}},
        {"EmbedType",
         llama(),
         [](Program &p) { value(p, node_of<Embed>(p).out).type = DType::f16; },
         {"(embed)", "embd has the wrong type"}},
        {"NormWidth", llama(), [](Program &p) { node_of<RmsNorm>(p).width = 48; }, {"(rmsnorm)", "width"}},
        {"NormWidthZero", llama(), [](Program &p) { node_of<RmsNorm>(p).width = 0; }, {"(rmsnorm)", "width"}},
        {"NormShape",
         llama(),
         [](Program &p) { value(p, node_of<RmsNorm>(p).out).cols = 32; },
         {"(rmsnorm)", "embd and 0.attn_norm have different shapes"}},
        {"NormWeightLength",
         llama(),
         [](Program &p) { p.weights[static_cast<size_t>(node_of<RmsNorm>(p).weight)].k = 32; },
         {"(rmsnorm)", "0.attn_norm.weight is not an F32 vector"}},
        {"NormWeightFormat",
         llama(),
         [](Program &p) { p.weights[static_cast<size_t>(node_of<RmsNorm>(p).weight)].format = Format::F16; },
         {"0.attn_norm.weight is not an F32 vector"}},
        {"NormType",
         llama(),
         [](Program &p) { value(p, node_of<RmsNorm>(p).out).type = DType::i32; },
         {"(rmsnorm)", "0.attn_norm has the wrong type"}},
        {"NoBanks", llama(), [](Program &p) { node_of<Contract>(p).n_banks = 0; }, {"(contract)", "number of banks"}},
        {"TooManyBanks",
         llama(),
         [](Program &p) { node_of<Contract>(p).n_banks = 4; },
         {"(contract)", "number of banks"}},
        {"MatrixK",
         llama(),
         [](Program &p) { p.weights[static_cast<size_t>(node_of<Contract>(p).banks[0].weight)].k = 32; },
         {"0.q.weight has k 32 but 0.attn_norm has 64 columns"}},
        {"MatrixN",
         llama(),
         [](Program &p) { p.weights[static_cast<size_t>(node_of<Contract>(p).banks[0].weight)].n = 63; },
         {"0.q.weight has n 63 but 0.q has 64 columns"}},
        {"MatrixBlocks",
         llama(),
         [](Program &p) { p.weights[static_cast<size_t>(node_of<Contract>(p).banks[0].weight)].format = Format::Q4_K; },
         {"0.q.weight", "whole blocks"}},
        {"ContractOutType",
         llama(),
         [](Program &p) { value(p, node_of<Contract>(p).banks[0].out).type = DType::f16; },
         {"(contract)", "0.q has the wrong type"}},
        {"ContractInType", llama(), [](Program &p) { value(p, node_of<Contract>(p).x).type = DType::i32; }, {"type"}},
        {"ContractRows",
         llama(),
         [](Program &p) { value(p, node_of<Contract>(p).banks[0].out).rows = Rows::outputs; },
         {"(contract)", "rows differ"}},
        {"BiasLength",
         qwen2(),
         [](Program &p) { p.weights[static_cast<size_t>(node_of<Contract>(p).banks[0].bias)].k = 3; },
         {"0.q.bias is not an F32 vector"}},
        {"BiasOfOneExpert",
         qwen3moe(),
         [](Program &p) { node_of<Contract>(p, 5).banks[0].bias = p.add_weight({.name = "0.gate.bias", .k = 96}); },
         {"0.gate.bias is not an F32 vector"}},
        {"ExpertsWithoutIds",
         qwen3moe(),
         [](Program &p) { node_of<Contract>(p, 5).ids = kNone; },
         {"holds experts, but there are no ids"}},
        {"IdsType", qwen3moe(), [](Program &p) { value(p, node_of<Contract>(p, 5).ids).type = DType::f32; }, {"type"}},
        {"SlotsOfOutput",
         qwen3moe(),
         [](Program &p) { value(p, node_of<Contract>(p, 5).banks[0].out).per_row = 1; },
         {"tokens times slots"}},
        {"SlotsOfInput",
         qwen3moe(),
         [](Program &p) {
             const ValueId x = p.add_value({.name = "odd", .per_row = 3, .cols = 64});
             p.inputs = {x};
             node_of<Contract>(p, 5).x = x;
         },
         {"neither tokens nor slots"}},
        {"FewerExpertsThanSlots",
         qwen3moe(),
         [](Program &p) { p.weights[static_cast<size_t>(node_of<Contract>(p, 5).banks[0].weight)].experts = 1; },
         {"0.gate.weight", "fewer experts"}},
        {"TableFrequencies",
         llama(),
         [](Program &p) { node_of<RopeTable>(p).frequency.pop_back(); },
         {"(rope_table)", "frequencies"}},
        {"TableLongFrequencies",
         llama(),
         [](Program &p) { node_of<RopeTable>(p).long_frequency = {1}; },
         {"(rope_table)", "long frequencies"}},
        {"TableTemperature",
         llama(),
         [](Program &p) { node_of<RopeTable>(p).temperature = 0.1; },
         {"(rope_table)", "temperature"}},
        {"RopeHead", llama(), [](Program &p) { node_of<Rope>(p).head_dim = 48; }, {"(rope)", "head size"}},
        {"RopeTableWiderThanHead", llama(), [](Program &p) { node_of<Rope>(p).head_dim = 8; }, {"(rope)", "head size"}},
        {"RopeShape", llama(), [](Program &p) { value(p, node_of<Rope>(p).out).cols = 32; }, {"(rope)", "0.q_rope"}},
        {"KvStateWidth", llama(), [](Program &p) { p.states[1].cols = 16; }, {"(kv_write)", "do not fit their state"}},
        {"KvStateType",
         llama(),
         [](Program &p) { p.states[1].type = DType::i32; },
         {"(kv_write)", "0.v is not f32, f16 or q8_0"}},
        {"KvStateBlocks",
         {.kv_heads = 1},
         [](Program &p) {
             for (State &s : p.states) s.type = DType::q8_0;
         },
         {"(kv_write)", "0.k is q8_0, but not in whole blocks of 32"}},
        {"KvHeadBlocks",
         llama(),
         [](Program &p) {
             for (State &s : p.states) s.type = DType::q8_0;
         },
         {"(attention)", "0.k is q8_0, but heads of 16 are not whole blocks of 32"}},
        {"KvStatePerSequence",
         llama(),
         [](Program &p) { p.states[0].per = State::Per::sequence; },
         {"(kv_write)", "0.k is not f32, f16 or q8_0 per token"}},
        {"KvRows",
         llama(),
         [](Program &p) {
             const ValueId v = p.add_value({.name = "twice", .per_row = 2, .cols = 32});
             p.inputs = {v};
             node_of<KvWrite>(p).v = v;
         },
         {"(kv_write)", "twice"}},
        {"AttentionGroups",
         llama(),
         [](Program &p) { node_of<Attention>(p).kv_heads = 3; },
         {"(attention)", "kv heads"}},
        {"AttentionNoGroups",
         llama(),
         [](Program &p) { node_of<Attention>(p).kv_heads = 0; },
         {"(attention)", "kv heads"}},
        {"AttentionHeads",
         llama(),
         [](Program &p) { node_of<Attention>(p).heads = 2; },
         {"(attention)", "heads * head_dim"}},
        {"AttentionState",
         llama(),
         [](Program &p) { node_of<Attention>(p).kv_heads = 1; },
         {"(attention)", "state is not kv_heads * head_dim"}},
        {"AttentionSinks",
         llama(),
         [](Program &p) { node_of<Attention>(p).sinks = p.add_weight({.name = "0.sinks", .k = 2}); },
         {"(attention)", "0.sinks is not an F32 vector"}},
        {"AttentionSinksFormat",
         llama(),
         [](Program &p) {
             node_of<Attention>(p).sinks = p.add_weight({.name = "0.sinks", .format = Format::F16, .k = 4});
         },
         {"(attention)", "0.sinks is not an F32 vector"}},
        {"GluShape",
         llama(),
         [](Program &p) { node_of<Glu>(p).up = node_of<Embed>(p).out; },
         {"(glu)", "0.gate and embd have different shapes"}},
        {"AddShape",
         llama(),
         [](Program &p) { node_of<Add>(p).b = node_of<Contract>(p, 1).banks[0].out; },
         {"(add)", "embd and 0.k have different shapes"}},
        {"TopKIds",
         qwen3moe(),
         [](Program &p) { value(p, node_of<TopK>(p).ids).type = DType::f32; },
         {"(top_k)", "0.route.ids has the wrong type"}},
        {"TopKMoreThanThereAre",
         qwen3moe(),
         [](Program &p) { value(p, node_of<TopK>(p).ids).cols = value(p, node_of<TopK>(p).weights).cols = 9; },
         {"(top_k)", "more wanted than there are"}},
        {"TopKDiffer", qwen3moe(), [](Program &p) { value(p, node_of<TopK>(p).weights).cols = 3; }, {"(top_k)"}},
        {"SoftmaxShape", qwen3moe(), [](Program &p) { value(p, node_of<Softmax>(p).out).cols = 4; }, {"(softmax)"}},
        {"NormalizeShape",
         qwen3moe(),
         [](Program &p) { value(p, node_of<Normalize>(p).out).cols = 4; },
         {"(normalize)"}},
        {"CombineSlots",
         qwen3moe(),
         [](Program &p) { node_of<MoeCombine>(p).x = node_of<Contract>(p, 3).banks[0].out; },
         {"(moe_combine)", "slots or columns differ"}},
        {"GatherRows",
         llama(),
         [](Program &p) { value(p, node_of<GatherRows>(p).out).rows = Rows::tokens; },
         {"(gather_rows)", "outputs"}},
        {"ArgMaxColumns",
         llama(),
         [](Program &p) {
             const ValueId ids = p.add_value({.name = "ids", .type = DType::i32, .rows = Rows::outputs, .cols = 2});
             p.nodes.push_back({ArgMax{p.logits, ids}, 0, 0});
         },
         {"(arg_max)", "more than one column"}},
        {"ArgMaxRows",
         llama(),
         [](Program &p) {
             const ValueId ids = p.add_value({.name = "ids", .type = DType::i32, .cols = 1});
             p.nodes.push_back({ArgMax{p.logits, ids}, 0, 0});
         },
         {"(arg_max)", "different rows"}},
        {"SampleColumns",
         llama(),
         [](Program &p) {
             const ValueId ids = p.add_value({.name = "ids", .type = DType::i32, .rows = Rows::outputs, .cols = 2});
             p.nodes.push_back({Sample{p.logits, ids}, 0, 0});
         },
         {"(sample)", "more than one column"}},
        {"SampleOfTokens",
         llama(),
         [](Program &p) {
             const ValueId ids = p.add_value({.name = "ids", .type = DType::i32, .cols = 1});
             p.nodes.push_back({Sample{node_of<GatherRows>(p).x, ids}, 0, 0});
         },
         {"(sample)", "no output"}},
        {"PublishedType",
         llama(),
         [](Program &p) {
             node_of<RmsNorm>(p).q8 = p.add_value({.name = "q8", .cols = p.value(node_of<RmsNorm>(p).out).cols});
         },
         {"(rmsnorm)", "q8 has the wrong type"}},
        {"GatherWidth", llama(), [](Program &p) { value(p, node_of<GatherRows>(p).out).cols = 3; }, {"(gather_rows)"}},
    };
}

class CheckBreaks : public testing::TestWithParam<Breakage> {};

TEST_P(CheckBreaks, IsTold) {
    Program p = forward(GetParam().shape);
    GetParam().apply(p);
    expect_words(thrown<std::logic_error>([&] { check(p); }), GetParam().words);
}

INSTANTIATE_TEST_SUITE_P(Each, CheckBreaks, testing::ValuesIn(breakages()),
                         [](const auto &tested) { return tested.param.name; });

// Operations that no model file writes: what fusion and placement make.
TEST(Check, QuantizeWantsF32AndWholeBlocks) {
    Hand h;
    const ValueId x = h.value("x", 64), q = h.value("q", 64, 1, DType::q8);
    h.p.inputs = {x};
    h.push(Quantize{x, q});
    EXPECT_NO_THROW(check(h.p));
    h.p.values[1].type = DType::f32;
    expect_words(thrown<std::logic_error>([&] { check(h.p); }), {"(quantize)", "q has the wrong type"});
    h.p.values[1].type = DType::q8;
    h.p.values[0].cols = h.p.values[1].cols = 48;
    expect_words(thrown<std::logic_error>([&] { check(h.p); }), {"(quantize)", "multiple of 32"});
}

TEST(Check, ExpertsMayHaveABiasEach) {
    Program p = forward(qwen3moe());
    node_of<Contract>(p, 5).banks[0].bias = p.add_weight({.name = "0.gate.bias", .k = 96, .experts = 8});
    EXPECT_NO_THROW(check(p));
}

TEST(Check, RowGateWantsOneNumberPerRow) {
    Hand h;
    const ValueId x = h.value("x", 64), gate = h.value("gate", 1), out = h.value("out", 64);
    h.p.inputs = {x, gate};
    h.push(RowGate{.x = x, .out = out, .gate = gate});
    EXPECT_NO_THROW(check(h.p));
    h.p.values[1].cols = 64;
    expect_words(thrown<std::logic_error>([&] { check(h.p); }), {"(row_gate)", "more than one column"});
    h.p.values[1].cols = 1, h.p.values[1].per_row = 2;
    expect_words(thrown<std::logic_error>([&] { check(h.p); }), {"(row_gate)", "x and gate have different rows"});
    h.p.values[1].per_row = 1, h.p.values[2].cols = 32;
    expect_words(thrown<std::logic_error>([&] { check(h.p); }), {"(row_gate)", "x and out have different shapes"});
    h.p.values[2].cols = 64, h.p.values[1].type = DType::i32;
    expect_words(thrown<std::logic_error>([&] { check(h.p); }), {"(row_gate)", "gate has the wrong type"});
}

TEST(Check, ScaleKeepsTheShape) {
    Hand h;
    const ValueId x = h.value("x", 64), out = h.value("out", 64);
    h.p.inputs = {x};
    h.push(Scale{.x = x, .out = out, .scale = 2, .softcap = 30});
    EXPECT_NO_THROW(check(h.p));
    h.p.values[1].cols = 32;
    expect_words(thrown<std::logic_error>([&] { check(h.p); }), {"(scale)", "x and out have different shapes"});
    h.p.values[1].cols = 64, h.p.values[1].type = DType::f16;
    expect_words(thrown<std::logic_error>([&] { check(h.p); }), {"(scale)", "out has the wrong type"});
}

TEST(Check, CopyMayReadAnotherDeviceButNotChangeTheValue) {
    Hand h;
    const ValueId x = h.value("x", 64), there = h.value("x@1", 64);
    h.p.inputs = {x};
    h.p.values[1].device = 1;
    h.push(Copy{x, there});
    h.p.nodes[0].device = 1;
    EXPECT_NO_THROW(check(h.p));
    h.p.values[1].type = DType::f16;
    expect_words(thrown<std::logic_error>([&] { check(h.p); }), {"(copy)", "types differ"});
    h.p.values[1].type = DType::f32, h.p.values[1].cols = 32;
    expect_words(thrown<std::logic_error>([&] { check(h.p); }), {"(copy)", "different shapes"});
    h.p.values[1].cols = 64, h.p.nodes[0].device = 0;
    expect_words(thrown<std::logic_error>([&] { check(h.p); }), {"(copy)", "x@1 on another device"});
}

TEST(Check, TextNamesEveryNodeAndOperand) {
    const Program p = forward(qwen3moe());
    const std::string text = to_string(p);
    EXPECT_EQ(static_cast<size_t>(std::count(text.begin(), text.end(), '\n')), p.nodes.size());
    expect_words(text, {"layer  -1", "embed", "token_embd(Q8_0 50x64) -> embd[m,64 f32]", "0.gate[m*2,96 f32]",
                        "0.gate.weight(Q8_0 8x96x64)", "0.route.ids[m,2 i32]", "state 1.v", "outputs[outputs,64 f32]",
                        "logits[outputs,50 f32]", "gather_rows"});
    for (const Value &v : p.values) expect_words(text, {v.name});
}

}  // namespace
}  // namespace ridge::test
