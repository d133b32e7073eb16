// What KV state holds of the values that are written to it: the gate's own statement of KvWrite (op/op.h) for every
// element type.
#pragma once

#include "measure/gate_data.h"

namespace ridge::gate {

// Values, (rows, cols), as a state stores them, (rows, width).
Reals to_state(DType type, size_t rows, uint32_t cols, RealSpan values);
// What a reader of the state sees, (rows, cols).
Reals from_state(DType type, size_t rows, uint32_t cols, RealSpan numbers);

// What is stored of values that are off by up to `error` each, a value with error 0 being exact: the numbers of a
// state, (rows, width), and how far each may be from them. Bound 0: the same bits.
struct StoredNumbers {
    Reals want, bound;
};
StoredNumbers stored(DType type, size_t rows, uint32_t cols, RealSpan values, RealSpan error);

}  // namespace ridge::gate
