// Fusion: rewrites a program of plain operations under a lever set. Each rule is a lever; switching it off leaves the
// plain form, which gives the same bits.
#pragma once

#include "engine/program.h"

namespace ridge {

// Applies every rule whose lever is in `levers`, then, with int8_dot, gives contractions a quantised input, one
// `quantize` for all consumers of a value. Stores `levers` in the result.
Program fuse(Program p, LeverSet levers);

}  // namespace ridge
