// The CPU's kernel rows as constant tables, one per file; cpu.cpp joins them. Each *_avx2 / *_avx512 file is compiled
// for its instruction set: a table is data, and no code of such a file runs before a row has been chosen.
#pragma once

#include <span>

#include "engine/kernel.h"

namespace ridge::cpu {

enum Feature : Features {
    kAvx2 = 1,    // AVX2, FMA, F16C
    kAvx512 = 2,  // AVX-512 F, BW, VL, DQ, VNNI
};

using RowTable = std::span<const Kernel>;

// contract and gate_up
extern const RowTable kContractPortable, kContractAvx2, kContractAvx512;
extern const RowTable kQuantizePortable, kQuantizeAvx2, kQuantizeAvx512;
// All others: those that gain nothing from an instruction set, and those that have a row for each.
extern const RowTable kOpsPlain, kOpsPortable, kOpsAvx2, kOpsAvx512;

}  // namespace ridge::cpu
