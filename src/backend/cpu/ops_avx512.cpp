// The operations for AVX-512.
#include "backend/cpu/ops_table.h"

namespace ridge::cpu {

constinit const RowTable kOpsAvx512 = avx512::kTable;

}  // namespace ridge::cpu
