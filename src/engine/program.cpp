#include "engine/program.h"

#include <fmt/format.h>

#include <stdexcept>

namespace ridge {
namespace {

// Walks a program in order and remembers what has been written.
class Checker {
  public:
    explicit Checker(const Program &p) : p_(p), written_(p.values.size(), false) {}

    void check_all() {
        for (ValueId v : p_.inputs) {
            if (!exists(v)) fault("program input {} does not exist", v);
            written_[static_cast<size_t>(v)] = true;
        }
        for (size_t i = 0; i < p_.nodes.size(); i++) {
            node_ = i;
            const Node &n = p_.nodes[i];
            is_copy_ = std::holds_alternative<Copy>(n.op);
            // Before the banks are visited, which trusts it.
            if (const Contract *c = std::get_if<Contract>(&n.op))
                require(c->n_banks >= 1 && c->n_banks <= c->banks.size(), "number of banks");
            visit_operands(n.op, *this);
            std::visit([&](const auto &op) { shapes(op); }, n.op);
        }
        if (p_.logits == kNone) return;
        if (!exists(p_.logits)) fault("program logits {} do not exist", p_.logits);
        const Value &logits = p_.value(p_.logits);
        if (!written_[static_cast<size_t>(p_.logits)]) fault("program logits {} are never written", logits.name);
        if (logits.type != DType::f32 || logits.rows != Rows::outputs || logits.per_row != 1)
            fault("program logits {} are not (outputs, n) f32", logits.name);
        if (p_.choice == kNone) return;
        if (!exists(p_.choice)) fault("program choice {} does not exist", p_.choice);
        const Value &choice = p_.value(p_.choice);
        if (!written_[static_cast<size_t>(p_.choice)]) fault("program choice {} is never written", choice.name);
        if (choice.type != DType::i32 || choice.rows != Rows::outputs || choice.per_row != 1 || choice.cols != 1)
            fault("program choice {} is not (outputs, 1) i32", choice.name);
    }

    void in(ValueId v) {
        require(exists(v), "input does not exist");
        require(written_[static_cast<size_t>(v)], "reads " + p_.value(v).name + " before it is written");
        require(is_copy_ || p_.value(v).device == device(), "reads " + p_.value(v).name + " on another device");
    }
    void out(ValueId v) {
        require(exists(v), "output does not exist");
        require(!written_[static_cast<size_t>(v)], "writes " + p_.value(v).name + " twice");
        require(p_.value(v).device == device(), "writes " + p_.value(v).name + " on another device");
        written_[static_cast<size_t>(v)] = true;
    }
    void weight(WeightId w) { require(w >= 0 && static_cast<size_t>(w) < p_.weights.size(), "weight does not exist"); }
    void state(StateId s) {
        require(s >= 0 && static_cast<size_t>(s) < p_.states.size(), "state does not exist");
        require(p_.state(s).device == device(), "uses " + p_.state(s).name + " on another device");
    }

