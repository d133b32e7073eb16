// The CPU's kernel rows as constant tables, one per file; cpu.cpp joins them. A file named *_<instruction set> is
// compiled for it: a table is data, and no code of such a file runs before a row has been chosen.
#pragma once

#include <span>

#include "engine/kernel.h"

namespace ridge::cpu {

enum Feature : Features {
    kAvx2 = 1,          // AVX2, FMA, F16C
    kAvx512 = 2,        // AVX-512 F, BW, VL, DQ, VNNI
    kAvx512Bf16 = 128,  // and BF16
    kAvx512Vbmi = 256,  // and VBMI, VBMI2, BITALG
    kAvxVnni = 64,      // AVX2 and its own 256-bit VNNI, without AVX-512
    // aarch64; a machine that has one has those before it
    kNeon = 4,     // Advanced SIMD, of every such machine
    kDotprod = 8,  // sdot: from ARMv8.2 on, where it is implemented
    kI8mm = 16,    // smmla: from ARMv8.6 on
};

using RowTable = std::span<const Kernel>;

// contract and gate_up
extern const RowTable kContractPortable, kContractAvx2, kContractAvx512, kContractNeon, kContractDotprod, kContractI8mm;
extern const RowTable kContractAvxVnni, kContractAvx512Vbmi, kContractAvx512Bf16;
extern const RowTable kQuantizePortable, kQuantizeAvx2, kQuantizeAvx512, kQuantizeNeon;
// All others: those that gain nothing from an instruction set, and those that have a row for each.
extern const RowTable kOpsPlain, kOpsPortable, kOpsAvx2, kOpsAvx512, kOpsNeon;

}  // namespace ridge::cpu
