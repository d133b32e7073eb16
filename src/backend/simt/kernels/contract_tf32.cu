// Contractions of F32, F16 and BF16 weights with f32 activations on the matrix units of NVIDIA, in f32-class accuracy:
// tf32 keeps 11 significant bits, so an operand is split into two of them, x = high + low. F16 and BF16 weights are one.
// Order::tf32_split.
//
// A block owns 32 kRowWaves weight rows x 32 kTokenWaves rows of x. Steps of 64 columns: while one is multiplied, the
// next is on its way in registers. Four waves share each 32 x 32 sums, a quarter of the columns of a step each: routers
// have few rows, and a block of their own must not be one wave's latency long. What is split is split as it is read from
// shared memory, for every use anew: that is cheaper than twice the shared memory.
//
// Shared memory: weights[2] (rows, 64 + 4) f32 | x[2] (tokens, 64 + 4) f32; at the end sums (waves - 1, 32, 32)
#include "backend/simt/formats.h"
#include "backend/simt/kernels/contract_block.cuh"

#if defined(RIDGE_MATRIX_NVIDIA)

namespace ridge::simt {

// The nearest number of 11 significant bits, and what of x is left (exact; its own lowest bit goes unread). An
// infinity, a NaN, and what rounds to an infinity are all high.
struct Split {
    u32 high, low;
};
DEVICE Split split(u32 bits) {
    u32 high = (bits + 0x1000u) & 0xffffe000u;
    f32 low = as_f32(bits) - as_f32(high);
    if ((high & 0x7f800000u) == 0x7f800000u) {
        const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
        high = nan ? 0x7fc00000u : bits & 0xffffe000u;
        low = (bits & 0x7f800000u) == 0x7f800000u ? 0 : as_f32(bits) - as_f32(high);
    }
    return {high, f32_bits(low)};
}

template <u32 kRowWaves, u32 kTokenWaves>
struct Tf32Block : BlockOfBank {
    static constexpr u32 kQuarters = 4, kStep = kTf32Step, kStride = kStep + 4;
    static constexpr u32 kRows = 32 * kRowWaves, kTokens = 32 * kTokenWaves;
    static constexpr u32 kSpatial = kRowWaves * kTokenWaves, kThreads = kQuarters * kSpatial * kWave;
    // A thread brings four columns of every kThreads / 16 th row.
    static constexpr u32 kPerRow = kStep / 4, kLoadRows = kThreads / kPerRow;
    static_assert(kRows % kLoadRows == 0 && kTokens % kLoadRows == 0);
    using Sums = f32[2][2][matrix::kElements];
    struct Loads {
        f32x4 w[kRows / kLoadRows], x[kTokens / kLoadRows];
    };

    DEVICE explicit Tf32Block(const ContractMmaArgs &args) : BlockOfBank(args, kRows) {}

    DEVICE static f32 *weights(u32 buffer) { return reinterpret_cast<f32 *>(shared()) + buffer * kRows * kStride; }
    DEVICE static f32 *activations(u32 buffer) {
        return reinterpret_cast<f32 *>(shared()) + 2 * kRows * kStride + buffer * kTokens * kStride;
    }

    // Four numbers from column `at` of a row on; zeros from k on.
    DEVICE f32x4 load_x(const f32 *row, u32 at) const {
        if (a.k % 4 == 0) return at < a.k ? load(reinterpret_cast<const f32x4 *>(row + at)) : f32x4{};
        return {at < a.k ? load(row + at) : 0, at + 1 < a.k ? load(row + at + 1) : 0, at + 2 < a.k ? load(row + at + 2) : 0,
                at + 3 < a.k ? load(row + at + 3) : 0};
    }
    template <FormatId F>
    DEVICE f32x4 load_w(const std::byte *row, u32 at) const {
        if (F != FormatId::F32 && a.k % 4 == 0) {
            if (at >= a.k) return {};
            const u32x2 two = load(reinterpret_cast<const u32x2 *>(row + 2 * at));
            if (F == FormatId::F16)
                return {f16_f32(two.x & 0xffffu), f16_f32(two.x >> 16), f16_f32(two.y & 0xffffu), f16_f32(two.y >> 16)};
            return {as_f32(two.x << 16), as_f32(two.x & 0xffff0000u), as_f32(two.y << 16), as_f32(two.y & 0xffff0000u)};
        }
        if (F == FormatId::F32) return load_x(reinterpret_cast<const f32 *>(row), at);
        const auto one = [&](u32 i) { return i < a.k ? Fmt<F>::value(row, i) : 0.0f; };
        return {one(at), one(at + 1), one(at + 2), one(at + 3)};
    }
    DEVICE void load_weights(u32 step, Loads &to) const {
#pragma unroll
        for (u32 i = 0; i < kRows / kLoadRows; i++) {
            const u32 row = thread() / kPerRow + i * kLoadRows, at = step * kStep + thread() % kPerRow * 4;
            const MmaMatrix &m = matrix_of(row);
            const std::byte *from = row_bytes(m, row);
            to.w[i] = m.format == static_cast<u32>(FormatId::F32)   ? load_w<FormatId::F32>(from, at)
                      : m.format == static_cast<u32>(FormatId::F16) ? load_w<FormatId::F16>(from, at)
                                                                    : load_w<FormatId::BF16>(from, at);
        }
    }
    DEVICE void load_activations(u32 step, Loads &to) const {
#pragma unroll
        for (u32 i = 0; i < kTokens / kLoadRows; i++) {
            const u64 row = routed(thread() / kPerRow + i * kLoadRows) / (a.order != nullptr ? a.slots : 1);
            to.x[i] = load_x(a.x_f32 + row * a.k, step * kStep + thread() % kPerRow * 4);
        }
    }
    DEVICE static void put(u32 buffer, const Loads &from) {
        const u32 row = thread() / kPerRow, at = thread() % kPerRow * 4;
#pragma unroll
        for (u32 i = 0; i < kRows / kLoadRows; i++)
            *reinterpret_cast<f32x4 *>(weights(buffer) + (row + i * kLoadRows) * kStride + at) = from.w[i];
#pragma unroll
        for (u32 i = 0; i < kTokens / kLoadRows; i++)
            *reinterpret_cast<f32x4 *>(activations(buffer) + (row + i * kLoadRows) * kStride + at) = from.x[i];
    }

