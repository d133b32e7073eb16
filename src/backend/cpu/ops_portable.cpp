// The operations for the compiler's baseline.
#include "backend/cpu/ops.h"
#include "backend/cpu/ops_table.h"

namespace ridge::cpu {

std::span<const Kernel> ops_table_portable() { return portable::kTable; }

}  // namespace ridge::cpu
