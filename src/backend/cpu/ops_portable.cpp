// The operations for the compiler's baseline.
#include "backend/cpu/ops_table.h"

namespace ridge::cpu {

constinit const RowTable kOpsPortable = portable::kTable;

}  // namespace ridge::cpu
