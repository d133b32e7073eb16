// contract of few tokens for NEON and its dot products: four rows' 32 codes at once, unpacked in registers and used for
// every token; four vectors of four sums are added pairwise to a row per lane.
#pragma once

#include "backend/cpu/contract_loops.h"
#include "backend/cpu/contract_scales_neon.h"

namespace ridge::cpu {
inline namespace RIDGE_ISA {

// acc plus sixteen products, four (in whichever order) in each lane. Without sdot they are added in 16 bits first:
// |code|
// <= 128 and |x| <= 127, so two of them fit.
FN int32x4_t dot16(int32x4_t acc, int8x16_t w, int8x16_t x) {
#if defined(RIDGE_ISA_DOTPROD)
    return vdotq_s32(acc, w, x);
#else
    return vpadalq_s16(acc, vmlal_high_s8(vmull_s8(vget_low_s8(w), vget_low_s8(x)), w, x));
#endif
}

// Sums of the lanes of four vectors.
FN int32x4_t add_lanes(const int32x4_t (&v)[4]) { return vpaddq_s32(vpaddq_s32(v[0], v[1]), vpaddq_s32(v[2], v[3])); }

struct NeonStream {
    static constexpr uint32_t kTokens = 4;
    static constexpr FormatSet kFormats = FormatSet::quantized();
    template <Format>
    static constexpr int32_t offset() {
        return 0;
    }

    template <Format F>
    static void dots(const SpanCall &call, SpanDots<kTokens> &dots) {
        const int32x4_t zero = vdupq_n_s32(0);
        for (uint32_t r = 0; r < kLanes; r += 4) {
            for (uint32_t b = 0; b < call.blocks; b++) {
                I8x32 w[4];
#pragma GCC unroll 4
                for (uint32_t i = 0; i < 4; i++) {
                    u32 g32 = call.first * kChunkBlocks + b;
                    const std::byte *block = block_of<F>(call.rows.row[r + i], g32);
                    w[i] = Codes<F>::load(block, g32);
                }
                for (uint32_t t = 0; t < call.tokens; t++) {
                    const int8x16_t xa = vld1q_s8(call.x[t] + 32 * b), xb = vld1q_s8(call.x[t] + 32 * b + 16);
                    int32_t(*to)[kLanes] = dots.of[t][b / kChunkBlocks];
                    const uint32_t in_chunk = b % kChunkBlocks;
                    int32x4_t sum[4];
#pragma GCC unroll 4
                    for (uint32_t i = 0; i < 4; i++) sum[i] = dot16(zero, w[i].a, xa);
                    if constexpr (Decode<F>::group == 16) {
                        vst1q_s32(to[2 * in_chunk] + r, add_lanes(sum));
#pragma GCC unroll 4
                        for (uint32_t i = 0; i < 4; i++) sum[i] = dot16(zero, w[i].b, xb);
                        vst1q_s32(to[2 * in_chunk + 1] + r, add_lanes(sum));
                    } else {
#pragma GCC unroll 4
                        for (uint32_t i = 0; i < 4; i++) sum[i] = dot16(sum[i], w[i].b, xb);
                        vst1q_s32(to[in_chunk] + r, add_lanes(sum));
                    }
                }
            }
        }
    }
};

}  // namespace RIDGE_ISA
}  // namespace ridge::cpu
