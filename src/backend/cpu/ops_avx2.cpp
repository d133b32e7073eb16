// The operations for AVX2, FMA and F16C.
#include "backend/cpu/ops_table.h"

namespace ridge::cpu {

constinit const RowTable kOpsAvx2 = avx2::kTable;

}  // namespace ridge::cpu
