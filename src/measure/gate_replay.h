// Replay against eager: a model's steps captured into graphs and replayed give, at every token, the bits of the same steps
// submitted launch by launch, in every value that the program computes and in all state.
//
// Two engines over the same weights, one with the lever graphs and one without, in which no two values share memory, are
// given the same tokens: a prompt, steps of every number of tokens that is captured, then single tokens.
#pragma once

#include "measure/gate.h"

namespace ridge {

// "replay.tiny-qwen3.Q4_K_M": small synthetic models, dense and with experts, over at least 256 tokens each. Nothing on
// a backend whose rows no lever `graphs` concerns.
GateReport gate_replay(Backend &backend, const GateOptions &options);

}  // namespace ridge
