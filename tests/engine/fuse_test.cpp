// Fusion: every rule matches its pattern, only its pattern, and keeps names of what is read and written.
#include "engine/fuse.h"

#include <algorithm>
#include <iterator>
#include <tuple>

#include "engine/support.h"

namespace ridge::test {
namespace {

Program fused(const Program &p, std::initializer_list<Lever> levers) {
    LeverSet set = LeverSet::none();
    for (Lever l : levers) set = set.with(l);
    check(p);
    Program out = fuse(p, set);
    check(out);
    EXPECT_EQ(out.levers, set);
    return out;
}

// ---- whole models: operations before and after

struct Counts {
    const char *name;
    Shape shape;
    size_t plain, per_layer;  // per layer with all rules but int8_dot
};

class FuseModels : public testing::TestWithParam<Counts> {};

TEST_P(FuseModels, OperationsBeforeAndAfter) {
    for (uint32_t layers : {1U, 2U, 5U}) {
        Shape s = GetParam().shape;
        s.layers = layers;
        const Program p = forward(s);
        check(p);
        // Around the layers: rope table and embedding before; gather, norm and logits after.
        EXPECT_EQ(p.nodes.size(), 5 + layers * GetParam().plain);
        EXPECT_EQ(fuse(p, LeverSet::none()).nodes.size(), p.nodes.size());
        const Program f = fuse(p, LeverSet::all().without(Lever::int8_dot));
        check(f);
        // The first norm follows the embedding, so it stays on its own; the last add precedes the gather.
        // Likewise the last of the sums over experts, which the others' norms have taken.
        const size_t combined = s.experts > 0 ? layers - 1 : 0;
        EXPECT_EQ(f.nodes.size(), 5 + 1 + layers * GetParam().per_layer - combined);
        EXPECT_EQ(count<MoeCombine>(f), s.experts > 0 ? 1U : 0U);
        EXPECT_EQ(count<AddRmsNorm>(f), 2 * layers - 1);
        EXPECT_EQ(count<Add>(f), 1U);
        EXPECT_EQ(count<RmsNorm>(f), 2U);
        EXPECT_EQ(count<QkNormRope>(f), layers);
        EXPECT_EQ(count<Rope>(f) + count<KvWrite>(f) + count<Glu>(f) + count<Softmax>(f) + count<TopK>(f), 0U);
        EXPECT_EQ(count<GateUp>(f), layers);
        EXPECT_EQ(count<MoeRoute>(f), s.experts > 0 ? layers : 0);
        EXPECT_EQ(f.logits, p.logits);

        // int8: one quantize for q, k and v, one for attention's output, one for gate and up, one for down, one for the
        // logits: as many fused as not, since consumers share.
        for (LeverSet levers : {LeverSet::all(), LeverSet::none().with(Lever::int8_dot)}) {
            const Program q = fuse(p, levers);
            check(q);
            EXPECT_EQ(count<Quantize>(q), 4 * layers + 1);
            EXPECT_EQ(q.nodes.size(), fuse(p, levers.without(Lever::int8_dot)).nodes.size() + 4 * layers + 1);
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Each, FuseModels,
                         testing::Values(Counts{"llama", llama(), 16, 8}, Counts{"qwen2", qwen2(), 16, 8},
                                         Counts{"qwen3", qwen3(), 18, 8}, Counts{"qwen3moe", qwen3moe(), 23, 11}),
                         [](const auto &tested) { return tested.param.name; });

TEST(Fuse, EveryLeverSetGivesASoundProgram) {
    for (const Shape &s : {llama(), qwen2(), qwen3(), qwen3moe()})
        for (unsigned bits = 0; bits < 256; bits++) {
            LeverSet levers = LeverSet::none();
            const Lever rules[] = {Lever::int8_dot,     Lever::qkv,       Lever::gate_up, Lever::add_rmsnorm,
                                   Lever::qk_norm_rope, Lever::moe_route, Lever::moe_pair, Lever::combine_rmsnorm};
            for (unsigned i = 0; i < std::size(rules); i++)
                if ((bits >> i & 1) != 0) levers = levers.with(rules[i]);
            const Program p = fuse(forward(s), levers);
            ASSERT_NO_THROW(check(p)) << levers.to_string() << "\n" << to_string(p);
            EXPECT_EQ(p.levers, levers);
            EXPECT_EQ(count<GateUp>(p) > 0, levers.has(s.experts > 0 ? Lever::moe_pair : Lever::gate_up));
            EXPECT_EQ(count<AddRmsNorm>(p) > 0, levers.has(Lever::add_rmsnorm));
            EXPECT_EQ(count<QkNormRope>(p) > 0, levers.has(Lever::qk_norm_rope));
            EXPECT_EQ(count<Quantize>(p) > 0, levers.has(Lever::int8_dot));
            EXPECT_EQ(count<MoeRoute>(p) > 0, levers.has(Lever::moe_route) && s.experts > 0);
        }
}

TEST(Fuse, TwiceChangesNothingMore) {
    for (const Shape &s : {llama(), qwen3moe()}) {
        const Program once = fuse(forward(s), LeverSet::all());
        EXPECT_EQ(to_string(fuse(once, LeverSet::all())), to_string(once));
    }
}

// ---- publish_q8

TEST(FusePublishQ8, EveryQuantizeOfAModelJoinsItsProducer) {
    const LeverSet takes[] = {LeverSet::none().with(Lever::publish_q8)};
    for (const Shape &s : {llama(), qwen3(), qwen3moe()}) {
        const Program apart = fuse(forward(s), LeverSet::all().without(Lever::fold_quantize));
        const Program p = fuse(forward(s), LeverSet::all().without(Lever::fold_quantize), takes);
        check(p);
        EXPECT_GT(count<Quantize>(apart), 0U);
        EXPECT_EQ(count<Quantize>(p), 0U) << to_string(p);
        EXPECT_EQ(p.nodes.size() + count<Quantize>(apart), apart.nodes.size());
    }
}

struct PublishCase {
    Hand h;
    ValueId normed;
    PublishCase() {
        const ValueId x = h.value("x", 64);
        h.p.inputs = {x};
        normed = h.norm(x, "norm");
        h.contract(normed, "y", 8);
    }
    Program fused(std::initializer_list<LeverSet> devices, LeverSet levers = LeverSet::defaults()) const {
        const std::vector<LeverSet> takes(devices);
        Program out = fuse(h.p, levers, takes);
        check(out);
        return out;
    }
};

TEST(FusePublishQ8, SaysWhetherTheValueItselfIsRead) {
    const LeverSet takes = LeverSet::none().with(Lever::publish_q8);
    {
        const Program p = PublishCase().fused({takes});
        const RmsNorm &n = only<RmsNorm>(p);
        EXPECT_EQ(n.q8, only<Contract>(p).x);
        EXPECT_EQ(p.value(n.q8).type, DType::q8);
        EXPECT_FALSE(n.out_read);
    }
    PublishCase read;
    read.h.add(read.normed, read.normed, "sum");
    EXPECT_TRUE(only<RmsNorm>(read.fused({takes})).out_read);
}

TEST(FusePublishQ8, OnlyOnDevicesThatTakeItAndNotWithoutItsLevers) {
    const LeverSet takes = LeverSet::none().with(Lever::publish_q8);
    const PublishCase c;
    EXPECT_EQ(count<Quantize>(c.fused({})), 1U);
    EXPECT_EQ(count<Quantize>(c.fused({LeverSet::none()})), 1U);
    EXPECT_EQ(count<Quantize>(c.fused({LeverSet::none(), takes})), 1U) << "another device";
    EXPECT_EQ(count<Quantize>(c.fused({takes}, LeverSet::defaults().without(Lever::publish_q8))), 1U);
    EXPECT_EQ(count<Quantize>(c.fused({takes}, LeverSet::defaults().with(Lever::fold_quantize))), 1U);
    EXPECT_EQ(count<Quantize>(c.fused({takes}, LeverSet::defaults().without(Lever::int8_dot))), 0U);
}

// ---- gate_up

struct GateUpCase {
    Hand h;
    ValueId x, gate, up, act;
    explicit GateUpCase(Format gate_format = Format::Q8_0, Format up_format = Format::Q8_0, bool gate_bias = false,
                        bool up_bias = false) {
        x = h.value("x", 64);
        h.p.inputs = {x};
        gate = h.contract(x, "gate", 32, gate_format, gate_bias);
        up = h.contract(x, "up", 32, up_format, up_bias);
        act = h.glu(gate, up, "act");
    }
};

TEST(FuseGateUp, JoinsBothMatrices) {
    GateUpCase c(Format::Q4_0, Format::Q8_0);
    const Program p = fused(c.h.p, {Lever::gate_up});
    ASSERT_EQ(p.nodes.size(), 1U);
    const GateUp &g = only<GateUp>(p);
    EXPECT_EQ(g.x, c.x);
    EXPECT_EQ(g.ids, kNone);
    EXPECT_EQ(g.out, c.act);
    EXPECT_EQ(p.weight(g.gate).name, "gate.weight");
    EXPECT_EQ(p.weight(g.up).name, "up.weight");
}

TEST(FuseGateUp, KeepsExpertIds) {
    Hand h;
    const ValueId x = h.value("x", 64), ids = h.value("ids", 2, 1, DType::i32);
    h.p.inputs = {x, ids};
    h.glu(h.contract_experts(x, ids, "gate", 32, 4), h.contract_experts(x, ids, "up", 32, 4), "act");
    const GateUp g = only<GateUp>(fused(h.p, {Lever::moe_pair}));
    EXPECT_EQ(g.ids, ids);
    EXPECT_EQ(count<GateUp>(fused(h.p, {Lever::gate_up})), 0U) << "experts have a lever of their own";
}

TEST(FuseGateUp, KeepsTheUnit) {
    for (const GluKind unit : {GluKind::silu, GluKind::gelu, GluKind::clamped}) {
        GateUpCase c;
        std::get<Glu>(c.h.p.nodes.back().op).kind = unit;
        EXPECT_EQ(only<GateUp>(fused(c.h.p, {Lever::gate_up})).kind, unit);
    }
}

TEST(FuseGateUp, LeavesWhatItMustNotTouch) {
    auto untouched = [](Hand &h, const char *why) {
        const Program p = fused(h.p, {Lever::gate_up});
        EXPECT_EQ(to_string(p), to_string(h.p)) << why;
    };
    for (const auto &[gate_bias, up_bias] : {std::pair{true, false}, {false, true}}) {
        GateUpCase c(Format::Q8_0, Format::Q8_0, gate_bias, up_bias);
        untouched(c.h, "a bias");
    }
    for (const auto &[gate, up] : {std::pair{Format::F16, Format::Q8_0}, {Format::Q8_0, Format::F32}}) {
        GateUpCase c(gate, up);
        untouched(c.h, "one matrix is of a float format, the other quantised");
    }
    for (bool of_gate : {true, false}) {
        GateUpCase c;
        c.h.add(of_gate ? c.gate : c.up, c.act, "second reader");
        untouched(c.h, "an intermediate is read again");
    }
    for (bool of_gate : {true, false}) {
        GateUpCase c;
        // As logits, the caller reads it; everything has a row per output then.
        for (Value &o : c.h.p.values) o.rows = Rows::outputs;
        c.h.p.logits = of_gate ? c.gate : c.up;
        untouched(c.h, "an intermediate is the logits");
    }
    {
        Hand h;
        const ValueId x = h.value("x", 64), y = h.value("y", 64);
        h.p.inputs = {x, y};
        h.glu(h.contract(x, "gate", 32), h.contract(y, "up", 32), "act");
        untouched(h, "different inputs");
    }
    {
        Hand h;
        const ValueId x = h.value("x", 64), a = h.value("a", 2, 1, DType::i32), b = h.value("b", 2, 1, DType::i32);
        h.p.inputs = {x, a, b};
        h.glu(h.contract_experts(x, a, "gate", 32, 4), h.contract_experts(x, b, "up", 32, 4), "act");
        untouched(h, "different experts");
    }
    {
        Hand h;
        const ValueId x = h.value("x", 64), ids = h.value("ids", 2, 1, DType::i32);
        h.p.inputs = {x, ids};
        h.glu(h.contract_experts(x, ids, "gate", 32, 4), h.contract_experts(x, ids, "up", 32, 4), "act");
        Bank &up = std::get<Contract>(h.p.nodes[1].op).banks[0];
        up.bias = h.p.add_weight({.name = "up.bias", .k = 32, .experts = 4});
        untouched(h, "experts with biases");
    }
    {
        Hand h;
        const ValueId x = h.value("x", 64);
        h.p.inputs = {x};
        const ValueId both = h.contract(x, "gate", 32);
        h.glu(both, both, "act");
        untouched(h, "gate and up are one value");
    }
    {
        Hand h;
        const ValueId x = h.value("x", 64);
        h.p.inputs = {x};
        h.glu(h.contract(x, "gate", 64), x, "act");
        untouched(h, "up is no contraction");
    }
    {
        GateUpCase c;
        c.h.p.nodes[1].device = 1;  // up
        c.h.p.nodes[0].device = 0;
        c.h.p.values[static_cast<size_t>(c.up)].device = 1;
        EXPECT_EQ(count<GateUp>(fuse(c.h.p, LeverSet::all())), 0U) << "devices differ";
    }
}

// ---- qkv

TEST(FuseQkv, GroupsUpToThree) {
    for (uint32_t n = 1; n <= 7; n++) {
        Hand h;
        const ValueId x = h.value("x", 64);
        h.p.inputs = {x};
        for (uint32_t i = 0; i < n; i++) h.contract(x, "c" + std::to_string(i), 16 * (i + 1), Format::Q8_0, i % 2 == 1);
        const Program p = fused(h.p, {Lever::qkv});
        ASSERT_EQ(p.nodes.size(), (n + 2) / 3);
        uint32_t next = 0;
        for (const Node &node : p.nodes) {
            const auto &c = std::get<Contract>(node.op);
            EXPECT_EQ(c.n_banks, std::min(3U, n - next));
            for (uint32_t b = 0; b < c.n_banks; b++, next++) {
                EXPECT_EQ(name_of(p, c.banks[b].out), "c" + std::to_string(next));
                EXPECT_EQ(p.weight(c.banks[b].weight).name, "c" + std::to_string(next) + ".weight");
                EXPECT_EQ(c.banks[b].bias != kNone, next % 2 == 1);
            }
        }
        EXPECT_EQ(next, n);
    }
}

TEST(FuseQkv, WritesBeforeTheFirstReader) {
    // k is computed after q has been used: it moves up to q.
    Hand h;
    const ValueId x = h.value("x", 64);
    h.p.inputs = {x};
    const ValueId q = h.contract(x, "q", 64);
    const ValueId sum = h.add(q, x, "sum");
    h.add(h.contract(x, "k", 64), sum, "end");
    const Program p = fused(h.p, {Lever::qkv});
    ASSERT_EQ(p.nodes.size(), 3U);
    EXPECT_EQ(only<Contract>(p).n_banks, 2U);
}

TEST(FuseQkv, LeavesWhatItMustNotTouch) {
    auto launches = [](const Hand &h) { return count<Contract>(fused(h.p, {Lever::qkv})); };
    {
        Hand h;
        const ValueId x = h.value("x", 64), y = h.value("y", 64);
        h.p.inputs = {x, y};
        h.contract(x, "a", 32), h.contract(y, "b", 32);
        EXPECT_EQ(launches(h), 2U) << "different inputs";
    }
    {
        Hand h;
        const ValueId x = h.value("x", 64);
        h.p.inputs = {x};
        h.contract(x, "a", 32, Format::F32), h.contract(x, "b", 32, Format::Q8_0);
        EXPECT_EQ(launches(h), 2U) << "a float and a quantised format";
    }
    {
        Hand h;
        const ValueId x = h.value("x", 64), ids = h.value("ids", 2, 1, DType::i32);
        h.p.inputs = {x, ids};
        h.contract_experts(x, ids, "a", 32, 4), h.contract_experts(x, ids, "b", 32, 4);
        EXPECT_EQ(launches(h), 2U) << "experts";
    }
    {
        Hand h;
        const ValueId x = h.value("x", 64);
        h.p.inputs = {x};
        const ValueId a = h.contract(x, "a", 32), b = h.contract(x, "b", 32);
        (void)a;
        h.p.nodes[1].device = 1;
        h.p.values[static_cast<size_t>(b)].device = 1;
        EXPECT_EQ(count<Contract>(fuse(h.p, LeverSet::none().with(Lever::qkv))), 2U) << "devices differ";
    }
}

TEST(FuseQkv, FormatsMayDifferWithinAKind) {
    Hand h;
    const ValueId x = h.value("x", 256);
    h.p.inputs = {x};
    h.contract(x, "a", 32, Format::Q4_K), h.contract(x, "b", 32, Format::Q6_K), h.contract(x, "c", 32, Format::Q8_0);
    EXPECT_EQ(count<Contract>(fused(h.p, {Lever::qkv})), 1U);
}

// ---- qk_norm_rope

struct RopeCase {
    Hand h;
    ValueId table, q, k, v, q_norm = kNone, k_norm = kNone, q_rope, k_rope, out;
    struct Options {
        float q_eps = 1e-6F, k_eps = 1e-6F;  // < 0: no norm
        uint32_t norm_width = 16, k_head = 16;
        RopePairs k_pairs = RopePairs::halves;
        bool own_table = false, k_first = false;
    };
    RopeCase() : RopeCase(Options{}) {}
    explicit RopeCase(const Options &o) {
        table = h.rope_table(8);
        const ValueId table2 = o.own_table ? h.rope_table(8) : table;
        h.layer = 0;
        q = h.value("q", 64), k = h.value("k", 32), v = h.value("v", 32);
        h.p.inputs = {q, k, v};
        if (o.q_eps >= 0) q_norm = h.norm(q, "q_norm", o.norm_width, o.q_eps);
        if (o.k_eps >= 0) k_norm = h.norm(k, "k_norm", o.norm_width, o.k_eps);
        auto rope_k = [&] { k_rope = h.rope(k_norm == kNone ? k : k_norm, table2, o.k_head, "k_rope", o.k_pairs); };
        if (o.k_first) rope_k();
        q_rope = h.rope(q_norm == kNone ? q : q_norm, table, 16, "q_rope");
        if (!o.k_first) rope_k();
        const auto [ks, vs] = h.kv_write(k_rope, v, "0");
        out = h.like("attn", q);
        h.push(Attention{q_rope, out, ks, vs, 4, 2, 16, 0.25F});
    }
    Program result() const { return fused(h.p, {Lever::qk_norm_rope}); }
};

TEST(FuseQkNormRope, TakesNormRopeAndWrite) {
    for (bool k_first : {false, true}) {
        const RopeCase c({.k_first = k_first});
        const Program p = c.result();
        ASSERT_EQ(p.nodes.size(), 3U);  // table, this, attention
        const QkNormRope &f = only<QkNormRope>(p);
        EXPECT_EQ(f.q, c.q);
        EXPECT_EQ(f.k, c.k);
        EXPECT_EQ(f.v, c.v);
        EXPECT_EQ(f.table, c.table);
        EXPECT_EQ(f.q_out, c.q_rope);
        EXPECT_EQ(p.weight(f.q_norm).name, "q_norm.weight");
        EXPECT_EQ(p.weight(f.k_norm).name, "k_norm.weight");
        EXPECT_EQ(f.k_state, 0);
        EXPECT_EQ(f.v_state, 1);
        EXPECT_EQ(f.head_dim, 16U);
        EXPECT_EQ(f.pairs, RopePairs::halves);
        EXPECT_EQ(f.eps, 1e-6F);
    }
}

TEST(FuseQkNormRope, NormsAreOptional) {
    const Program none = RopeCase({.q_eps = -1, .k_eps = -1}).result();
    EXPECT_EQ(only<QkNormRope>(none).q_norm, kNone);
    EXPECT_EQ(only<QkNormRope>(none).k_norm, kNone);
    EXPECT_EQ(none.nodes.size(), 3U);
    const Program q_only = RopeCase({.q_eps = 1e-3F, .k_eps = -1}).result();
    EXPECT_NE(only<QkNormRope>(q_only).q_norm, kNone);
    EXPECT_EQ(only<QkNormRope>(q_only).k_norm, kNone);
    EXPECT_EQ(only<QkNormRope>(q_only).eps, 1e-3F);
    const Program k_only = RopeCase({.q_eps = -1, .k_eps = 1e-3F}).result();
    EXPECT_EQ(only<QkNormRope>(k_only).q_norm, kNone);
    EXPECT_NE(only<QkNormRope>(k_only).k_norm, kNone);
    EXPECT_EQ(only<QkNormRope>(k_only).eps, 1e-3F);
}

TEST(FuseQkNormRope, KeepsThePairs) {
    RopeCase c({.k_pairs = RopePairs::adjacent});
    for (Node &n : c.h.p.nodes)
        if (Rope *r = std::get_if<Rope>(&n.op)) r->pairs = RopePairs::adjacent;
    EXPECT_EQ(only<QkNormRope>(c.result()).pairs, RopePairs::adjacent);
}

TEST(FuseQkNormRope, LeavesWhatItMustNotTouch) {
    auto expect_untouched = [](const RopeCase &c, const char *why) {
        EXPECT_EQ(to_string(c.result()), to_string(c.h.p)) << why;
    };
    expect_untouched(RopeCase({.k_eps = 1e-5F}), "two eps");
    expect_untouched(RopeCase({.k_head = 32}), "heads of different sizes");
    expect_untouched(RopeCase({.k_pairs = RopePairs::adjacent}), "different pairs");
    expect_untouched(RopeCase({.own_table = true}), "different tables");
    {
        RopeCase c;
        c.h.add(c.k_rope, c.v, "second reader");
        expect_untouched(c, "the rotated k is read again");
    }
    {
        // q is used before the write: it cannot wait for it.
        RopeCase c;
        std::vector<Node> &nodes = c.h.p.nodes;
        c.h.add(c.q_rope, c.q, "early");
        std::rotate(nodes.begin() + 5, nodes.end() - 1, nodes.end());
        ASSERT_TRUE(std::holds_alternative<Add>(nodes[5].op) && std::holds_alternative<KvWrite>(nodes[6].op));
        expect_untouched(c, "the rotated q is read before the write");
    }
    {
        RopeCase c;
        for (size_t i : {1U, 3U}) c.h.p.nodes[i].layer = -1;  // q's norm and rope
        expect_untouched(c, "q belongs to another layer");
    }
}

TEST(FuseQkNormRope, NormsThatOthersReadOrOfAnotherWidthStay) {
    {
        RopeCase c;
        c.h.add(c.q_norm, c.q, "second reader");
        const Program p = c.result();
        EXPECT_EQ(only<QkNormRope>(p).q, c.q_norm);
        EXPECT_EQ(only<QkNormRope>(p).q_norm, kNone);
        EXPECT_NE(only<QkNormRope>(p).k_norm, kNone);
        EXPECT_EQ(count<RmsNorm>(p), 1U);
    }
    {
        const Program p = RopeCase({.norm_width = 32}).result();  // not head by head
        EXPECT_EQ(count<RmsNorm>(p), 2U);
        EXPECT_EQ(only<QkNormRope>(p).q_norm, kNone);
        EXPECT_EQ(only<QkNormRope>(p).k_norm, kNone);
    }
}

// ---- add_rmsnorm

struct AddCase {
    Hand h;
    ValueId a, b, sum, out;
    explicit AddCase(uint32_t width = 64) {
        a = h.value("a", 64), b = h.value("b", 64);
        h.p.inputs = {a, b};
        sum = h.add(a, b, "sum");
        out = h.norm(sum, "norm", width, 1e-4F);
    }
};

TEST(FuseAddRmsNorm, TakesBothAndKeepsTheSum) {
    AddCase c;
    c.h.add(c.sum, c.out, "later");  // the residual goes on
    const Program p = fused(c.h.p, {Lever::add_rmsnorm});
    ASSERT_EQ(p.nodes.size(), 2U);
    const AddRmsNorm &f = std::get<AddRmsNorm>(p.nodes[0].op);
    EXPECT_EQ(f.a, c.a);
    EXPECT_EQ(f.b, c.b);
    EXPECT_EQ(f.sum, c.sum);
    EXPECT_EQ(f.out, c.out);
    EXPECT_EQ(f.eps, 1e-4F);
    EXPECT_EQ(p.weight(f.weight).name, "norm.weight");
}

TEST(FuseAddRmsNorm, KeepsTheScale) {
    AddCase c;
    EXPECT_EQ(only<AddRmsNorm>(fused(c.h.p, {Lever::add_rmsnorm})).scale, 1.0F);
    std::get<Add>(c.h.p.nodes[0].op).scale = 0.22F;
    EXPECT_EQ(only<AddRmsNorm>(fused(c.h.p, {Lever::add_rmsnorm})).scale, 0.22F);
}

// b of an AddCase as experts give it.
struct CombineCase : AddCase {
    ValueId rows, weights;
    CombineCase() {
        rows = h.value("rows", 64), weights = h.value("weights", 3);
        h.p.values[static_cast<size_t>(rows)].per_row = 3;
        h.p.inputs = {a, rows, weights};
        h.p.nodes.insert(h.p.nodes.begin(), {MoeCombine{rows, weights, b}, 0, 0});
    }
};

TEST(FuseCombineRmsNorm, TakesTheRowsAndTheirWeights) {
    CombineCase c;
    const Program p = fused(c.h.p, {Lever::add_rmsnorm, Lever::combine_rmsnorm});
    const AddRmsNorm &f = only<AddRmsNorm>(p);
    EXPECT_EQ(p.nodes.size(), 1U);
    EXPECT_EQ(f.a, c.a);
    EXPECT_EQ(f.b, c.rows);
    EXPECT_EQ(f.slots, c.weights);
    EXPECT_EQ(f.sum, c.sum);
    EXPECT_NO_THROW(check(p));
}

TEST(FuseCombineRmsNorm, LeavesWhatItMustNotTouch) {
    CombineCase c;
    EXPECT_EQ(count<MoeCombine>(fused(c.h.p, {Lever::combine_rmsnorm})), 1U) << "there is no add_rmsnorm";
    c.h.add(c.b, c.out, "later");
    EXPECT_EQ(count<MoeCombine>(fused(c.h.p, {Lever::add_rmsnorm, Lever::combine_rmsnorm})), 1U)
        << "the sum over experts is read elsewhere";
    CombineCase first;  // the operand that is not scaled
    Add &add = std::get<Add>(first.h.p.nodes[1].op);
    std::swap(add.a, add.b);
    EXPECT_EQ(count<MoeCombine>(fused(first.h.p, {Lever::add_rmsnorm, Lever::combine_rmsnorm})), 1U);
}

TEST(FuseAddRmsNorm, OnlyTheFirstNormOfASumIsTaken) {
    AddCase c;
    c.h.norm(c.sum, "norm2");
    const Program p = fused(c.h.p, {Lever::add_rmsnorm});
    EXPECT_EQ(count<AddRmsNorm>(p), 1U);
    EXPECT_EQ(only<RmsNorm>(p).x, c.sum);
}

TEST(FuseAddRmsNorm, LeavesWhatItMustNotTouch) {
    EXPECT_EQ(count<AddRmsNorm>(fused(AddCase(16).h.p, {Lever::add_rmsnorm})), 0U) << "a norm head by head";
    {
        Hand h;
        const ValueId a = h.value("a", 64);
        h.p.inputs = {a};
        h.norm(h.norm(a, "one"), "two");
        EXPECT_EQ(fused(h.p, {Lever::add_rmsnorm}).nodes.size(), 2U) << "no add";
    }
    AddCase c;
    c.h.p.nodes[1].device = 1;
    c.h.p.values[static_cast<size_t>(c.out)].device = 1;
    EXPECT_EQ(count<AddRmsNorm>(fuse(c.h.p, LeverSet::all())), 0U) << "devices differ";
}

// ---- moe_route

struct RouteCase {
    Hand h;
    ValueId logits, ids, weights;
    explicit RouteCase(bool normalize = true) {
        logits = h.value("logits", 8);
        h.p.inputs = {logits};
        std::tie(ids, weights) = h.route(logits, 2, "route", normalize);
    }
};

TEST(FuseMoeRoute, TakesSoftmaxTopKAndNormalize) {
    for (bool normalize : {true, false}) {
        const RouteCase c(normalize);
        const Program p = fused(c.h.p, {Lever::moe_route});
        ASSERT_EQ(p.nodes.size(), 1U);
        const MoeRoute &f = only<MoeRoute>(p);
        EXPECT_EQ(f.logits, c.logits);
        EXPECT_EQ(f.ids, c.ids);
        EXPECT_EQ(f.weights, c.weights);
        EXPECT_EQ(f.normalize, normalize);
    }
}

TEST(FuseMoeRoute, LeavesWhatItMustNotTouch) {
    {
        RouteCase c;
        c.h.add(only<TopK>(c.h.p).x, c.logits, "second reader");
        EXPECT_EQ(count<MoeRoute>(fused(c.h.p, {Lever::moe_route})), 0U) << "the probabilities are read again";
    }
    {
        RouteCase c;
        c.h.add(only<TopK>(c.h.p).weights, c.weights, "second reader");
        const Program p = fused(c.h.p, {Lever::moe_route});
        EXPECT_FALSE(only<MoeRoute>(p).normalize) << "the plain weights are read again";
        EXPECT_EQ(count<Normalize>(p), 1U);
    }
    {
        Hand h;
        const ValueId x = h.value("x", 8), ids = h.value("ids", 2, 1, DType::i32), w = h.value("w", 2);
        h.p.inputs = {x};
        h.push(TopK{x, ids, w});
        EXPECT_EQ(count<MoeRoute>(fused(h.p, {Lever::moe_route})), 0U) << "no softmax";
    }
    RouteCase c;
    c.h.p.nodes[0].device = 1;
    EXPECT_EQ(count<MoeRoute>(fuse(c.h.p, LeverSet::all())), 0U) << "devices differ";
}

// ---- int8_dot

// Two contractions of block formats and one of floats read x, the only input.
Hand three_readers() {
    Hand h;
    const ValueId x = h.value("x", 64);
    h.p.inputs = {x};
    const ValueId a = h.contract(x, "a", 64), f = h.contract(x, "f", 64, Format::F32), b = h.contract(x, "b", 64);
    h.add(h.add(a, b, "ab"), f, "end");
    return h;
}

TEST(LowerInt8, ConsumersOfAValueShareOneQuantize) {
    const Hand h = three_readers();
    const ValueId x = h.p.inputs[0];
    const Program p = fused(h.p, {Lever::int8_dot});
    const Quantize &q = only<Quantize>(p);
    EXPECT_EQ(q.x, x);
    EXPECT_TRUE(std::holds_alternative<Quantize>(p.nodes[0].op));
    EXPECT_EQ(p.value(q.out).type, DType::q8);
    EXPECT_EQ(p.value(q.out).name, "x.q8");
    EXPECT_EQ(p.value(q.out).cols, 64U);
    EXPECT_EQ(std::get<Contract>(p.nodes[1].op).x, q.out);
    EXPECT_EQ(std::get<Contract>(p.nodes[2].op).x, x) << "a float format reads f32";
    EXPECT_EQ(std::get<Contract>(p.nodes[3].op).x, q.out);
}

TEST(LowerInt8, FoldedEveryConsumerHasItsOwn) {
    const Hand h = three_readers();
    const ValueId x = h.p.inputs[0];
    const Program p = fused(h.p, {Lever::int8_dot, Lever::fold_quantize});
    check(p);
    EXPECT_EQ(count<Quantize>(p), 2U);
    EXPECT_NE(std::get<Contract>(p.nodes[1].op).x, std::get<Contract>(p.nodes[4].op).x);
    for (size_t i : {0U, 3U}) {
        EXPECT_EQ(std::get<Quantize>(p.nodes[i].op).x, x);
        EXPECT_EQ(std::get<Quantize>(p.nodes[i].op).out, std::get<Contract>(p.nodes[i + 1].op).x);
    }
    EXPECT_EQ(std::get<Contract>(p.nodes[2].op).x, x) << "a float format reads f32";
}

TEST(LowerInt8, AllBanksOfALaunchReadTheSame) {
    Hand h;
    const ValueId x = h.value("x", 64);
    h.p.inputs = {x};
    h.contract(x, "a", 64, Format::F32), h.contract(x, "b", 64, Format::Q4_0), h.contract(x, "c", 64, Format::Q8_0);
    const Program p = fused(h.p, {Lever::qkv, Lever::int8_dot});
    for (const Node &n : p.nodes)
        if (const Contract *c = std::get_if<Contract>(&n.op))
            for (uint32_t b = 0; b < c->n_banks; b++) {
                const bool is_float = info(p.weight(c->banks[b].weight).format).is_float();
                EXPECT_EQ(p.value(c->x).type, is_float ? DType::f32 : DType::q8);
            }
    EXPECT_EQ(count<Quantize>(p), 1U);
}

TEST(LowerInt8, RowsPerTokenStay) {
    const Program p = fuse(forward(qwen3moe()), LeverSet::all());
    size_t per_slot = 0;
    for (const Node &n : p.nodes)
        if (const Quantize *q = std::get_if<Quantize>(&n.op)) {
            EXPECT_EQ(p.value(q->out).per_row, p.value(q->x).per_row);
            EXPECT_EQ(p.value(q->out).rows, p.value(q->x).rows);
            per_slot += p.value(q->out).per_row == 2 ? 1 : 0;
        }
    EXPECT_EQ(per_slot, 2U);  // the experts' activations, per layer
}

TEST(LowerInt8, QuantizesWhereTheReaderIs) {
    // x comes from device 0 and is contracted on device 1: copied first, then quantised there.
    Hand h;
    const ValueId x = h.value("x", 64);
    h.p.inputs = {x};
    const ValueId y = h.contract(x, "c", 64);
    h.p.nodes[0].device = 1;
    h.p.values[static_cast<size_t>(y)].device = 1;
    Program p = fuse(h.p, LeverSet::all());
    EXPECT_EQ(p.value(only<Quantize>(p).out).device, 1);
    EXPECT_EQ(p.nodes[0].device, 1);
}

}  // namespace
}  // namespace ridge::test
