// Contraction of f32 activations with float weights, by one block for each weight row: for routers and for models in
// F16 or BF16, where a row is few enough bytes that one wave would wait for them one after the other.
//
// Thread t of 128 sums quads (four neighbouring columns) t, t + 128, .. ascending; then the lanes of a wave are added
// in pairs over halves, and the waves in order (Order::f32_quads128). The first quads of a row are on their way before
// the launch in front of this one has ended.
#include "backend/simt/device.h"
#include "backend/simt/formats.h"
#include "backend/simt/kernels/banks.cuh"
#include "backend/simt/kernels/glu.cuh"

namespace ridge::simt {

constexpr u32 kFloatThreads = 128, kFloatWaves = kFloatThreads / kWave, kKept = 4;

// Columns 4 q .. 4 q + 3 of a row of k; 0 beyond it. `wide`: rows are whole quads, aligned to their size.
template <FormatId F>
DEVICE f32x4 weights_at(const std::byte *row, u32 q, u32 k, bool wide) {
    using D = Fmt<F>;
    if (4 * q >= k) return {0, 0, 0, 0};
    if (wide) {
        if constexpr (F == FormatId::F32) {
            return load(reinterpret_cast<const f32x4 *>(row) + q);
        } else {
            const u32x2 v = load(reinterpret_cast<const u32x2 *>(row) + q);
            if constexpr (F == FormatId::F16)
                return {f16_f32(v.x & 0xffffu), f16_f32(v.x >> 16), f16_f32(v.y & 0xffffu), f16_f32(v.y >> 16)};
            else
                return {as_f32(v.x << 16), as_f32(v.x & 0xffff0000u), as_f32(v.y << 16), as_f32(v.y & 0xffff0000u)};
        }
    }
    const auto one = [&](u32 i) { return i < k ? D::value(row + u64{i} * D::bytes, 0) : 0.0f; };
    return {one(4 * q), one(4 * q + 1), one(4 * q + 2), one(4 * q + 3)};
}
DEVICE f32x4 weights_any(u32 format, const std::byte *row, u32 q, u32 k, bool wide) {
    if (format == static_cast<u32>(FormatId::F32)) return weights_at<FormatId::F32>(row, q, k, wide);
    if (format == static_cast<u32>(FormatId::F16)) return weights_at<FormatId::F16>(row, q, k, wide);
    return weights_at<FormatId::BF16>(row, q, k, wide);
}
DEVICE f32x4 input_at(const f32 *x, u32 q, u32 k, bool wide) {
    if (4 * q >= k) return {0, 0, 0, 0};
    if (wide) return load(reinterpret_cast<const f32x4 *>(x) + q);
    const auto one = [&](u32 i) { return i < k ? load(x + i) : 0.0f; };
    return {one(4 * q), one(4 * q + 1), one(4 * q + 2), one(4 * q + 3)};
}
DEVICE f32 add_quad(const f32x4 &w, const f32x4 &x, f32 sum) {
    return fma(w.w, x.w, fma(w.z, x.z, fma(w.y, x.y, fma(w.x, x.x, sum))));
}

struct FloatRow {
    const std::byte *row;
    u32 format;
};

DEVICE f32 dot_block(const FloatRow &w, const f32x4 (&kept)[kKept], const f32 *x, u32 k, bool wide) {
    f32 sum = 0;
#pragma unroll
    for (u32 r = 0; r < kKept; r++) sum = add_quad(kept[r], input_at(x, r * kFloatThreads + thread(), k, wide), sum);
    for (u32 q = kKept * kFloatThreads + thread(); 4 * q < k; q += kFloatThreads)
        sum = add_quad(weights_any(w.format, w.row, q, k, wide), input_at(x, q, k, wide), sum);
    sum = sum_lanes(sum);
    f32 *scratch = reinterpret_cast<f32 *>(shared());
    sync();  // what it held is read
    if (lane() == 0) scratch[wave()] = sum;
    sync();
    sum = scratch[0];
    for (u32 i = 1; i < kFloatWaves; i++) sum = sum + scratch[i];
    return sum;
}

KERNEL(contract_float, ContractF32Args, kFloatThreads, 8) {
    let_next_start();
    const u32 unit = block_x();
    const u32 b = a.glu != 0 ? 0 : bank_of(a, unit);
    const u32 column = a.glu != 0 ? unit : unit - a.bank[b].first;
    const bool wide = a.k % 4 == 0;
    const auto row_of = [&](const DotBank &bank, u32 expert) {
        return FloatRow{bank.weight + expert * bank.expert_bytes + u64{column} * bank.row_bytes, bank.format};
    };
    f32x4 first[kKept], second[kKept];
    const auto keep = [&](u32 expert) {
#pragma unroll
        for (u32 r = 0; r < kKept; r++) {
            const FloatRow w = row_of(a.bank[b], expert);
            first[r] = weights_any(w.format, w.row, r * kFloatThreads + thread(), a.k, wide);
            if (a.glu == 0) continue;
            const FloatRow up = row_of(a.bank[1], expert);
            second[r] = weights_any(up.format, up.row, r * kFloatThreads + thread(), a.k, wide);
        }
    };
    if (a.ids == nullptr) keep(0);
    wait_for_previous();
    for (u32 r = block_y(); r < a.rows; r += a.grid_rows) {
        const auto [expert, x_row] = row_of_expert(a, r);
        if (a.ids != nullptr) keep(expert);
        const f32 *x = a.x + u64{x_row} * a.k;
        f32 v = dot_block(row_of(a.bank[b], expert), first, x, a.k, wide);
        if (a.glu != 0) v = glu(a.glu - 1, v, dot_block(row_of(a.bank[1], expert), second, x, a.k, wide));
        const DotBank &bank = a.bank[b];
        if (a.glu == 0 && bank.bias != nullptr) v = v + load(bank.bias + expert * bank.n + column);
        if (thread() == 0) store(bank.out + u64{r} * bank.n + column, v);
    }
}

}  // namespace ridge::simt
