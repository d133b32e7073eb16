// What a launch must move and compute: declared for every operation, so that a measurement can be set against a
// ceiling.
#pragma once

#include "engine/program.h"

namespace ridge {

struct Cost {
    double weight_bytes = 0;  // read once however many tokens share them
    double read_bytes = 0;    // activations and state
    double write_bytes = 0;
    double flops = 0;  // a multiply-add counts as two
    double bytes() const { return weight_bytes + read_bytes + write_bytes; }
    Cost &operator+=(const Cost &o);
};

// What varies between steps.
struct StepCount {
    uint32_t tokens = 1;
    uint32_t outputs = 1;
    double kv_positions = 0;   // sum over the tokens of the positions each attends to: what is computed
    double kv_rows = 0;        // sum over the sequences of the positions anyone attends to: what must be read
    double expert_share = -1;  // share of a layer's experts that get a token, from counters; < 0: the expectation for
                               // independent uniform routing, 1 - (1 - slots/experts)^tokens
};

Cost cost(const Program &p, const Op &op, const StepCount &step);

}  // namespace ridge
