// Arguments of the attention kernels, and the sizes that their host code must know.
#pragma once

#include "backend/simt/args.h"

namespace ridge::simt {

struct AttentionArgs {
    const f32 *q;            // (m, heads * head_dim)
    f32 *out;                // (m, heads * head_dim)
    const std::byte *k, *v;  // (slots, kv_heads * head_dim) of the kernel's type
    const f32 *sinks;        // (heads), or null
    Step step;
    u32 heads, kv_heads, head_dim, window;
    f32 scale, softcap;
    u32 across;     // the split grid's y
    u32 *counters;  // zero before and after: one for each token and block_y of a split grid
    f32 *parts;     // what the chunks of those leave, split_part_floats() each
    // Of split kernels, for heads of whole blocks: also the q8 form of the result, (m, heads * head_dim), or null; the
    // result itself only where `out_read`.
    Q8 q8;
    u32 out_read;
};

// ---- attention_general_*: a block of kGeneralThreads for every head (x) of every token (y).

constexpr u32 kGeneralThreads = 128;
constexpr u32 general_shared_bytes(u32 head_dim) { return (3 * head_dim + 64) * 4; }

// ---- attention_split_*: a block of kSplitThreads for every chunk (x), KV head or, where more than `heads` share one,
// part of those heads (y), and token (z).

constexpr u32 kSplitThreads = 256;
// Chunks of a token are whole units of positions, alike but for the last, and at most kSplitChunks; up to kSplitAlone
// units are one chunk.
constexpr u32 kSplitUnit = 64, kSplitChunks = 32, kSplitAlone = 2;
// What a chunk leaves: maximum and sum of each head, then (heads, head_dim) sums of values.
constexpr u32 split_part_floats(u32 heads, u32 head_dim) { return heads * (2 + head_dim); }
// Of each wave (8 of 32 lanes, or 4) the same, then a factor for each wave or chunk and the last factor of each head.
constexpr u32 split_shared_bytes(u32 heads, u32 head_dim) {
    return (8 * split_part_floats(heads, head_dim) + heads * (kSplitChunks + 1) + 1) * 4;
}

// ---- attention_mma_*: a block for every KV head (x) and run of tokens (y), as many as have mma_rows() heads in the
// group.

// Waves of 16 rows. `small`: of machines with 64 KB of shared memory in a block (AMD), where heads above 128 do not
// fit.
constexpr u32 mma_waves(u32 head_dim, bool small) { return head_dim > (small ? 96 : 128) ? 2 : 4; }
constexpr u32 mma_stride(u32 head_dim) { return 2 * head_dim + 16; }
// Queries in two parts, 64 keys and values; 512 bytes of each wave where layouts differ.
constexpr u32 mma_shared_bytes(u32 head_dim, bool small) {
    const u32 waves = mma_waves(head_dim, small);
    return (2 * 16 * waves + 2 * 64) * mma_stride(head_dim) + (small ? 512 * waves : 0);
}

}  // namespace ridge::simt
