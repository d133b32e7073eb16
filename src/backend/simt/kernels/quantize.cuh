// f32 -> q8 inside a kernel, to the bits of Quantize in op/op.h: for the quantize row and for every kernel that publishes
// the q8 form of what it computes.
//
//   scale = max|x| / 127      code = round-half-even(x / scale), held to -127 .. 127      sums[h] = sum of 16 codes
// Scale 0 has codes 0; a block that holds an infinity or a NaN has the scale NaN and codes 0.
//
// Two forms, by how a block of 32 values lies in the lanes of a wave. In both all lanes of the wave take part; those for
// which `there` is false store nothing, and the lanes of one block agree about it. `column` is that of the lane's (first)
// value, `row` what q8_row gives.
//   store_q8(v, ...)   lanes 32b .. 32b + 31 hold a value each
//   store_q8x4(v, ...) lanes 8b .. 8b + 7 hold four neighbouring values each: fewer shuffles, wider stores
#pragma once

#include "backend/simt/device.h"

namespace ridge::simt {

// Row i of an (m, k) q8 value.
DEVICE Q8 q8_row(const Q8 &q, u64 i, u32 k) { return {q.codes + i * k, q.scale + i * (k / 32), q.sums + i * (k / 16)}; }

// Bits of max|x|: the order of the bits is that of the values, NaN above infinity.
DEVICE u32 magnitude_bits(f32 x) { return f32_bits(x) & 0x7fffffffu; }

DEVICE f32 q8_scale(u32 most) { return most < 0x7f800000u ? divide(as_f32(most), 127.0f) : as_f32(0x7fc00000u); }

DEVICE i32 q8_code(f32 x, f32 scale) {
    constexpr f32 magic = 12582912.0f;  // 1.5 * 2^23: a sum with it has no bits below 1
    if (!(scale > 0)) return 0;         // of a NaN scale too
    const f32 q = min(max(divide(x, scale), -127.0f), 127.0f);
    return static_cast<i32>(f32_bits(q + magic) - f32_bits(magic));
}

// Four codes of one block at once, without a division for each where all quotients are far from a half. With the rounded
// reciprocal r of a scale above 2^-128, fl(x r) is within 127.5 * 2^-23 of x / scale and the IEEE quotient within 2^-18,
// together below 2^-15: with the nearest integer closer than 1/2 - 2^-15, it is that of both.
DEVICE void q8_codes(const f32x4 &v, f32 scale, i32 (&codes)[4]) {
    constexpr f32 magic = 12582912.0f, sure = 0.5f - 0x1p-15f;
    const f32 r = divide(1.0f, scale), x[4] = {v.x, v.y, v.z, v.w};
    bool all = true;  // false where r, or a product with it, is infinite or NaN
    for (u32 i = 0; i < 4; i++) {
        const f32 q = x[i] * r, rounded = q + magic;
        codes[i] = static_cast<i32>(f32_bits(rounded) - f32_bits(magic));
        all = all && abs(q - (rounded - magic)) < sure;
    }
    if (all) return;
    for (u32 i = 0; i < 4; i++) codes[i] = q8_code(x[i], scale);
}

DEVICE void store_q8(f32 v, const Q8 &row, u32 column, bool there) {
    u32 most = magnitude_bits(v);
    for (u32 mask = 16; mask > 0; mask /= 2) most = max(most, shuffle_xor(most, mask));
    const f32 scale = q8_scale(most);
    const i32 code = q8_code(v, scale);
    const i32 sum = sum_lanes(code, 16);
    u32 packed = static_cast<u32>(code) & 255u;
    packed = packed | shuffle_xor(packed, 1) << 8;  // right in even lanes
    packed = packed | shuffle_xor(packed, 2) << 16;
    if (!there) return;
    if (column % 4 == 0) store(reinterpret_cast<u32 *>(row.codes + column), packed);
    if (column % 16 == 0) store(row.sums + column / 16, static_cast<i16>(sum));
    if (column % 32 == 0) store(row.scale + column / 32, scale);
}

DEVICE void store_q8x4(const f32x4 &v, const Q8 &row, u32 column, bool there) {
    u32 most = max(max(magnitude_bits(v.x), magnitude_bits(v.y)), max(magnitude_bits(v.z), magnitude_bits(v.w)));
    for (u32 mask = 4; mask > 0; mask /= 2) most = max(most, shuffle_xor(most, mask));
    const f32 scale = q8_scale(most);
    i32 codes[4];
    q8_codes(v, scale, codes);
    const i32 sum = sum_lanes(codes[0] + codes[1] + codes[2] + codes[3], 4);
    if (!there) return;
    const u32 packed = (static_cast<u32>(codes[0]) & 255u) | (static_cast<u32>(codes[1]) & 255u) << 8 |
                       (static_cast<u32>(codes[2]) & 255u) << 16 | static_cast<u32>(codes[3]) << 24;
    store(reinterpret_cast<u32 *>(row.codes + column), packed);
    if (column % 16 == 0) store(row.sums + column / 16, static_cast<i16>(sum));
    if (column % 32 == 0) store(row.scale + column / 32, scale);
}

}  // namespace ridge::simt
