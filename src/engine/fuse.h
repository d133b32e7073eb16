// Fusion: rewrites a program of plain operations under a lever set. Each rule is a lever; switching it off leaves the
// plain form, which gives the same bits.
#pragma once

#include <span>

#include "engine/program.h"

namespace ridge {

// Applies every rule whose lever is in `levers`, then, with int8_dot, gives contractions a quantised input, one
// `quantize` for all consumers of a value. Stores `levers` in the result.
//
// `devices`: per device of the program, the rules among those that only some take which its rows do (Backend::fusions);
// for devices beyond its end none. Such a rule is publish_q8: a `quantize` joins whatever computes its input. It leaves
// the quantisations of fold_quantize alone, which are there to be launches of their own.
Program fuse(Program p, LeverSet levers, std::span<const LeverSet> devices = {});

}  // namespace ridge
