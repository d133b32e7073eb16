// quantize with NEON: a block in eight vectors of four. The arithmetic is that of quantize.cpp.
#include <arm_neon.h>

#include "backend/cpu/contract.h"
#include "backend/cpu/row.h"

namespace ridge::cpu {
namespace {

// Four vectors of four to sixteen codes: x / d to the nearest integer, ties to even, held to -127 .. 127.
int8x16_t codes16(const float32x4_t *v, float32x4_t d) {
    int16x4_t c[4];
    for (int i = 0; i < 4; i++) {
        const float32x4_t q = vdivq_f32(v[i], d);
        c[i] = vmovn_s32(vcvtnq_s32_f32(vminq_f32(vmaxq_f32(q, vdupq_n_f32(-127.0f)), vdupq_n_f32(127.0f))));
    }
    return vcombine_s8(vmovn_s16(vcombine_s16(c[0], c[1])), vmovn_s16(vcombine_s16(c[2], c[3])));
}

void quantize_blocks(const float *x, int8_t *codes, float *scale, int16_t *sums, size_t blocks) {
    for (size_t b = 0; b < blocks; b++, x += 32, codes += 32, sums += 2) {
        float32x4_t v[8];
        uint32x4_t most = vdupq_n_u32(0);  // as integers: NaN above infinity above all others
        for (int i = 0; i < 8; i++) {
            v[i] = vld1q_f32(x + 4 * i);
            most = vmaxq_u32(most, vreinterpretq_u32_f32(vabsq_f32(v[i])));
        }
        const uint32_t bits = vmaxvq_u32(most);
        const float d = bits < 0x7f800000u ? __builtin_bit_cast(float, bits) / 127.0f : __builtin_nanf("");
        scale[b] = d;
        int8x16_t q[2] = {vdupq_n_s8(0), vdupq_n_s8(0)};
        if (d > 0) {
            q[0] = codes16(v, vdupq_n_f32(d));
            q[1] = codes16(v + 4, vdupq_n_f32(d));
        }
        for (int h = 0; h < 2; h++) {
            vst1q_s8(codes + 16 * h, q[h]);
            sums[h] = vaddlvq_s8(q[h]);
        }
    }
}

void run(const LaunchView &view, uint32_t tile, std::byte *) { quantize_tile(view, tile, quantize_blocks); }
constexpr Kernel kTable[] = {row(RIDGE_ROW_NAME("quantize"), kind<Quantize>(), Order::exact, {quantize_tiles, run})};

}  // namespace

constinit const RowTable kQuantizeNeon = kTable;

}  // namespace ridge::cpu
