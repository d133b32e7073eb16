// Arguments of the kernels that test the emulator.
#pragma once

#include "backend/simt/args.h"

namespace ridge::simt {

struct EmulatorArgs {
    u32 *a, *b;
    u32 n;
};

}  // namespace ridge::simt
