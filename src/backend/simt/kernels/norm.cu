// rmsnorm, add_rmsnorm and combine_rmsnorm: out = (x * (1 / sqrt(sum of squares / n + eps))) * weight, with each step
// rounded as on the CPU, the sum in Order::f32_quads256. With q8 the result is also quantised where it is, in
// registers.
#include "backend/simt/kernels/combine.cuh"
#include "backend/simt/kernels/norm.h"
#include "backend/simt/kernels/quantize.cuh"
#include "backend/simt/kernels/sums.cuh"

namespace ridge::simt {

// The sum of squares where the block has T threads, more than the order has lanes: those get the quads by shared
// memory.
template <u32 T, u32 R>
DEVICE f32 add_squares_of_block(const f32x4 (&v)[R]) {
    f32x4 *quads = reinterpret_cast<f32x4 *>(shared());
    f32 *scratch = reinterpret_cast<f32 *>(quads + T * R);
    for_rounds<R>(0, [&](u32 r) { quads[r * T + thread()] = v[r]; });
    sync();
    if (thread() < kRowThreads) {
        f32 squares = 0;
        for_rounds<R * T / kRowThreads>(
            0, [&](u32 i) { squares = add_squares(squares, quads[i * kRowThreads + thread()]); });
        squares = sum_lanes(squares, kRun);
        if (run_lane() == 0) scratch[run()] = squares;
    }
    sync();
    return add_runs(scratch);
}

// R quads of the row in the registers of each of T threads; R = 0: of any width, read again for each pass.
enum class Input { plain, add, combine };
template <Input I, u32 R, u32 T>
DEVICE void norm_row(const NormArgs &a) {
    const u32 n = a.width, rounds = (n + 4 * T - 1) / (4 * T);
    const bool aligned = n % 4 == 0;
    const u64 at = u64{block_x()} * n;
    constexpr u32 kKept = R > 0 ? R : 1;
    constexpr bool kEarly = R > 0 && R <= 4;  // the weights too fit into registers, while others still run
    f32x4 v[kKept], w[kEarly ? kKept : 1];
    let_next_start();
    if constexpr (kEarly) for_rounds<R>(0, [&](u32 r) { w[r] = load_quad(a.weight, r * T + thread(), n, aligned); });
    wait_for_previous();

    const auto value = [&](u32 q) {
        const f32x4 x = load_quad(a.x + at, q, n, aligned);
        if constexpr (I == Input::plain) return x;
        f32x4 b;
        if constexpr (I == Input::add)
            b = load_quad(a.b + at, q, n, aligned);
        else
            b = combined_quad(a.b, a.slot_weights, block_x(), a.slots, q, n, aligned);
        return each(x, b, [&](f32 p, f32 s) { return fma(s, a.scale, p); });
    };
    if constexpr (R > 0) for_rounds<R>(0, [&](u32 r) { v[r] = value(r * T + thread()); });
    f32 squares = 0;
    for_rounds<R>(rounds, [&](u32 r) {
        const u32 q = r * T + thread();
        if constexpr (R == 0) v[0] = value(q);
        const f32x4 x = v[R > 0 ? r : 0];
        if constexpr (T == kRowThreads) squares = add_squares(squares, x);
        if constexpr (I != Input::plain) store_quad(a.sum + at, q, n, aligned, x);
    });
    if constexpr (T > kRowThreads)
        squares = add_squares_of_block<T>(v);
    else
        squares = add_block(squares, reinterpret_cast<f32 *>(shared()));
    const f32 factor = norm_factor(squares, n, a.eps);
    const Q8 q8 = a.q8.codes ? q8_row(a.q8, block_x(), n) : Q8{};
    for_rounds<R>(rounds, [&](u32 r) {
        const u32 q = r * T + thread();
        if constexpr (R == 0) v[0] = value(q);
        f32x4 weight;
        if constexpr (kEarly)
            weight = w[r];
        else
            weight = load_quad(a.weight, q, n, aligned);
        const f32x4 out = each(v[R > 0 ? r : 0], weight, [&](f32 x, f32 by) { return x * factor * by; });
        if (a.out) store_quad(a.out + at, q, n, aligned, out);
        if (q8.codes) store_q8x4(out, q8, 4 * q, 4 * q < n);
    });
}

// R quads of a head in each lane's registers.
template <u32 R>
DEVICE void norm_head(const NormArgs &a) {
    const u32 n = a.width, row = block_x() * kRuns + run();
    const bool aligned = n % 4 == 0, there = row < a.rows;
    const u64 at = u64{row} * n;
    f32x4 v[R], w[R];
    let_next_start();
    for_rounds<R>(0, [&](u32 r) { w[r] = load_quad(a.weight, r * kRun + run_lane(), n, aligned); });
    wait_for_previous();
    f32 squares[kRuns] = {};
    for_rounds<R>(0, [&](u32 r) {
        v[r] = load_quad(a.x + at, r * kRun + run_lane(), there ? n : 0, aligned);
        squares[r] = sum_lanes(add_squares(0, v[r]), kRun);
    });
    const f32 factor = norm_factor(add_runs(squares), n, a.eps);
    const Q8 q8 = a.q8.codes ? q8_row(a.q8, row, n) : Q8{};
    for_rounds<R>(0, [&](u32 r) {
        const u32 q = r * kRun + run_lane();
        const f32x4 out = each(v[r], w[r], [&](f32 x, f32 by) { return x * factor * by; });
        if (a.out) store_quad(a.out + at, q, there ? n : 0, aligned, out);
        if (q8.codes) store_q8x4(out, q8, 4 * q, there && 4 * q < n);
    });
}

#define NORM(name, R, T)                                                          \
    KERNEL(rmsnorm_##name, NormArgs, T, 1) { norm_row<Input::plain, R, T>(a); }   \
    KERNEL(add_rmsnorm_##name, NormArgs, T, 1) { norm_row<Input::add, R, T>(a); } \
    KERNEL(combine_rmsnorm_##name, NormArgs, T, 1) { norm_row<Input::combine, R, T>(a); }
NORM(1, 1, 256)
NORM(2, 2, 256)
NORM(4, 4, 256)
NORM(8, 8, 256)
NORM(16, 16, 256)
NORM(0, 0, 256)
NORM(wide_512, 1, 512)
NORM(wide_1024, 1, 1024)
NORM(wide_2048, 2, 1024)
#undef NORM
KERNEL(rmsnorm_heads_1, NormArgs, kRowThreads, 1) { norm_head<1>(a); }
KERNEL(rmsnorm_heads_2, NormArgs, kRowThreads, 1) { norm_head<2>(a); }
KERNEL(rmsnorm_heads_8, NormArgs, kRowThreads, 1) { norm_head<8>(a); }

}  // namespace ridge::simt
