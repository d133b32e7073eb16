#include "engine/fuse.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

namespace ridge {
namespace {

constexpr size_t kNoNode = static_cast<size_t>(-1);

// Who writes and who reads each value. Rebuilt by each rule: programs have a few hundred nodes.
struct Uses {
    std::vector<size_t> writer;                // node that writes a value
    std::vector<std::vector<size_t>> readers;  // nodes that read it, ascending

    explicit Uses(const Program &p) : writer(p.values.size(), kNoNode), readers(p.values.size()) {
        for (size_t i = 0; i < p.nodes.size(); i++) visit_operands(p.nodes[i].op, Collect{*this, i});
        // The logits have one more reader: the caller.
        if (p.logits != kNone) readers[static_cast<size_t>(p.logits)].push_back(p.nodes.size());
    }
    bool read_only_by(ValueId v, size_t node) const {
        const auto &r = readers[static_cast<size_t>(v)];
        return r.size() == 1 && r[0] == node;
    }
    bool read_once(ValueId v) const { return readers[static_cast<size_t>(v)].size() == 1; }
    size_t first_reader(ValueId v) const {
        const auto &r = readers[static_cast<size_t>(v)];
        return r.empty() ? kNoNode : r[0];
    }

  private:
    struct Collect {
        Uses &u;
        size_t node;
        void in(ValueId v) { u.readers[static_cast<size_t>(v)].push_back(node); }
        void out(ValueId v) { u.writer[static_cast<size_t>(v)] = node; }
        void weight(WeightId) {}
        void state(StateId) {}
    };
};

// What a rule works on: the program, its uses, and the nodes it has made superfluous.
struct Rewrite {
    Program &p;
    Uses uses;
    std::vector<bool> dead;

    explicit Rewrite(Program &program) : p(program), uses(program), dead(program.nodes.size(), false) {}
    ~Rewrite() {
        std::vector<Node> alive;
        for (size_t i = 0; i < p.nodes.size(); i++)
            if (!dead[i]) alive.push_back(std::move(p.nodes[i]));
        p.nodes = std::move(alive);
    }
    Rewrite(const Rewrite &) = delete;
    Rewrite &operator=(const Rewrite &) = delete;

