// Arguments of kernels/contract_f16.cu.
#pragma once

#include "backend/simt/args.h"
#include "backend/simt/kernels/contract_mma.h"

namespace ridge::simt {

// Columns of k that are multiplied between two barriers: many where shared memory is large.
constexpr u32 kF16LongStep = 64, kF16ShortStep = 32;
// Bytes of a row of a step in shared memory: an odd multiple of 16.
constexpr u32 f16_stride(u32 step) { return 2 * step + 16; }
// Columns of x in memory: whole steps.
constexpr u32 f16_columns(u32 k) { return (k + kF16LongStep - 1) / kF16LongStep * kF16LongStep; }

struct F16InputArgs {
    Q8 x;         // (rows, k)
    u16 *out;     // (rows, stride)
    f32 *factor;  // (rows)
    u32 k, stride;
};

struct ContractF16Args {
    ContractMmaArgs mma;  // but for x, tiles and order
    const u16 *x;         // (rows, stride)
    const f32 *factor;    // (rows)
    u32 stride;
};

}  // namespace ridge::simt
