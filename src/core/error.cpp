#include "core/error.h"

#include <cstdio>
#include <cstdlib>

namespace ridge {

void assertion_failed(const char *condition, const char *file, int line) {
    std::fprintf(stderr, "ridge: bug: %s does not hold (%s:%d). Please report this with the command you ran.\n",
                 condition, file, line);
    std::abort();
}

}  // namespace ridge
