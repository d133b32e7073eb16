// A problem of the gate and how a row is tried on it.
//
// Where the operation can also publish the q8 form of what it computes, rows that do are tried on that too.
//
// A problem is a program of one node with data for its largest step. Smaller steps take the first tokens of the same
// data, so that a token's result can be compared over steps of all sizes, and the oracle is asked once.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "measure/gate.h"
#include "measure/gate_data.h"

namespace ridge::gate {

struct Token {
    int32_t id = 0;
    uint32_t position = 0, sequence = 0;
    bool wanted = true;
    Draw draw = {};  // where wanted
};

// Numbers of a value, (rows of the largest step, width), or of a state, (slots, width).
struct Operand {
    int32_t id;  // ValueId or StateId
    Reals numbers;
};

// What a value must hold after the launch, (rows, width).
struct Expected {
    ValueId id = kNone;
    Reals want;
    // How far from `want` number i may be; 0 or none: the same bits.
    std::function<double(Order, size_t i)> bound;
    // What rows hold that round activations to bf16 (Order::bf16_pairs16); empty: as `want`.
    Reals want_bf16 = {};
    double wanted(Order o, size_t i) const {
        return o == Order::bf16_pairs16 && !want_bf16.empty() ? want_bf16[i] : want[i];
    }
};

// What a state must hold: slot s what token writer[s] of the step writes there, or, where that is -1 or a token of
// larger steps, what it had (Problem::states).
struct ExpectedState {
    StateId id = kNone;
    Reals want;                   // (tokens, width)
    std::vector<int32_t> writer;  // (slots)
    std::function<double(Order, size_t i)> bound;
};

struct Problem {
    std::string name;  // "k=96 n=17 bias", without the operation
    Program program;
    std::vector<Token> tokens;                 // of the largest step
    std::vector<uint32_t> steps;               // token counts to try, ascending; the last one is tokens.size()
    std::vector<std::vector<uint32_t>> pages;  // per sequence
    uint32_t pool = 1;                         // pages of state

    // Fills what is below and the data of the program's weights. Called only where some row takes the problem.
    std::function<void(Problem &)> fill;
    std::vector<Bytes> weights;
    std::vector<Operand> inputs, states;
    std::vector<Expected> expected;
    std::vector<ExpectedState> expected_states;

    // m tokens of sequence 0 at positions 0.., all wanted.
    void plain_tokens(uint32_t m);
    void set_weight(WeightId w, Bytes bytes);
    void expect(ValueId v, Reals want, std::function<double(Order, size_t)> bound = {}, Reals want_bf16 = {});
    const Op &op() const { return program.nodes[0].op; }
    uint32_t rows(ValueId v) const;  // in the largest step
};

// Rows under test and what was found about each.
class Trial {
  public:
    Trial(Backend &backend, const GateOptions &options);
    const GateOptions &options() const { return options_; }
    // Tries every row that is wanted, can run and takes the problem, on all its steps.
    void run(Problem &problem);
    bool wants(OpKind op) const;
    bool wants(Format f) const { return !options_.format || *options_.format == f; }
    // Marks rows that were left unchecked or claim a format that was.
    GateReport report();

  private:
    struct Reference;
    struct Attempt;
    Backend &backend_;
    GateOptions options_;
    std::map<const Kernel *, GateRow> rows_;
};

}  // namespace ridge::gate
