// What a write to the KV state stores, to the bit: KvWrite in op/op.h.
#pragma once

#include "backend/simt/device.h"
#include "backend/simt/kernels/quantize.cuh"
#include "backend/simt/kernels/rope.h"

namespace ridge::simt {

// Columns column .. column + 3 of row `slot` of a state of `cols` columns, as far as they are below `end`. All lanes of a
// wave take part; where the state is q8_0, eight neighbours hold a block, and there is it for all of them or none.
// `any_q8`, the same in all lanes: whether it is q8_0 for one of the wave.
DEVICE void store_state(std::byte *state, u32 type, u64 slot, u32 cols, u32 column, u32 end, const f32x4 &v, bool there,
                        bool any_q8) {
    u32 most = 0;
    if (any_q8) {
        most = max(max(magnitude_bits(v.x), magnitude_bits(v.y)), max(magnitude_bits(v.z), magnitude_bits(v.w)));
        for (u32 mask = 4; mask > 0; mask /= 2) most = max(most, shuffle_xor(most, mask));
    }
    if (!there || column >= end) return;
    const f32 x[4] = {v.x, v.y, v.z, v.w};
    if (type == kStateQ8) {
        u32 scale = 0x7e00u;
        if (most < 0x7f800000u) scale = f32_f16(divide(as_f32(most), 127.0f));
        if (scale >= 0x7c00u) scale = 0x7e00u;
        const f32 inverse = scale > 0 && scale < 0x7c00u ? divide(1.0f, f16_f32(scale)) : 0.0f;
        u32 codes[4];
        for (u32 i = 0; i < 4; i++) {
            constexpr f32 magic = 12582912.0f;
            // Infinity times 0 is no number, hence no product with 0.
            const f32 code = inverse > 0 ? x[i] * inverse + magic - magic : 0.0f;
            codes[i] = static_cast<u32>(static_cast<i32>(min(max(code, -127.0f), 127.0f))) & 255u;
        }
        // 34 bytes to a block, aligned to 2.
        u16 *block = reinterpret_cast<u16 *>(state + (slot * (cols / 32) + column / 32) * 34);
        const u32 at = 1 + column % 32 / 2;
        if (column % 32 == 0) store(block, static_cast<u16>(scale));
        store(block + at, static_cast<u16>(codes[0] | codes[1] << 8));
        store(block + at + 1, static_cast<u16>(codes[2] | codes[3] << 8));
        return;
    }
    const u64 at = slot * cols + column;
    const bool whole = cols % 4 == 0 && column % 4 == 0 && column + 4 <= end;
    if (type == kStateF16) {
        u16 *out = reinterpret_cast<u16 *>(state) + at;
        if (whole) {
            store(reinterpret_cast<u32x2 *>(out),
                  u32x2{f32_f16(x[0]) | f32_f16(x[1]) << 16, f32_f16(x[2]) | f32_f16(x[3]) << 16});
            return;
        }
        for (u32 i = 0; i < 4 && column + i < end; i++) store(out + i, static_cast<u16>(f32_f16(x[i])));
        return;
    }
    f32 *out = reinterpret_cast<f32 *>(state) + at;
    if (whole) {
        store(reinterpret_cast<f32x4 *>(out), v);
        return;
    }
    for (u32 i = 0; i < 4 && column + i < end; i++) store(out + i, x[i]);
}

}  // namespace ridge::simt
