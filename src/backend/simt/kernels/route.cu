// softmax, normalize, top_k, moe_route, moe_combine, arg_max.
//
// softmax: e = exp(x - max x), out = e / sum e, the sum in Order::f32_quads256. A NaN or +infinity anywhere makes the whole
//   row NaN.
// top_k: where the row fits into shared memory every column counts those that come before it, which is its place: no order
//   of events matters. A NaN counts as -infinity.
#include "backend/simt/kernels/route.h"
#include "backend/simt/kernels/combine.cuh"

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

// The same bits for up to 128 R columns and kRouteFew places, by 128 R threads. Each run of 32 lanes takes the softmax of
// the whole row by itself, so that only the weights at the end need a barrier.
template <u32 R>
DEVICE void route_few(const RouteArgs &a) {
    constexpr u32 kQuads = kRun * R;
    constexpr u32 kAbsent = 0, kNan = 1, kZero = 2;  // keys in the order of ranks: that of a number is its bits + kZero
    const bool aligned = a.n % 4 == 0;
    const f32 *x = a.x + u64{block_x()} * a.n;
    u32x4 *keys = reinterpret_cast<u32x4 *>(shared()) + run() * kQuads;
    f32 *weights = reinterpret_cast<f32 *>(reinterpret_cast<u32x4 *>(shared()) + 4 * R * kQuads);
    let_next_start();
    wait_for_previous();
    f32x4 v[R];
    f32 top = kMinusInfinity, sums[kRuns] = {};
    for_rounds<R>(0, [&](u32 r) {
        v[r] = load_quad(x, r * kRun + run_lane(), a.n, aligned, kMinusInfinity);
        top = max(top, max(max(v[r].x, v[r].y), max(v[r].z, v[r].w)));
    });
    top = max_lanes(top, kRun);
    for_rounds<R>(0, [&](u32 r) {
        const u32 column = 4 * (r * kRun + run_lane());
        v[r] = each(v[r], [&](f32 p) { return exp(p - top); });
        if (column >= a.n) v[r].x = 0;
        if (column + 1 >= a.n) v[r].y = 0;
        if (column + 2 >= a.n) v[r].z = 0;
        if (column + 3 >= a.n) v[r].w = 0;
        sums[r] = sum_lanes(add_quad(0, v[r]), kRun);
    });
    const f32 sum = add_runs(sums);
    for_rounds<R>(0, [&](u32 r) {
        const u32 q = r * kRun + run_lane();
        const auto key = [&](f32 e, u32 column) {
            const f32 p = divide(e, sum);
            return column >= a.n ? kAbsent : p == p ? f32_bits(p) + kZero : kNan;
        };
        keys[q] = u32x4{key(v[r].x, 4 * q), key(v[r].y, 4 * q + 1), key(v[r].z, 4 * q + 2), key(v[r].w, 4 * q + 3)};
    });
    sync_wave();
    const u32 i = thread(), mine = reinterpret_cast<const u32 *>(keys)[i];
    u32 before = 0;
    for (u32 q = 0; 4 * q < a.n; q++) {
        const u32x4 other = keys[q];
        const u32 above = q < i / 4 ? mine - 1 : mine;  // of equals the lower column comes first
        before += (other.x > above ? 1 : 0) + (other.y > above ? 1 : 0) + (other.z > above ? 1 : 0) +
                  (other.w > above ? 1 : 0);
    }
    for (u32 j = i / 4 * 4; j < i; j++) before += reinterpret_cast<const u32 *>(keys)[j] == mine ? 1 : 0;
    const u64 at = u64{block_x()} * a.k;
    if (i >= a.k && i < kRouteFew) weights[i] = 0;
    if (i < a.n && before < a.k) {
        const f32 p = mine >= kZero ? as_f32(mine - kZero) : as_f32(0x7fc00000u);
        store(a.ids + at + before, static_cast<i32>(i));
        if (a.normalize)
            weights[before] = p;
        else
            store(a.out + at + before, p);
    }
    if (!a.normalize) return;
    sync();
    f32x4 quad = {};
    if (run_lane() < kRouteFew / 4) quad = reinterpret_cast<const f32x4 *>(weights)[run_lane()];
    const f32 total = sum_lanes(add_quad(0, quad), kRun);
    if (i < a.k) store(a.out + at + i, divide(weights[i], total));
}

KERNEL(moe_route_1, RouteArgs, 128, 1) { route_few<1>(a); }
KERNEL(moe_route_2, RouteArgs, 256, 1) { route_few<2>(a); }

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

KERNEL(moe_combine, CombineArgs, kCombineThreads, 1) {
    let_next_start();
    wait_for_previous();
    const u32 q = block_y() * kCombineThreads + thread(), row = block_x();
    if (4 * q >= a.n) return;
    const bool aligned = a.n % 4 == 0;
    const f32x4 sum = combined_quad(a.x, a.weights, row, a.slots, q, a.n, aligned);
    store_quad(a.out + u64{row} * a.n, q, a.n, aligned, sum);
}

}  // namespace ridge::simt
