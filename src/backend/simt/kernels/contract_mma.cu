// Contractions of many tokens on the matrix units: integer dots of q8 activations with the codes of any block format,
// in Order::int8_sequential, so in the CPU's bits.
//
// A block owns `rows` weight rows x `tokens` rows of x over all of k, in steps of 128 columns (64 where shared memory
// is small). Each step
//   - decodes the weights of the next step, whatever their format, to signed bytes and a scale (and bias) per group,
//   - multiplies the codes of this step: a wave has 16 kRowTiles x 16 kTokenTiles sums, in tiles of arch/matrix.h. For
//     every 32 columns the integer sums become f32: a subtraction (see dot_value), a product of two scales and a fused
//     multiply-add, and one more where the format has a bias. These 3 to 4 operations per element and 32 columns, not
//     the matrix units, bind it: at best 128 * 132 * 1.8 GHz / 4 elements, 490 TFLOP/s on an H200,
//   - has the next activations and, on NVIDIA, the next raw weights on their way.
// Decoding costs as much as 16 to 40 tokens: hence tiles of 128 tokens where there are so many.
#include "backend/simt/arch/matrix.h"
#include "backend/simt/formats.h"
#include "backend/simt/kernels/contract_block.cuh"

namespace ridge::simt {

// Raw weights go through shared memory where the machine copies asynchronously; elsewhere they are decoded from where
// they lie.
#if defined(RIDGE_MATRIX_NVIDIA)
constexpr bool kStaged = true;
constexpr u32 kStep = kMmaLongStep;
#else
constexpr bool kStaged = false;
constexpr u32 kStep = kMmaShortStep;
#endif
constexpr u32 kStride = kStep + 16;

// How a format's sums are made: groups of 16 or 32, with bias or without.
enum class Sum : u32 { plain, biased, halves, biased_halves };

DEVICE Sum sum_of(u32 format) {
    switch (static_cast<FormatId>(format)) {
#define FORMAT(NAME, prefix, id, block, bytes, group, bias) \
    case FormatId::NAME:                                    \
        return group == 16 ? (bias != 0 ? Sum::biased_halves : Sum::halves) : (bias != 0 ? Sum::biased : Sum::plain);
#include "format/formats.def"
        default:
            return Sum::plain;
    }
}

template <u32 kCount>
DEVICE void read_floats(const f32 *p, f32 *to) {
    if constexpr (kCount % 4 == 0) {
#pragma unroll
        for (u32 i = 0; i < kCount; i += 4) {
            const f32x4 v = *reinterpret_cast<const f32x4 *>(p + i);
            to[i] = v.x, to[i + 1] = v.y, to[i + 2] = v.z, to[i + 3] = v.w;
        }
    } else if constexpr (kCount % 2 == 0) {
#pragma unroll
        for (u32 i = 0; i < kCount; i += 2) {
            const f32x2 v = *reinterpret_cast<const f32x2 *>(p + i);
            to[i] = v.x, to[i + 1] = v.y;
        }
    } else {
        for (u32 i = 0; i < kCount; i++) to[i] = p[i];
    }
}

// A quarter (of lane % 4) of what one weight row has in a step: every fourth word of codes, and scales and biases of
// every fourth group, to where this row's lie.
//   At: u32, a place in shared memory, or const std::byte *
//   first: the step's first group of 32, counted from `at`; groups: how many of 32 the step has
struct DecodeTo {
    std::byte *codes;
    f32 *scales, *biases;
    u32 groups_apart;  // of scales and biases
};
template <FormatId F, class At>
DEVICE void decode_row(At at, u32 first, u32 groups, const DecodeTo &to) {
    using D = Fmt<F>;
    constexpr u32 kGroups = D::block / 32;
    const u32 quarter = thread() % 4;
#pragma unroll
    for (u32 g = 0; g < kStep / 32; g++) {
        if (g >= groups) break;
        const At block = at + (first + g) / kGroups * D::bytes;
#pragma unroll
        for (u32 i = 0; i < 2; i++) {
            const u32 j = quarter + 4 * i;
            *reinterpret_cast<u32 *>(to.codes + 32 * g + 4 * j) = D::codes4(block, (first + g) % kGroups, j);
        }
    }
    constexpr u32 kPerGroup = D::group == 16 ? 2 : 1;
#pragma unroll
    for (u32 i = 0; i < kStep / 32 * kPerGroup; i += 4) {
        const u32 g = quarter + i, g32 = first + g / kPerGroup;
        if (g >= groups * kPerGroup) break;
        const At block = at + g32 / kGroups * D::bytes;
        const u32 group = D::group == 16 ? g32 % kGroups * 2 + g % 2 : D::group == 32 ? g32 % kGroups : 0;
        to.scales[g * to.groups_apart] = D::scale(block, group);
        if constexpr (D::has_bias) to.biases[g * to.groups_apart] = D::bias(block, group);
    }
}
template <class At>
DEVICE void decode_row(u32 format, At at, u32 first, u32 groups, const DecodeTo &to) {
    switch (static_cast<FormatId>(format)) {
#define FORMAT(NAME, prefix, id, block, bytes, group, bias) \
    case FormatId::NAME:                                    \
        return decode_row<FormatId::NAME>(at, first, groups, to);
#include "format/formats.def"
        default:
            return;
    }
}

// A block of kRowWaves x kTokenWaves waves. Four lanes share a weight row, or a row of x: a thread brings and decodes
// its quarter of rows thread() / 4 + i kThreads / 4, and of one row of x.
template <u32 kRowWaves, u32 kTokenWaves, u32 kRowTiles, u32 kTokenTiles>
struct Block : BlockOfBank {
    static constexpr u32 kWaveRows = 16 * kRowTiles, kWaveTokens = 16 * kTokenTiles;
    static constexpr u32 kRows = kRowWaves * kWaveRows, kTokens = kTokenWaves * kWaveTokens;
    static constexpr u32 kThreads = kRowWaves * kTokenWaves * kWave, kOwn = kRows / (kThreads / 4);
    static_assert(kTokens <= kThreads / 4 && kOwn * (kThreads / 4) == kRows);
    using Sums = f32[kRowTiles][kTokenTiles][matrix::kElements];