    // Adds a quarter of the columns of a step to the sums of this wave. kExact: weights are their own high parts.
    template <bool kExact>
    DEVICE static void multiply(u32 buffer, u32 quarter, u32 row, u32 token, Sums &sums) {
        constexpr u32 kBytes = kStride * 4;
#pragma unroll
        for (u32 at = 0; at < kStep / kQuarters; at += 8) {
            const u32 column = quarter * (kStep / kQuarters) + at;
            const auto *w = reinterpret_cast<const std::byte *>(weights(buffer) + row * kStride + column);
            const auto *x = reinterpret_cast<const std::byte *>(activations(buffer) + token * kStride + column);
            matrix::Columns high[2], low[2];
#pragma unroll
            for (u32 j = 0; j < 2; j++) {
                const matrix::Columns c = matrix::load_columns(x + 16 * j * kBytes, kBytes);
#pragma unroll
                for (u32 i = 0; i < matrix::kRegisters; i++) {
                    const Split s = split(c.v[i]);
                    high[j].v[i] = s.high, low[j].v[i] = s.low;
                }
            }
#pragma unroll
            for (u32 r = 0; r < 2; r++) {
                matrix::Rows whole = matrix::load_rows(w + 16 * r * kBytes, kBytes), rest;
                if constexpr (!kExact) {
#pragma unroll
                    for (u32 i = 0; i < matrix::kRegisters; i++) {
                        const Split s = split(whole.v[i]);
                        whole.v[i] = s.high, rest.v[i] = s.low;
                    }
                }
#pragma unroll
                for (u32 j = 0; j < 2; j++) {
                    if constexpr (!kExact) matrix::add_tf32(sums[r][j], rest, high[j]);
                    matrix::add_tf32(sums[r][j], whole, low[j]);
                    matrix::add_tf32(sums[r][j], whole, high[j]);
                }
            }
        }
    }

    DEVICE void run(Loads &first) const {
        const u32 quarter = wave() / kSpatial, place = wave() % kSpatial;
        const u32 row = place % kRowWaves * 32, token = place / kRowWaves * 32, steps = (a.k + kStep - 1) / kStep;
        const bool exact = bank.matrix[0].format != static_cast<u32>(FormatId::F32) &&
                           (a.glu == 0 || bank.matrix[1].format != static_cast<u32>(FormatId::F32));
        Sums sums = {};
        load_activations(0, first);
        put(0, first);
        for (u32 step = 0; step < steps; step++) {
            sync();
            Loads next;
            if (step + 1 < steps) load_weights(step + 1, next), load_activations(step + 1, next);
            if (exact)
                multiply<true>(step % 2, quarter, row, token, sums);
            else
                multiply<false>(step % 2, quarter, row, token, sums);
            if (step + 1 < steps) put((step + 1) % 2, next);
        }
        let_next_start();
        // (quarter 0 + 1) + (2 + 3): first 1 and 3 hand theirs over, then 2.
        sync();
        f32 *meeting = reinterpret_cast<f32 *>(shared());
        hand_over(meeting, quarter, place, 1, sums);
        hand_over(meeting, quarter, place, 2, sums);
        finish<kRows, kTokens, kThreads>(sums, row, token, quarter == 0);
    }
    // Quarters that are odd multiples of `distance` give their sums to the one `distance` below.
    DEVICE static void hand_over(f32 *meeting, u32 quarter, u32 place, u32 distance, Sums &sums) {
        const bool gives = quarter % (2 * distance) == distance, takes = quarter % (2 * distance) == 0;
        f32 *at = meeting + ((takes ? quarter + distance : quarter) * kSpatial + place) * 1024 + lane();
        for (u32 i = 0; i < 32; i++)
            if (gives) at[32 * i] = sums[i / 16][i / 8 % 2][i % 8];
        sync();
        for (u32 i = 0; i < 32; i++)
            if (takes) sums[i / 16][i / 8 % 2][i % 8] = sums[i / 16][i / 8 % 2][i % 8] + at[32 * i];
        sync();
    }
};

template <class B>
DEVICE void tf32_block(const ContractMmaArgs &a) {
    B block(a);
    typename B::Loads first;
    if (a.tiles == nullptr) {
        block.take_tokens(B::kTokens);
        block.load_weights(0, first);
        wait_for_previous();
    } else {
        wait_for_previous();
        if (!block.take_tile()) return;
        block.load_weights(0, first);
    }
    block.run(first);
}

KERNEL(contract_tf32_64x64, ContractMmaArgs, 512, 1) { tf32_block<Tf32Block<2, 2>>(a); }
KERNEL(contract_tf32_64x32, ContractMmaArgs, 256, 2) { tf32_block<Tf32Block<2, 1>>(a); }

}  // namespace ridge::simt

#endif
