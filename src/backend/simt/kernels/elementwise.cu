// quantize, glu, add, scale, row_gate, gather_rows: in the CPU's steps (backend/cpu/simd.h), so in its bits.
#include "backend/simt/kernels/elementwise.h"
#include "backend/simt/kernels/glu.cuh"
#include "backend/simt/kernels/quantize.cuh"
#include "backend/simt/kernels/sums.cuh"

namespace ridge::simt {

KERNEL(quantize, QuantizeArgs, kRowThreads, 1) {
    let_next_start();
    wait_for_previous();
    const u32 q = block_x() * kRowThreads + thread();
    const bool there = q < a.quads;
    const f32x4 v = there ? load(reinterpret_cast<const f32x4 *>(a.x) + q) : f32x4{};
    store_q8x4(v, a.out, 4 * q, there);  // rows are whole blocks, so all of them are one
}

// f(quad of a, quad of b) for all elements; what is left at the end, fewer than four, one by one.
template <class F>
DEVICE void elements(const ElementsArgs &a, bool two, F f) {
    let_next_start();
    wait_for_previous();
    const u64 at = 4 * (u64{block_x()} * kRowThreads + thread());
    if (at >= a.n) return;
    const u32 n = a.n - at < 4 ? static_cast<u32>(a.n - at) : 4;
    const f32x4 x = load_quad(a.a + at, 0, n, n == 4), y = two ? load_quad(a.b + at, 0, n, n == 4) : f32x4{};
    store_quad(a.out + at, 0, n, n == 4, each(x, y, f));
}

KERNEL(glu_silu, ElementsArgs, kRowThreads, 1) {
    elements(a, true, [&](f32 gate, f32 up) { return glu(kGluSilu, gate, up); });
}
KERNEL(glu_gelu, ElementsArgs, kRowThreads, 1) {
    elements(a, true, [&](f32 gate, f32 up) { return glu(kGluGelu, gate, up); });
}
KERNEL(glu_clamped, ElementsArgs, kRowThreads, 1) {
    elements(a, true, [&](f32 gate, f32 up) { return glu(kGluClamped, gate, up); });
}
KERNEL(add, ElementsArgs, kRowThreads, 1) {
    elements(a, true, [&](f32 x, f32 y) { return fma(y, a.scale, x); });
}
KERNEL(scale, ElementsArgs, kRowThreads, 1) {
    elements(a, false, [&](f32 x, f32) { return x * a.scale; });
}
// tanh(t) = 1 - 2 / (exp(2 t) + 1).
KERNEL(scale_softcap, ElementsArgs, kRowThreads, 1) {
    elements(a, false, [&](f32 x, f32) {
        const f32 t = divide(x * a.scale, a.softcap);
        return a.softcap * (1.0f - divide(2.0f, exp(t + t) + 1.0f));
    });
}

KERNEL(row_gate, RowsArgs, kRowThreads, 1) {
    let_next_start();
    wait_for_previous();
    const u32 q = block_y() * kRowThreads + thread();
    if (4 * q >= a.n) return;
    const bool aligned = a.n % 4 == 0;
    const u64 at = u64{block_x()} * a.n;
    const f32 divisor = 1.0f + exp(-load(a.gate + block_x()));
    store_quad(a.out + at, q, a.n, aligned,
               each(load_quad(a.x + at, q, a.n, aligned), [&](f32 x) { return divide(x, divisor); }));
}

KERNEL(gather_rows, RowsArgs, kRowThreads, 1) {
    let_next_start();
    wait_for_previous();
    const u32 q = block_y() * kRowThreads + thread();
    if (4 * q >= a.n) return;
    const bool aligned = a.n % 4 == 0;
    const f32x4 v = load_quad(a.x + u64{output_of(a.step, block_x())} * a.n, q, a.n, aligned);
    store_quad(a.out + u64{block_x()} * a.n, q, a.n, aligned, v);
}

}  // namespace ridge::simt