  private:
    DeviceId device() const { return p_.nodes[node_].device; }
    uint32_t cols(ValueId v) const { return p_.value(v).cols; }
    bool exists(ValueId v) const { return v >= 0 && static_cast<size_t>(v) < p_.values.size(); }
    template <class... Args>
    [[noreturn]] static void fault(fmt::format_string<Args...> text, Args &&...args) {
        throw std::logic_error(fmt::format(text, std::forward<Args>(args)...));
    }
    [[noreturn]] void error(const std::string &what) const {
        fault("program node {} ({}): {}", node_, op_name(static_cast<OpKind>(p_.nodes[node_].op.index())), what);
    }
    void require(bool ok, const std::string &what) const {
        if (!ok) error(what);
    }
    void same_rows(ValueId a, ValueId b) const {
        const Value &x = p_.value(a), &y = p_.value(b);
        require(x.rows == y.rows && x.per_row == y.per_row,
                fmt::format("{} and {} have different rows", x.name, y.name));
    }
    void same_shape(ValueId a, ValueId b) const {
        const Value &x = p_.value(a), &y = p_.value(b);
        require(x.cols == y.cols && x.rows == y.rows && x.per_row == y.per_row,
                fmt::format("{} and {} have different shapes", x.name, y.name));
    }
    // A row per token: what meets positions and sequences.
    void per_token(ValueId v) const {
        require(p_.value(v).rows == Rows::tokens && p_.value(v).per_row == 1,
                p_.value(v).name + " has not one row per token");
    }
    template <class... V>
    void f32(V... v) const {
        (type(v, DType::f32), ...);
    }
    void type(ValueId v, DType t) const { require(p_.value(v).type == t, p_.value(v).name + " has the wrong type"); }
    void q8_of(ValueId out, ValueId q8) const {
        if (q8 == kNone) return;
        same_shape(out, q8), type(q8, DType::q8);
        require(cols(q8) % 32 == 0, "columns to publish are not a multiple of 32");
    }
    void vector_weight(WeightId w, uint32_t n, uint32_t experts = 1) const {
        const Weight &x = p_.weight(w);
        require(x.n == 1 && x.experts == experts && x.k == n && x.format == Format::F32,
                x.name + " is not an F32 vector of the right length");
    }
    void matrix(ValueId x, ValueId out, ValueId ids, WeightId w) const {
        const Weight &m = p_.weight(w);
        require(p_.value(x).type == DType::f32 || p_.value(x).type == DType::q8,
                p_.value(x).name + " is not f32 or q8");
        f32(out);
        require(m.k % info(m.format).block == 0, m.name + " has rows that are not whole blocks");
        require(m.k == cols(x),
                fmt::format("{} has k {} but {} has {} columns", m.name, m.k, p_.value(x).name, cols(x)));
        require(m.n == cols(out),
                fmt::format("{} has n {} but {} has {} columns", m.name, m.n, p_.value(out).name, cols(out)));
        require((ids != kNone) || m.experts == 1, m.name + " holds experts, but there are no ids");
        require(p_.value(x).rows == p_.value(out).rows, "rows differ");
        if (ids != kNone) {
            type(ids, DType::i32);
            require(p_.value(ids).rows == p_.value(out).rows && p_.value(ids).per_row == 1,
                    "ids are not (tokens, slots)");
            require(p_.value(out).per_row == cols(ids), "output rows are not tokens times slots");
            require(cols(ids) <= m.experts, m.name + " holds fewer experts than there are slots");
            require(p_.value(x).per_row == 1 || p_.value(x).per_row == cols(ids),
                    "input rows are neither tokens nor slots");
        } else {
            require(p_.value(x).per_row == p_.value(out).per_row, "rows differ");
        }
    }
    void kv(ValueId k, ValueId v, StateId ks, StateId vs) const {
        f32(k, v), per_token(k), per_token(v);
        require(cols(k) == p_.state(ks).cols && cols(v) == p_.state(vs).cols, "k or v do not fit their state");
        kv_state(ks), kv_state(vs);
    }
    void kv_state(StateId s) const {
        const State &x = p_.state(s);
        require(x.per == State::Per::token && is_kv_type(x.type), x.name + " is not f32, f16 or q8_0 per token");
        require(x.type != DType::q8_0 || x.cols % 32 == 0, x.name + " is q8_0, but not in whole blocks of 32");
    }
    // Heads are written and read one by one.
    void kv_heads(StateId k, StateId v, uint32_t head_dim) const {
        for (StateId s : {k, v})
            require(p_.state(s).type != DType::q8_0 || head_dim % 32 == 0,
                    fmt::format("{} is q8_0, but heads of {} are not whole blocks of 32", p_.state(s).name, head_dim));
    }
    void heads(ValueId x, ValueId table, uint32_t head_dim) const {
        f32(x, table), per_token(x), per_token(table);
        require(head_dim > 0 && cols(x) % head_dim == 0 && cols(table) <= head_dim && cols(table) % 2 == 0,
                "head size");
    }
    // x has a row for each slot of weights, of the columns of out.
    void combined(ValueId x, ValueId weights, ValueId out) const {
        same_rows(weights, out);
        require(p_.value(x).rows == p_.value(out).rows && p_.value(x).per_row == cols(weights) && cols(x) == cols(out),
                "slots or columns differ");
    }
    void route(ValueId x, ValueId ids, ValueId weights) const {
        same_shape(ids, weights), same_rows(x, ids);
        f32(x, weights), type(ids, DType::i32);
        require(cols(ids) <= cols(x), "more wanted than there are");
    }

