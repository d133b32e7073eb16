// The loops around contract's inner kernels: one text, compiled once for each instruction set (see simd.h).
//
// Sixteen weight rows at a time, k in chunks of 256: a chunk of the rows is decoded once, then multiplied with the
// chunk of every token. Sums live in scratch between chunks, so each output element sees its k in ascending order
// whatever the number of tokens.
//
//   q8 activations (Order::int8_sequential): an Int8 kernel adds a chunk to a vector of sixteen sums, a row per lane.
//   f32 activations (Order::f32_lanes16): a row has sixteen sums of its own, added up after the last chunk.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/contract.h"
#include "backend/cpu/contract_unpack.h"
#include "backend/cpu/row.h"
#include "backend/cpu/simd.h"

namespace ridge::cpu {
inline namespace RIDGE_ISA {

// How far to prefetch: on Zen 5, weights beyond the caches, a matvec is 2.3 times as fast as without, and flat from 600
// to 2000 bytes.
constexpr size_t kBytesAhead = 1152;
constexpr uint32_t kListed = 256;    // output rows taken at a time
constexpr uint32_t kF32Listed = 64;  // with f32 activations: their sums take more room
constexpr uint32_t kF32Rows = 4;     // weight rows at a time there
// and tokens: together they fill the registers
#if defined(RIDGE_ISA_AVX512)
constexpr uint32_t kF32Tokens = 4;
#else
constexpr uint32_t kF32Tokens = 1;
#endif
static_assert(kRowBlock == kLanes);  // a weight row per lane

// The output rows at hand. Lists ascend by one where `consecutive`.
struct Listed {
    const uint32_t *x_row;
    uint32_t count;
    bool consecutive;
};

// What an int8 kernel is called with: `blocks` (1..8) blocks of 32 of one or two groups of sixteen rows, decoded.
struct Int8Call {
    const Work &work;
    uint32_t first, blocks;  // the first block's number in the rows
    const Chunk *chunk;      // (groups)
    uint32_t groups;
    std::byte *room;  // Int8::kRoom bytes, 64-byte aligned
    Listed listed;
    float (*sums)[kListed][kLanes];  // (groups, listed, 16), added to
};

struct Int8Format {
    void (*unpack)(const Rows &rows, uint32_t first, uint32_t blocks, Chunk &chunk) = nullptr;
    void (*multiply)(const Int8Call &call) = nullptr;
    size_t chunk_bytes = 0;
};
// Int8::multiply<group == 16, has_bias> is the kernel; float formats have none.
template <class Int8>
constexpr ByFormat<Int8Format> int8_table() {
    ByFormat<Int8Format> t = {};
#define FORMAT(NAME, prefix, id, block, bytes, group, bias) \
    t.entry[id] = {unpack<Format::NAME, Int8>, Int8::template multiply<group == 16, bias != 0>, kChunk / block * bytes};
#include "format/formats.def"
    return t;
}

// Writes sixteen (or n, if less) columns of the listed rows of out: sums (+ bias), or glu(gate sums, up sums).
inline void finish(const Work &w, uint32_t r, uint32_t n, const uint32_t *out_row, uint32_t count, const float *sums,
                   const float *up_sums) {
    const float *bias = w.matrix[0].bias;
    for (uint32_t i = 0; i < count; i++) {
        F32x16 v = load(sums + kLanes * i);
        if (bias != nullptr) v = v + (n < kLanes ? load_part(bias + r, n, 0) : load(bias + r));
        if (up_sums != nullptr) v = glu(w.glu, v, load(up_sums + kLanes * i));
        float *out = w.out + size_t{out_row[i]} * w.n + r;
        if (n < kLanes)
            store_part(out, v, n);
        else
            store(out, v);
    }
}

// Int8::kGroups: groups of sixteen rows at a time.
template <class Int8>
struct Int8Scratch {
    Chunk chunk[Int8::kGroups];
    alignas(64) std::byte room[Int8::kRoom];
    alignas(64) float sums[2][Int8::kGroups][kListed][kLanes];
    uint32_t x_row[kListed], out_row[kListed];
};

// Sums of n (<= 16 * Int8::kGroups) rows of m, from row r on, for the listed tokens.
template <class Int8>
void sum_int8(const Work &w, const Matrix &m, uint32_t r, uint32_t n, const Listed &listed, Int8Scratch<Int8> &s,
              float (*sums)[kListed][kLanes]) {
    static constexpr ByFormat<Int8Format> kTable = int8_table<Int8>();
    const Int8Format &f = kTable.entry[static_cast<size_t>(m.format)];
    const uint32_t groups = (n + kLanes - 1) / kLanes;
    for (uint32_t g = 0; g < groups; g++)
        for (uint32_t t = 0; t < listed.count; t++) store(sums[g][t], set1(0));
    for (uint32_t first = 0, all = w.k / 32; first < all; first += kChunkBlocks) {
        const uint32_t blocks = all - first < kChunkBlocks ? all - first : kChunkBlocks;
        // Behind the end of a row comes the row that will be read after it.
        size_t ahead = kBytesAhead;
        if (first / kChunkBlocks * f.chunk_bytes + ahead >= m.row_bytes) ahead += (groups * kLanes - 1) * m.row_bytes;
        for (uint32_t g = 0; g < groups; g++) {
            const uint32_t some = n - g * kLanes < kLanes ? n - g * kLanes : kLanes;
            Rows rows(m.rows + (r + g * kLanes) * m.row_bytes, m.row_bytes, some);
            rows.ahead = ahead;
            f.unpack(rows, first, blocks, s.chunk[g]);
        }
        f.multiply({w, first, blocks, s.chunk, groups, s.room, listed, sums});
    }
}

template <class Int8>
void run_int8(const LaunchView &view, uint32_t tile, std::byte *scratch) {
    constexpr uint32_t kRows = Int8::kGroups * kLanes;
    const Work w = contract_work(view, tile);
    auto &s = *reinterpret_cast<Int8Scratch<Int8> *>(scratch);
    Tokens tokens = w.tokens;
    const bool consecutive = tokens.ids == nullptr && tokens.slots == 1;
    while (const uint32_t count = take(tokens, s.x_row, s.out_row, kListed)) {
        for (uint32_t r = 0; r < w.n_rows; r += kRows) {
            const uint32_t n = w.n_rows - r < kRows ? w.n_rows - r : kRows;
            for (uint32_t i = 0; i < w.n_matrices; i++)
                sum_int8<Int8>(w, w.matrix[i], r, n, {s.x_row, count, consecutive}, s, s.sums[i]);
            for (uint32_t g = 0; g * kLanes < n; g++)
                finish(w, r + g * kLanes, n - g * kLanes, s.out_row, count, s.sums[0][g][0],
                       w.n_matrices == 2 ? s.sums[1][g][0] : nullptr);
        }
    }
}

// ---- f32 activations

struct F32Scratch {
    alignas(64) float weights[kF32Rows][kChunk];
    alignas(64) float lanes[kF32Listed][kF32Rows][kLanes];
    alignas(64) float sums[2][kF32Listed][kLanes];
    uint32_t x_row[kF32Listed], out_row[kF32Listed];
};

// Adds n (<= 256) products to the lanes of kF32Rows rows and T tokens. Weights are padded with 0.
template <uint32_t T>
void add_products(const float (*weights)[kChunk], const float *const *x, uint32_t n, float (*lanes)[kF32Rows][kLanes]) {
    F32x16 sum[T * kF32Rows];
    const auto lane = [&](uint32_t i) __attribute__((always_inline)) { return lanes[i / kF32Rows][i % kF32Rows]; };
#pragma GCC unroll 16
    for (uint32_t i = 0; i < T * kF32Rows; i++) sum[i] = load(lane(i));
    const auto step = [&](uint32_t k, const F32x16 *xs) __attribute__((always_inline)) {
#pragma GCC unroll 4
        for (uint32_t r = 0; r < kF32Rows; r++) {
            const F32x16 weight = load(weights[r] + k);
#pragma GCC unroll 4
            for (uint32_t t = 0; t < T; t++) sum[t * kF32Rows + r] = fma(weight, xs[t], sum[t * kF32Rows + r]);
        }
    };
    F32x16 xs[T];
    uint32_t k = 0;
    for (; k + kLanes <= n; k += kLanes) {
#pragma GCC unroll 4
        for (uint32_t t = 0; t < T; t++) xs[t] = load(x[t] + k);
        step(k, xs);
    }
    if (k < n) {
#pragma GCC unroll 4
        for (uint32_t t = 0; t < T; t++) xs[t] = load_part(x[t] + k, n - k, 0);
        step(k, xs);
    }
#pragma GCC unroll 16
    for (uint32_t i = 0; i < T * kF32Rows; i++) store(lane(i), sum[i]);
}

// Sums of kF32Rows rows for all listed tokens, into columns r.. of sums.
inline void multiply_f32(const Work &w, const Rows &rows, DecodeChunk *decode, uint32_t count, F32Scratch &s,
                         float (*sums)[kLanes], uint32_t r) {
    for (uint32_t t = 0; t < count; t++)
        for (auto &row : s.lanes[t]) store(row, set1(0));
    for (uint32_t first = 0; first < w.k; first += kChunk) {
        const uint32_t n = w.k - first < kChunk ? w.k - first : kChunk;
        for (uint32_t i = 0; i < kF32Rows; i++) decode(rows.row[i], first, n, s.weights[i]);
        const float *x[kF32Tokens];
        for (uint32_t t = 0; t < count; t += kF32Tokens) {
            const uint32_t some = count - t < kF32Tokens ? count - t : kF32Tokens;
            for (uint32_t i = 0; i < some; i++) x[i] = w.x + size_t{s.x_row[t + i]} * w.k + first;
            if (some == kF32Tokens)
                add_products<kF32Tokens>(s.weights, x, n, s.lanes + t);
            else
                for (uint32_t i = 0; i < some; i++) add_products<1>(s.weights, x + i, n, s.lanes + t + i);
        }
    }
    for (uint32_t t = 0; t < count; t++) {
        const auto &l = s.lanes[t];
        reduce_add4(load(l[0]), load(l[1]), load(l[2]), load(l[3]), sums[t] + r);
    }
}

inline void run_f32(const LaunchView &view, uint32_t tile, std::byte *scratch) {
    static constexpr ByFormat<DecodeChunk *> kTable = decode_table();
    const Work w = contract_work(view, tile);
    auto &s = *reinterpret_cast<F32Scratch *>(scratch);
    Tokens tokens = w.tokens;
    while (const uint32_t count = take(tokens, s.x_row, s.out_row, kF32Listed)) {
        for (uint32_t r = 0; r < w.n_rows; r += kLanes) {
            const uint32_t n = w.n_rows - r < kLanes ? w.n_rows - r : kLanes;
            for (uint32_t i = 0; i < w.n_matrices; i++) {
                const Matrix &m = w.matrix[i];
                for (uint32_t q = 0; q < n; q += kF32Rows) {
                    const Rows rows(m.rows + (r + q) * m.row_bytes, m.row_bytes, n - q);
                    multiply_f32(w, rows, kTable.entry[static_cast<size_t>(m.format)], count, s, s.sums[i], q);
                }
            }
            finish(w, r, n, s.out_row, count, s.sums[0][0], w.n_matrices == 2 ? s.sums[1][0] : nullptr);
        }
    }
}

// ---- Rows, of contract or of gate_up

constexpr Kernel f32_row(std::string_view name, OpKind op) {
    Kernel k = row(name, op, Order::f32_lanes16, {contract_tiles, run_f32, sizeof(F32Scratch)});
    k.formats = FormatSet::all();
    return k;
}
template <class Int8>
constexpr Kernel int8_row(std::string_view name, OpKind op) {
    Kernel k = row(name, op, Order::int8_sequential, {contract_tiles, run_int8<Int8>, sizeof(Int8Scratch<Int8>)});
    k.formats = FormatSet::quantized();
    k.input = DType::q8;
    return k;
}

}  // namespace RIDGE_ISA
}  // namespace ridge::cpu
