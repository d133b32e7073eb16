// Contraction of f32 activations with weights of any format, decoded to f32: the rows that need no quantised input and
// no matrix instructions. One wave computes one output; lane l sums groups of 32 weights l, l + W, .. ascending, then
// the lanes are added in pairs over halves (Order::f32_lanes).
#include "backend/simt/device.h"
#include "backend/simt/formats.h"
#include "backend/simt/kernels/banks.cuh"
#include "backend/simt/kernels/glu.cuh"

namespace ridge::simt {

constexpr u32 kF32Threads = 256, kF32Waves = kF32Threads / kWave;

template <FormatId F>
DEVICE f32 dot_row(const std::byte *row, const f32 *x, u32 k) {
    using D = Fmt<F>;
    f32 acc = 0;
    for (u32 first = lane() * 32; first < k; first += kWave * 32) {
        if constexpr (D::group == 0) {
            const u32 end = min(first + 32, k);
            for (u32 i = first; i < end; i++) acc = fma(D::value(row + u64{i} * D::bytes, 0), load(x + i), acc);
        } else {
            const std::byte *block = row + u64{first / D::block} * D::bytes;
            const u32 g32 = first % D::block / 32;
            for (u32 j = 0; j < 8; j++) {
                const u32 codes = D::codes4(block, g32, j);
                const u32 g = D::group == 16 ? 2 * g32 + j / 4 : D::group == 32 ? g32 : 0;
                const f32 scale = D::scale(block, g), bias = D::bias(block, g);
                const f32x4 v = load(reinterpret_cast<const f32x4 *>(x + first) + j);
                const f32 in[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
                for (u32 i = 0; i < 4; i++) {
                    const f32 product = scale * static_cast<f32>(static_cast<i8>(codes >> (8 * i)));
                    acc = fma(D::has_bias ? product + bias : product, in[i], acc);
                }
            }
        }
    }
    return sum_lanes(acc);
}

DEVICE f32 dot_any(u32 format, const std::byte *row, const f32 *x, u32 k) {
    switch (static_cast<FormatId>(format)) {
#define FORMAT(NAME, prefix, id, block, bytes, g, bias) \
    case FormatId::NAME:                                \
        return dot_row<FormatId::NAME>(row, x, k);
#define FORMAT_FLOAT(NAME, prefix, id, bytes) \
    case FormatId::NAME:                      \
        return dot_row<FormatId::NAME>(row, x, k);
#include "format/formats.def"
    }
    return 0;
}

KERNEL(contract_f32, ContractF32Args, kF32Threads, 2) {
    let_next_start();
    wait_for_previous();
    const u32 unit = block_x() * kF32Waves + wave();
    if (unit >= a.units) return;
    for (u32 r = block_y(); r < a.rows; r += a.grid_rows) {
        const auto [expert, x_row] = row_of_expert(a, r);
        const DotBank &bank = a.bank[a.glu != 0 ? 0 : bank_of(a, unit)];
        const u32 row = a.glu != 0 ? unit : unit - bank.first;
        const f32 *x = a.x + u64{x_row} * a.k;
        f32 v = dot_any(bank.format, bank.weight + expert * bank.expert_bytes + u64{row} * bank.row_bytes, x, a.k);
        if (a.glu != 0) {
            const DotBank &up = a.bank[1];
            v = glu(a.glu - 1, v,
                    dot_any(up.format, up.weight + expert * up.expert_bytes + u64{row} * up.row_bytes, x, a.k));
        } else if (bank.bias != nullptr) {
            v = v + load(bank.bias + expert * bank.n + row);
        }
        if (lane() == 0) store(bank.out + u64{r} * bank.n + row, v);
    }
}

}  // namespace ridge::simt
