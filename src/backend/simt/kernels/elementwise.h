// Arguments of the operations that work on single elements or copy rows.
#pragma once

#include "backend/simt/args.h"

namespace ridge::simt {

// glu, add, scale: a thread for each quad of `n` elements. a and b are gate and up of glu, x is `a` of scale.
struct ElementsArgs {
    const f32 *a = nullptr, *b = nullptr;
    f32 *out = nullptr;
    u64 n = 0;
    f32 scale = 1, softcap = 0;
};

// quantize: a thread for each quad of all rows.
struct QuantizeArgs {
    const f32 *x;  // (rows, k)
    Q8 out;
    u32 quads;  // of all rows
};

// gather_rows, row_gate: a thread for each quad (block_y) of a row (block_x).
struct RowsArgs {
    const f32 *x;     // (rows, n)
    const f32 *gate;  // (rows, 1)
    f32 *out;
    Step step;
    u32 n;
};

// embed: a thread for each quad (block_y) of a token's row (block_x).
struct EmbedArgs {
    const std::byte *table;  // (vocab, n) in `format`
    f32 *out;                // (m, n)
    Step step;
    u64 row_bytes;
    u32 n, format;
    f32 scale;
};

}  // namespace ridge::simt
