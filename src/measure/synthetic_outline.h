// The tensors of a synthetic model, formats still open.
#pragma once

#include <vector>

#include "measure/synthetic.h"
#include "measure/synthetic_mix.h"

namespace ridge {

struct OutlinedTensor {
    SynthTensor tensor;
    TensorRole role = TensorRole::f32;
    uint32_t layer = 0;
};

// In file order.
std::vector<OutlinedTensor> outline(const ModelShape &shape);

}  // namespace ridge
