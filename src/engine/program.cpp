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
        for (ValueId v : p_.inputs) written_.at(static_cast<size_t>(v)) = true;
        for (size_t i = 0; i < p_.nodes.size(); i++) {
            node_ = i;
            const Node &n = p_.nodes[i];
            is_copy_ = std::holds_alternative<Copy>(n.op);
            visit_operands(n.op, *this);
            std::visit([&](const auto &op) { shapes(op); }, n.op);
        }
        if (p_.logits != kNone && !written_.at(static_cast<size_t>(p_.logits))) error("logits are never written");
    }

    void in(ValueId v) {
        require(v >= 0 && static_cast<size_t>(v) < p_.values.size(), "input does not exist");
        require(written_[static_cast<size_t>(v)], "reads " + p_.value(v).name + " before it is written");
        require(is_copy_ || p_.value(v).device == device(), "reads " + p_.value(v).name + " on another device");
    }
    void out(ValueId v) {
        require(v >= 0 && static_cast<size_t>(v) < p_.values.size(), "output does not exist");
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
    [[noreturn]] void error(const std::string &what) const {
        throw std::logic_error(
            fmt::format("program node {} ({}): {}", node_,
                        node_ < p_.nodes.size() ? op_name(static_cast<OpKind>(p_.nodes[node_].op.index())) : "", what));
    }
    void require(bool ok, const std::string &what) const {
        if (!ok) error(what);
    }
    void same_shape(ValueId a, ValueId b) const {
        const Value &x = p_.value(a), &y = p_.value(b);
        require(x.cols == y.cols && x.rows == y.rows && x.per_row == y.per_row,
                fmt::format("{} and {} have different shapes", x.name, y.name));
    }
    void type(ValueId v, DType t) const { require(p_.value(v).type == t, p_.value(v).name + " has the wrong type"); }
    void vector_weight(WeightId w, uint32_t n) const {
        const Weight &x = p_.weight(w);
        require(x.n == 1 && x.experts == 1 && x.k == n && x.format == Format::F32,
                x.name + " is not an F32 vector of the right length");
    }
    void matrix(ValueId x, ValueId out, ValueId ids, WeightId w) const {
        const Weight &m = p_.weight(w);
        require(m.k == cols(x),
                fmt::format("{} has k {} but {} has {} columns", m.name, m.k, p_.value(x).name, cols(x)));
        require(m.n == cols(out),
                fmt::format("{} has n {} but {} has {} columns", m.name, m.n, p_.value(out).name, cols(out)));
        require((ids != kNone) || m.experts == 1, m.name + " holds experts, but there are no ids");
        if (ids != kNone) {
            type(ids, DType::i32);
            require(p_.value(out).per_row == cols(ids), "output rows are not tokens times slots");
            require(p_.value(x).per_row == 1 || p_.value(x).per_row == cols(ids),
                    "input rows are neither tokens nor slots");
        } else {
            require(p_.value(x).per_row == p_.value(out).per_row && p_.value(x).rows == p_.value(out).rows,
                    "rows differ");
        }
    }
    void kv(ValueId k, ValueId v, StateId ks, StateId vs) const {
        require(cols(k) == p_.state(ks).cols && cols(v) == p_.state(vs).cols, "k or v do not fit their state");
    }

    void shapes(const Embed &o) const {
        require(p_.weight(o.table).k == cols(o.out), "table and output differ in width");
    }
    void shapes(const RmsNorm &o) const {
        same_shape(o.x, o.out);
        require(o.width > 0 && cols(o.x) % o.width == 0, "width does not divide the columns");
        vector_weight(o.weight, o.width);
    }
    void shapes(const Quantize &o) const {
        same_shape(o.x, o.out);
        type(o.x, DType::f32), type(o.out, DType::q8);
        require(cols(o.x) % 32 == 0, "columns are not a multiple of 32");
    }
    void shapes(const Contract &o) const {
        require(o.n_banks >= 1 && o.n_banks <= o.banks.size(), "number of banks");
        for (uint32_t b = 0; b < o.n_banks; b++) {
            matrix(o.x, o.banks[b].out, o.ids, o.banks[b].weight);
            if (o.banks[b].bias != kNone) vector_weight(o.banks[b].bias, cols(o.banks[b].out));
        }
    }
    void shapes(const GateUp &o) const {
        matrix(o.x, o.out, o.ids, o.gate);
        matrix(o.x, o.out, o.ids, o.up);
    }
    void shapes(const RopeTable &o) const { require(o.frequency.size() * 2 == cols(o.out), "frequencies and columns"); }
    void shapes(const Rope &o) const {
        same_shape(o.x, o.out);
        require(o.head_dim > 0 && cols(o.x) % o.head_dim == 0 && cols(o.table) <= o.head_dim, "head size");
    }
    void shapes(const KvWrite &o) const { kv(o.k, o.v, o.k_state, o.v_state); }
    void shapes(const Attention &o) const {
        require(o.kv_heads > 0 && o.heads % o.kv_heads == 0, "kv heads do not divide the heads");
        require(cols(o.q) == o.heads * o.head_dim && cols(o.out) == cols(o.q), "q or out are not heads * head_dim");
        require(p_.state(o.k_state).cols == o.kv_heads * o.head_dim, "state is not kv_heads * head_dim");
    }
    void shapes(const SiluMul &o) const { same_shape(o.gate, o.up), same_shape(o.gate, o.out); }
    void shapes(const Add &o) const { same_shape(o.a, o.b), same_shape(o.a, o.out); }
    void shapes(const Softmax &o) const { same_shape(o.x, o.out); }
    void shapes(const TopK &o) const {
        same_shape(o.ids, o.weights);
        type(o.ids, DType::i32);
        require(cols(o.ids) <= cols(o.x), "more wanted than there are");
    }
    void shapes(const Normalize &o) const { same_shape(o.x, o.out); }
    void shapes(const MoeCombine &o) const {
        require(p_.value(o.x).per_row == cols(o.weights) && cols(o.x) == cols(o.out), "slots or columns differ");
    }
    void shapes(const GatherRows &o) const {
        require(cols(o.x) == cols(o.out) && p_.value(o.out).rows == Rows::outputs, "output is not (outputs, n)");
    }
    void shapes(const Copy &o) const {
        same_shape(o.x, o.out);
        require(p_.value(o.x).type == p_.value(o.out).type, "types differ");
    }
    void shapes(const AddRmsNorm &o) const {
        same_shape(o.a, o.b), same_shape(o.a, o.sum), same_shape(o.a, o.out);
        vector_weight(o.weight, cols(o.a));
    }
    void shapes(const QkNormRope &o) const {
        same_shape(o.q, o.q_out);
        kv(o.k, o.v, o.k_state, o.v_state);
        if (o.q_norm != kNone) vector_weight(o.q_norm, o.head_dim);
        if (o.k_norm != kNone) vector_weight(o.k_norm, o.head_dim);
    }
    void shapes(const MoeRoute &o) const {
        same_shape(o.ids, o.weights);
        type(o.ids, DType::i32);
    }

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