    // The operation that writes `v` if it is a T on the device of `node` and still there; nullptr otherwise.
    template <class T>
    const T *writer(ValueId v, size_t node) const {
        const size_t w = uses.writer[static_cast<size_t>(v)];
        if (w == kNoNode || dead[w] || p.nodes[w].device != p.nodes[node].device) return nullptr;
        return std::get_if<T>(&p.nodes[w].op);
    }
    size_t writer_node(ValueId v) const { return uses.writer[static_cast<size_t>(v)]; }
    void kill(ValueId written) { dead[writer_node(written)] = true; }
};

// glu(contract(gate, x), contract(up, x)) -> gate_up(x), of experts or of others. Banks with biases stay apart.
template <bool kExperts>
void fuse_gate_up(Program &p) {
    Rewrite r(p);
    for (size_t i = 0; i < p.nodes.size(); i++) {
        const Glu *s = std::get_if<Glu>(&p.nodes[i].op);
        if (!s) continue;
        const Contract *gate = r.writer<Contract>(s->gate, i), *up = r.writer<Contract>(s->up, i);
        if (!gate || !up || gate == up || gate->n_banks != 1 || up->n_banks != 1) continue;
        if (gate->x != up->x || gate->ids != up->ids || (gate->ids != kNone) != kExperts) continue;
        const Bank &g = gate->banks[0], &u = up->banks[0];
        if (g.bias != kNone || u.bias != kNone) continue;
        if (info(p.weight(g.weight).format).is_float() != info(p.weight(u.weight).format).is_float()) continue;
        if (!r.uses.read_only_by(s->gate, i) || !r.uses.read_only_by(s->up, i)) continue;
        const GateUp fused{gate->x, gate->ids, s->out, g.weight, u.weight, s->kind};
        r.kill(s->gate), r.kill(s->up);
        p.nodes[i].op = fused;
    }
}

// Contractions without ids that read the same value become one launch of up to three banks, in place of the first.
void fuse_qkv(Program &p) {
    Rewrite r(p);
    std::map<ValueId, size_t> open;  // value -> node of the group that still takes banks
    for (size_t i = 0; i < p.nodes.size(); i++) {
        const Contract *c = std::get_if<Contract>(&p.nodes[i].op);
        if (!c || c->ids != kNone || c->n_banks != 1) continue;
        auto [it, is_new] = open.try_emplace(c->x, i);
        if (is_new) continue;
        auto &group = std::get<Contract>(p.nodes[it->second].op);
        const bool same_kind = info(p.weight(group.banks[0].weight).format).is_float() ==
                               info(p.weight(c->banks[0].weight).format).is_float();
        if (group.n_banks == group.banks.size() || !same_kind || p.nodes[it->second].device != p.nodes[i].device) {
            it->second = i;
            continue;
        }
        group.banks[group.n_banks++] = c->banks[0];
        r.dead[i] = true;
    }
}

// rope([norm] q), rope([norm] k), kv_write -> qk_norm_rope, in place of the kv_write.
void fuse_qk_norm_rope(Program &p) {
    Rewrite r(p);
    // The per-head norm in front of a rope, where it is there and nothing else reads it.
    auto norm_before = [&](const Rope &rope, size_t node) -> const RmsNorm * {
        const RmsNorm *n = r.writer<RmsNorm>(rope.x, node);
        return n && n->width == rope.head_dim && r.uses.read_once(rope.x) ? n : nullptr;
    };
    for (size_t i = 0; i < p.nodes.size(); i++) {
        const KvWrite *w = std::get_if<KvWrite>(&p.nodes[i].op);
        if (!w) continue;
        const Rope *k = r.writer<Rope>(w->k, i);
        if (!k || !r.uses.read_only_by(w->k, i)) continue;
        // The query's rope: the nearest one before that shares the table and is read only after the write.
        std::optional<size_t> q_node;
        for (size_t j = i; j-- > 0 && !q_node && p.nodes[j].layer == p.nodes[i].layer;) {
            const Rope *q = std::get_if<Rope>(&p.nodes[j].op);
            if (q && q != k && !r.dead[j] && q->table == k->table && q->pairs == k->pairs &&
                q->head_dim == k->head_dim && p.nodes[j].device == p.nodes[i].device && r.uses.first_reader(q->out) > i)
                q_node = j;
        }
        if (!q_node) continue;
        const Rope *q = &std::get<Rope>(p.nodes[*q_node].op);
        const RmsNorm *qn = norm_before(*q, i), *kn = norm_before(*k, i);
        if (qn && kn && qn->eps != kn->eps) continue;
        QkNormRope f{.q = qn ? qn->x : q->x, .k = kn ? kn->x : k->x, .v = w->v, .table = q->table, .q_out = q->out};
        f.k_state = w->k_state, f.v_state = w->v_state, f.head_dim = q->head_dim, f.pairs = q->pairs;
        if (qn) f.q_norm = qn->weight, f.eps = qn->eps, r.kill(q->x);
        if (kn) f.k_norm = kn->weight, f.eps = kn->eps, r.kill(k->x);
        r.dead[*q_node] = true;
        r.kill(w->k);
        p.nodes[i].op = f;
    }
}

// rmsnorm(add(a, b)) -> add_rmsnorm, in place of the add; the sum stays readable.
void fuse_add_rmsnorm(Program &p) {
    Rewrite r(p);
    for (size_t i = 0; i < p.nodes.size(); i++) {
        const RmsNorm *n = std::get_if<RmsNorm>(&p.nodes[i].op);
        if (!n || n->width != p.value(n->x).cols) continue;
        const Add *a = r.writer<Add>(n->x, i);
        if (!a) continue;
        const AddRmsNorm fused{a->a, a->b, a->out, n->out, n->weight, n->eps, a->scale};
        p.nodes[r.writer_node(n->x)].op = fused;
        r.dead[i] = true;
    }
}

// add_rmsnorm(a, moe_combine(b, weights)) -> add_rmsnorm(a, b, weights), where nothing else reads the combined rows.
void fuse_combine_rmsnorm(Program &p) {
    Rewrite r(p);
    for (size_t i = 0; i < p.nodes.size(); i++) {
        AddRmsNorm *n = std::get_if<AddRmsNorm>(&p.nodes[i].op);
        if (!n || n->slots != kNone || !r.uses.read_only_by(n->b, i)) continue;
        const MoeCombine *c = r.writer<MoeCombine>(n->b, i);
        if (!c) continue;
        r.kill(n->b);
        n->b = c->x, n->slots = c->weights;
    }
}

// [normalize](top_k(softmax(x))) -> moe_route, in place of the top_k.
void fuse_moe_route(Program &p) {
    Rewrite r(p);
    for (size_t i = 0; i < p.nodes.size(); i++) {
        const TopK *t = std::get_if<TopK>(&p.nodes[i].op);
        if (!t) continue;
        const Softmax *s = r.writer<Softmax>(t->x, i);
        if (!s || !r.uses.read_only_by(t->x, i)) continue;
        MoeRoute f{s->x, t->ids, t->weights, false};
        const size_t next = r.uses.first_reader(t->weights);
        if (next < p.nodes.size() && r.uses.read_once(t->weights) && p.nodes[next].device == p.nodes[i].device)
            if (const Normalize *n = std::get_if<Normalize>(&p.nodes[next].op)) {
                f.weights = n->out, f.normalize = true;
                r.dead[next] = true;
            }
        r.kill(t->x);
        p.nodes[i].op = f;
    }
}

// Every contraction of block formats reads a quantised copy of its input, made once per value and device before its
// first reader, or, with fold_quantize, before each of them.
void lower_int8_dot(Program &p) {
    std::map<std::pair<ValueId, DeviceId>, ValueId> quantized;
    std::vector<Node> nodes;
    auto input = [&](ValueId x, const Node &n) {
        auto [it, is_new] = quantized.try_emplace({x, n.device}, kNone);
        if (is_new || p.levers.has(Lever::fold_quantize)) {
            Value q = p.value(x);
            q.type = DType::q8, q.device = n.device;
            q.name += ".q8";
            it->second = p.add_value(q);
            nodes.push_back({Quantize{x, it->second}, n.device, n.layer});
        }
        return it->second;
    };
    auto wants = [&](WeightId w, ValueId x) {
        return !info(p.weight(w).format).is_float() && p.weight(w).k % 32 == 0 && p.value(x).type == DType::f32;
    };
    for (Node n : p.nodes) {
        if (Contract *c = std::get_if<Contract>(&n.op)) {
            if (wants(c->banks[0].weight, c->x)) c->x = input(c->x, n);
        } else if (GateUp *g = std::get_if<GateUp>(&n.op)) {
            if (wants(g->gate, g->x)) g->x = input(g->x, n);
        }
        nodes.push_back(std::move(n));
    }
    p.nodes = std::move(nodes);
}

// Keys and values in f32 where they were f16.
void keep_f32(Program &p) {
    for (State &s : p.states)
        if (s.type == DType::f16) s.type = DType::f32;
}

// quantize(y), y from a T -> that T with q8, in its place.
template <class T>
void publish(Rewrite &r, const Quantize &q, size_t node) {
    const T *found = r.writer<T>(q.x, node);
    if (!found || found->q8 != kNone) return;
    T &producer = std::get<T>(r.p.nodes[r.writer_node(q.x)].op);
    producer.q8 = q.out;
    producer.out_read = !r.uses.read_only_by(q.x, node);
    r.dead[node] = true;
}

void publish_q8(Program &p, std::span<const LeverSet> devices) {
    Rewrite r(p);
    for (size_t i = 0; i < p.nodes.size(); i++) {
        const Quantize *q = std::get_if<Quantize>(&p.nodes[i].op);
        const auto d = static_cast<size_t>(p.nodes[i].device);
        if (!q || d >= devices.size() || !devices[d].has(Lever::publish_q8)) continue;
        publish<RmsNorm>(r, *q, i), publish<AddRmsNorm>(r, *q, i);
        publish<Attention>(r, *q, i), publish<GateUp>(r, *q, i);
    }
}

// In order: gate_up takes its pair before qkv groups what is left.
constexpr struct Rule {
    Lever lever;
    void (*apply)(Program &);
} kRules[] = {
    {Lever::moe_route, fuse_moe_route},
    {Lever::gate_up, fuse_gate_up<false>},
    {Lever::moe_pair, fuse_gate_up<true>},
    {Lever::qkv, fuse_qkv},
    {Lever::qk_norm_rope, fuse_qk_norm_rope},
    {Lever::add_rmsnorm, fuse_add_rmsnorm},
    {Lever::combine_rmsnorm, fuse_combine_rmsnorm},
    {Lever::int8_dot, lower_int8_dot},
    {Lever::f32_native, keep_f32},
};

}  // namespace

Program fuse(Program p, LeverSet levers, std::span<const LeverSet> devices) {
    p.levers = levers;
    for (const Rule &rule : kRules)
        if (levers.has(rule.lever)) rule.apply(p);
    if (levers.has(Lever::publish_q8) && !levers.has(Lever::fold_quantize)) publish_q8(p, devices);
    return p;
}

}  // namespace ridge
