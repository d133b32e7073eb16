// What blocks of a contraction by matrix instructions have in common, whatever they multiply: which bank, which rows of
// weights and of x, and how the sums of a wave become results.
//
// Gated units: of every 32 rows of a block the first 16 are of gate, the others the same rows of up, so that a lane has
// both.
#pragma once

#include "backend/simt/arch/matrix.h"
#include "backend/simt/device.h"
#include "backend/simt/kernels/contract_mma.h"
#include "backend/simt/kernels/glu.cuh"
#include "backend/simt/kernels/quantize.cuh"

namespace ridge::simt {

using matrix::kLaneColumns;
using matrix::kLaneRows;

DEVICE u32 bank_of(const ContractMmaArgs &a) {
    u32 b = 0;
    while (b + 1 < a.n_banks && block_y() >= a.bank[b + 1].first_tile) b++;
    return b;
}

struct BlockOfBank {
    const ContractMmaArgs &a;
    const MmaBank &bank;
    u32 first_row;  // of the bank
    MmaTile tile;

    DEVICE BlockOfBank(const ContractMmaArgs &args, u32 rows)
        : a(args), bank(args.bank[bank_of(args)]), first_row((block_y() - bank.first_tile) * (a.glu != 0 ? rows / 2 : rows)) {}

    // Without experts: the next `tokens` rows of x.
    DEVICE void take_tokens(u32 tokens) {
        const u32 first = block_x() * tokens;
        tile = {0, first, min(a.rows - first, tokens), 0};
    }
    // With experts: a tile from the list. False: it is empty.
    DEVICE bool take_tile() {
        tile = load(a.tiles + block_x());
        return tile.count > 0;
    }

    // Row `row` of the block: which matrix, and where its bytes are. Rows beyond the last are the last again: what comes
    // of them is not stored.
    DEVICE const MmaMatrix &matrix_of(u32 row) const { return bank.matrix[a.glu != 0 ? row / 16 % 2 : 0]; }
    DEVICE u32 bank_row(u32 row) const { return first_row + (a.glu != 0 ? row / 32 * 16 + row % 16 : row); }
    DEVICE const std::byte *row_bytes(const MmaMatrix &m, u32 row) const {
        const u64 r = u64{tile.expert} * bank.n + min(bank_row(row), bank.n - 1);
        return m.weights + r * m.row_bytes;
    }
    // Row of x (and of out) of a row of the tile.
    DEVICE u32 routed(u32 token) const {
        const u32 i = tile.first + min(token, tile.count - 1);
        return a.order != nullptr ? load(a.order + i) : i;
    }

    // Stores the sums of a wave whose tiles begin at `row` and `token` of the block: plus bias, or gate with up.
    // `values`: null, or where to put them for publish() too.
    template <u32 kRowTiles, u32 kTokenTiles>
    DEVICE void store_sums(const f32 (&sums)[kRowTiles][kTokenTiles][matrix::kElements], u32 row, u32 token, f32 *values,
                           u32 values_stride) const {
        const u32 l = lane();
        const u64 expert = u64{tile.expert} * bank.n;
#pragma unroll
        for (u32 j = 0; j < kTokenTiles; j++)
#pragma unroll
            for (u32 c = 0; c < kLaneColumns; c++) {
                const u32 t = token + 16 * j + matrix::column_of(l, c);
                if (t >= tile.count) continue;
                f32 *out = bank.out + u64{routed(t)} * bank.n;
#pragma unroll
                for (u32 r = 0; r < kLaneRows; r++) {
                    const u32 e = r * kLaneColumns + c;
                    if (a.glu != 0) {
                        const u32 n = row / 2 + matrix::row_of(l, r);
                        const f32 v = glu(a.glu - 1, sums[0][j][e], sums[kRowTiles - 1][j][e]);
                        if (values != nullptr) values[t * values_stride + n] = v;
                        if (bank.out != nullptr && first_row + n < bank.n) store(out + first_row + n, v);
                    } else {
#pragma unroll
                        for (u32 i = 0; i < kRowTiles; i++) {
                            const u32 n = first_row + row + 16 * i + matrix::row_of(l, r);
                            if (n >= bank.n) continue;
                            f32 v = sums[i][j][e];
                            if (bank.bias != nullptr) v = v + load(bank.bias + expert + n);
                            store(out + n, v);
                        }
                    }
                }
            }
    }

    // Stores the results of the waves for which `mine` holds, and of gated units that publish it, their q8 form, which the
    // whole block makes in shared memory. kRows, kTokens: of the block.
    template <u32 kRows, u32 kTokens, u32 kThreads, u32 kRowTiles, u32 kTokenTiles>
    DEVICE void finish(const f32 (&sums)[kRowTiles][kTokenTiles][matrix::kElements], u32 row, u32 token, bool mine) const {
        constexpr u32 kColumns = kRows / 2, kStride = kColumns + 4, kQuads = kColumns / 4;
        static_assert(kColumns % 32 == 0 && kTokens * kQuads % kThreads == 0);
        if (a.q8.codes == nullptr) {
            if (mine) store_sums(sums, row, token, nullptr, 0);
            return;
        }
        f32 *values = reinterpret_cast<f32 *>(shared());
        sync();
        if (mine) store_sums(sums, row, token, values, kStride);
        sync();
        for (u32 i = thread(); i < kTokens * kQuads; i += kThreads) {
            const u32 t = i / kQuads, column = i % kQuads * 4;
            const bool there = t < tile.count && first_row + column < bank.n;
            const f32x4 v = there ? *reinterpret_cast<const f32x4 *>(values + t * kStride + column) : f32x4{};
            store_q8x4(v, q8_row(a.q8, routed(t), bank.n), first_row + column, there);
        }
    }
};

}  // namespace ridge::simt
