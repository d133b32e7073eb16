// The rows of all operations but contractions, quantise and gate_up, one constant table per instruction set. ops.cpp
// appends them; the files compiled for an instruction set hold the kernels and nothing that runs without being chosen.
#pragma once

#include <span>

#include "engine/kernel.h"

namespace ridge::cpu {

std::span<const Kernel> ops_table_portable();
std::span<const Kernel> ops_table_avx2();
std::span<const Kernel> ops_table_avx512();

}  // namespace ridge::cpu
