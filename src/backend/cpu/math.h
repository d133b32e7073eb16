// exp, silu and the f16 conversions for one value, in the very steps that simd.h takes for sixteen: the same bits on
// every machine and in every instruction set.
//
// exp(x) = 2^n e^r, n = round(x / ln 2), |r| <= ln 2 / 2. r comes from two fused steps (ln 2 in two floats), e^r from
// a polynomial 1 + r + r^2 q(r) whose relative error is 3.1e-9 (minimax, q of degree 4), evaluated by fused
// multiply-adds: at most 1 ulp from the true value. 2^n is applied in two factors, so that results below the smallest
// normal number are rounded once and correctly to a subnormal (nothing is flushed). Limits: x > 88.73 gives +inf,
// x < -103.98 gives +0, NaN gives NaN.
//
// Only built-ins and integer arithmetic are used, inside a namespace that names the instruction set: a file compiled
// for AVX-512 must not leave behind a symbol that the linker could choose for everybody.
#pragma once

#include <cstdint>

#include "backend/cpu/isa.h"

namespace ridge::cpu {
inline namespace RIDGE_ISA {

constexpr float kExpHigh = 89.0f;   // from here on 2^n overflows
constexpr float kExpLow = -104.0f;  // from here down the result is below half the smallest subnormal
constexpr float kLog2e = 0x1.715476p+0f;
constexpr float kLn2High = 0x1.62e430p-1f;
constexpr float kLn2Low = -0x1.05c610p-29f;
constexpr float kRoundMagic = 12582912.0f;  // 1.5 * 2^23: adding it leaves round(x) in the low bits of the mantissa
constexpr float kExp2 = 0x1.fffffcp-2f;
constexpr float kExp3 = 0x1.555492p-3f;
constexpr float kExp4 = 0x1.5558f2p-5f;
constexpr float kExp5 = 0x1.1239e2p-7f;
constexpr float kExp6 = 0x1.6a2466p-10f;

inline float exp_(float x) {
    // Written so that NaN passes through, as the vector minimum and maximum let their second operand through.
    float c = kExpHigh < x ? kExpHigh : x;
    c = kExpLow > c ? kExpLow : c;
    const float shifted = __builtin_fmaf(c, kLog2e, kRoundMagic);
    const float whole = shifted - kRoundMagic;
    const uint32_t n = __builtin_bit_cast(uint32_t, shifted) - __builtin_bit_cast(uint32_t, kRoundMagic);
    float r = __builtin_fmaf(-whole, kLn2High, c);
    r = __builtin_fmaf(-whole, kLn2Low, r);
    float p = __builtin_fmaf(kExp6, r, kExp5);
    p = __builtin_fmaf(p, r, kExp4);
    p = __builtin_fmaf(p, r, kExp3);
    p = __builtin_fmaf(p, r, kExp2);
    p = __builtin_fmaf(p, r, 1.0f);
    p = __builtin_fmaf(p, r, 1.0f);
    const uint32_t half = static_cast<uint32_t>(static_cast<int32_t>(n) >> 1);
    const float scale1 = __builtin_bit_cast(float, (half + 127u) << 23);
    const float scale2 = __builtin_bit_cast(float, (n - half + 127u) << 23);
    return p * scale1 * scale2;
}

// x / (1 + exp(-x)); -0 for very negative x, NaN for -inf (as the formula has it).
inline float silu(float x) { return x / (1.0f + exp_(-x)); }

// IEEE binary16 as F16C converts it: round to nearest even, subnormals kept, NaN made quiet.
inline float f16_to_f32(uint16_t h) {
    const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
    const uint32_t exponent = (h >> 10) & 31u, mantissa = h & 0x3ffu;
    if (exponent == 0) {
        const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
        return __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, magnitude) | sign);
    }
    if (exponent == 31) {
        const uint32_t quiet = mantissa != 0 ? 0x400000u : 0u;
        return __builtin_bit_cast(float, sign | 0x7f800000u | quiet | mantissa << 13);
    }
    return __builtin_bit_cast(float, sign | (exponent + 112u) << 23 | mantissa << 13);
}

inline uint16_t f32_to_f16(float x) {
    const uint32_t bits = __builtin_bit_cast(uint32_t, x);
    const uint32_t sign = (bits >> 16) & 0x8000u;
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {
        magnitude = 0x7e00u | (magnitude >> 13 & 0x3ffu);
    } else if (magnitude >= 0x47800000u) {  // 2^16 and above
        magnitude = 0x7c00u;
    } else if (magnitude < 0x38800000u) {  // below 2^-14: one ulp of 0.5 is one step of the subnormals
        const float rounded = __builtin_bit_cast(float, magnitude) + 0.5f;
        magnitude = __builtin_bit_cast(uint32_t, rounded) - __builtin_bit_cast(uint32_t, 0.5f);
    } else {
        magnitude -= 112u << 23;
        magnitude = (magnitude + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
    }
    return static_cast<uint16_t>(sign | magnitude);
}

}  // namespace RIDGE_ISA
}  // namespace ridge::cpu
