#include "backend/simt/rows.h"
#include "core/error.h"

namespace ridge::simt {

std::span<const Row> other_rows() { return {}; }
// No row quantises yet, so no program asks for it.
void emit_quantize(const LaunchView &, Emit &, ValueId, ValueId) { RIDGE_ASSERT(false); }

}  // namespace ridge::simt
