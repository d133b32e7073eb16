// Arguments of kernels/contract_dot*.cu.
#pragma once

#include "backend/simt/args.h"

namespace ridge::simt {

constexpr u32 kDotThreads = 256;

// How a block keeps a table in shared memory. Lanes look up entries (of one or two words, read together) at random, and
// those that meet in a bank wait for each other: with copies side by side, one for every `copies`th lane, fewer do.
// That pays where entries have two words (IQ2_XXS: +3% tokens/s on an H200), and costs room for weights where they have
// one (IQ3_XXS: -4%).
struct TableLayout {
    u32 origin;         // the word of all tables (format/tables.h) that shared memory begins with
    u32 entry, copies;  // words of an entry; copies of each
};
constexpr TableLayout kTablesAsTheyAre = {0, 1, 1};
constexpr TableLayout kValueTables = {6400, 1, 1};  // IQ4_NL's and MXFP4's, which all lanes read at the same place
constexpr TableLayout table_layout(u32 first, u32 /*words*/, u32 entry = 1, u32 copies = 1) {
    return {first, entry, copies};
}

// One weight matrix, (experts, n, k), and where its product goes.
struct DotBank {
    const std::byte *weight;
    const f32 *bias;  // (experts, n), or null
    f32 *out;         // (rows, n); null: not stored (GateUp::q8 alone)
    u64 expert_bytes;
    u32 row_bytes, n;
    u32 first;       // of the units of all banks together
    u32 format;      // FormatId
    u32 step_bytes;  // that 32 groups (or 64, a group for each lane) of 32 weights take
};

struct ContractDotArgs {
    DotBank bank[3];
    u32 n_banks;
    u32 units;  // rows of all banks; of gated units the pairs of rows
    u32 k;
    u32 blocks;       // in x of the grid
    u32 tokens;       // rows of x, M for each z of the grid; with ids 1, for each y is one routed row
    u32 glu;          // GluKind + 1 of two banks whose products are paired; 0: banks are independent
    u32 stage_bytes;  // of a row in a stage of a wave's ring
    u32 stage_steps;  // of a unit that a stage holds
    u32 stage_units;  // whole units that a stage holds; 0: stage_steps of one
    u32 stages;       // of a wave's ring, where the machine has bulk copies
    u32 ring_at;      // in shared memory, behind the tables
    u32 ring_bytes;   // of a wave
    u32 next_early;   // the next launch may start from the beginning on; 0: when a block has read its weights
    u32 table_first, table_words;
    // Experts: routed row r = block_y() is expert ids[r] applied to row r / slots of x, or, where x_by_slot, to row r.
    const i32 *ids;
    u32 experts, slots, x_by_slot;
    u32 ids_settled;  // the launch in front did not write them, and waited before it let this one start
    Q8 x;
    Q8 q8;          // the gated units' results, quantised
    u32 q8_units;   // units of a block, a multiple of 32; 0: not wanted
    u32 values_at;  // in shared memory, (tokens, q8_units) f32
};

// f32 activations: weights of any format, decoded to f32.
struct ContractF32Args {
    DotBank bank[3];
    u32 n_banks, units, k, rows, glu;
    u32 grid_rows;  // in y of the grid
    const i32 *ids;
    u32 experts, slots, x_by_slot;
    const f32 *x;  // (rows of x, k)
};

}  // namespace ridge::simt
