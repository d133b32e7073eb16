// What the attention kernels share: rows of keys and values of each type, which positions a token sees, the soft cap.
#pragma once

#include "backend/simt/device.h"
#include "backend/simt/kernels/attention.h"

namespace ridge::simt {

enum class KvType { f32, f16, q8_0 };

// A row of n values of a type: its bytes, value d of it, and eight from d on, a multiple of eight. `Raw` is what is
// loaded of those, so that many loads are on their way before the first value is needed.
template <KvType>
struct Kv;

template <>
struct Kv<KvType::f32> {
    static DEVICE u64 bytes(u32 n) { return u64{n} * 4; }
    static DEVICE f32 value(const std::byte *row, u32 d) { return load(reinterpret_cast<const f32 *>(row) + d); }
};

template <>
struct Kv<KvType::f16> {
    struct Raw {
        u32x4 bits = {0, 0, 0, 0};
    };
    static DEVICE u64 bytes(u32 n) { return u64{n} * 2; }
    static DEVICE f32 value(const std::byte *row, u32 d) {
        return f16_f32(load(reinterpret_cast<const u16 *>(row) + d));
    }
    static DEVICE Raw load8(const std::byte *row, u32 d) {
        return {load(reinterpret_cast<const u32x4 *>(row + u64{d} * 2))};
    }
    static DEVICE void values(const Raw &r, f32 (&x)[8]) {
        const u32 words[4] = {r.bits.x, r.bits.y, r.bits.z, r.bits.w};
#pragma unroll
        for (u32 i = 0; i < 4; i++) x[2 * i] = f16_f32(words[i] & 0xffffu), x[2 * i + 1] = f16_f32(words[i] >> 16);
    }
};

// Blocks of 34 bytes, aligned to 2. The product with the scale is exact.
template <>
struct Kv<KvType::q8_0> {
    struct Raw {
        u16 scale = 0, codes[4] = {0, 0, 0, 0};
    };
    static DEVICE u64 bytes(u32 n) { return u64{n / 32} * 34; }
    static DEVICE f32 value(const std::byte *row, u32 d) {
        const std::byte *block = row + d / 32 * 34;
        return f16_f32(load(reinterpret_cast<const u16 *>(block))) *
               static_cast<f32>(load(reinterpret_cast<const i8 *>(block) + 2 + d % 32));
    }
    static DEVICE Raw load8(const std::byte *row, u32 d) {
        const u16 *block = reinterpret_cast<const u16 *>(row + d / 32 * 34);
        Raw r;
        r.scale = load(block);
#pragma unroll
        for (u32 i = 0; i < 4; i++) r.codes[i] = load(block + 1 + d % 32 / 2 + i);
        return r;
    }
    static DEVICE void values(const Raw &r, f32 (&x)[8]) {
        const f32 scale = f16_f32(r.scale);
#pragma unroll
        for (u32 i = 0; i < 8; i++)
            x[i] = scale * static_cast<f32>(static_cast<i8>(r.codes[i / 2] >> (8 * (i % 2))));
    }
};

// Positions [first, last) that the token at `position` sees.
struct Visible {
    u32 first, last;
};
DEVICE Visible visible(u32 position, u32 window) {
    return {window > 0 && position >= window ? position + 1 - window : 0, position + 1};
}

constexpr f32 kMinusInfinity = -__builtin_inff();

// A dot as a score: with a soft cap the score itself, to be multiplied by 1, else to be multiplied by the scale.
DEVICE f32 capped(f32 dot, f32 scale, f32 softcap) {
    if (!(softcap > 0)) return dot;
    const f32 x = divide(dot * scale, softcap);
    return softcap * (1.0f - divide(2.0f, exp(x + x) + 1.0f));
}

}  // namespace ridge::simt