    MmaLayout at;
    u32 steps, steps_per_chunk;
    const std::byte *own[kOwn];  // this thread's rows of weights

    DEVICE explicit Block(const ContractMmaArgs &args)
        : BlockOfBank(args, kRows),
          at{kRows, kTokens, kStep, args.halves, args.raw_stride},
          steps((args.k + kStep - 1) / kStep),
          steps_per_chunk(args.chunk / kStep) {}

    DEVICE u32 groups_of(u32 step) const { return min(a.k / 32 - kStep / 32 * step, kStep / 32); }
    DEVICE static u32 own_row(u32 i) { return thread() / 4 + i * (kThreads / 4); }
    DEVICE void find_rows() {
#pragma unroll
        for (u32 i = 0; i < kOwn; i++) own[i] = row_bytes(matrix_of(own_row(i)), own_row(i));
    }

    // Asks for a chunk of the raw weights: whole units of 16 bytes around it.
    DEVICE void fetch_raw(u32 chunk) const {
#pragma unroll
        for (u32 i = 0; i < kOwn; i++) {
            const MmaMatrix &m = matrix_of(own_row(i));
            const u32 begin = chunk * m.chunk_bytes;
            const u64 address = reinterpret_cast<u64>(own[i] + begin);
            const u32 phase = static_cast<u32>(address) & 15;
            const u32 bytes = phase + min(m.chunk_bytes, static_cast<u32>(m.row_bytes) - begin);
            const std::byte *from = reinterpret_cast<const std::byte *>(address - phase);
            std::byte *to = shared() + at.raw(chunk % 2) + own_row(i) * a.raw_stride;
#pragma unroll 1
            for (u32 b = thread() % 4 * 16; b < bytes; b += 64) copy_async16(to + b, from + b);
        }
    }
    // x: the codes of this thread's row of x.
    DEVICE void fetch_x(u32 step, const i8 *x) const {
        const u32 token = thread() / 4, quarter = thread() % 4, bytes = 32 * groups_of(step);
        if (kThreads / 4 > kTokens && token >= kTokens) return;
#pragma unroll
        for (u32 b = 0; b < kStep; b += 64)
            if (b + 16 * quarter < bytes)
                copy_async16(shared() + at.x(step % 2) + token * kStride + b + 16 * quarter,
                             x + step * kStep + b + 16 * quarter);
    }

