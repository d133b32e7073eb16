// A program: what a model's forward pass is, as a list of operations over values, weights and state.
//
// A model file builds it from plain operations; `place` gives every node a device, `fuse` rewrites it under a lever
// set, `insert_copies` connects the devices, and plan.h turns it into launches. A program is plain data: two programs
// with different levers share one copy of the weights.
#pragma once

#include <string>
#include <vector>

#include "engine/levers.h"
#include "op/op.h"

namespace ridge {

struct Node {
    Op op;
    DeviceId device = 0;
    int32_t layer = 0;  // 0 .. n_layers-1; -1 before the first (embedding), n_layers after the last (output)
};

struct Program {
    std::vector<Value> values;
    std::vector<Weight> weights;
    std::vector<State> states;
    std::vector<Node> nodes;
    std::vector<ValueId> inputs;  // written by the caller before a step; empty but for gates and benches
    ValueId logits = kNone;       // (outputs, vocab) f32
    ValueId choice = kNone;       // (outputs, 1) i32, ArgMax or Sample of the logits; optional
    uint32_t n_layers = 0;
    LeverSet levers = LeverSet::none();

    ValueId add_value(Value v) {
        values.push_back(std::move(v));
        return static_cast<ValueId>(values.size() - 1);
    }
    WeightId add_weight(Weight w) {
        weights.push_back(std::move(w));
        return static_cast<WeightId>(weights.size() - 1);
    }
    StateId add_state(State s) {
        states.push_back(std::move(s));
        return static_cast<StateId>(states.size() - 1);
    }
    const Value &value(ValueId v) const { return values[static_cast<size_t>(v)]; }
    const Weight &weight(WeightId w) const { return weights[static_cast<size_t>(w)]; }
    const State &state(StateId s) const { return states[static_cast<size_t>(s)]; }
};

// Rows of `v` in a step with `tokens` tokens and `outputs` wanted rows.
inline size_t rows_of(const Value &v, uint32_t tokens, uint32_t outputs) {
    return size_t{v.rows == Rows::tokens ? tokens : outputs} * v.per_row;
}

// The matrices that an operation reads (embed, contract, gate_up) and the type of the activations that they meet.
struct MatrixOperands {
    FormatSet formats;
    std::string format_names;  // each once: "Q4_K+Q6_K"
    DType input = DType::f32;
};
MatrixOperands matrices_of(const Program &p, const Op &op);

// Checks that every operand exists, has the shape and type its operation demands, is written before it is read and
// written once, and that operands live on their node's device (copies excepted). Throws std::logic_error naming node
// and operand: a program is ours, so a bad one is a bug.
void check(const Program &p);

// One line per node: "12  3  cpu0  contract  x=3.attn_norm[m,576 q8] -> 3.q[m,576], ...".
std::string to_string(const Program &p);

}  // namespace ridge
