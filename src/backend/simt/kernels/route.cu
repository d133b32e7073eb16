// softmax, normalize, top_k, moe_route, moe_combine, arg_max.
//
// softmax: e = exp(x - max x), out = e / sum e, the sum in Order::f32_quads256. A NaN or +infinity anywhere makes the whole
//   row NaN.
// top_k: where the row fits into shared memory every column counts those that come before it, which is its place: no order
//   of events matters. A NaN counts as -infinity.
#include "backend/simt/kernels/route.h"
#include "backend/simt/kernels/sums.cuh"

namespace ridge::simt {

constexpr f32 kMinusInfinity = -__builtin_inff();

// Softmax of a row: to `to` (n; global or shared, by `put`), e = exp(x - max) first and then the quotients by the same
// threads.
template <class Put, class Get>
DEVICE void softmax_row(const f32 *x, u32 n, f32 *scratch, Put put, Get get) {
    const bool aligned = n % 4 == 0;
    f32 top = kMinusInfinity;
    for (u32 q = thread(); 4 * q < n; q += kRowThreads) {
        const f32x4 v = load_quad(x, q, n, aligned, kMinusInfinity);
        top = max(top, max(max(v.x, v.y), max(v.z, v.w)));
    }
    top = max_block(top, scratch);
    f32 sum = 0;
    for (u32 q = thread(); 4 * q < n; q += kRowThreads) {
        const f32x4 v = load_quad(x, q, n, aligned);
        f32x4 e = each(v, [&](f32 p) { return exp(p - top); });
        if (4 * q + 1 >= n) e.y = 0;
        if (4 * q + 2 >= n) e.z = 0;
        if (4 * q + 3 >= n) e.w = 0;
        sum = add_quad(sum, e);
        put(q, e);
    }
    sum = add_block(sum, scratch + kRuns);
    for (u32 q = thread(); 4 * q < n; q += kRowThreads) put(q, each(get(q), [&](f32 e) { return divide(e, sum); }));
}

KERNEL(softmax, RouteArgs, kRowThreads, 1) {
    let_next_start();
    wait_for_previous();
    const u64 at = u64{block_x()} * a.n;
    const bool aligned = a.n % 4 == 0;
    softmax_row(
        a.x + at, a.n, reinterpret_cast<f32 *>(shared()),
        [&](u32 q, const f32x4 &v) { store_quad(a.out + at, q, a.n, aligned, v); },
        [&](u32 q) { return load_quad(a.out + at, q, a.n, aligned); });
}

KERNEL(normalize, RouteArgs, kRowThreads, 1) {
    let_next_start();
    wait_for_previous();
    const u64 at = u64{block_x()} * a.n;
    const bool aligned = a.n % 4 == 0;
    f32 sum = 0;
    for (u32 q = thread(); 4 * q < a.n; q += kRowThreads) sum = add_quad(sum, load_quad(a.x + at, q, a.n, aligned));
    sum = add_block(sum, reinterpret_cast<f32 *>(shared()));
    for (u32 q = thread(); 4 * q < a.n; q += kRowThreads)
        store_quad(a.out + at, q, a.n, aligned,
                   each(load_quad(a.x + at, q, a.n, aligned), [&](f32 v) { return divide(v, sum); }));
}

// What a value ranks as.
DEVICE f32 rank_of(f32 v) { return v == v ? v : kMinusInfinity; }

// Gives place(column, v) for the k largest of `row`, n values in shared memory and NaN up to the next multiple of 4.
template <class Place>
DEVICE void select(const f32 *row, u32 n, u32 k, Place place) {
    for (u32 i = thread(); i < n; i += kRowThreads) {
        const f32 v = row[i], mine = rank_of(v);
        u32 before = 0;
        for (u32 j = 0; j < n; j += 4) {
            const f32x4 other = *reinterpret_cast<const f32x4 *>(row + j);
            const f32 o[4] = {rank_of(other.x), rank_of(other.y), rank_of(other.z), rank_of(other.w)};
            for (u32 c = 0; c < 4; c++) before += o[c] > mine || (o[c] == mine && j + c < i);
        }
        if (before < k) place(before, i, v);
    }
}

KERNEL(top_k, RouteArgs, kRowThreads, 1) {
    let_next_start();
    wait_for_previous();
    f32 *row = reinterpret_cast<f32 *>(shared());
    const f32 *x = a.x + u64{block_x()} * a.n;
    for (u32 i = thread(); i < (a.n + 3) / 4 * 4; i += kRowThreads) row[i] = i < a.n ? load(x + i) : kMinusInfinity;
    sync();
    const u64 at = u64{block_x()} * a.k;
    select(row, a.n, a.k, [&](u32 place, u32 column, f32 v) {
        store(a.ids + at + place, static_cast<i32>(column));
        store(a.out + at + place, v);
    });
}

// A candidate in the order of top_k: larger first, of equals the lower column.
struct Found {
    f32 rank;
    u32 column;
};
DEVICE bool before(const Found &a, const Found &b) {
    return a.rank > b.rank || (a.rank == b.rank && a.column < b.column);
}
DEVICE Found first_of_block(Found best, Found *scratch) {
    for (u32 mask = kRun / 2; mask > 0; mask /= 2) {
        const Found other = {shuffle_xor(best.rank, mask), shuffle_xor(best.column, mask)};
        if (before(other, best)) best = other;
    }
    sync();  // scratch is free again
    if (run_lane() == 0) scratch[run()] = best;
    sync();
    for (u32 i = 0; i < kRuns; i++)
        if (before(scratch[i], best)) best = scratch[i];
    return best;
}
constexpr u32 kNoColumn = ~0u;

// Rows that do not fit into shared memory: k searches.
KERNEL(top_k_large, RouteArgs, kRowThreads, 1) {
    let_next_start();
    wait_for_previous();
    Found *scratch = reinterpret_cast<Found *>(shared());
    const f32 *x = a.x + u64{block_x()} * a.n;
    Found last = {};
    for (u32 place = 0; place < a.k; place++) {
        Found best = {kMinusInfinity, kNoColumn};
        for (u32 i = thread(); i < a.n; i += kRowThreads) {
            const Found here = {rank_of(load(x + i)), i};
            if ((place == 0 || before(last, here)) && before(here, best)) best = here;
        }
        last = first_of_block(best, scratch);
        if (thread() == 0) {
            store(a.ids + u64{block_x()} * a.k + place, static_cast<i32>(last.column));
            store(a.out + u64{block_x()} * a.k + place, load(x + last.column));
        }
    }
}

KERNEL(moe_route, RouteArgs, kRowThreads, 1) {
    let_next_start();
    wait_for_previous();
    f32 *scratch = reinterpret_cast<f32 *>(shared());  // 16, then the probabilities, then the weights
    f32 *row = scratch + 16, *weights = row + (a.n + 3) / 4 * 4;
    f32x4 *quads = reinterpret_cast<f32x4 *>(row);
    softmax_row(
        a.x + u64{block_x()} * a.n, a.n, scratch, [&](u32 q, const f32x4 &v) { quads[q] = v; },
        [&](u32 q) { return quads[q]; });
    sync();
    // What fills the last quad is behind all columns: it never comes before one of them, for no probability is negative.
    const u64 at = u64{block_x()} * a.k;
    for (u32 i = thread(); i < (a.k + 3) / 4 * 4; i += kRowThreads)
        if (i >= a.k) weights[i] = 0;
    select(row, a.n, a.k, [&](u32 place, u32 column, f32 v) {
        store(a.ids + at + place, static_cast<i32>(column));
        if (a.normalize)
            weights[place] = v;
        else
            store(a.out + at + place, v);
    });
    if (!a.normalize) return;
    sync();
    f32 sum = 0;
    for (u32 q = thread(); 4 * q < a.k; q += kRowThreads)
        sum = add_quad(sum, reinterpret_cast<const f32x4 *>(weights)[q]);
    sum = add_block(sum, scratch);
    for (u32 i = thread(); i < a.k; i += kRowThreads) store(a.out + at + i, divide(weights[i], sum));
}

// A NaN or +infinity comes before everything, and gives no column.
DEVICE void offer(Found &best, f32 v, u32 column) {
    if (!(v < -kMinusInfinity)) best = {-kMinusInfinity, kNoColumn};
    if (v > best.rank) best = {v, column};
}

// Each block leaves the best of its quads; the last of a row to be done takes the best of those.
KERNEL(arg_max, ArgMaxArgs, kRowThreads, 1) {
    let_next_start();
    wait_for_previous();
    Found *scratch = reinterpret_cast<Found *>(shared());
    const f32 *x = a.x + u64{block_x()} * a.n;
    const bool aligned = a.n % 4 == 0;
    constexpr u32 kAtOnce = 4;
    const u32 stride = a.blocks * kRowThreads;
    Found best = {kMinusInfinity, kNoColumn};
    for (u32 q = block_y() * kRowThreads + thread(); 4 * q < a.n; q += kAtOnce * stride) {
        f32x4 v[kAtOnce];
        for_rounds<kAtOnce>(0, [&](u32 r) { v[r] = load_quad(x, q + r * stride, a.n, aligned, kMinusInfinity); });
        for_rounds<kAtOnce>(0, [&](u32 r) {
            const u32 column = 4 * (q + r * stride);
            offer(best, v[r].x, column), offer(best, v[r].y, column + 1);
            offer(best, v[r].z, column + 2), offer(best, v[r].w, column + 3);
        });
    }
    best = first_of_block(best, scratch);
    u32 *is_last = reinterpret_cast<u32 *>(scratch + kRuns);
    u32x2 *parts = a.parts + u64{block_x()} * a.blocks;
    if (thread() == 0) {
        store(parts + block_y(), u32x2{f32_bits(best.rank), best.column});
        fence();
        *is_last = atomic_add(a.counters + block_x(), 1) == a.blocks - 1 ? 1 : 0;
    }
    sync();
    if (*is_last == 0) return;
    fence();
    best = {kMinusInfinity, kNoColumn};
    for (u32 i = thread(); i < a.blocks; i += kRowThreads) {
        const u32x2 part = load(parts + i);
        const Found other = {as_f32(part.x), part.y};
        if (before(other, best)) best = other;
    }
    best = first_of_block(best, scratch);
    if (thread() != 0) return;
    store(a.out + block_x(), static_cast<i32>(best.column));
    store(a.counters + block_x(), 0u);
}

KERNEL(moe_combine, CombineArgs, kRowThreads, 1) {
    let_next_start();
    wait_for_previous();
    const u32 q = block_y() * kRowThreads + thread(), row = block_x();
    if (4 * q >= a.n) return;
    const bool aligned = a.n % 4 == 0;
    f32x4 sum = {};
    for (u32 s = 0; s < a.slots; s++) {
        const u64 i = u64{row} * a.slots + s;
        const f32 weight = load(a.weights + i);
        const f32x4 x = load_quad(a.x + i * a.n, q, a.n, aligned);
        sum = each(x, sum, [&](f32 v, f32 so_far) { return fma(weight, v, so_far); });
    }
    store_quad(a.out + u64{row} * a.n, q, a.n, aligned, sum);
}

}  // namespace ridge::simt