    // Decodes the weights of a step.
    DEVICE void decode_step(u32 step) const {
        const u32 groups = groups_of(step), chunk = steps_per_chunk == 1 ? step : step / 2;
#pragma unroll
        for (u32 i = 0; i < kOwn; i++) {
            const u32 row = own_row(i);
            const MmaMatrix &m = matrix_of(row);
            const u32 slot = row / kWaveRows * kWaveRows + matrix::row_slot(row % kWaveRows, kRowTiles);
            const DecodeTo to = {shared() + at.codes(step % 2) + row * kStride,
                                 reinterpret_cast<f32 *>(shared() + at.scales(step % 2)) + slot,
                                 reinterpret_cast<f32 *>(shared() + at.biases(step % 2)) + slot, kRows};
            if constexpr (kStaged) {
                const u32 phase = (static_cast<u32>(reinterpret_cast<u64>(own[i])) + chunk * m.chunk_bytes) & 15;
                decode_row(m.format, at.raw(chunk % 2) + row * a.raw_stride + phase,
                           kStep / 32 * (step - chunk * steps_per_chunk), groups, to);
            } else {
                decode_row(m.format, own[i], kStep / 32 * step, groups, to);
            }
        }
    }

    // One scale of x and the sums of its two halves: of this thread's row of x and quarter of the step.
    struct XGroup {
        f32 scale;
        u32 sums;
    };
    DEVICE XGroup load_x_group(u32 step, u32 x_row) const {
        const u64 i = u64{x_row} * (a.k / 32) + min(kStep / 32 * step + thread() % 4, a.k / 32 - 1);
        return {load(a.x.scale + i), load(reinterpret_cast<const u32 *>(a.x.sums) + i)};
    }
    DEVICE void store_x_group(u32 step, XGroup x) const {
        const u32 token = thread() / 4, g = thread() % 4;
        if ((kThreads / 4 > kTokens && token >= kTokens) || (kStep / 32 < 4 && g >= kStep / 32)) return;
        const u32 slot = token / kWaveTokens * kWaveTokens + matrix::column_slot(token % kWaveTokens, kTokenTiles);
        f32 *scales = reinterpret_cast<f32 *>(shared() + at.x_scales(step % 2)) + slot;
        f32 *totals = reinterpret_cast<f32 *>(shared() + at.x_totals(step % 2)) + slot;
        f32 *halves = reinterpret_cast<f32 *>(shared() + at.x_half_totals(step % 2)) + slot;
        const i32 low = static_cast<i16>(x.sums & 0xffffu), high = static_cast<i16>(x.sums >> 16);
        scales[g * kTokens] = x.scale;
        totals[g * kTokens] = x.scale * static_cast<f32>(low + high);
        if (a.halves == 0) return;
        halves[2 * g * kTokens] = x.scale * static_cast<f32>(low);
        halves[(2 * g + 1) * kTokens] = x.scale * static_cast<f32>(high);
    }

