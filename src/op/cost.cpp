#include "op/cost.h"

#include <cmath>

namespace ridge {
namespace {

// Bytes of the value and state operands; weights are counted by the operations themselves.
struct Traffic {
    const Program &p;
    const StepCount &step;
    Cost cost{};
    double bytes(ValueId v) const {
        const Value &x = p.value(v);
        return static_cast<double>(rows_of(x, step.tokens, step.outputs) * row_bytes(x.type, x.cols));
    }
    void in(ValueId v) { cost.read_bytes += bytes(v); }
    void out(ValueId v) { cost.write_bytes += bytes(v); }
    void weight(WeightId) {}
    void state(StateId) {}
};

class Estimate {
  public:
    Estimate(const Program &p, const StepCount &step, Cost base) : p_(p), step_(step), c_(base) {}
    Cost result() const { return c_; }

    void operator()(const Embed &o) {
        const Weight &w = p_.weight(o.table);
        c_.weight_bytes += static_cast<double>(row_bytes(w.format, w.k)) * step_.tokens;
    }
    void operator()(const RmsNorm &o) { vector(o.weight), c_.flops += 4 * elements(o.x), publish(o); }
    void operator()(const Quantize &o) { c_.flops += 3 * elements(o.x); }
    void operator()(const Contract &o) {
        for (uint32_t b = 0; b < o.n_banks; b++) {
            matrix(o.banks[b].weight, o.banks[b].out);
            if (o.banks[b].bias != kNone) vector(o.banks[b].bias);
        }
    }
    void operator()(const GateUp &o) {
        matrix(o.gate, o.out), matrix(o.up, o.out);
        c_.flops += 4 * elements(o.out);
        publish(o);
    }
    void operator()(const RopeTable &o) { c_.flops += 2 * elements(o.out); }
    void operator()(const Rope &o) { c_.flops += 3 * elements(o.x); }
    void operator()(const KvWrite &o) { kv_write(o.k_state, o.v_state); }
    void operator()(const Attention &o) {
        if (o.sinks != kNone) vector(o.sinks);
        // Grouped heads share a read of their KV; every head computes over it.
        c_.read_bytes += step_.kv_rows * (per_position(o.k_state) + per_position(o.v_state));
        c_.flops += 4.0 * o.heads * o.head_dim * step_.kv_positions;
        publish(o);
    }
    void operator()(const Glu &o) { c_.flops += 4 * elements(o.out); }
    void operator()(const Add &o) { c_.flops += elements(o.out); }
    void operator()(const Scale &o) { c_.flops += (o.softcap > 0 ? 5 : 1) * elements(o.out); }
    void operator()(const RowGate &o) { c_.flops += elements(o.out); }
    void operator()(const Softmax &o) { c_.flops += 4 * elements(o.x); }
    void operator()(const TopK &o) { c_.flops += elements(o.x) * p_.value(o.ids).cols; }
    void operator()(const Normalize &o) { c_.flops += 2 * elements(o.x); }
    void operator()(const MoeCombine &o) { c_.flops += 2 * elements(o.x); }
    void operator()(const GatherRows &) { c_.read_bytes = c_.write_bytes; }
    void operator()(const ArgMax &o) { c_.flops += elements(o.x); }
    void operator()(const Sample &o) { c_.flops += elements(o.x); }
    void operator()(const Copy &) {}
    void operator()(const AddRmsNorm &o) {
        vector(o.weight), c_.flops += 5 * elements(o.a), publish(o);
        if (o.slots != kNone) c_.flops += 2 * elements(o.b);
    }
    void operator()(const QkNormRope &o) {
        kv_write(o.k_state, o.v_state);
        if (o.q_norm != kNone) vector(o.q_norm);
        if (o.k_norm != kNone) vector(o.k_norm);
        c_.flops += 7 * (elements(o.q) + elements(o.k));
    }
    void operator()(const MoeRoute &o) { c_.flops += elements(o.logits) * (4 + p_.value(o.ids).cols); }

  private:
    double elements(ValueId v) const {
        return static_cast<double>(rows_of(p_.value(v), step_.tokens, step_.outputs)) * p_.value(v).cols;
    }
    double per_position(StateId s) const { return static_cast<double>(row_bytes(p_.state(s).type, p_.state(s).cols)); }
    void vector(WeightId w) { c_.weight_bytes += static_cast<double>(p_.weight(w).bytes()); }
    // The q8 form is counted with the operands; an output that nobody reads need not be written.
    template <class T>
    void publish(const T &o) {
        if (o.q8 == kNone) return;
        c_.flops += 3 * elements(o.out);
        if (!o.out_read) c_.write_bytes -= elements(o.out) * sizeof(float);
    }
    void kv_write(StateId k, StateId v) { c_.write_bytes += step_.tokens * (per_position(k) + per_position(v)); }
    void matrix(WeightId id, ValueId out) {
        const Weight &w = p_.weight(id);
        double share = 1;
        if (w.experts > 1)
            share = step_.expert_share >= 0
                        ? step_.expert_share
                        : 1 - std::pow(1 - static_cast<double>(p_.value(out).per_row) / w.experts, step_.tokens);
        c_.weight_bytes += share * static_cast<double>(w.bytes());
        c_.flops += 2.0 * elements(out) * w.k;
    }
    const Program &p_;
    const StepCount &step_;
    Cost c_;
};

}  // namespace

Cost &Cost::operator+=(const Cost &o) {
    weight_bytes += o.weight_bytes;
    read_bytes += o.read_bytes;
    write_bytes += o.write_bytes;
    flops += o.flops;
    return *this;
}

Cost cost(const Program &p, const Op &op, const StepCount &step) {
    Traffic traffic{p, step};
    visit_operands(op, traffic);
    Estimate estimate(p, step, traffic.cost);
    std::visit(estimate, op);
    return estimate.result();
}

}  // namespace ridge