    void shapes(const Embed &o) const {
        f32(o.out), per_token(o.out);
        require(p_.weight(o.table).k == cols(o.out), "table and output differ in width");
    }
    void shapes(const RmsNorm &o) const {
        same_shape(o.x, o.out), f32(o.x, o.out), q8_of(o.out, o.q8);
        require(o.width > 0 && cols(o.x) % o.width == 0, "width does not divide the columns");
        vector_weight(o.weight, o.width);
    }
    void shapes(const Quantize &o) const {
        same_shape(o.x, o.out);
        f32(o.x), type(o.out, DType::q8);
        require(cols(o.x) % 32 == 0, "columns are not a multiple of 32");
    }
    void shapes(const Contract &o) const {
        for (uint32_t b = 0; b < o.n_banks; b++) {
            matrix(o.x, o.banks[b].out, o.ids, o.banks[b].weight);
            if (o.banks[b].bias != kNone)
                vector_weight(o.banks[b].bias, cols(o.banks[b].out), p_.weight(o.banks[b].weight).experts);
        }
    }
    void shapes(const GateUp &o) const {
        matrix(o.x, o.out, o.ids, o.gate);
        matrix(o.x, o.out, o.ids, o.up);
        require(p_.weight(o.gate).experts == p_.weight(o.up).experts, "gate and up differ in experts");
        q8_of(o.out, o.q8);
    }
    void shapes(const RopeTable &o) const {
        f32(o.out), per_token(o.out);
        require(o.frequency.size() * 2 == cols(o.out), "frequencies and columns");
        require(o.long_frequency.empty() || o.long_frequency.size() == o.frequency.size(), "long frequencies");
        require(o.temperature == 0 || o.temperature_every > 0, "temperature");
    }
    void shapes(const Rope &o) const {
        same_shape(o.x, o.out), f32(o.out);
        heads(o.x, o.table, o.head_dim);
    }
    void shapes(const KvWrite &o) const { kv(o.k, o.v, o.k_state, o.v_state); }
    void shapes(const Attention &o) const {
        f32(o.q, o.out), per_token(o.q), per_token(o.out), q8_of(o.out, o.q8);
        require(o.kv_heads > 0 && o.heads % o.kv_heads == 0, "kv heads do not divide the heads");
        require(cols(o.q) == o.heads * o.head_dim && cols(o.out) == cols(o.q), "q or out are not heads * head_dim");
        require(
            p_.state(o.k_state).cols == o.kv_heads * o.head_dim && p_.state(o.v_state).cols == p_.state(o.k_state).cols,
            "state is not kv_heads * head_dim");
        kv_state(o.k_state), kv_state(o.v_state), kv_heads(o.k_state, o.v_state, o.head_dim);
        if (o.sinks != kNone) vector_weight(o.sinks, o.heads);
    }
    void shapes(const Glu &o) const { same_shape(o.gate, o.up), same_shape(o.gate, o.out), f32(o.gate, o.up, o.out); }
    void shapes(const Add &o) const { same_shape(o.a, o.b), same_shape(o.a, o.out), f32(o.a, o.b, o.out); }
    void shapes(const Scale &o) const { same_shape(o.x, o.out), f32(o.x, o.out); }
    void shapes(const RowGate &o) const {
        same_shape(o.x, o.out), same_rows(o.x, o.gate), f32(o.x, o.gate, o.out);
        require(cols(o.gate) == 1, "the gate has more than one column");
    }
    void shapes(const Softmax &o) const { same_shape(o.x, o.out), f32(o.x, o.out); }
    void shapes(const TopK &o) const { route(o.x, o.ids, o.weights); }
    void shapes(const Normalize &o) const { same_shape(o.x, o.out), f32(o.x, o.out); }
    void shapes(const MoeCombine &o) const {
        f32(o.x, o.weights, o.out), combined(o.x, o.weights, o.out);
    }
    void shapes(const GatherRows &o) const {
        f32(o.x, o.out), per_token(o.x);
        require(cols(o.x) == cols(o.out) && p_.value(o.out).rows == Rows::outputs && p_.value(o.out).per_row == 1,
                "output is not (outputs, n)");
    }
    void shapes(const ArgMax &o) const {
        f32(o.x), type(o.ids, DType::i32), same_rows(o.x, o.ids);
        require(cols(o.ids) == 1, "ids have more than one column");
    }
    void shapes(const Sample &o) const {
        f32(o.x), type(o.ids, DType::i32), same_rows(o.x, o.ids);
        require(cols(o.ids) == 1, "ids have more than one column");
        require(p_.value(o.x).rows == Rows::outputs && p_.value(o.x).per_row == 1, "a row is no output");
    }
    void shapes(const Copy &o) const {
        same_shape(o.x, o.out);
        require(p_.value(o.x).type == p_.value(o.out).type, "types differ");
    }
    void shapes(const AddRmsNorm &o) const {
        same_shape(o.a, o.sum), same_shape(o.a, o.out), f32(o.a, o.b, o.sum, o.out), q8_of(o.out, o.q8);
        if (o.slots != kNone)
            f32(o.slots), combined(o.b, o.slots, o.a);
        else
            same_shape(o.a, o.b);
        vector_weight(o.weight, cols(o.a));
    }
    void shapes(const QkNormRope &o) const {
        same_shape(o.q, o.q_out), f32(o.q_out);
        heads(o.q, o.table, o.head_dim), heads(o.k, o.table, o.head_dim);
        kv(o.k, o.v, o.k_state, o.v_state), kv_heads(o.k_state, o.v_state, o.head_dim);
        if (o.q_norm != kNone) vector_weight(o.q_norm, o.head_dim);
        if (o.k_norm != kNone) vector_weight(o.k_norm, o.head_dim);
    }
    void shapes(const MoeRoute &o) const { route(o.logits, o.ids, o.weights); }

