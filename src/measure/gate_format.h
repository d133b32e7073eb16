// The gate of the weight formats: a decoder against the oracle, weight by weight, bit for bit.
//
// A weight is bad where its code, the bits of its group's scale or bias, or the bits of its f32 value differ from the
// oracle's; any NaN equals any NaN. The decoder's value is scale*code (+ bias) in f32. A decoder that has a bias where
// its format has none (a zero bias would turn -0 into +0), or the reverse, is bad everywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "format/decode.h"
#include "format/format.h"
#include "measure/gate_result.h"

namespace ridge {

// Precondition: blocks.size() is a multiple of info(f).bytes.
GateResult gate_format(const DecodeFns &fns, Format f, std::span<const std::byte> blocks);

// Uniformly random bytes, the same for the same seed. Every fourth block has extreme scales planted: zeros, subnormals,
// the largest, infinities and NaNs of either sign, and all pairs of them where a format stores two.
std::vector<std::byte> random_blocks(Format f, size_t count, uint64_t seed);

}  // namespace ridge