    // Adds the products of a step in the row tiles kFirst .. kLast - 1 of this wave.
    template <Sum kSum, u32 kFirst, u32 kLast>
    DEVICE void multiply(u32 step, Sums &sums) const {
        constexpr bool kHalves = kSum == Sum::halves || kSum == Sum::biased_halves;
        constexpr bool kBias = kSum == Sum::biased || kSum == Sum::biased_halves;
        constexpr u32 kPerGroup = kHalves ? 2 : 1, kMine = kTokenTiles * kLaneColumns;
        const u32 row = wave() % kRowWaves * kWaveRows, token = wave() / kRowWaves * kWaveTokens, l = lane();
        const std::byte *codes = shared() + at.codes(step % 2) + row * kStride;
        const std::byte *x = shared() + at.x(step % 2) + token * kStride;
        const u32 row_slot = row + matrix::row_slot(matrix::row_of(l, 0), kRowTiles);
        const u32 token_slot = token + matrix::column_slot(matrix::column_of(l, 0), kTokenTiles);
        const f32 *scales = reinterpret_cast<const f32 *>(shared() + at.scales(step % 2)) + row_slot;
        const f32 *biases = reinterpret_cast<const f32 *>(shared() + at.biases(step % 2)) + row_slot;
        const f32 *x_scales = reinterpret_cast<const f32 *>(shared() + at.x_scales(step % 2)) + token_slot;
        const f32 *x_totals =
            reinterpret_cast<const f32 *>(shared() + (kHalves ? at.x_half_totals(step % 2) : at.x_totals(step % 2))) +
            token_slot;
        const u32 groups = groups_of(step);
#pragma unroll
        for (u32 g = 0; g < kStep / 32; g++) {
            if (g >= groups) break;
            matrix::Columns columns[kTokenTiles];
#pragma unroll
            for (u32 j = 0; j < kTokenTiles; j++)
                columns[j] = matrix::load_columns(x + 16 * j * kStride + 32 * g, kStride);
            f32 x_scale[kMine], x_total[kPerGroup][kMine];
            read_floats<kMine>(x_scales + g * kTokens, x_scale);
            if constexpr (kBias)
#pragma unroll
                for (u32 h = 0; h < kPerGroup; h++)
                    read_floats<kMine>(x_totals + (g * kPerGroup + h) * kTokens, x_total[h]);
#pragma unroll
            for (u32 i = kFirst; i < kLast; i++) {
                const matrix::Rows rows = matrix::load_rows(codes + 16 * i * kStride + 32 * g, kStride);
                f32 scale[kPerGroup][kLaneRows], bias[kPerGroup][kLaneRows];
#pragma unroll
                for (u32 h = 0; h < kPerGroup; h++) {
                    read_floats<kLaneRows>(scales + (g * kPerGroup + h) * kRows + i * kLaneRows, scale[h]);
                    if constexpr (kBias)
                        read_floats<kLaneRows>(biases + (g * kPerGroup + h) * kRows + i * kLaneRows, bias[h]);
                }
#pragma unroll
                for (u32 j = 0; j < kTokenTiles; j++) {
                    matrix::Dots dots[kPerGroup];
                    if constexpr (kHalves) {
                        dots[0] = matrix::dot16(rows, columns[j], 0);
                        dots[1] = matrix::dot16(rows, columns[j], 1);
                    } else {
                        dots[0] = matrix::dot32(rows, columns[j]);
                    }
#pragma unroll
                    for (u32 e = 0; e < matrix::kElements; e++) {
                        const u32 r = e / kLaneColumns, c = j * kLaneColumns + e % kLaneColumns;
                        f32 sum = sums[i][j][e];
                        if constexpr (kHalves) {
                            f32 both = scale[0][r] * matrix::dot_value(dots[0].v[e]);
                            both = fma(scale[1][r], matrix::dot_value(dots[1].v[e]), both);
                            sum = fma(x_scale[c], both, sum);
                        } else {
                            sum = fma(scale[0][r] * x_scale[c], matrix::dot_value(dots[0].v[e]), sum);
                        }
                        if constexpr (kBias)
#pragma unroll
                            for (u32 h = 0; h < kPerGroup; h++) sum = fma(bias[h][r], x_total[h][c], sum);
                        sums[i][j][e] = sum;
                    }
                }
            }
        }
    }
    template <u32 kFirst, u32 kLast>
    DEVICE void multiply(Sum kind, u32 step, Sums &sums) const {
        if (kind == Sum::plain)
            multiply<Sum::plain, kFirst, kLast>(step, sums);
        else if (kind == Sum::biased)
            multiply<Sum::biased, kFirst, kLast>(step, sums);
        else if (kind == Sum::halves)
            multiply<Sum::halves, kFirst, kLast>(step, sums);
        else
            multiply<Sum::biased_halves, kFirst, kLast>(step, sums);
    }

