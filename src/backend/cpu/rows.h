// The CPU's kernel rows, one table per file; cpu.cpp joins them. Each *_avx2 / *_avx512 file is compiled for its
// instruction set and must be entered only through its rows.
#pragma once

#include <span>
#include <vector>

#include "engine/kernel.h"

namespace ridge::cpu {

enum Feature : Features {
    kAvx2 = 1,    // AVX2, FMA, F16C
    kAvx512 = 2,  // AVX-512 F, BW, VL, DQ, VNNI
};

// Each appends its rows.
void add_contract_portable(std::vector<Kernel> &rows);
void add_contract_avx2(std::vector<Kernel> &rows);  // nothing where the compiler's target is not x86-64
void add_contract_avx512(std::vector<Kernel> &rows);
void add_ops_portable(std::vector<Kernel> &rows);
void add_ops_avx2(std::vector<Kernel> &rows);
void add_ops_avx512(std::vector<Kernel> &rows);

}  // namespace ridge::cpu
