// The operations for AVX2, FMA and F16C.
#include "backend/cpu/ops.h"
#include "backend/cpu/ops_table.h"

namespace ridge::cpu {

std::span<const Kernel> ops_table_avx2() { return avx2::kTable; }

}  // namespace ridge::cpu
