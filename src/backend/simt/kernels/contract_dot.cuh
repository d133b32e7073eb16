// int8 dots of one to eight rows of activations with every weight row: the contraction of decode.
//
// A wave takes one weight row at a time (of gated units a gate row, then its up row). Lane l holds the groups l, l + W, ..
// of 32 weights (W lanes), so the order of the sum is fixed (Order::int8_lanes): each lane sums its groups ascending, then
// the lanes are added in pairs over halves. Weight bytes come through a ring in shared memory, a stage for W groups, filled
// by asynchronous copies of 16 bytes that run kStages - 1 stages ahead over row ends: what is in flight does not depend on
// registers, the file's odd alignments cost nothing, and the first stages are on their way before the launch in front of
// this one has ended (weights are never written). What a lane decodes it reads from shared memory.
//
// Shared memory: tables of the format | per wave: kStages stages of stage_bytes
#pragma once

#define RIDGE_TAB(first, words, i) ::ridge::simt::shared_table((first) + (i))
#include "backend/simt/device.h"
#include "backend/simt/kernels/contract_dot.h"
#include "backend/simt/kernels/glu.cuh"

namespace ridge::simt {

// Where word 0 of all tables would lie: a file whose formats read one table keeps only that.
#ifndef RIDGE_TABLE_ORIGIN
#define RIDGE_TABLE_ORIGIN 0
#endif
#if defined(RIDGE_EMULATE)
DEVICE u32 table_word(u32 word) { return dialect::table_words[word]; }
#else
static __attribute__((device)) const u32 all_table_words[TABLE_WORDS] = {
#include "format/tables.def"
};
DEVICE u32 table_word(u32 word) { return all_table_words[word]; }
#endif
DEVICE u32 shared_table(u32 word) {
    return *reinterpret_cast<const u32 *>(shared() + (word - RIDGE_TABLE_ORIGIN) * 4);
}

}  // namespace ridge::simt

#include "backend/simt/formats.h"
#include "backend/simt/kernels/quantize.cuh"

