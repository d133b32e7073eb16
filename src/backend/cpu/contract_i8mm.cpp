// contract and gate_up with ARM's smmla: two rows of eight codes times two tokens of eight, four sums of eight
// products. Many tokens only: with a single one half of each smmla would be wasted, and sdot does as well.
//
// Sixteen rows' codes are transposed to [k / 8][8 pairs of rows][2][8], and so are the activations of a pair of tokens.
// Per eight codes of a tile: four loads of weights and two of activations for eight smmla. A block of 32 costs a vector
// of sums four smmla, a conversion, a multiplication and an fma, so at most 57% of the rate of smmla.
#include "backend/cpu/contract_matrix_neon.h"

namespace ridge::cpu {
inline namespace RIDGE_ISA {
namespace {

FN int8x16_t low_halves(int8x16_t a, int8x16_t b) { return vcombine_s8(vget_low_s8(a), vget_low_s8(b)); }
FN int8x16_t high_halves(int8x16_t a, int8x16_t b) { return vcombine_s8(vget_high_s8(a), vget_high_s8(b)); }

// Two rows and two tokens in a vector: row 0 with both tokens, then row 1.
struct Smmla {
    static constexpr uint32_t kRows = 4;
    // Counted, not measured: with two tokens unpacking to a panel outweighs what smmla saves.
    static constexpr uint32_t kWorthwhile = 3;
    static constexpr uint32_t columns(uint32_t tokens) { return (tokens + 1) / 2; }
    static constexpr uint32_t kStep = 8 * kLanes;  // bytes of eight codes

    template <Format F>
    static void interleave(const Rows &rows, uint32_t chunk, uint32_t blocks, uint8_t (*codes)[kLanes][4]) {
        auto *to = reinterpret_cast<int8_t *>(codes);
        each_four<F>(rows, chunk, blocks, [&](uint32_t b, uint32_t r, const I8x32(&v)[4]) {
            for (uint32_t i = 0; i < 4; i += 2) {
                int8_t *pair = to + 4 * b * kStep + 8 * (r + i);
                vst1q_s8(pair, low_halves(v[i].a, v[i + 1].a));
                vst1q_s8(pair + kStep, high_halves(v[i].a, v[i + 1].a));
                vst1q_s8(pair + 2 * kStep, low_halves(v[i].b, v[i + 1].b));
                vst1q_s8(pair + 3 * kStep, high_halves(v[i].b, v[i + 1].b));
            }
        });
    }
    static const uint8_t *first_code(const uint8_t (*codes)[kLanes][4], uint32_t row) {
        return codes[0][0] + 8 * size_t{row};
    }

    static FN void pair(const int8_t *const *x, uint32_t n, int8_t *paired, const int8_t **to) {
        for (uint32_t c = 0; c < kTileTokens / 2; c++, paired += 2 * kChunk) {
            to[c] = paired;
            for (uint32_t k = 0; k < n; k += 16) {
                const int8x16_t a = vld1q_s8(x[2 * c] + k), b = vld1q_s8(x[2 * c + 1] + k);
                vst1q_s8(paired + 2 * k, low_halves(a, b));
                vst1q_s8(paired + 2 * k + 16, high_halves(a, b));
            }
        }
    }

    template <uint32_t kWidth, uint32_t C>
    static FN void dots(const TileCall &call, uint32_t first, int32x4_t (&dot)[kRows][C]) {
#pragma GCC unroll 4
        for (uint32_t k = first; k < first + kWidth; k += 8) {
            const uint8_t *codes = call.codes + k * kLanes;
            int8x16_t w[kRows];
#pragma GCC unroll 4
            for (uint32_t r = 0; r < kRows; r++) w[r] = vreinterpretq_s8_u8(vld1q_u8(codes + 16 * r));
#pragma GCC unroll 2
            for (uint32_t c = 0; c < C; c++) {
                const int8x16_t x = vld1q_s8(call.x[c] + 2 * k);
#pragma GCC unroll 4
                for (uint32_t r = 0; r < kRows; r++) dot[r][c] = vmmlaq_s32(dot[r][c], w[r], x);
            }
        }
    }

    static FN void of_rows(const float *v, float32x4_t (&to)[kRows]) {
        const float32x4_t low = vld1q_f32(v), high = vld1q_f32(v + 4);
        to[0] = vzip1q_f32(low, low), to[1] = vzip2q_f32(low, low);
        to[2] = vzip1q_f32(high, high), to[3] = vzip2q_f32(high, high);
    }
    template <uint32_t C, class Of>
    static FN void of_tokens(Of of, float32x4_t (&to)[C]) {
#pragma GCC unroll 2
        for (uint32_t c = 0; c < C; c++) to[c] = vzip1q_f32(vld1q_dup_f32(of(2 * c)), vld1q_dup_f32(of(2 * c + 1)));
    }
    template <uint32_t C>
    static FN void load(const TileCall &call, float32x4_t (&sum)[kRows][C]) {
#pragma GCC unroll 2
        for (uint32_t c = 0; c < C; c++)
#pragma GCC unroll 2
            for (uint32_t r = 0; r < kRows; r += 2) {
                const float32x4_t a = vld1q_f32(call.sums[2 * c] + 2 * r), b = vld1q_f32(call.sums[2 * c + 1] + 2 * r);
                sum[r][c] = vzip1q_f32(a, b), sum[r + 1][c] = vzip2q_f32(a, b);
            }
    }
    template <uint32_t C>
    static FN void store(const TileCall &call, const float32x4_t (&sum)[kRows][C]) {
#pragma GCC unroll 2
        for (uint32_t c = 0; c < C; c++)
#pragma GCC unroll 2
            for (uint32_t r = 0; r < kRows; r += 2) {
                vst1q_f32(call.sums[2 * c] + 2 * r, vuzp1q_f32(sum[r][c], sum[r + 1][c]));
                vst1q_f32(call.sums[2 * c + 1] + 2 * r, vuzp2q_f32(sum[r][c], sum[r + 1][c]));
            }
    }
};

constexpr Kernel kTable[] = {
    matrix_row<NeonMatrix<Smmla>>(RIDGE_ROW_NAME("contract.int8_gemm"), kind<Contract>()),
    matrix_row<NeonMatrix<Smmla>>(RIDGE_ROW_NAME("gate_up.int8_gemm"), kind<GateUp>()),
};

}  // namespace
}  // namespace RIDGE_ISA

constinit const RowTable kContractI8mm = kTable;

}  // namespace ridge::cpu
