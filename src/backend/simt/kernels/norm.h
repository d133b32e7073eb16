// Arguments of the norms.
#pragma once

#include "backend/simt/args.h"

namespace ridge::simt {

// rmsnorm_<R>, add_rmsnorm_<R>, combine_rmsnorm_<R>: a block of 256 threads for each row of `width` columns, at most
// 1024 R where R > 0. rmsnorm_heads_<R>: 32 lanes for each row, 8 rows to a block, at most 128 R columns.
// rmsnorm_wide_<Q>, add_rmsnorm_wide_<Q>, combine_rmsnorm_wide_<Q>: the same bits by a block of up to 1024 threads, for
// at most 4 Q columns. Few rows leave most of the GPU idle, and the latency of one block is what counts.
struct NormArgs {
    const f32 *x;             // (rows, width)
    const f32 *b;             // (rows, width), of add_rmsnorm: x + scale * b is what is normalised; of combine_rmsnorm
                              // (rows * slots, width), of which weighted sums take its place
    const f32 *slot_weights;  // (rows, slots), of combine_rmsnorm
    const f32 *weight;        // (width)
    f32 *sum;                 // (rows, width), of add_rmsnorm
    f32 *out;                 // (rows, width), or null
    Q8 q8;                    // (rows, width), or of nulls; width is a multiple of 32 then
    u32 rows, width, slots;
    f32 eps, scale;
};

constexpr u32 norm_wide_threads(u32 quads) { return quads < 1024 ? quads : 1024; }
constexpr u32 norm_wide_shared_bytes(u32 quads) { return (4 * quads + 16) * 4; }

}  // namespace ridge::simt
