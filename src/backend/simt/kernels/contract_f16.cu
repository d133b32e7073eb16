// Contractions of many tokens on the matrix units in f16 with f32 sums: q8 activations and weights of any block format
// are both rounded to f16, so that nothing but matrix instructions is left in the inner loop. The products of int8
// codes (contract_mma.cu) are exact, but cost three to four f32 operations for every sum and 32 columns, which are what
// binds them.
//
// x is made f16 once for all blocks (f16_inputs): each row is divided by a power of two that brings its largest value
// to 2^13 .. 2^14, which no f16 overflows, and the sums are multiplied by it again. Order::f16_mma.
//
// A block owns 128 weight rows x kTokens rows of x, in steps of kStep columns: while one step is multiplied the next
// rows of x are on their way, and the threads decode the next step's weights, each a group of 32 of a row or a half of
// one, from raw bytes that came a chunk of columns at a time.
//
// Shared memory: weights[2] (128, kStep + 8) f16 | x[2] (kTokens, kStep + 8) f16 | raw weights[2], where staged
#include "backend/simt/kernels/contract_f16.h"

#include "backend/simt/formats.h"
#include "backend/simt/kernels/contract_block.cuh"

namespace ridge::simt {

#if defined(RIDGE_MATRIX_NVIDIA)
constexpr bool kStagedRaw = true;
constexpr u32 kHalfStep = kF16LongStep;
#else
constexpr bool kStagedRaw = false;
constexpr u32 kHalfStep = kF16ShortStep;
#endif
constexpr u32 kHalfStride = f16_stride(kHalfStep), kGroupsPerStep = kHalfStep / 32;
constexpr u32 kBlockRows = 128;

DEVICE u32 pack_f16(f32 low, f32 high) {
#if defined(RIDGE_CUDA)
    u32 r;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
#else
    return f32_f16(low) | f32_f16(high) << 16;
#endif
}
// Byte j of a word as a signed number.
DEVICE f32 code_at(u32 word, u32 j) {
#if defined(RIDGE_CUDA)
    // Beside the exponent of 2^23 a byte is a whole number; a conversion takes four times as long as a subtraction.
    return as_f32(__byte_perm(word ^ 0x80808080u, 0x4b000000u, 0x7540u + j)) - 8388736.0f;
#else
    return static_cast<f32>(static_cast<i8>(word >> (8 * j)));
#endif
}

// x, (rows, k) q8, as f16 (rows, stride), columns from k on zero, and the power of two of each row.
KERNEL(f16_inputs, F16InputArgs, 256, 4) {
    let_next_start();
    wait_for_previous();
    const u32 row = block_x(), groups = a.k / 32, t = thread();
    u32 *scratch = reinterpret_cast<u32 *>(shared());
    u32 most = 0;  // bits of scales, which are positive or NaN: their order is that of the values
    for (u32 g = t; g < groups; g += 256) most = max(most, f32_bits(load(a.x.scale + u64{row} * groups + g)));
    for (u32 mask = kWave / 2; mask > 0; mask /= 2) most = max(most, shuffle_xor(most, mask));
    if (lane() == 0) scratch[wave()] = most;
    sync();
    for (u32 i = 0; i < 256 / kWave; i++) most = max(most, scratch[i]);
    // The exponent of 127 times the largest scale, less 13.
    const f32 largest = 127.0f * as_f32(most);
    i32 exponent = static_cast<i32>(f32_bits(largest) >> 23) - 127 - 13;
    if (most == 0 || is_nan_or_inf(largest)) exponent = 0;
    exponent = exponent < -110 ? -110 : exponent > 110 ? 110 : exponent;
    const f32 down = as_f32(static_cast<u32>(127 - exponent) << 23);
    if (t == 0) store(a.factor + row, as_f32(static_cast<u32>(127 + exponent) << 23));
    // Eight columns a thread.
    for (u32 c = 8 * t; c < a.stride; c += 8 * 256) {
        u32x4 out{0, 0, 0, 0};
        if (c < a.k) {
            const u32x2 codes = load(reinterpret_cast<const u32x2 *>(a.x.codes + u64{row} * a.k + c));
            const f32 scale = load(a.x.scale + u64{row} * groups + c / 32) * down;
            out.x = pack_f16(scale * code_at(codes.x, 0), scale * code_at(codes.x, 1));
            out.y = pack_f16(scale * code_at(codes.x, 2), scale * code_at(codes.x, 3));
            out.z = pack_f16(scale * code_at(codes.y, 0), scale * code_at(codes.y, 1));
            out.w = pack_f16(scale * code_at(codes.y, 2), scale * code_at(codes.y, 3));
        }
        store(reinterpret_cast<u32x4 *>(a.out + u64{row} * a.stride + c), out);
    }
}

// A group of 32 weights, or a half of one, decoded and not yet rounded.
template <u32 kParts>
struct HalfGroup {
    u32 codes[8 / kParts];
    f32 scale[2], bias[2];  // of the group's halves
};
template <FormatId F, u32 kParts, class At>
DEVICE void decode_group(At at, u32 group, u32 part, HalfGroup<kParts> &g) {
    using D = Fmt<F>;
    constexpr u32 kGroups = D::block / 32;
    const At block = at + group / kGroups * D::bytes;
    const u32 g32 = group % kGroups;
#pragma unroll
    for (u32 j = 0; j < 8 / kParts; j++) g.codes[j] = D::codes4(block, g32, 8 / kParts * part + j);
    scales_of<F>(block, g32, g.scale, g.bias);
}
template <u32 kParts, class At>
DEVICE void decode_group(u32 format, At at, u32 group, u32 part, HalfGroup<kParts> &g) {
    switch (static_cast<FormatId>(format)) {
#define FORMAT(NAME, prefix, id, block, bytes, group_, bias_) \
    case FormatId::NAME:                                      \
        return decode_group<FormatId::NAME, kParts>(at, group, part, g);
#include "format/formats.def"
        default:
            return;
    }
}

template <u32 kTokens, u32 kThreads>
struct HalfBlock : BlockOfBank {
    static constexpr u32 kRowTiles = 2, kRowWaves = kBlockRows / 32, kTokenWaves = kThreads / kWave / kRowWaves;
    static constexpr u32 kTokenTiles = kTokens / 16 / kTokenWaves;
    // Of a step's groups, a thread decodes one or, where there are more threads, a half of one.
    static constexpr u32 kParts = kThreads > kBlockRows *kGroupsPerStep ? 2 : 1;
    static constexpr u32 kPieces = kBlockRows * kGroupsPerStep * kParts, kOwn = (kPieces + kThreads - 1) / kThreads;
    using Group = HalfGroup<kParts>;
    using Sums = f32[kRowTiles][kTokenTiles][matrix::kElements];
    static_assert(kTokenTiles >= 1);

