// Arguments of kernels/contract_mma.cu and contract_tf32.cu, and how their blocks lay out their shared memory.
#pragma once

#include "backend/simt/args.h"

namespace ridge::simt {

// Columns of k that are multiplied between two barriers: NVIDIA's and others', for the shared memory that they have.
constexpr u32 kMmaLongStep = 128, kMmaShortStep = 64;
// Columns of raw weights that are fetched together: a step where all formats have blocks of 32, or a block of 256.
constexpr u32 kMmaChunk = 256;

// Columns of a step with f32 activations, and what a block's two buffers take.
constexpr u32 kTf32Step = 64;
constexpr u32 tf32_shared_bytes(u32 rows, u32 tokens) {
    const u32 buffers = 2 * (rows + tokens) * (kTf32Step + 4) * 4, sums = 4 * rows * tokens * 4;
    return buffers > sums ? buffers : sums;
}

// A weight matrix in file order.
struct MmaMatrix {
    const std::byte *weights;  // (experts, n, k)
    u64 row_bytes;
    u32 format;  // FormatId
    u32 chunk_bytes;
};
// One or, for gated units, two matrices of the same shape.
struct MmaBank {
    MmaMatrix matrix[2];
    const f32 *bias;  // (experts, n), or null
    f32 *out;         // (rows, n); null: not wanted
    u32 n;
    u32 first_tile;  // of weight rows: y of the grid
};

// A tile of routed rows: those that `order` lists from `first` on.
struct alignas(16) MmaTile {
    u32 expert, first, count, unused;
};

struct ContractMmaArgs {
    MmaBank bank[3];
    Q8 x;
    const f32 *x_f32;  // for weights that are floats
    u32 n_banks;
    u32 glu;   // GluKind + 1 of two matrices; 0: one matrix in each bank
    u32 rows;  // of x
    u32 k;
    u32 chunk;             // columns of a chunk of raw weights
    u32 raw_stride;        // bytes between rows of raw weights in shared memory
    u32 halves;            // 1: some format has groups of 16
    const MmaTile *tiles;  // (x of the grid) with experts, else null
    const u32 *order;      // (routed rows)
    u32 slots;             // routed row r reads row r / slots of x
    Q8 q8;                 // (rows, n): the gated units' results, quantised; codes null: not wanted
};

constexpr u32 kMmaGroupThreads = 256;
// Sorts routed rows by expert and cuts each expert's into tiles. One block per expert.
struct MmaGroupArgs {
    const i32 *ids;  // (routed)
    u32 routed, experts;
    u32 large;   // rows of a large tile; what is left of an expert's rows goes into the smallest tile that holds it
    u32 *order;  // (routed): rows of expert 0 ascending, then of expert 1, ...
    MmaTile *large_tiles;   // (routed / large + experts)
    MmaTile *middle_tiles;  // (experts) of at most 64 rows, or null
    MmaTile *small_tiles;   // (experts) of at most 32 rows, or null
};

// Where things lie in the shared memory of a block of `rows` weight rows and `tokens` rows of x, in bytes. Two of each:
// of the step that is multiplied and of the next.
//   codes (rows, stride) | x (tokens, stride) | scales of weights and biases, (groups, rows) f32 each | of x: scales
//   (step / 32, tokens), their products with sums of 32 codes (step / 32, tokens) and, where some format has groups of
//   16, of 16 (step / 16, tokens) | chunks of raw weights (rows, raw_stride), where they are staged
struct MmaLayout {
    u32 rows, tokens, step, halves, raw_stride;
    // Of a row of codes: an odd multiple of 16, so that rows begin in different banks.
    constexpr u32 stride() const { return step + 16; }
    constexpr u32 groups() const { return step / 32 << halves; }
    constexpr u32 codes(u32 buffer) const { return buffer * rows * stride(); }
    constexpr u32 x(u32 buffer) const { return codes(2) + buffer * tokens * stride(); }
    constexpr u32 scales(u32 buffer) const { return x(2) + buffer * rows * groups() * 8; }
    constexpr u32 biases(u32 buffer) const { return scales(buffer) + rows * groups() * 4; }
    constexpr u32 x_scales(u32 buffer) const { return scales(2) + buffer * tokens * (step / 4 << halves); }
    constexpr u32 x_totals(u32 buffer) const { return x_scales(buffer) + tokens * (step / 8); }
    constexpr u32 x_half_totals(u32 buffer) const { return x_totals(buffer) + tokens * (step / 8); }
    constexpr u32 raw(u32 buffer) const { return x_scales(2) + buffer * rows * raw_stride; }
    constexpr u32 bytes() const { return raw(2); }
};

// The shapes there are: weight rows x rows of x of a block of `waves` waves.
struct MmaShape {
    u32 rows, tokens, waves;
};

}  // namespace ridge::simt
