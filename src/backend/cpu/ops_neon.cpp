// The operations for NEON.
#include "backend/cpu/ops_table.h"

namespace ridge::cpu {

constinit const RowTable kOpsNeon = neon::kTable;

}  // namespace ridge::cpu
