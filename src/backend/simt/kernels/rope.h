// Arguments of rotary embedding and the write to the KV state.
#pragma once

#include "backend/simt/args.h"

namespace ridge::simt {

struct RopeTableArgs {
    const f32 *table;  // (positions, n_rot), by the host
    f32 *out;          // (m, n_rot)
    Step step;
    u32 n_rot;
};

// qk_norm_rope_<R>: q_out = rope(norm(q)); k_state <- rope(norm(k)), v_state <- v. 32 lanes for each head of at most
// 128 R columns of a token (block_x), 8 heads to a block, those of q, then of k, then of v. Also serves rope (q alone)
// and kv_write (k and v, n_rot 0).
struct HeadsArgs {
    const f32 *q, *k, *v;          // (m, *_cols); a width of 0: not there
    const f32 *q_norm, *k_norm;    // (head_dim), or null
    const f32 *table;              // (m, n_rot)
    f32 *q_out;                    // (m, q_cols)
    std::byte *k_state, *v_state;  // (slots, *_cols)
    Step step;
    u32 q_cols, k_cols, v_cols, head_dim, n_rot;
    u32 adjacent;        // pairs are 2j and 2j + 1; else j and j + n_rot/2
    u32 k_type, v_type;  // StateType
    f32 eps;
};
enum StateType : u32 { kStateF32, kStateF16, kStateQ8 };
constexpr u32 kHeadsOfBlock = 8;

}  // namespace ridge::simt