    const Program &p_;
    std::vector<bool> written_;
    size_t node_ = 0;
    bool is_copy_ = false;
};

struct Printer {
    const Program &p;
    std::string reads, writes;
    void add(std::string &to, const std::string &text) { to += (to.empty() ? "" : ", ") + text; }
    std::string shape(ValueId v) const {
        const Value &x = p.value(v);
        return fmt::format("{}[{}{},{} {}]", x.name, x.rows == Rows::tokens ? "m" : "outputs",
                           x.per_row > 1 ? fmt::format("*{}", x.per_row) : "", x.cols, name(x.type));
    }
    void in(ValueId v) { add(reads, shape(v)); }
    void out(ValueId v) { add(writes, shape(v)); }
    void weight(WeightId w) {
        const Weight &x = p.weight(w);
        add(reads, fmt::format("{}({} {}{}x{})", x.name, info(x.format).name,
                               x.experts > 1 ? fmt::format("{}x", x.experts) : "", x.n, x.k));
    }
    void state(StateId s) { add(reads, fmt::format("state {}", p.state(s).name)); }
};

}  // namespace

MatrixOperands matrices_of(const Program &p, const Op &op) {
    MatrixOperands m;
    const auto add = [&](WeightId w) {
        const FormatInfo &f = info(p.weight(w).format);
        if (m.formats.has(f.id)) return;
        m.formats = m.formats | FormatSet{f.id};
        m.format_names += (m.format_names.empty() ? "" : "+") + std::string(f.name);
    };
    if (const Embed *e = std::get_if<Embed>(&op)) add(e->table);
    if (const Contract *c = std::get_if<Contract>(&op)) {
        m.input = p.value(c->x).type;
        for (uint32_t b = 0; b < c->n_banks; b++) add(c->banks[b].weight);
    }
    if (const GateUp *g = std::get_if<GateUp>(&op)) {
        m.input = p.value(g->x).type;
        add(g->gate), add(g->up);
    }
    return m;
}

void check(const Program &p) { Checker(p).check_all(); }

std::string to_string(const Program &p) {
    std::string text;
    for (size_t i = 0; i < p.nodes.size(); i++) {
        const Node &n = p.nodes[i];
        Printer operands{p, {}, {}};
        visit_operands(n.op, operands);
        text += fmt::format("{:4} layer {:3} device {} {:12} {} -> {}\n", i, n.layer, n.device,
                            op_name(static_cast<OpKind>(n.op.index())), operands.reads, operands.writes);
    }
    return text;
}

}  // namespace ridge
