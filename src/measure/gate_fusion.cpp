// Fused forms against their parts: small programs of plain operations, run with and without one fusion lever and with
// every lever that a row of the device carries on, off one by one, and all off. All of them must give the same bits,
// but for levers whose rows have an order of their own: those are compared with the plain form under the same levers.
#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "core/error.h"
#include "engine/fuse.h"
#include "measure/gate_case.h"

namespace ridge {
namespace {

using gate::Bytes;
using gate::Random;
using gate::Reals;

constexpr uint32_t kTokens = 40;

// A plain program, its data, and the values to compare.
struct Example {
    Program program;
    std::vector<Bytes> weights;
    std::vector<gate::Operand> inputs;
    std::vector<ValueId> outputs;
    Random random{7};

    ValueId value(std::string name, uint32_t cols, uint32_t per_row = 1, DType type = DType::f32) {
        return program.add_value({std::move(name), type, Rows::tokens, per_row, cols});
    }
    ValueId input(std::string name, uint32_t cols, uint32_t per_row = 1) {
        const ValueId v = value(std::move(name), cols, per_row);
        inputs.push_back({v, gate::activations(random, kTokens * per_row, cols)});
        program.inputs.push_back(v);
        return v;
    }
    WeightId weight(Format f, uint32_t n, uint32_t k, uint32_t experts = 1) {
        Weight w{fmt::format("w{}", weights.size()), f, n, k, experts, nullptr};
        weights.push_back(gate::random_weight(random, w));
        w.data = weights.back().data();
        return program.add_weight(w);
    }
    void add(Op op) { program.nodes.push_back({std::move(op), 0, 0}); }
    ValueId contract(ValueId x, WeightId w, ValueId ids = kNone, WeightId bias = kNone) {
        const uint32_t slots = ids == kNone ? 1 : program.value(ids).cols;
        const ValueId out = value(fmt::format("y{}", program.nodes.size()), program.weight(w).n, slots);
        add(Contract{x, ids, 1, {Bank{w, bias, out}}});
        return out;
    }
};

struct Rule {
    Lever lever;
    OpKind makes;
    uint32_t variants;  // of its program
    void (*build)(Example &, Format, uint32_t variant);
    bool made(const Op &op) const { return lever == Lever::publish_q8 ? published(op) != kNone : op.index() == makes; }
};

void build_qkv(Example &e, Format f, uint32_t) {
    const ValueId x = e.input("x", 256);
    e.outputs = {e.contract(x, e.weight(f, 24, 256), kNone, e.weight(Format::F32, 1, 24)),
                 e.contract(x, e.weight(f, 9, 256)), e.contract(x, e.weight(f, 9, 256))};
}

// Two of six experts for each token.
ValueId route(Example &e) {
    const ValueId logits = e.input("logits", 6), ids = e.value("ids", 2, 1, DType::i32);
    e.add(TopK{logits, ids, e.value("weights", 2)});
    return ids;
}

// `n` gated units of x, with experts where there are ids.
ValueId gated(Example &e, Format f, ValueId x, ValueId ids, uint32_t n, GluKind unit) {
    const uint32_t experts = ids == kNone ? 1 : 6, k = e.program.value(x).cols;
    const ValueId gate = e.contract(x, e.weight(f, n, k, experts), ids);
    const ValueId up = e.contract(x, e.weight(f, n, k, experts), ids);
    const ValueId out = e.value("units", n, ids == kNone ? 1 : 2);
    e.add(Glu{gate, up, out, unit});
    return out;
}

// A variant is a unit.
void build_gate_up(Example &e, Format f, uint32_t unit) {
    e.outputs = {gated(e, f, e.input("x", 256), kNone, 37, static_cast<GluKind>(unit))};
}
void build_moe_pair(Example &e, Format f, uint32_t unit) {
    const ValueId x = e.input("x", 256), ids = route(e);
    e.outputs = {gated(e, f, x, ids, 37, static_cast<GluKind>(unit))};
}

// The second variant scales what it adds.
void build_add_rmsnorm(Example &e, Format, uint32_t variant) {
    const ValueId a = e.input("a", 131), b = e.input("b", 131), sum = e.value("sum", 131), out = e.value("out", 131);
    e.add(Add{a, b, sum, variant == 0 ? 1 : 0.22f});
    e.add(RmsNorm{sum, out, e.weight(Format::F32, 1, 131), 131, 1e-5f});
    e.outputs = {sum, out};
}

// The second variant scales what it adds.
void build_combine_rmsnorm(Example &e, Format, uint32_t variant) {
    const ValueId x = e.input("x", 131, 3), weights = e.input("weights", 3), b = e.value("b", 131);
    const ValueId a = e.input("a", 131), sum = e.value("sum", 131), out = e.value("out", 131);
    e.add(MoeCombine{x, weights, b});
    e.add(Add{a, b, sum, variant == 0 ? 1 : 0.22f});
    e.add(RmsNorm{sum, out, e.weight(Format::F32, 1, 131), 131, 1e-5f});
    e.outputs = {sum, out};
}

// Variants turn halves and adjacent pairs, and write f16 and q8_0.
void build_qk_norm_rope(Example &e, Format, uint32_t variant) {
    const DType type = variant < 2 ? DType::f16 : DType::q8_0;
    const uint32_t head = type == DType::f16 ? 40 : 64, q_cols = 3 * head;
    for (const bool norms : {true, false}) {
        const ValueId v = e.input("v", head), table = e.value("table", 32);
        e.add(RopeTable{table, std::vector<double>(16, 0.1), 1.2});
        auto turned = [&](const char *name, uint32_t cols) {
            ValueId x = e.input(name, cols);
            if (norms) {
                const ValueId normed = e.value("normed", cols);
                e.add(RmsNorm{x, normed, e.weight(Format::F32, 1, head), head, 1e-6f});
                x = normed;
            }
            const ValueId out = e.value("turned", cols);
            e.add(Rope{x, out, table, head, variant % 2 == 0 ? RopePairs::halves : RopePairs::adjacent});
            return out;
        };
        const ValueId q = turned("q", q_cols), k = turned("k", head);
        const StateId ks = e.program.add_state({"ks", State::Per::token, head, type, 0});
        const StateId vs = e.program.add_state({"vs", State::Per::token, head, type, 0});
        e.add(KvWrite{k, v, ks, vs});
        const ValueId out = e.value("attended", q_cols);
        e.add(Attention{q, out, ks, vs, 3, 1, head, 0.2f, 0});
        e.outputs.push_back(q), e.outputs.push_back(out);
    }
}

void build_moe_route(Example &e, Format, uint32_t) {
    for (const bool normalize : {true, false}) {
        const ValueId x = e.input("logits", 61), p = e.value("p", 61), ids = e.value("ids", 8, 1, DType::i32);
        ValueId weights = e.value("weights", 8);
        e.add(Softmax{x, p});
        e.add(TopK{p, ids, weights});
        if (normalize) {
            const ValueId normalized = e.value("normalized", 8);
            e.add(Normalize{weights, normalized});
            weights = normalized;
        }
        e.outputs.push_back(ids), e.outputs.push_back(weights);
    }
}

// Variants: a norm of whole rows and of heads, one that is read as f32 too, an add and a norm, attention, and units
// plain and with experts.
void build_publish_q8(Example &e, Format f, uint32_t variant) {
    ValueId x = kNone;
    if (variant <= 2) {
        const uint32_t width = variant == 1 ? 64 : 256;
        const ValueId in = e.input("x", 256);
        x = e.value("normed", 256);
        e.add(RmsNorm{in, x, e.weight(Format::F32, 1, width), width, 1e-6f});
        if (variant == 2) e.outputs.push_back(x);
    } else if (variant == 3) {
        const ValueId a = e.input("a", 256), b = e.input("b", 256), sum = e.value("sum", 256);
        x = e.value("normed", 256);
        e.add(Add{a, b, sum});
        e.add(RmsNorm{sum, x, e.weight(Format::F32, 1, 256), 256, 1e-5f});
        e.outputs.push_back(sum);
    } else if (variant == 4) {
        const ValueId q = e.input("q", 256), k = e.input("k", 128), v = e.input("v", 128);
        const StateId ks = e.program.add_state({"ks", State::Per::token, 128, DType::f16, 0});
        const StateId vs = e.program.add_state({"vs", State::Per::token, 128, DType::f16, 0});
        e.add(KvWrite{k, v, ks, vs});
        x = e.value("attended", 256);
        e.add(Attention{q, x, ks, vs, 4, 2, 64, 0.125f, 0});
    } else {
        const ValueId in = e.input("x", 256), ids = variant == 6 ? route(e) : kNone;
        x = gated(e, f, in, ids, 256, GluKind::silu);
        e.outputs.push_back(e.contract(x, e.weight(f, 24, 256, ids == kNone ? 1 : 6), ids));
        return;
    }
    e.outputs.push_back(e.contract(x, e.weight(f, 24, 256)));
}

constexpr Rule kRules[] = {
    {Lever::qkv, kind<Contract>(), 1, build_qkv},
    {Lever::gate_up, kind<GateUp>(), 3, build_gate_up},
    {Lever::moe_pair, kind<GateUp>(), 3, build_moe_pair},
    {Lever::add_rmsnorm, kind<AddRmsNorm>(), 2, build_add_rmsnorm},
    {Lever::combine_rmsnorm, kind<AddRmsNorm>(), 2, build_combine_rmsnorm},
    {Lever::qk_norm_rope, kind<QkNormRope>(), 4, build_qk_norm_rope},
    {Lever::moe_route, kind<MoeRoute>(), 1, build_moe_route},
    {Lever::publish_q8, kind<Quantize>(), 7, build_publish_q8},
};

// Launches that stay, as a rule makes fewer of them.
struct Ran {
    size_t nodes = 0;
    bool made = false;
    std::vector<std::byte> bytes;  // output, then all state
    size_t elements = 0;           // in them
};

// Runs `m` tokens and reads `output`; a copy at the end of the program keeps its memory from being used again.
Ran run(Backend &backend, const Example &e, LeverSet levers, ValueId output, uint32_t m, const Rule &rule) {
    Program p = e.program;
    Value kept = p.value(output);
    p.nodes.push_back({Copy{output, p.add_value(std::move(kept))}, 0, 0});
    const LeverSet fusions[] = {backend.fusions()};
    p = fuse(std::move(p), levers, fusions);
    Ran ran;
    ran.nodes = p.nodes.size();
    ran.made = std::any_of(p.nodes.begin(), p.nodes.end(), [&](const Node &n) { return rule.made(n.op); });
    WeightStore store;
    EngineOptions options;
    options.limits = {kTokens, 1, 1, 1};
    options.pages = 2;
    Engine engine(std::move(p), {&backend}, store, options);
    for (const gate::Operand &o : e.inputs) {
        const Value &v = e.program.value(o.id);
        engine.write_value(o.id, gate::pack(v.type, v.cols, m * v.per_row, o.numbers));
    }
    StepBuffer step(options.limits);
    step.begin();
    step.set_page(0, 0, 1);
    for (uint32_t i = 0; i < m; i++) step.add(0, i, 0, false);
    engine.run(step);
    ran.bytes = engine.read_value(output, m * e.program.value(output).per_row);
    ran.elements = size_t{m} * e.program.value(output).per_row * e.program.value(output).cols;
    for (size_t s = 0; s < e.program.states.size(); s++) {
        const auto state = engine.read_state(static_cast<StateId>(s));
        const State &of = e.program.states[s];
        ran.elements += state.size() / row_bytes(of.type, of.cols) * of.cols;
        ran.bytes.insert(ran.bytes.end(), state.begin(), state.end());
    }
    return ran;
}

// Whether rows with this lever give the bits of all that may be taken without it.
bool keeps_bits(const Backend &backend, Lever lever) {
    const auto kernels = backend.kernels();
    return std::all_of(kernels.begin(), kernels.end(), [&](const Kernel &k) {
        return k.lever != lever || std::all_of(kernels.begin(), kernels.end(), [&](const Kernel &o) {
                   return o.lever != Lever::none || o.op != k.op || o.input != k.input || o.order == k.order;
               });
    });
}

// Levers to run the rule with, and those of the plain form to compare with.
struct Pair {
    LeverSet plain, fused;
};
// `base` and the rule, and with it each lever of a row off, and all of those that keep the bits, and all of them.
std::vector<Pair> pairs(const Backend &backend, LeverSet base, Lever rule) {
    std::vector<Pair> all = {{base, base.with(rule)}};
    LeverSet bare = base, same = base;
    for (const LeverInfo &l : all_levers()) {
        const auto kernels = backend.kernels();
        if (std::none_of(kernels.begin(), kernels.end(), [&](const Kernel &k) { return k.lever == l.id; })) continue;
        const LeverSet without = base.without(l.id);
        const bool keeps = keeps_bits(backend, l.id);
        all.push_back({keeps ? base : without, without.with(rule)});
        bare = bare.without(l.id);
        if (keeps) same = same.without(l.id);
    }
    all.push_back({base, same.with(rule)});
    all.push_back({bare, bare.with(rule)});
    return all;
}

void gate_rule(Backend &backend, const Rule &rule, Format f, uint32_t variant, bool quick, GateRow &row) {
    Example e;
    rule.build(e, f, variant);
    row.formats = row.formats | FormatSet{f};
    auto bad = [&](std::string what) {
        row.result.nbad++;
        if (row.result.first_bad.empty()) row.result.first_bad = std::move(what) + "\n";
    };
    for (const bool int8 : {true, false}) {
        if (!int8 && rule.lever == Lever::publish_q8) continue;
        LeverSet base = LeverSet::all().without(rule.lever);
        if (!int8) base = base.without(Lever::int8_dot);
        if (rule.lever == Lever::publish_q8) base = base.without(Lever::fold_quantize);
        const std::vector<Pair> sets = pairs(backend, base, rule.lever);
        for (const ValueId output : e.outputs)
            for (const uint32_t m :
                 quick ? std::vector<uint32_t>{1, 9} : std::vector<uint32_t>{1, 2, 3, 5, 8, 9, 17, 40}) {
                const Ran base_ran = run(backend, e, base, output, m, rule);
                for (const Pair &set : sets) {
                    const Ran own = set.plain == base ? Ran{} : run(backend, e, set.plain, output, m, rule);
                    const Ran &plain = set.plain == base ? base_ran : own;
                    const Ran fused = run(backend, e, set.fused, output, m, rule);
                    row.cases++;
                    row.result.checked += plain.elements;
                    if (!fused.made || fused.nodes >= plain.nodes)
                        bad(fmt::format("the rule fuses nothing, levers {}", set.fused.to_string()));
                    if (fused.bytes != plain.bytes)
                        bad(fmt::format("{} {} of variant {} with {} tokens: levers {} and {} differ", info(f).name,
                                        e.program.value(output).name, variant, m, set.fused.to_string(),
                                        set.plain.to_string()));
                }
            }
    }
}

}  // namespace

GateReport gate_fusions(Backend &backend, const GateOptions &options) {
    GateReport report;
    if (!options.op.empty() && options.op != "fusion") return report;
    for (const Rule &rule : kRules) {
        GateRow row;
        row.name = fmt::format("fusion.{}", name(rule.lever));
        if (row.name.find(options.row) == std::string::npos) continue;
        const bool publishes = rule.lever == Lever::publish_q8;
        const bool has_weights = publishes || rule.makes == kind<Contract>() || rule.makes == kind<GateUp>();
        if (options.format && (!has_weights || (publishes && info(*options.format).is_float()))) continue;
        std::vector<Format> formats = {Format::F32, Format::Q4_K, Format::Q6_K, Format::Q8_0};
        if (!has_weights) formats = {Format::F32};
        if (publishes) formats = {Format::Q4_K, Format::Q8_0};
        if (publishes && !backend.fusions().has(rule.lever)) {
            row.not_run = "no row of this device publishes q8";
            report.rows.push_back(std::move(row));
            continue;
        }
        if (options.format) formats = {*options.format};
        for (const Format f : formats)
            for (uint32_t v = 0; v < rule.variants; v++) gate_rule(backend, rule, f, v, options.quick, row);
        row.n_formats = has_weights ? formats.size() : 0;
        if (!has_weights) row.formats = {};
        report.rows.push_back(std::move(row));
    }
    return report;
}

}  // namespace ridge
