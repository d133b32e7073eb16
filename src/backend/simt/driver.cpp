#include "backend/simt/driver.h"

#include "core/error.h"

namespace ridge::simt {

void check(const Driver &d, int code, const char *what) {
    if (code != 0) fail(ErrorKind::device, "{}: {} failed: {}", d.name, what, d.error(code));
}

}  // namespace ridge::simt