    const ContractF16Args &f;
    u32 steps;

    DEVICE explicit HalfBlock(const ContractF16Args &args)
        : BlockOfBank(args.mma, kBlockRows), f(args), steps((args.mma.k + kHalfStep - 1) / kHalfStep) {}

    DEVICE static u32 weights(u32 buffer) { return buffer * kBlockRows * kHalfStride; }
    DEVICE static u32 x(u32 buffer) { return weights(2) + buffer * kTokens * kHalfStride; }
    DEVICE u32 raw(u32 buffer) const { return x(2) + buffer * kBlockRows * a.raw_stride; }

    // Asks for a chunk of columns of raw weights: whole units of 16 bytes around them, a few threads to a row.
    DEVICE void fetch_raw(u32 chunk) const {
        constexpr u32 kEach = kThreads / kBlockRows;
        const u32 row = thread() / kEach;
        const MmaMatrix &m = matrix_of(row);
        const u32 begin = chunk * m.chunk_bytes;
        const u64 address = reinterpret_cast<u64>(row_bytes(m, row) + begin);
        const u32 phase = static_cast<u32>(address) & 15;
        const u32 bytes = phase + min(m.chunk_bytes, static_cast<u32>(m.row_bytes) - begin);
        const std::byte *from = reinterpret_cast<const std::byte *>(address - phase);
        std::byte *to = shared() + raw(chunk % 2) + row * a.raw_stride;
        for (u32 b = thread() % kEach * 16; b < bytes; b += 16 * kEach) copy_async16(to + b, from + b);
    }
    DEVICE void fetch_x(u32 step) const {
        constexpr u32 kUnits = kHalfStep / 8;  // of 16 bytes in a row
#pragma unroll
        for (u32 i = thread(); i < kTokens * kUnits; i += kThreads) {
            const u32 token = i / kUnits, unit = i % kUnits;
            const u32 row = tile.first + min(token, tile.count - 1);
            copy_async16(shared() + x(step % 2) + token * kHalfStride + 16 * unit,
                         f.x + u64{row} * f.stride + step * kHalfStep + 8 * unit);
        }
    }

