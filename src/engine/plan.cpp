#include "engine/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/error.h"
#include "op/cost.h"

namespace ridge {
namespace {

std::string why_not(const Kernel &k, const Program &p, const Op &op, const MatrixOperands &operands,
                    const Backend &device, uint32_t tokens) {
    if (k.input != operands.input)
        return fmt::format("reads {} activations, these are {}", name(k.input), name(operands.input));
    if (!operands.formats.empty() && (k.formats | operands.formats) != k.formats)
        return fmt::format("does not read {}", operands.format_names);
    if (tokens < k.tokens.first) return fmt::format("is for {} tokens or more", k.tokens.first);
    if (tokens > k.tokens.last) return fmt::format("is for {} tokens or fewer", k.tokens.last);
    if ((k.needs & ~device.features()) != 0) return "needs " + device.feature_names(k.needs & ~device.features());
    if (!p.levers.has(k.lever)) return fmt::format("its lever {} is off", name(k.lever));
    if (published(op) != kNone && !k.publishes) return "does not publish q8";
    if (k.refuses)
        if (const std::string_view reason = k.refuses(p, op); !reason.empty()) return std::string(reason);
    return {};
}

std::string describe(const Program &p, const Node &n) {
    struct Names {
        const Program &p;
        std::string text;
        void in(ValueId) {}
        void out(ValueId v) { text += (text.empty() ? "" : ", ") + p.value(v).name; }
        void weight(WeightId) {}
        void state(StateId) {}
    } names{p, {}};
    visit_operands(n.op, names);
    return fmt::format("{} -> {}", op_name(static_cast<OpKind>(n.op.index())), names.text);
}

// First and last node that touches each value.
struct Lifetimes {
    std::vector<uint32_t> first, last;
    std::vector<bool> used;
    uint32_t node = 0;
    explicit Lifetimes(const Program &p)
        : first(p.values.size(), 0), last(p.values.size(), 0), used(p.values.size(), false) {
        for (ValueId v : p.inputs) touch(v);
        for (node = 0; node < p.nodes.size(); node++) visit_operands(p.nodes[node].op, *this);
        for (const ValueId v : {p.logits, p.choice})
            if (v != kNone) last[static_cast<size_t>(v)] = node;
    }
    void touch(ValueId v) {
        const auto i = static_cast<size_t>(v);
        if (!used[i]) first[i] = node;
        used[i] = true;
        last[i] = node;
    }
    void in(ValueId v) { touch(v); }
    void out(ValueId v) { touch(v); }
    void weight(WeightId) {}
    void state(StateId) {}
};

}  // namespace

std::vector<const Kernel *> legal_rows(const Program &p, const Op &op, const Backend &device, uint32_t tokens,
                                       std::vector<Rejection> *rejected) {
    const MatrixOperands operands = matrices_of(p, op);
    std::vector<const Kernel *> legal;
    for (const Kernel &k : device.kernels()) {
        if (k.op != op.index()) continue;
        std::string why = why_not(k, p, op, operands, device, tokens);
        if (why.empty())
            legal.push_back(&k);
        else if (rejected)
            rejected->push_back({&k, std::move(why)});
    }
    std::stable_sort(legal.begin(), legal.end(), [](const Kernel *a, const Kernel *b) { return a->rank > b->rank; });
    return legal;
}

Plan make_plan(const Program &p, std::span<Backend *const> devices, uint32_t tokens) {
    Plan plan;
    plan.tokens = tokens;
    for (uint32_t i = 0; i < p.nodes.size(); i++) {
        const Node &n = p.nodes[i];
        Choice choice{i, nullptr, {}};
        const bool copy = std::holds_alternative<Copy>(n.op);
        if (!copy) {
            const Backend &device = *devices[static_cast<size_t>(n.device)];
            const auto legal = legal_rows(p, n.op, device, tokens, &choice.rejected);
            if (legal.empty()) {
                std::string reasons;
                for (const Rejection &r : choice.rejected) reasons += fmt::format("\n  {}: {}", r.kernel->name, r.why);
                fail(ErrorKind::unsupported, "device {} has no kernel for {} ({}) with {} tokens{}", device.info().name,
                     describe(p, n), matrices_of(p, n.op).format_names, tokens,
                     reasons.empty() ? "; it has no row for this operation" : reasons);
            }
            choice.chosen = legal.front();
            for (size_t j = 1; j < legal.size(); j++)
                choice.rejected.push_back(
                    {legal[j], fmt::format("legal, but of lower rank ({} < {})", legal[j]->rank, legal[0]->rank)});
        }
        const bool extends = !copy && !plan.segments.empty() && plan.segments.back().device == n.device &&
                             !plan.segments.back().is_copy();
        if (!extends) plan.segments.push_back({n.device, {}});
        plan.segments.back().launches.push_back({choice.chosen, i});
        plan.choices.push_back(std::move(choice));
    }
    return plan;
}

std::vector<uint32_t> token_buckets(std::span<Backend *const> devices, uint32_t most) {
    std::set<uint32_t> starts{1};
    for (const Backend *d : devices)
        for (const Kernel &k : d->kernels()) {
            starts.insert(k.tokens.first);
            if (k.tokens.last < most) starts.insert(k.tokens.last + 1);
        }
    std::vector<uint32_t> buckets;
    for (uint32_t s : starts)
        if (s >= 1 && s <= most) buckets.push_back(s);
    return buckets;
}

MemoryPlan plan_memory(const Program &p, const StepLimits &limits, size_t n_devices, bool apart) {
    constexpr size_t kAlign = 256;  // every device's widest loads, and no two values on one cache line
    const Lifetimes life(p);
    MemoryPlan plan;
    plan.offset.assign(p.values.size(), MemoryPlan::kUnused);
    plan.device_bytes.assign(n_devices, 0);

    struct Placed {
        size_t begin, end;
        uint32_t first, last;
    };
    std::vector<std::vector<Placed>> placed(n_devices);
    std::vector<size_t> order;  // larger values first: they leave holes that smaller ones fill
    auto bytes = [&](size_t v) {
        const Value &x = p.values[v];
        const size_t n = rows_of(x, limits.tokens, limits.outputs) * row_bytes(x.type, x.cols);
        return (n + kAlign - 1) / kAlign * kAlign;
    };
    for (size_t v = 0; v < p.values.size(); v++)
        if (life.used[v]) order.push_back(v);
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return bytes(a) > bytes(b); });

    for (size_t v : order) {
        const auto d = static_cast<size_t>(p.values[v].device);
        const size_t need = bytes(v);
        plan.unshared_bytes += need;
        // The lowest gap between values alive at the same time.
        std::vector<Placed> alive;
        for (const Placed &o : placed[d])
            if (apart || (o.first <= life.last[v] && life.first[v] <= o.last)) alive.push_back(o);
        std::sort(alive.begin(), alive.end(), [](const Placed &a, const Placed &b) { return a.begin < b.begin; });
        size_t at = 0;
        for (const Placed &o : alive) {
            if (o.begin >= at + need) break;
            at = std::max(at, o.end);
        }
        plan.offset[v] = at;
        placed[d].push_back({at, at + need, life.first[v], life.last[v]});
        plan.device_bytes[d] = std::max(plan.device_bytes[d], at + need);
    }
    return plan;
}

