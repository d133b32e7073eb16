// Arguments of softmax, selection and the routing of experts.
#pragma once

#include "backend/simt/args.h"

namespace ridge::simt {

// softmax, normalize, top_k, top_k_large, moe_route: a block of 256 threads for each row.
struct RouteArgs {
    const f32 *x;  // (rows, n)
    f32 *out;      // (rows, n); of top_k and moe_route the weights, (rows, k)
    i32 *ids;      // (rows, k)
    u32 n, k;
    u32 normalize;
};
// Columns that top_k and moe_route keep in shared memory, and how much of it they take.
constexpr u32 kMostRouted = 4096;
constexpr u32 route_shared_bytes(u32 n, u32 k) { return ((n + 3) / 4 * 4 + (k + 3) / 4 * 4 + 16) * 4; }

// moe_route_<R>: of at most 128 R columns and kRouteFew places, a block of 128 R threads for each row.
constexpr u32 kRouteFew = 32;
constexpr u32 route_few_shared_bytes(u32 r) { return 4 * r * 128 * r * 4 + kRouteFew * 4; }

// A thread of blocks of kCombineThreads (y) for each quad of a row (x).
constexpr u32 kCombineThreads = 64;
struct CombineArgs {
    const f32 *x;        // (m * slots, n)
    const f32 *weights;  // (m, slots)
    f32 *out;            // (m, n)
    u32 n, slots;
};

// arg_max: `blocks` blocks of 256 threads (y) for each row (x).
struct ArgMaxArgs {
    const f32 *x;   // (rows, n)
    i32 *out;       // (rows, 1)
    u32 *counters;  // (rows), zero before and after
    u32x2 *parts;   // (rows, blocks)
    u32 n, blocks;
};

}  // namespace ridge::simt
