// Arguments of kernels/ceilings.cu.
#pragma once

#include "backend/simt/args.h"

namespace ridge::simt {

struct CeilingArgs {
    const u32x4 *from;  // of the reading kernel
    u64 n;              // 16-byte words to read; repeats of the loops of arithmetic; nanoseconds to wait
    u32 *out;           // gets something that depends on all that was done
    u32 blocks;
};

}  // namespace ridge::simt
