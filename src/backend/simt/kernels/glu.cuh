// Gated linear units in the CPU's steps (backend/cpu/simd.h), so in its bits.
#pragma once

#include "backend/simt/device.h"

namespace ridge::simt {

// GluKind of op/op.h.
enum : u32 { kGluSilu = 0, kGluGelu = 1, kGluClamped = 2 };

// The comparisons let a NaN through, as the CPU's do: it is the second operand.
DEVICE f32 glu(u32 kind, f32 gate, f32 up) {
    if (kind == kGluGelu) {
        const f32 cubic = fma(gate * gate, -2 * 0.7978845608f * 0.044715f, -2 * 0.7978845608f);
        return divide(gate, 1.0f + exp(gate * cubic)) * up;
    }
    if (kind == kGluClamped) {
        const f32 g = 7.0f < gate ? 7.0f : gate;
        const f32 limited = 7.0f < up ? 7.0f : up;
        const f32 u = -7.0f > limited ? -7.0f : limited;
        return divide(g, 1.0f + exp(-1.702f * g)) * (u + 1.0f);
    }
    return divide(gate, 1.0f + exp(-0.0f - gate)) * up;
}

}  // namespace ridge::simt