    DEVICE void run() const {
        const u32 x_row = routed(thread() / 4) / (a.order != nullptr ? a.slots : 1);
        const i8 *x = a.x.codes + u64{x_row} * a.k;
        fetch_x(0, x);
        copy_async_commit();
        if (kStaged && steps > steps_per_chunk) fetch_raw(1);
        copy_async_commit();
        store_x_group(0, load_x_group(0, x_row));
        copy_async_wait<1>();
        sync();
        decode_step(0);
        const Sum gate = sum_of(bank.matrix[0].format), up = sum_of(bank.matrix[1].format);
        const bool same = a.glu == 0 || gate == up;
        Sums sums = {};
        for (u32 step = 0; step < steps; step++) {
            copy_async_wait<0>();
            sync();
            // The next step's buffers were last read in the step before this one; there, too, the last of the chunk
            // before this was decoded.
            const bool more = step + 1 < steps;
            if (more) fetch_x(step + 1, x);
            if (kStaged && (steps_per_chunk == 1 || step % 2 == 1) && step + steps_per_chunk + 1 < steps)
                fetch_raw((steps_per_chunk == 1 ? step + 1 : (step + 1) / 2) + 1);
            copy_async_commit();
            const XGroup next = load_x_group(step + 1, x_row);
            if (same) {
                multiply<0, kRowTiles>(gate, step, sums);
            } else {
                multiply<0, kRowTiles / 2>(gate, step, sums);
                multiply<kRowTiles / 2, kRowTiles>(up, step, sums);
            }
            if (more) {
                decode_step(step + 1);
                store_x_group(step + 1, next);
            }
        }
        let_next_start();
        finish<kRows, kTokens, kThreads>(sums, wave() % kRowWaves * kWaveRows, wave() / kRowWaves * kWaveTokens, true);
    }
};

template <class B>
DEVICE void contract_block(const ContractMmaArgs &a) {
    B block(a);
    if (a.tiles == nullptr) {
        block.take_tokens(B::kTokens);
        block.find_rows();
        if (kStaged) block.fetch_raw(0);
        wait_for_previous();
    } else {
        wait_for_previous();
        if (!block.take_tile()) return;
        block.find_rows();
        if (kStaged) block.fetch_raw(0);
    }
    block.run();
}

#define RIDGE_SHAPE(rows, tokens, row_waves, token_waves, row_tiles, token_tiles, blocks)            \
    KERNEL(contract_mma_##rows##x##tokens, ContractMmaArgs, row_waves *token_waves *kWave, blocks) { \
        using B = Block<row_waves, token_waves, row_tiles, token_tiles>;                             \
        static_assert(B::kRows == rows && B::kTokens == tokens);                                     \
        contract_block<B>(a);                                                                        \
    }
#if defined(RIDGE_MATRIX_NVIDIA)
RIDGE_SHAPE(128, 128, 4, 4, 2, 2, 1)
#endif
RIDGE_SHAPE(128, 64, 4, 2, 2, 2, 2)
RIDGE_SHAPE(128, 32, 4, 1, 2, 2, 3)
RIDGE_SHAPE(64, 32, 2, 2, 2, 1, 4)

// One block per expert: how many ids are smaller says where its rows begin, so no block waits for another.
KERNEL(contract_mma_group, MmaGroupArgs, kMmaGroupThreads, 1) {
    const u32 expert = block_x(), t = thread();
    auto *equal = reinterpret_cast<u32 *>(shared()), *less = equal + kMmaGroupThreads;
    wait_for_previous();
    const u32 each = (a.routed + kMmaGroupThreads - 1) / kMmaGroupThreads;
    const u32 begin = min(t * each, a.routed), end = min(begin + each, a.routed);
    u32 mine = 0, below = 0;
    for (u32 i = begin; i < end; i++) {
        const u32 id = static_cast<u32>(load(a.ids + i));
        mine += id == expert;
        below += id < expert;
    }
    // Sums over the threads up to and with this one.
    equal[t] = mine, less[t] = below;
    sync();
    for (u32 step = 1; step < kMmaGroupThreads; step *= 2) {
        const u32 e = t >= step ? equal[t - step] : 0, l = t >= step ? less[t - step] : 0;
        sync();
        equal[t] += e, less[t] += l;
        sync();
    }
    const u32 first = less[kMmaGroupThreads - 1], count = equal[kMmaGroupThreads - 1];
    u32 to = first + equal[t] - mine;
    for (u32 i = begin; i < end; i++)
        if (static_cast<u32>(load(a.ids + i)) == expert) store(a.order + to++, i);
    // This expert's tiles: ceil(count / large) entries fit between here and where the next expert's begin. The last one
    // empties all that are left: there are fewer where ids name no expert.
    const u32 slot = first / a.large + expert;
    const u32 next = (expert + 1 == a.experts ? a.routed : first + count) / a.large + expert + 1;
    const u32 whole = count / a.large, left = count % a.large;
    const bool small = a.small_tiles != nullptr && left <= 32,
               middle = !small && a.middle_tiles != nullptr && left <= 64;
    const u32 large = whole + (left > 0 && !small && !middle ? 1 : 0);
    for (u32 i = t; i < next - slot; i += kMmaGroupThreads)
        store(a.large_tiles + slot + i,
              i < large ? MmaTile{expert, first + i * a.large, min(count - i * a.large, a.large), 0} : MmaTile{});
    if (t == 0) {
        const MmaTile rest = {expert, first + whole * a.large, left, 0};
        if (a.small_tiles != nullptr) store(a.small_tiles + expert, small ? rest : MmaTile{});
        if (a.middle_tiles != nullptr) store(a.middle_tiles + expert, middle ? rest : MmaTile{});
    }
    let_next_start();
}

}  // namespace ridge::simt
