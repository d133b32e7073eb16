// contract of many tokens for ARM's dot products: what sdot and smmla have in common.
//
// A tile is eight rows and up to four tokens, whose sums stay in registers over a chunk: kRows x C vectors of four. In
// registers are at most the dots, the products with the first half's scales, and the sums: 24, which leaves eight for
// operands. Shape says what lies where:
//   kRows                        vectors of rows
//   interleave<F>(...)           unpacks a chunk of sixteen rows to 4096 bytes
//   pair(x, ...)                 what dots reads of the activations of C columns
//   dots<kCount>(...)            adds the products of 16 or 32 codes
//   of_rows, of_tokens           eight numbers of the rows, or numbers of the tokens, as factors of such vectors
//   load, store                  the sums of four tokens, a row per lane in memory
#pragma once

#include "backend/cpu/contract_stream_neon.h"

namespace ridge::cpu {
inline namespace RIDGE_ISA {

constexpr uint32_t kTileRows = 8, kTileTokens = 4;

struct TileCall {
    const uint8_t *codes;       // of the tile's first row
    const GroupScales *scales;  // of the panel
    uint32_t row, blocks;
    const int8_t *x[kTileTokens];
    const TokenChunk *token;
    float *sums[kTileTokens];  // (16) of each token
};

template <class Shape, uint32_t C, bool kHalves, bool kBias>
void multiply_tile(const TileCall &call) {
    constexpr uint32_t R = Shape::kRows, kWidth = kHalves ? 16 : 32, kGroups = 32 / kWidth;
    float32x4_t sum[R][C];
    Shape::load(call, sum);
    const auto dots = [&](uint32_t g, float32x4_t(&to)[R][C]) __attribute__((always_inline)) {
        int32x4_t dot[R][C];
#pragma GCC unroll 8
        for (uint32_t i = 0; i < R * C; i++) dot[i / C][i % C] = vdupq_n_s32(0);
        Shape::template dots<kWidth>(call, kWidth * g, dot);
#pragma GCC unroll 8
        for (uint32_t i = 0; i < R * C; i++) to[i / C][i % C] = vcvtq_f32_s32(dot[i / C][i % C]);
    };
    for (uint32_t b = 0; b < call.blocks; b++) {
        float32x4_t dot[R][C], by_row[R], by_token[C];
        const auto x_scale = [&](uint32_t t) __attribute__((always_inline)) { return &call.token[t].x_scale[b]; };
        if constexpr (kHalves) {
            float32x4_t both[R][C];
            dots(2 * b, dot);
            Shape::of_rows(call.scales->scale[2 * b] + call.row, by_row);
#pragma GCC unroll 8
            for (uint32_t i = 0; i < R * C; i++) both[i / C][i % C] = vmulq_f32(by_row[i / C], dot[i / C][i % C]);
            dots(2 * b + 1, dot);
            Shape::of_rows(call.scales->scale[2 * b + 1] + call.row, by_row);
            Shape::of_tokens(x_scale, by_token);
#pragma GCC unroll 8
            for (uint32_t i = 0; i < R * C; i++) {
                const uint32_t r = i / C, c = i % C;
                sum[r][c] = vfmaq_f32(sum[r][c], vfmaq_f32(both[r][c], by_row[r], dot[r][c]), by_token[c]);
            }
        } else {
            dots(b, dot);
            Shape::of_rows(call.scales->scale[b] + call.row, by_row);
            Shape::of_tokens(x_scale, by_token);
#pragma GCC unroll 8
            for (uint32_t i = 0; i < R * C; i++) {
                const uint32_t r = i / C, c = i % C;
                sum[r][c] = vfmaq_f32(sum[r][c], vmulq_f32(by_row[r], by_token[c]), dot[r][c]);
            }
        }
        if constexpr (kBias)
#pragma GCC unroll 2
            for (uint32_t g = kGroups * b; g < kGroups * (b + 1); g++) {
                Shape::of_rows(call.scales->bias[g] + call.row, by_row);
                Shape::of_tokens(
                    [&](uint32_t t) __attribute__((always_inline)) { return &call.token[t].scaled_total[g]; },
                    by_token);
#pragma GCC unroll 8
                for (uint32_t i = 0; i < R * C; i++)
                    sum[i / C][i % C] = vfmaq_f32(sum[i / C][i % C], by_row[i / C], by_token[i % C]);
            }
    }
    Shape::store(call, sum);
}

template <class Shape>
struct NeonMatrix : Shape {
    static constexpr uint32_t kManyTokens = Shape::kWorthwhile;
    static constexpr uint32_t kPanels = 4;  // share what a token needs
    static constexpr FormatSet kFormats = FormatSet::quantized();
    template <Format>
    static constexpr int32_t offset() {
        return 0;
    }

    template <bool kHalves, bool kBias>
    static constexpr void (*kTiles[kTileTokens])(const TileCall &) = {
        multiply_tile<Shape, Shape::columns(1), kHalves, kBias>,
        multiply_tile<Shape, Shape::columns(2), kHalves, kBias>,
        multiply_tile<Shape, Shape::columns(3), kHalves, kBias>,
        multiply_tile<Shape, Shape::columns(4), kHalves, kBias>};

    // Up to four tokens from token t on. Where one is missing, the last one is taken again and its sums are dropped.
    template <bool kHalves, bool kBias>
    static void multiply_some(const MatrixCall &call, uint32_t t) {
        TokenChunk token[kTileTokens];
        alignas(16) int8_t paired[kTileTokens * kChunk];
        alignas(16) float dropped[kLanes];
        const uint32_t n = call.tokens - t < kTileTokens ? call.tokens - t : kTileTokens;
        TileCall tile;
        tile.blocks = call.blocks, tile.token = token;
        const int8_t *x[kTileTokens];
        for (uint32_t i = 0; i < kTileTokens; i++) {
            const size_t x_block = size_t{call.x_row[t + (i < n ? i : n - 1)]} * (call.work.k / 32) + call.first;
            x[i] = call.work.codes + 32 * x_block;
            prepare<kHalves, kBias>(call.work.scale + x_block, call.work.sums + 2 * x_block, call.blocks, 0, token[i]);
        }
        Shape::pair(x, 32 * call.blocks, paired, tile.x);
        for (uint32_t panel = 0; panel < call.groups; panel++) {
            tile.scales = &call.panel[panel].scales;
            for (tile.row = 0; tile.row < kLanes; tile.row += kTileRows) {
                tile.codes = Shape::first_code(call.panel[panel].codes, tile.row);
                for (uint32_t i = 0; i < kTileTokens; i++)
                    tile.sums[i] = (i < n ? call.sums[panel][t + i] : dropped) + tile.row;
                kTiles<kHalves, kBias>[n - 1](tile);
            }
        }
    }

    template <bool kHalves, bool kBias>
    static void multiply(const MatrixCall &call) {
        for (uint32_t t = 0; t < call.tokens; t += kTileTokens) multiply_some<kHalves, kBias>(call, t);
    }
};

// 32 codes of four rows at a time, for interleave: put(b, r, codes of rows r .. r + 3).
template <Format F, class Put>
FN void each_four(const Rows &rows, uint32_t chunk, uint32_t blocks, Put put) {
    for (uint32_t r = 0; r < kLanes; r += 4)
        for (uint32_t b = 0; b < blocks; b++) {
            I8x32 v[4];
#pragma GCC unroll 4
            for (uint32_t i = 0; i < 4; i++) {
                u32 g32 = chunk * kChunkBlocks + b;
                const std::byte *block = block_of<F>(rows.row[r + i], g32);
                v[i] = Codes<F>::load(block, g32);
            }
            put(b, r, v);
        }
}

}  // namespace RIDGE_ISA
}  // namespace ridge::cpu
