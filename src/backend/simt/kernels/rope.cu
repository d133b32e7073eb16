// rope_table, rope, kv_write and the two with the norm of heads in one. A rotated element is two products and one sum, each
// rounded.
#include "backend/simt/kernels/rope.h"
#include "backend/simt/kernels/state.cuh"
#include "backend/simt/kernels/sums.cuh"

namespace ridge::simt {

KERNEL(rope_table, RopeTableArgs, 64, 1) {
    let_next_start();
    wait_for_previous();
    const f32x2 *from = reinterpret_cast<const f32x2 *>(a.table) + u64{position_of(a.step, block_x())} * (a.n_rot / 2);
    f32x2 *to = reinterpret_cast<f32x2 *>(a.out) + u64{block_x()} * (a.n_rot / 2);
    for (u32 j = thread(); j < a.n_rot / 2; j += 64) store(to + j, load(from + j));
}

// A head: which columns of which matrix it is. Heads of k and v may end in a part of one (kv_write).
struct HeadOf {
    const f32 *x;
    const f32 *norm;
    u32 kind;  // 0 q, 1 k, 2 v; 3: none
    u32 first, cols;
};
DEVICE HeadOf head_of(const HeadsArgs &a, u32 head) {
    const u32 d = a.head_dim, n_q = (a.q_cols + d - 1) / d, n_k = (a.k_cols + d - 1) / d, n_v = (a.v_cols + d - 1) / d;
    if (head < n_q) return {a.q, a.q_norm, 0, head * d, a.q_cols};
    head -= n_q;
    if (head < n_k) return {a.k, a.k_norm, 1, head * d, a.k_cols};
    head -= n_k;
    if (head < n_v) return {a.v, nullptr, 2, head * d, a.v_cols};
    return {nullptr, nullptr, 3, 0, 0};
}

// Element e of a head that lies in shared memory, after the rotation. `turn`: (cos, sin) of its pair.
DEVICE f32 rotated(const f32 *head, u32 e, u32 half, bool adjacent, const f32x2 &turn) {
    const bool second = adjacent ? e % 2 == 1 : e >= half;
    const u32 step = adjacent ? 1 : half, i = second ? e - step : e;
    const f32 x = head[i], y = head[i + step];
    return second ? x * turn.y + y * turn.x : x * turn.x - y * turn.y;
}

// The same of a quad at once, of pairs j and j + half in whole quads.
DEVICE f32x4 rotated_quad(const f32x4 *head, u32 q, u32 half, const f32x4 &v, const f32x2 (&turn)[4]) {
    const bool second = 4 * q >= half;
    const f32x4 o = head[second ? q - half / 4 : q + half / 4];
    const auto one = [&](f32 mine, f32 other, const f32x2 &t) {
        return second ? other * t.y + mine * t.x : mine * t.x - other * t.y;
    };
    return {one(v.x, o.x, turn[0]), one(v.y, o.y, turn[1]), one(v.z, o.z, turn[2]), one(v.w, o.w, turn[3])};
}

template <u32 R>
DEVICE void heads(const HeadsArgs &a) {
    const u32 token = block_x(), d = a.head_dim, half = a.n_rot / 2;
    const HeadOf h = head_of(a, block_y() * kHeadsOfBlock + run());
    const u32 end = min(h.first + d, h.cols), n = end - h.first;  // of this head
    const bool aligned = d % 4 == 0 && h.cols % 4 == 0, there = h.kind != 3, turns = h.kind < 2 && half > 0;
    const f32 *x = h.x + u64{token} * h.cols + h.first;
    const f32x2 *table = reinterpret_cast<const f32x2 *>(a.table) + u64{token} * half;
    f32 *mine = reinterpret_cast<f32 *>(shared()) + run() * (128 * R);
    const bool quads = a.adjacent == 0 && half % 4 == 0, any_q8 = a.k_type == kStateQ8 || a.v_type == kStateQ8;
    f32x4 v[R], w[R] = {};
    f32x2 turn[R][4] = {};
    f32 squares[kRuns] = {};
    let_next_start();
    for_rounds<R>(0, [&](u32 r) {
        if (h.norm) w[r] = load_quad(h.norm, r * kRun + run_lane(), d, d % 4 == 0);
    });
    u64 slot_of_token = 0;
    if (h.kind == 1 || h.kind == 2)
        slot_of_token = slot(pages_of(a.step, sequence_of(a.step, token)), position_of(a.step, token));
    wait_for_previous();
    for_rounds<R>(0, [&](u32 r) {
        v[r] = load_quad(x, r * kRun + run_lane(), n, aligned);
        if (quads) {
            const u32 e = 4 * (r * kRun + run_lane());
            if (!turns || e >= 2 * half) return;
            const f32x4 *from = reinterpret_cast<const f32x4 *>(table + (e < half ? e : e - half));
            const f32x4 low = load(from), high = load(from + 1);
            turn[r][0] = {low.x, low.y}, turn[r][1] = {low.z, low.w};
            turn[r][2] = {high.x, high.y}, turn[r][3] = {high.z, high.w};
            return;
        }
        for (u32 i = 0; i < 4; i++) {
            const u32 e = 4 * (r * kRun + run_lane()) + i;
            if (turns && e < 2 * half) turn[r][i] = load(table + (a.adjacent ? e / 2 : e < half ? e : e - half));
        }
    });
    for_rounds<R>(0, [&](u32 r) { squares[r] = sum_lanes(add_squares(0, v[r]), kRun); });
    if (h.norm) {
        const f32 factor = norm_factor(add_runs(squares), d, a.eps);
        for_rounds<R>(0, [&](u32 r) { v[r] = each(v[r], w[r], [&](f32 p, f32 by) { return p * factor * by; }); });
    }
    for_rounds<R>(0, [&](u32 r) { reinterpret_cast<f32x4 *>(mine)[r * kRun + run_lane()] = v[r]; });
    sync_wave();
    for_rounds<R>(0, [&](u32 r) {
        const u32 q = r * kRun + run_lane(), e = 4 * q;
        if (turns && quads) {
            if (e < 2 * half) v[r] = rotated_quad(reinterpret_cast<const f32x4 *>(mine), q, half, v[r], turn[r]);
        } else if (turns) {
            if (e < 2 * half) v[r].x = rotated(mine, e, half, a.adjacent, turn[r][0]);
            if (e + 1 < 2 * half) v[r].y = rotated(mine, e + 1, half, a.adjacent, turn[r][1]);
            if (e + 2 < 2 * half) v[r].z = rotated(mine, e + 2, half, a.adjacent, turn[r][2]);
            if (e + 3 < 2 * half) v[r].w = rotated(mine, e + 3, half, a.adjacent, turn[r][3]);
        }
        if (h.kind == 0) store_quad(a.q_out + u64{token} * h.cols + h.first, q, n, aligned, v[r]);
        const bool to_state = there && h.kind != 0;
        store_state(h.kind == 1 ? a.k_state : a.v_state, h.kind == 1 ? a.k_type : a.v_type, slot_of_token, h.cols,
                    h.first + e, end, v[r], to_state, any_q8);
    });
}

KERNEL(qk_norm_rope_1, HeadsArgs, kRowThreads, 1) { heads<1>(a); }
KERNEL(qk_norm_rope_2, HeadsArgs, kRowThreads, 1) { heads<2>(a); }
KERNEL(qk_norm_rope_8, HeadsArgs, kRowThreads, 1) { heads<8>(a); }

}  // namespace ridge::simt
