// The operations for AVX-512.
#include "backend/cpu/ops.h"
#include "backend/cpu/ops_table.h"

namespace ridge::cpu {

std::span<const Kernel> ops_table_avx512() { return avx512::kTable; }

}  // namespace ridge::cpu
