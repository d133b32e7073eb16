// The shared part of every row of contract, gate_up and quantize on the CPU: what one tile of the work is.
//
// A tile is (bank, block of weight rows) and all tokens of the step; with expert ids it is (bank, expert, block of
// rows) and the tokens routed to that expert, or, where there are fewer routed rows than experts, (bank, routed row,
// block of rows). All rows cut the work the same way. Nothing here is inline: the files compiled for AVX must not
// emit code that others could be linked to.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/backend.h"
#include "engine/kernel.h"

namespace ridge::cpu {

// Rows of one weight matrix, from the tile's first row on.
struct Matrix {
    const std::byte *rows;
    size_t row_bytes;
    Format format;
    const float *bias;  // (n_rows), the expert's, or nullptr
};

// Which rows of x a tile reads and which rows of out it writes: `next` .. `end` of the step's output rows, where
// `ids` is given only those whose id is `expert`.
struct Tokens {
    uint32_t next, end;
    const int32_t *ids;
    int32_t expert;
    uint32_t slots;  // output rows per row of x
};

// One tile. gate_up has two matrices of the same shape: out = glu(gate x, up x).
struct Work {
    Matrix matrix[2];
    uint32_t n_matrices;
    GluKind glu;      // of two matrices
    uint32_t n_rows;  // rows of this tile
    uint32_t n, k;    // of the whole matrix
    float *out;       // out[i, first row of the tile] lies at out + i * n
    Tokens tokens;
    // Activations, (rows of x, k): f32, or the three planes of q8.
    const float *x;
    const int8_t *codes;
    const float *scale;   // (rows of x, k / 32)
    const int16_t *sums;  // (rows of x, k / 16)
};

uint32_t contract_tiles(const LaunchView &view);
Work contract_work(const LaunchView &view, uint32_t tile);

// Lists the next rows of x and out, at most `max`; 0 where none is left. Both ascend by one from the first on unless
// `routed(tokens)`.
uint32_t take(Tokens &tokens, uint32_t *x_row, uint32_t *out_row, uint32_t max);
inline constexpr uint32_t kRowBlock = 16;  // tiles start at multiples of it

// f32 -> q8 of `blocks` blocks of 32, laid out plane by plane, so one run of blocks covers any number of rows.
using QuantizeBlocks = void (*)(const float *x, int8_t *codes, float *scale, int16_t *sums, size_t blocks);
constexpr uint32_t kQuantizeTile = 128;  // blocks
uint32_t quantize_tiles(const LaunchView &view);
void quantize_tile(const LaunchView &view, uint32_t tile, QuantizeBlocks quantize);

}  // namespace ridge::cpu