namespace ridge::simt {

constexpr u32 kDotThreads = 256, kDotWaves = kDotThreads / kWave;
constexpr int kStages = 4;

// Where a wave is in its work: unit, which of the unit's rows, which step of the row.
struct DotCursor {
    u32 unit, half, step;
};

struct DotRow {
    const std::byte *bytes;
    u32 step_bytes, row_bytes, format;
};

DEVICE u32 bank_of(const ContractDotArgs &a, u32 row) {
    u32 b = 0;
    if (a.n_banks > 1 && row >= a.bank[1].first) b = 1;
    if (a.n_banks > 2 && row >= a.bank[2].first) b = 2;
    return b;
}

DEVICE DotRow row_at(const ContractDotArgs &a, const DotCursor &c, u32 expert) {
    const u32 b = a.glu != 0 ? c.half : bank_of(a, c.unit);
    const DotBank &bank = a.bank[b];
    const u32 row = a.glu != 0 ? c.unit : c.unit - bank.first;
    return {bank.weight + expert * bank.expert_bytes + row * bank.row_bytes, bank.step_bytes,
            static_cast<u32>(bank.row_bytes), bank.format};
}

// Copies the bytes of one step into a stage, which begins at the 16-byte boundary at or before them.
DEVICE void fetch_stage(const DotRow &r, u32 step, u32 at) {
    const u32 begin = step * r.step_bytes;
    const u32 bytes = min(r.step_bytes, r.row_bytes - begin);
    const u64 address = reinterpret_cast<u64>(r.bytes + begin);
    const u32 phase = static_cast<u32>(address & 15);
    const std::byte *from = reinterpret_cast<const std::byte *>(address - phase);
    const u32 chunks = (phase + bytes + 15) / 16;
    for (u32 c = lane(); c < chunks; c += kWave) copy_async16(shared() + at + 16 * c, from + 16 * c);
}

// One group of 32 weights of a block that starts `at` bytes into shared memory, against M rows of activations.
template <FormatId F, u32 M>
DEVICE void dot_group(const ContractDotArgs &a, u32 at, u32 block_lane, u32 group, u32 x_row, u32 tokens, f32 (&acc)[M]) {
    using D = Fmt<F>;
    constexpr u32 kGroups = D::block / 32;
    const u32 block = at + block_lane / kGroups * D::bytes, g32 = block_lane % kGroups;
    u32 codes[8];
#pragma unroll
    for (u32 j = 0; j < 8; j++) codes[j] = D::codes4(block, g32, j);
    f32 scale[2], bias[2];
    constexpr bool kHalves = D::group == 16;
    scale[0] = D::scale(block, kHalves ? 2 * g32 : D::group == 32 ? g32 : 0);
    scale[1] = kHalves ? D::scale(block, 2 * g32 + 1) : 0;
    bias[0] = D::has_bias ? D::bias(block, kHalves ? 2 * g32 : g32) : 0;
    bias[1] = D::has_bias && kHalves ? D::bias(block, 2 * g32 + 1) : 0;
    const u32 groups = a.k / 32;
#pragma unroll
    for (u32 t = 0; t < M; t++) {
        const u64 row = x_row + (M == 1 ? 0 : min(t, tokens - 1));
        const u64 g = row * groups + group;
        const u32x4 *x = reinterpret_cast<const u32x4 *>(a.x.codes) + 2 * g;
        const u32x4 x0 = load(x), x1 = load(x + 1);
        const f32 x_scale = load(a.x.scale + g);
        i32 dot0 = dot4(0, codes[0], x0.x), dot1 = 0;
        dot0 = dot4(dot0, codes[1], x0.y);
        dot0 = dot4(dot0, codes[2], x0.z);
        dot0 = dot4(dot0, codes[3], x0.w);
        dot1 = dot4(kHalves ? 0 : dot0, codes[4], x1.x);
        dot1 = dot4(dot1, codes[5], x1.y);
        dot1 = dot4(dot1, codes[6], x1.z);
        dot1 = dot4(dot1, codes[7], x1.w);
        if constexpr (kHalves) {
            f32 s = scale[0] * static_cast<f32>(dot0);
            s = fma(scale[1], static_cast<f32>(dot1), s);
            acc[t] = fma(x_scale, s, acc[t]);
        } else {
            acc[t] = fma(scale[0] * x_scale, static_cast<f32>(dot1), acc[t]);
        }
        if constexpr (D::has_bias) {
            const u32 sums = load(reinterpret_cast<const u32 *>(a.x.sums) + g);
            const i32 low = static_cast<i16>(sums & 0xffffu), high = static_cast<i16>(sums >> 16);
            if constexpr (kHalves) {
                acc[t] = fma(bias[0], x_scale * static_cast<f32>(low), acc[t]);
                acc[t] = fma(bias[1], x_scale * static_cast<f32>(high), acc[t]);
            } else {
                acc[t] = fma(bias[0], x_scale * static_cast<f32>(low + high), acc[t]);
            }
        }
    }
}

// Dots of one format, known at compile time.
template <FormatId F>
struct OneFormat {
    template <u32 M>
    static DEVICE void dot(const ContractDotArgs &a, u32, u32 at, u32 l, u32 group, u32 x_row, u32 tokens, f32 (&acc)[M]) {
        dot_group<F, M>(a, at, l, group, x_row, tokens, acc);
    }
};

// Of whatever format the row has: banks of a launch may differ.
struct AnyFormat {
    template <u32 M>
    static DEVICE void dot(const ContractDotArgs &a, u32 format, u32 at, u32 l, u32 group, u32 x_row, u32 tokens, f32 (&acc)[M]) {
        switch (static_cast<FormatId>(format)) {
#define FORMAT(NAME, prefix, id, block, bytes, g, bias_) \
    case FormatId::NAME:                                 \
        return dot_group<FormatId::NAME, M>(a, at, l, group, x_row, tokens, acc);
#include "format/formats.def"
            default:
                return;
        }
    }
};

template <class Formats, u32 M>
DEVICE void contract_dot(const ContractDotArgs &a) {
    let_next_start();
    const u32 l = lane(), w = wave();
    const u32 steps = (a.k / 32 + kWave - 1) / kWave, halves = a.glu != 0 ? 2u : 1u;
    const bool publish = a.q8_units != 0;
    const u32 stride = publish ? kDotWaves : a.blocks * kDotWaves;
    const u32 first = (publish ? block_x() * a.q8_units : block_x() * kDotWaves) + w;
    const u32 end = publish ? min(a.units, (block_x() + 1) * a.q8_units) : a.units;

    // A block works on M rows of x.
    u32 expert = 0, x_row = block_z() * M, out_row = x_row;
    const u32 tokens = min(M, a.tokens - x_row);
    if (a.ids != nullptr) {
        wait_for_previous();  // the expert is not known before
        out_row = block_y();
        expert = min(static_cast<u32>(load(a.ids + out_row)), a.experts - 1);
        x_row = a.x_by_slot != 0 ? out_row : out_row / a.slots;
    }

    const u32 ring = a.ring_at + w * kStages * a.stage_bytes;
    DotCursor ahead{first, 0, 0};
    DotRow ahead_row{};
    if (first < end) ahead_row = row_at(a, ahead, expert);
    const auto fetch = [&](u32 stage) {
        if (ahead.unit < end) {
            fetch_stage(ahead_row, ahead.step, ring + stage * a.stage_bytes);
            if (++ahead.step == steps) {
                ahead.step = 0;
                if (++ahead.half == halves) ahead.half = 0, ahead.unit += stride;
                if (ahead.unit < end) ahead_row = row_at(a, ahead, expert);
            }
        }
        copy_async_commit();
    };
    for (u32 s = 0; s < kStages - 1; s++) fetch(s);
    for (u32 i = thread(); i < a.table_words; i += kDotThreads)
        *reinterpret_cast<u32 *>(shared() + (a.table_first + i - RIDGE_TABLE_ORIGIN) * 4) =
            table_word(a.table_first + i);
    if (a.table_words > 0) sync();
    if (a.ids == nullptr) wait_for_previous();

    f32 acc[M], gate[M];
#pragma unroll
    for (u32 t = 0; t < M; t++) acc[t] = gate[t] = 0;
    u32 stage = 0;
    for (u32 unit = first; unit < end; unit += stride)
        for (u32 half = 0; half < halves; half++) {
            const DotRow row = row_at(a, {unit, half, 0}, expert);
            for (u32 step = 0; step < steps; step++) {
                copy_async_wait<kStages - 2>();
                sync_wave();
                // The stage before this one is free: every lane has passed its dot.
                fetch(stage == 0 ? kStages - 1 : stage - 1);
                const u32 group = step * kWave + l;
                const u32 phase = static_cast<u32>(reinterpret_cast<u64>(row.bytes + step * row.step_bytes) & 15);
                if (group < a.k / 32)
                    Formats::dot(a, row.format, ring + stage * a.stage_bytes + phase, l, group, x_row, tokens, acc);
                stage = stage + 1 == kStages ? 0 : stage + 1;
            }
            const u32 b = a.glu != 0 ? half : bank_of(a, unit);
            const DotBank &bank = a.bank[b];
#pragma unroll
            for (u32 t = 0; t < M; t++) {
                f32 v = sum_lanes(acc[t]);
                acc[t] = 0;
                if (a.glu != 0 && half == 0) {
                    gate[t] = v;
                    continue;
                }
                if (a.glu != 0) v = glu(a.glu - 1, gate[t], v);
                const u32 column = a.glu != 0 ? unit : unit - bank.first;
                if (l != t || t >= tokens) continue;
                if (a.glu == 0 && bank.bias != nullptr) v = v + load(bank.bias + expert * bank.n + column);
                f32 *out = a.bank[a.glu != 0 ? 0 : b].out;
                if (out != nullptr) store(out + u64{out_row + t} * bank.n + column, v);
                if (publish)
                    *reinterpret_cast<f32 *>(shared() + a.values_at + (t * a.q8_units + unit - block_x() * a.q8_units) * 4) = v;
            }
        }
    if (!publish) return;
    // The block's units are whole blocks of 32 of the output, a value for each lane.
    sync();
    const u32 base = block_x() * a.q8_units, here = end - base;
    for (u32 i = w * kWave; i < tokens * here; i += kDotThreads) {
        const bool there = i + l < tokens * here;
        const u32 t = there ? (i + l) / here : 0, u = there ? (i + l) % here : 0;
        const f32 v = *reinterpret_cast<const f32 *>(shared() + a.values_at + (t * a.q8_units + u) * 4);
        store_q8(v, q8_row(a.q8, out_row + t, a.units), base + u, there);
    }
}

}  // namespace ridge::simt

// The kernels of one format, for 1, 2, up to 4 and up to 8 rows of activations.
#define RIDGE_CONTRACT_DOT(name, Formats)                                                                     \
    namespace ridge::simt {                                                                                   \
    KERNEL(contract_dot_##name##_1, ContractDotArgs, kDotThreads, 4) { contract_dot<Formats, 1>(a); }        \
    KERNEL(contract_dot_##name##_2, ContractDotArgs, kDotThreads, 4) { contract_dot<Formats, 2>(a); }        \
    KERNEL(contract_dot_##name##_4, ContractDotArgs, kDotThreads, 3) { contract_dot<Formats, 4>(a); }        \
    KERNEL(contract_dot_##name##_8, ContractDotArgs, kDotThreads, 2) { contract_dot<Formats, 8>(a); }        \
    }
#define RIDGE_CONTRACT_DOT_FORMAT(NAME, prefix) RIDGE_CONTRACT_DOT(prefix, OneFormat<FormatId::NAME>)
