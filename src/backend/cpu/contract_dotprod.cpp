// contract and gate_up with ARM's sdot: each lane of a vector takes four products.
//
//   few tokens: see contract_stream_neon.h.
//   many: sixteen rows' codes are transposed to [k / 4][16 rows][4]; an sdot by one of four lanes of a token's sixteen
//   codes advances four rows by four codes. Per four codes of a tile: two loads of weights and a quarter of a load of
//   each token for eight sdot. A block of 32 costs a vector of sums eight sdot, a conversion, a multiplication and an
//   fma, so at most 73% of the rate of sdot.
#include "backend/cpu/contract_matrix_neon.h"

namespace ridge::cpu {
inline namespace RIDGE_ISA {
namespace {

// Four rows in the lanes of a vector, a token in each column.
struct Sdot {
    static constexpr uint32_t kRows = 2;
    // Counted, not measured: with four tokens unpacking to a panel costs what the sums over lanes of the other form
    // cost.
    static constexpr uint32_t kWorthwhile = 5;
    static constexpr uint32_t columns(uint32_t tokens) { return tokens; }

    template <Format F>
    static void interleave(const Rows &rows, uint32_t chunk, uint32_t blocks, uint8_t (*codes)[kLanes][4]) {
        each_four<F>(rows, chunk, blocks, [&](uint32_t b, uint32_t r, const I8x32(&v)[4]) {
            const auto put = [&](uint32_t four, int8x16_t v0, int8x16_t v1, int8x16_t v2, int8x16_t v3) {
                uint32x4_t w[4] = {vreinterpretq_u32_s8(v0), vreinterpretq_u32_s8(v1), vreinterpretq_u32_s8(v2),
                                   vreinterpretq_u32_s8(v3)};
                transpose4(w);
                for (uint32_t i = 0; i < 4; i++) vst1q_u8(codes[four + i][r], vreinterpretq_u8_u32(w[i]));
            };
            put(8 * b, v[0].a, v[1].a, v[2].a, v[3].a);
            put(8 * b + 4, v[0].b, v[1].b, v[2].b, v[3].b);
        });
    }
    static const uint8_t *first_code(const uint8_t (*codes)[kLanes][4], uint32_t row) { return codes[0][row]; }

    static FN void pair(const int8_t *const *x, uint32_t, int8_t *, const int8_t **to) {
        for (uint32_t t = 0; t < kTileTokens; t++) to[t] = x[t];
    }

    template <uint32_t kLane, uint32_t C>
    static FN void four_codes(const uint8_t *codes, const int8x16_t (&x)[C], int32x4_t (&dot)[kRows][C]) {
#pragma GCC unroll 2
        for (uint32_t r = 0; r < kRows; r++) {
            const int8x16_t w = vreinterpretq_s8_u8(vld1q_u8(codes + 16 * r));
#pragma GCC unroll 4
            for (uint32_t t = 0; t < C; t++) dot[r][t] = vdotq_laneq_s32(dot[r][t], w, x[t], kLane);
        }
    }
    template <uint32_t kWidth, uint32_t C>
    static FN void dots(const TileCall &call, uint32_t first, int32x4_t (&dot)[kRows][C]) {
        constexpr uint32_t kStep = 4 * kLanes;  // bytes of four codes
#pragma GCC unroll 2
        for (uint32_t k = first; k < first + kWidth; k += 16) {
            int8x16_t x[C];
#pragma GCC unroll 4
            for (uint32_t t = 0; t < C; t++) x[t] = vld1q_s8(call.x[t] + k);
            const uint8_t *codes = call.codes + k * kLanes;
            four_codes<0>(codes, x, dot);
            four_codes<1>(codes + kStep, x, dot);
            four_codes<2>(codes + 2 * kStep, x, dot);
            four_codes<3>(codes + 3 * kStep, x, dot);
        }
    }

    static FN void of_rows(const float *v, float32x4_t (&to)[kRows]) { to[0] = vld1q_f32(v), to[1] = vld1q_f32(v + 4); }
    template <uint32_t C, class Of>
    static FN void of_tokens(Of of, float32x4_t (&to)[C]) {
#pragma GCC unroll 4
        for (uint32_t t = 0; t < C; t++) to[t] = vld1q_dup_f32(of(t));
    }
    template <uint32_t C>
    static FN void load(const TileCall &call, float32x4_t (&sum)[kRows][C]) {
#pragma GCC unroll 8
        for (uint32_t i = 0; i < kRows * C; i++) sum[i / C][i % C] = vld1q_f32(call.sums[i % C] + 4 * (i / C));
    }
    template <uint32_t C>
    static FN void store(const TileCall &call, const float32x4_t (&sum)[kRows][C]) {
#pragma GCC unroll 8
        for (uint32_t i = 0; i < kRows * C; i++) vst1q_f32(call.sums[i % C] + 4 * (i / C), sum[i / C][i % C]);
    }
};

constexpr Kernel kTable[] = {
    stream_row<NeonStream>(RIDGE_ROW_NAME("contract.int8"), kind<Contract>()),
    stream_row<NeonStream>(RIDGE_ROW_NAME("gate_up.int8"), kind<GateUp>()),
    matrix_row<NeonMatrix<Sdot>>(RIDGE_ROW_NAME("contract.int8_gemm"), kind<Contract>()),
    matrix_row<NeonMatrix<Sdot>>(RIDGE_ROW_NAME("gate_up.int8_gemm"), kind<GateUp>()),
};

}  // namespace
}  // namespace RIDGE_ISA

constinit const RowTable kContractDotprod = kTable;

}  // namespace ridge::cpu
