// The types that kernels and the host code that launches them share. Arguments of a kernel are one plain struct of
// such, in kernels/<file>.h; pointers in it are the device's.
#pragma once

#include <stdint.h>

#include <cstddef>

namespace ridge::simt {

using u8 = uint8_t;
using i8 = int8_t;
using u16 = uint16_t;
using i16 = int16_t;
using u32 = uint32_t;
using i32 = int32_t;
using u64 = uint64_t;
using f32 = float;

struct alignas(8) u32x2 {
    u32 x, y;
};
struct alignas(16) u32x4 {
    u32 x, y, z, w;
};
struct alignas(8) f32x2 {
    f32 x, y;
};
struct alignas(16) f32x4 {
    f32 x, y, z, w;
};

// The step buffer on the device, as engine/step.h lays it out.
struct Step {
    const i32 *base;
    u32 max_tokens, max_outputs, max_sequences, max_pages;
};

// Activations in q8, see Q8View in op/types.h.
struct Q8 {
    i8 *codes;   // (m, k)
    f32 *scale;  // (m, k/32)
    i16 *sums;   // (m, k/16)
};

}  // namespace ridge::simt