    // Piece i of this thread: neighbouring threads have neighbouring pieces of a row.
    DEVICE static u32 piece(u32 i) { return thread() + i * kThreads; }
    DEVICE static bool owns(u32 i) { return piece(i) < kPieces; }
    DEVICE static u32 own_row(u32 i) { return piece(i) / (kGroupsPerStep * kParts); }
    DEVICE static u32 own_group(u32 i) { return piece(i) / kParts % kGroupsPerStep; }
    DEVICE static u32 own_part(u32 i) { return piece(i) % kParts; }
    DEVICE void decode_step(u32 step, Group (&g)[kOwn]) const {
#pragma unroll
        for (u32 i = 0; i < kOwn; i++) {
            const u32 row = own_row(i), group = step * kGroupsPerStep + own_group(i);
            g[i] = {};
            if (group >= a.k / 32 || !owns(i)) continue;  // columns beyond k are zeros
            const MmaMatrix &m = matrix_of(row);
            const std::byte *bytes = row_bytes(m, row);
            if constexpr (kStagedRaw) {
                const u32 chunk = step * kHalfStep / a.chunk;
                const u32 phase = (static_cast<u32>(reinterpret_cast<u64>(bytes)) + chunk * m.chunk_bytes) & 15;
                decode_group(m.format, raw(chunk % 2) + row * a.raw_stride + phase, group % (a.chunk / 32), own_part(i),
                             g[i]);
            } else {
                decode_group(m.format, bytes, group, own_part(i), g[i]);
            }
        }
    }
    DEVICE void store_step(u32 step, const Group (&g)[kOwn]) const {
#pragma unroll
        for (u32 i = 0; i < kOwn; i++) {
            if (!owns(i)) continue;
            u32x4 *to = reinterpret_cast<u32x4 *>(shared() + weights(step % 2) + own_row(i) * kHalfStride +
                                                  64 * own_group(i) + 32 * own_part(i));
#pragma unroll
            for (u32 q = 0; q < 4 / kParts; q++) {
                const bool second = kParts == 2 ? own_part(i) == 1 : q >= 2;
                const f32 scale = second ? g[i].scale[1] : g[i].scale[0], bias = second ? g[i].bias[1] : g[i].bias[0];
                u32 words[4];
#pragma unroll
                for (u32 w = 0; w < 4; w++) {
                    const u32 codes = g[i].codes[2 * q + w / 2];
                    words[w] = pack_f16(fma(scale, code_at(codes, w % 2 * 2), bias),
                                        fma(scale, code_at(codes, w % 2 * 2 + 1), bias));
                }
                to[q] = {words[0], words[1], words[2], words[3]};
            }
        }
    }

    DEVICE void multiply(u32 step, Sums &sums) const {
        const std::byte *rows_at = shared() + weights(step % 2) + wave() % kRowWaves * 32 * kHalfStride;
        const std::byte *x_at = shared() + x(step % 2) + wave() / kRowWaves * 16 * kTokenTiles * kHalfStride;
#pragma unroll
        for (u32 d = 0; d < kHalfStep / 16; d++) {
            matrix::Rows rows[kRowTiles];
            matrix::Columns columns[kTokenTiles];
#pragma unroll
            for (u32 i = 0; i < kRowTiles; i++)
                rows[i] = matrix::load_rows(rows_at + 16 * i * kHalfStride + 32 * d, kHalfStride);
#pragma unroll
            for (u32 j = 0; j < kTokenTiles; j++)
                columns[j] = matrix::load_columns(x_at + 16 * j * kHalfStride + 32 * d, kHalfStride);
#pragma unroll
            for (u32 i = 0; i < kRowTiles; i++)
#pragma unroll
                for (u32 j = 0; j < kTokenTiles; j++) matrix::add_f16(sums[i][j], rows[i], columns[j]);
        }
    }

    DEVICE void run() {
        take_tokens(kTokens);
        if (kStagedRaw) fetch_raw(0);
        wait_for_previous();
        fetch_x(0);
        copy_async_commit();
        copy_async_wait<0>();
        sync();
        Group next[kOwn];
        decode_step(0, next);
        store_step(0, next);
        Sums sums = {};
        const u32 chunk_steps = a.chunk / kHalfStep;
        for (u32 step = 0; step < steps; step++) {
            copy_async_wait<0>();
            sync();
            // The buffers of the next step were last read in the step before this one, the other chunk of raw weights
            // before this chunk's first step.
            const bool more = step + 1 < steps;
            if (more) fetch_x(step + 1);
            if (kStagedRaw && step % chunk_steps == 0 && step + chunk_steps < steps) fetch_raw(step / chunk_steps + 1);
            copy_async_commit();
            if (more) decode_step(step + 1, next);
            multiply(step, sums);
            if (more) store_step(step + 1, next);
        }
        let_next_start();
        const u32 row = wave() % kRowWaves * 32, token = wave() / kRowWaves * 16 * kTokenTiles;
#pragma unroll
        for (u32 j = 0; j < kTokenTiles; j++)
#pragma unroll
            for (u32 c = 0; c < kLaneColumns; c++) {
                const u32 t = tile.first + min(token + 16 * j + matrix::column_of(lane(), c), tile.count - 1);
                const f32 factor = load(f.factor + t);
#pragma unroll
                for (u32 i = 0; i < kRowTiles; i++)
#pragma unroll
                    for (u32 r = 0; r < kLaneRows; r++)
                        sums[i][j][r * kLaneColumns + c] = sums[i][j][r * kLaneColumns + c] * factor;
            }
        finish<kBlockRows, kTokens, kThreads>(sums, row, token, true);
    }
};

// Tokens, and threads of a block: 256 where two blocks share a processor.
#define RIDGE_HALF(tokens, threads, blocks)                                       \
    KERNEL(contract_f16_##tokens##_##threads, ContractF16Args, threads, blocks) { \
        HalfBlock<tokens, threads> block(a);                                      \
        block.run();                                                              \
    }
RIDGE_HALF(64, 256, 2)
RIDGE_HALF(128, 256, 2)
#if defined(RIDGE_MATRIX_NVIDIA)
RIDGE_HALF(128, 512, 1)
RIDGE_HALF(256, 512, 1)
#endif

}  // namespace ridge::simt
