// What a device can do at most, and what a launch costs that does nothing.
#include "backend/simt/kernels/ceilings.h"

#include "backend/simt/arch/matrix.h"
#include "backend/simt/device.h"

namespace ridge::simt {

KERNEL(ceiling_nothing, CeilingArgs, 128, 1) {
    let_next_start();
    wait_for_previous();
    if (a.n != 0 && thread() == 0) store(a.out, 1u);
}

// Keeps the device busy for so long, while the host submits what is to be timed behind it.
KERNEL(ceiling_wait, CeilingArgs, 128, 1) {
    wait_for_previous();
    const u64 start = nanoseconds();
    while (nanoseconds() - start < a.n) {
    }
}

// Four independent loads of 16 bytes a thread, neighbours side by side.
KERNEL(ceiling_read, CeilingArgs, 256, 4) {
    wait_for_previous();
    constexpr u32 kAhead = 4;
    u32 sum = 0;
    for (u64 i = u64{block_x()} * 256 * kAhead + thread(); i < a.n; i += u64{a.blocks} * 256 * kAhead) {
        u32x4 v[kAhead];
#pragma unroll
        for (u32 j = 0; j < kAhead; j++) {
            const u64 at = i + j * 256;
            v[j] = load(a.from + (at < a.n ? at : i));
        }
#pragma unroll
        for (u32 j = 0; j < kAhead; j++) sum += v[j].x ^ v[j].y ^ v[j].z ^ v[j].w;
    }
    if (sum == 0x12345678u) store(a.out, sum);
}

// 16 independent sums a thread, 64 multiply-adds of each in a repeat.
KERNEL(ceiling_f32, CeilingArgs, 256, 4) {
    wait_for_previous();
    f32 s[16];
#pragma unroll
    for (u32 j = 0; j < 16; j++) s[j] = static_cast<f32>(thread() + j);
    const f32 x = 1.0f + static_cast<f32>(block_x()) * 1e-9f;
    for (u64 i = 0; i < a.n; i++)
#pragma unroll
        for (u32 r = 0; r < 64; r++)
#pragma unroll
            for (u32 j = 0; j < 16; j++) s[j] = fma(s[j], x, 0.5f);
    f32 sum = 0;
#pragma unroll
    for (u32 j = 0; j < 16; j++) sum += s[j];
    if (sum == 0.0f) store(a.out, f32_bits(sum));
}

// Four independent products of 16 x 16 x 32 a wave in each of 16 steps of a repeat; the operands are not fetched again.
KERNEL(ceiling_int8, CeilingArgs, 256, 2) {
    wait_for_previous();
    matrix::Rows rows{};
    matrix::Columns columns[4] = {};
#pragma unroll
    for (u32 r = 0; r < matrix::kRegisters; r++) rows.v[r] = thread() * 0x01030507u + r;
    u32 sum = 0;
    for (u64 i = 0; i < a.n; i++) {
#pragma unroll
        for (u32 step = 0; step < 16; step++) {
            rows.v[0] += step;
#pragma unroll
            for (u32 j = 0; j < 4; j++) {
                columns[j].v[0] = rows.v[0] + j;
                const matrix::Dots d = matrix::dot32(rows, columns[j]);
                // Of what comes of one instruction, one element: more would measure the xor.
                sum ^= d.v[0] ^ d.v[matrix::kElements > 4 ? 2 : 0];
            }
        }
    }
    if (sum == 0x12345678u) store(a.out, sum);
}

KERNEL(ceiling_bf16, CeilingArgs, 256, 2) {
    wait_for_previous();
    matrix::Rows rows{};
    matrix::Columns columns{};
    f32 sums[4][matrix::kElements] = {};
#pragma unroll
    for (u32 r = 0; r < matrix::kRegisters; r++) rows.v[r] = columns.v[r] = 0x3f803f80u + thread() + r;
    for (u64 i = 0; i < a.n; i++)
#pragma unroll
        for (u32 step = 0; step < 16; step++)
#pragma unroll
            for (u32 j = 0; j < 4; j++) matrix::add_bf16(sums[j], rows, columns);
    f32 sum = 0;
#pragma unroll
    for (u32 j = 0; j < 4; j++)
#pragma unroll
        for (u32 e = 0; e < matrix::kElements; e++) sum += sums[j][e];
    if (sum == 0.5f) store(a.out, f32_bits(sum));
}

}  // namespace ridge::simt