std::string explain(const Program &p, const Plan &plan, std::span<Backend *const> devices) {
    std::string text = fmt::format("plan for {} token{}, levers: {}\n", plan.tokens, plan.tokens == 1 ? "" : "s",
                                   p.levers.to_string());
    // Nodes of different layers that read alike are told once.
    uint32_t repeats = 0;
    auto flush = [&] {
        if (repeats > 0) text += fmt::format("      ... and {} more like those above, in other layers\n", repeats);
        repeats = 0;
    };
    std::set<std::string> told;
    std::vector<std::string> names;  // of the devices
    for (const Backend *d : devices) names.push_back(d->info().name);
    for (const Choice &c : plan.choices) {
        const Node &n = p.nodes[c.node];
        const std::string &device = names[static_cast<size_t>(n.device)];
        if (!c.chosen) {
            flush();
            text += fmt::format("{:4}  {:8} copy ({})\n", c.node, device, describe(p, n));
            continue;
        }
        const Cost cost = ridge::cost(p, n.op, {.tokens = plan.tokens, .outputs = 1});
        std::string line =
            fmt::format("{:8} {:12} {:12} {:32} {:>9.1f} kB {:>10.2f} Mflop\n", device, op_name(c.chosen->op),
                        matrices_of(p, n.op).format_names, c.chosen->name, cost.bytes() / 1e3, cost.flops / 1e6);
        for (const Rejection &r : c.rejected) line += fmt::format("          not {}: {}\n", r.kernel->name, r.why);
        if (!told.insert(line).second) {
            repeats++;
            continue;
        }
        flush();
        text += fmt::format("{:4}  {}", c.node, line);
    }
    flush();
    text += fmt::format(
        "{} launches in {} segment{}; lines that repeat over layers are shown once; bytes without the KV read\n",
        plan.choices.size(), plan.segments.size(), plan.segments.size() == 1 ? "" : "s");
    return text;
}

}  // namespace ridge
