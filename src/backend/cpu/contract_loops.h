// The loops around contract's inner kernels: one text, compiled once for each instruction set (see simd.h).
//
//   q8 activations (Order::int8_sequential), sixteen weight rows at a time, a row per lane of the sums:
//     stream_*  few tokens. The integer dots of sixteen rows with each token first, row after row, so that memory is read
//               in the order it lies; then scales and sums, chunk by chunk.
//     matrix_*  many tokens. A chunk of 256 columns of the rows is unpacked once, then multiplied with all tokens.
//   f32 activations (Order::f32_lanes16): a row has sixteen sums of its own, added up after the last chunk.
// Sums live in scratch between chunks, so each output element sees its k in ascending order whatever the number of
// tokens.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/contract.h"
#include "backend/cpu/contract_unpack.h"
#include "backend/cpu/row.h"
#include "backend/cpu/simd.h"

namespace ridge::cpu {
inline namespace RIDGE_ISA {

constexpr uint32_t kF32Listed = 64;  // output rows taken at a time with f32 activations
constexpr uint32_t kF32Rows = 4;     // weight rows at a time there
// and tokens: together they fill the registers
#if defined(RIDGE_ISA_AVX512)
constexpr uint32_t kF32Tokens = 4;
#else
constexpr uint32_t kF32Tokens = 1;
#endif
static_assert(kRowBlock == kLanes);  // a weight row per lane

// Writes sixteen (or n, if less) columns of a row of out: sums (+ bias), or glu(gate sums, up sums).
inline void finish(const Work &w, uint32_t r, uint32_t n, uint32_t out_row, const float *sums, const float *up_sums) {
    const float *bias = w.matrix[0].bias;
    F32x16 v = load(sums);
    if (bias != nullptr) v = v + (n < kLanes ? load_part(bias + r, n, 0) : load(bias + r));
    if (up_sums != nullptr) v = glu(w.glu, v, load(up_sums));
    float *out = w.out + size_t{out_row} * w.n + r;
    if (n < kLanes)
        store_part(out, v, n);
    else
        store(out, v);
}

// What a chunk's products with one token need besides its codes.
struct TokenChunk {
    alignas(32) float x_scale[kChunkBlocks];
    // Of each block, or of each of its halves: x_scale * total, or -offset * total.
    alignas(64) float scaled_total[16];
    alignas(64) int32_t minus_excess[16];
};

template <bool kHalves, bool kBias>
FN void prepare(const float *x_scale, const int16_t *x_sums, uint32_t blocks, int32_t offset, TokenChunk &to) {
#if defined(RIDGE_ISA_AVX512)
    const auto some = static_cast<__mmask8>((1u << blocks) - 1u);
    const __m256 scale = _mm256_maskz_loadu_ps(some, x_scale);
    _mm256_store_ps(to.x_scale, scale);
    const auto pairs16 = static_cast<__mmask16>((1u << (2 * blocks)) - 1u);
    const __m256i sums = _mm256_maskz_loadu_epi16(pairs16, x_sums);
    __m512i total;
    if constexpr (kHalves)
        total = _mm512_cvtepi16_epi32(sums);
    else
        total = _mm512_zextsi256_si512(_mm256_madd_epi16(sums, _mm256_set1_epi16(1)));
    if constexpr (kBias) {
        __m512 by = _mm512_castps256_ps512(scale);
        if constexpr (kHalves)
            by = _mm512_permutexvar_ps(_mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7), by);
        _mm512_store_ps(to.scaled_total, _mm512_mul_ps(by, _mm512_cvtepi32_ps(total)));
    } else {
        _mm512_store_si512(to.minus_excess, _mm512_mullo_epi32(total, _mm512_set1_epi32(-offset)));
    }
#elif defined(RIDGE_ISA_AVX2)
    const __m256i some = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(blocks)),
                                            _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    const __m256 scale = _mm256_maskload_ps(x_scale, some);
    _mm256_store_ps(to.x_scale, scale);
    const __m256i sums = _mm256_maskload_epi32(reinterpret_cast<const int *>(x_sums), some);  // two in each
    __m256i total[2];
    if constexpr (kHalves) {
        total[0] = _mm256_cvtepi16_epi32(_mm256_castsi256_si128(sums));
        total[1] = _mm256_cvtepi16_epi32(_mm256_extracti128_si256(sums, 1));
    } else {
        total[0] = _mm256_madd_epi16(sums, _mm256_set1_epi16(1));
    }
    for (uint32_t i = 0; i < (kHalves ? 2 : 1); i++) {
        if constexpr (kBias) {
            const auto first = static_cast<int>(4 * i);
            const __m256i twice = _mm256_add_epi32(_mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3), _mm256_set1_epi32(first));
            const __m256 by = kHalves ? _mm256_permutevar8x32_ps(scale, twice) : scale;
            _mm256_store_ps(to.scaled_total + 8 * i, _mm256_mul_ps(by, _mm256_cvtepi32_ps(total[i])));
        } else {
            _mm256_store_si256(reinterpret_cast<__m256i *>(to.minus_excess + 8 * i),
                               _mm256_mullo_epi32(total[i], _mm256_set1_epi32(-offset)));
        }
    }
#else
    for (uint32_t b = 0; b < blocks; b++) {
        to.x_scale[b] = x_scale[b];
        const int32_t total[2] = {kHalves ? x_sums[2 * b] : x_sums[2 * b] + x_sums[2 * b + 1], x_sums[2 * b + 1]};
        for (uint32_t h = 0; h < (kHalves ? 2 : 1); h++) {
            const uint32_t g = kHalves ? 2 * b + h : b;
            if constexpr (kBias)
                to.scaled_total[g] = x_scale[b] * static_cast<float>(total[h]);
            else
                to.minus_excess[g] = -offset * total[h];
        }
    }
#endif
}

// ---- Few tokens

// Integer dots of sixteen rows with some tokens over a span of their columns.
template <uint32_t kTokens>
struct SpanDots {
    static constexpr uint32_t kChunks = 16;
    // Of unsigned codes (code + offset): group g of chunk c of lane's row. Groups of 32 use the first eight.
    alignas(64) int32_t of[kTokens][kChunks][16][kLanes];
};

// What Isa::dots is called with: `blocks` blocks of sixteen rows from column 256 * first on.
struct SpanCall {
    const Rows &rows;
    uint32_t first, blocks;
    const int8_t *const *x;  // (tokens), each at the span's first column
    uint32_t tokens;
};

template <class Isa>
struct StreamScratch {
    SpanDots<Isa::kTokens> dots;
    GroupScales scales;
    TokenChunk token;
    alignas(64) float sums[2][Isa::kTokens][kLanes];
    uint32_t x_row[Isa::kTokens], out_row[Isa::kTokens];
};

template <bool kHalves, bool kBias>
FN void add_chunk(const GroupScales &s, const int32_t (*dots)[kLanes], const TokenChunk &t, uint32_t blocks, float *to) {
    F32x16 sum = load(to);
#pragma GCC unroll 8
    for (uint32_t b = 0; b < blocks; b++) {
        const F32x16 x_scale = set1(t.x_scale[b]);
        const auto dot = [&](uint32_t g) __attribute__((always_inline)) {
            return kBias ? load_i32(dots[g]) : load_i32_plus(dots[g], t.minus_excess[g]);
        };
        if constexpr (kHalves) {
            F32x16 both = load(s.scale[2 * b]) * dot(2 * b);
            both = fma(load(s.scale[2 * b + 1]), dot(2 * b + 1), both);
            sum = fma(both, x_scale, sum);
        } else {
            sum = fma(load(s.scale[b]) * x_scale, dot(b), sum);
        }
        if constexpr (kBias)
            for (uint32_t g = kHalves ? 2 * b : b; g <= (kHalves ? 2 * b + 1 : b); g++)
                sum = fma(load(s.bias[g]), set1(t.scaled_total[g]), sum);
    }
    store(to, sum);
}

// sums[t] += the products of sixteen rows with token t, over all k.
template <class Isa, Format F>
void stream_rows(const Work &w, const Rows &rows, uint32_t tokens, StreamScratch<Isa> &s, float (*sums)[kLanes]) {
    using D = Decode<F>;
    constexpr bool kHalves = D::group == 16;
    constexpr uint32_t kSpanBlocks = SpanDots<Isa::kTokens>::kChunks * kChunkBlocks;
    for (uint32_t t = 0; t < tokens; t++) store(sums[t], set1(0));
    for (uint32_t first = 0, all = w.k / 32; first < all; first += kSpanBlocks) {
        const uint32_t blocks = all - first < kSpanBlocks ? all - first : kSpanBlocks;
        const int8_t *x[Isa::kTokens];
        for (uint32_t t = 0; t < tokens; t++) x[t] = w.codes + size_t{s.x_row[t]} * w.k + 32 * first;
        Isa::template dots<F>(SpanCall{rows, first / kChunkBlocks, blocks, x, tokens}, s.dots);
        for (uint32_t b = 0, c = 0; b < blocks; b += kChunkBlocks, c++) {
            const uint32_t some = blocks - b < kChunkBlocks ? blocks - b : kChunkBlocks;
            Scales<F>::load(rows, first + b, some, s.scales);
            for (uint32_t t = 0; t < tokens; t++) {
                const size_t x_block = size_t{s.x_row[t]} * (w.k / 32) + first + b;
                prepare<kHalves, D::has_bias>(w.scale + x_block, w.sums + 2 * x_block, some, Isa::template offset<F>(),
                                              s.token);
                if (some == kChunkBlocks)
                    add_chunk<kHalves, D::has_bias>(s.scales, s.dots.of[t][c], s.token, kChunkBlocks, sums[t]);
                else
                    add_chunk<kHalves, D::has_bias>(s.scales, s.dots.of[t][c], s.token, some, sums[t]);
            }
        }
    }
}

template <class Isa>
using StreamRows = void(const Work &w, const Rows &rows, uint32_t tokens, StreamScratch<Isa> &s, float (*sums)[kLanes]);
template <class Isa>
constexpr ByFormat<StreamRows<Isa> *> stream_table() {
    ByFormat<StreamRows<Isa> *> t = {};
#define FORMAT(NAME, prefix, id, block, bytes, group, bias) \
    if constexpr (!Isa::kFormats.has(Format::NAME)) {                             \
    } else if constexpr (requires { Isa::template stream<Format::NAME>; }) {      \
        t.entry[id] = Isa::template stream<Format::NAME>;                         \
    } else {                                                                      \
        t.entry[id] = stream_rows<Isa, Format::NAME>;                             \
    }
#include "format/formats.def"
    return t;
}

template <class Isa>
void run_stream(const LaunchView &view, uint32_t tile, std::byte *scratch) {
    static constexpr ByFormat<StreamRows<Isa> *> kTable = stream_table<Isa>();
    const Work w = contract_work(view, tile);
    auto &s = *reinterpret_cast<StreamScratch<Isa> *>(scratch);
    Tokens tokens = w.tokens;
    while (const uint32_t count = take(tokens, s.x_row, s.out_row, Isa::kTokens)) {
        for (uint32_t r = 0; r < w.n_rows; r += kLanes) {
            const uint32_t n = w.n_rows - r < kLanes ? w.n_rows - r : kLanes;
            for (uint32_t i = 0; i < w.n_matrices; i++) {
                const Matrix &m = w.matrix[i];
                kTable.entry[static_cast<size_t>(m.format)](w, Rows(m.rows + r * m.row_bytes, m.row_bytes, n), count, s,
                                                            s.sums[i]);
            }
            for (uint32_t t = 0; t < count; t++)
                finish(w, r, n, s.out_row[t], s.sums[0][t], w.n_matrices == 2 ? s.sums[1][t] : nullptr);
        }
    }
}

// ---- Many tokens

constexpr uint32_t kListed = 256;  // output rows taken at a time: their codes (k bytes each) are to stay in L2

// A chunk of sixteen rows, unpacked: four codes (+ offset) of each row side by side, as a dot of four wants them.
struct Panel {
    alignas(64) uint8_t codes[kChunk / 4][kLanes][4];
    GroupScales scales;
};

// What Isa::multiply is called with: `blocks` (1..8) blocks, the first of them number `first` in the rows, of `groups`
// panels.
struct MatrixCall {
    const Work &work;
    uint32_t first, blocks;
    const Panel *panel;  // (groups)
    uint32_t groups;
    int32_t offset;
    const uint32_t *x_row;  // (tokens)
    uint32_t tokens;
    float (*sums)[kListed][kLanes];  // (groups, tokens, 16), added to
};

struct MatrixFormat {
    // later: as many bytes as a chunk of sixteen rows has, to be asked for meanwhile.
    void (*unpack)(const Rows &rows, uint32_t first, uint32_t blocks, Panel &panel, const std::byte *later) = nullptr;
    void (*multiply)(const MatrixCall &call) = nullptr;
    int32_t offset = 0;
    size_t chunk_bytes = 0;
};
template <class Isa, Format F>
void unpack_panel(const Rows &rows, uint32_t first, uint32_t blocks, Panel &panel, const std::byte *later) {
    if constexpr (requires { Isa::template unpack<F>; }) {
        Isa::template unpack<F>(rows, first, blocks, panel, later);
    } else {
        for (size_t line = 0; line < kLanes * (kChunk / Decode<F>::block * size_t{Decode<F>::bytes}); line += 64)
            __builtin_prefetch(later + line);
        Isa::template interleave<F>(rows, first / kChunkBlocks, blocks, panel.codes);
        Scales<F>::load(rows, first, blocks, panel.scales);
    }
}
// An instruction set whose products depend on the format has multiply_for<F>, others multiply<kHalves, kBias>.
template <class Isa, Format F>
constexpr auto multiply_of() {
    if constexpr (requires { Isa::template multiply_for<F>; })
        return Isa::template multiply_for<F>;
    else
        return Isa::template multiply<Decode<F>::group == 16, Decode<F>::has_bias>;
}
template <class Isa>
constexpr ByFormat<MatrixFormat> matrix_table() {
    ByFormat<MatrixFormat> t = {};
#define FORMAT(NAME, prefix, id, block, bytes, group, bias)                                                   \
    if constexpr (Isa::kFormats.has(Format::NAME))                                                            \
        t.entry[id] = {unpack_panel<Isa, Format::NAME>, multiply_of<Isa, Format::NAME>(),                     \
                       Isa::template offset<Format::NAME>(), kChunk / block * bytes};
#include "format/formats.def"
    return t;
}

template <class Isa>
struct MatrixScratch {
    Panel panel[Isa::kPanels];
    alignas(64) float sums[2][Isa::kPanels][kListed][kLanes];
    uint32_t x_row[kListed], out_row[kListed];
};

// Sums of n (<= 16 * Isa::kPanels) rows of m, from row r on, for the listed tokens.
template <class Isa>
void multiply_matrix(const Work &w, const Matrix &m, uint32_t r, uint32_t n, uint32_t tokens, MatrixScratch<Isa> &s,
                     float (*sums)[kListed][kLanes]) {
    static constexpr ByFormat<MatrixFormat> kTable = matrix_table<Isa>();
    const MatrixFormat &f = kTable.entry[static_cast<size_t>(m.format)];
    const uint32_t groups = (n + kLanes - 1) / kLanes;
    // The next rows of the matrix arrive while these are unpacked, in the order they lie.
    const std::byte *later = m.rows + (r + n) * m.row_bytes;
    for (uint32_t g = 0; g < groups; g++)
        for (uint32_t t = 0; t < tokens; t++) store(sums[g][t], set1(0));
    for (uint32_t first = 0, all = w.k / 32; first < all; first += kChunkBlocks) {
        const uint32_t blocks = all - first < kChunkBlocks ? all - first : kChunkBlocks;
        for (uint32_t g = 0; g < groups; g++) {
            const uint32_t some = n - g * kLanes < kLanes ? n - g * kLanes : kLanes;
            f.unpack(Rows(m.rows + (r + g * kLanes) * m.row_bytes, m.row_bytes, some), first, blocks, s.panel[g], later);
            later += kLanes * f.chunk_bytes;
        }
        f.multiply({w, first, blocks, s.panel, groups, f.offset, s.x_row, tokens, sums});
    }
}

template <class Isa>
void run_matrix(const LaunchView &view, uint32_t tile, std::byte *scratch) {
    constexpr uint32_t kRows = Isa::kPanels * kLanes;
    const Work w = contract_work(view, tile);
    auto &s = *reinterpret_cast<MatrixScratch<Isa> *>(scratch);
    Tokens tokens = w.tokens;
    while (const uint32_t count = take(tokens, s.x_row, s.out_row, kListed)) {
        for (uint32_t r = 0; r < w.n_rows; r += kRows) {
            const uint32_t n = w.n_rows - r < kRows ? w.n_rows - r : kRows;
            for (uint32_t i = 0; i < w.n_matrices; i++)
                multiply_matrix<Isa>(w, w.matrix[i], r, n, count, s, s.sums[i]);
            for (uint32_t t = 0; t < count; t++)
                for (uint32_t g = 0; g * kLanes < n; g++)
                    finish(w, r + g * kLanes, n - g * kLanes, s.out_row[t], s.sums[0][g][t],
                           w.n_matrices == 2 ? s.sums[1][g][t] : nullptr);
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

// Adds n (<= 256) products to the lanes of kF32Rows rows and T tokens. Weights are padded with 0. Meanwhile `lines` lines
// from `later` on are asked for with each sixteen columns: evenly, since a burst is mostly left out (Zen 5).
template <uint32_t T>
void add_products(const float (*weights)[kChunk], const float *const *x, uint32_t n, float (*lanes)[kF32Rows][kLanes],
                  const std::byte *later, uint32_t lines) {
    F32x16 sum[T * kF32Rows];
    const auto lane = [&](uint32_t i) __attribute__((always_inline)) { return lanes[i / kF32Rows][i % kF32Rows]; };
#pragma GCC unroll 16
    for (uint32_t i = 0; i < T * kF32Rows; i++) sum[i] = load(lane(i));
    const auto step = [&](uint32_t k, const F32x16 *xs) __attribute__((always_inline)) {
        for (uint32_t i = 0; i < lines; i++, later += 64) __builtin_prefetch(later);
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
    // The next rows, in the order they lie.
    const auto row_bytes = static_cast<size_t>(rows.row[1] - rows.row[0]);
    const std::byte *later = rows.row[0] + kF32Rows * row_bytes;
    const auto lines = static_cast<uint32_t>((kF32Rows * row_bytes * kLanes / w.k + 63) / 64);
    for (uint32_t first = 0; first < w.k; first += kChunk, later += kChunk / kLanes * lines * 64) {
        const uint32_t n = w.k - first < kChunk ? w.k - first : kChunk;
        for (uint32_t i = 0; i < kF32Rows; i++) decode(rows.row[i], first, n, s.weights[i]);
        const float *x[kF32Tokens];
        for (uint32_t t = 0; t < count; t += kF32Tokens) {
            const uint32_t some = count - t < kF32Tokens ? count - t : kF32Tokens;
            for (uint32_t i = 0; i < some; i++) x[i] = w.x + size_t{s.x_row[t + i]} * w.k + first;
            const uint32_t ask = t == 0 ? lines : 0;
            if (some == kF32Tokens)
                add_products<kF32Tokens>(s.weights, x, n, s.lanes + t, later, ask);
            else
                for (uint32_t i = 0; i < some; i++)
                    add_products<1>(s.weights, x + i, n, s.lanes + t + i, later, i == 0 ? ask : 0);
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
            for (uint32_t t = 0; t < count; t++)
                finish(w, r, n, s.out_row[t], s.sums[0][t], w.n_matrices == 2 ? s.sums[1][t] : nullptr);
        }
    }
}

// ---- Rows, of contract or of gate_up

constexpr Kernel f32_row(std::string_view name, OpKind op) {
    Kernel k = row(name, op, Order::f32_lanes16, {contract_tiles, run_f32, sizeof(F32Scratch)});
    k.formats = FormatSet::all();
    return k;
}
template <class Isa>
constexpr Kernel int8_row(std::string_view name, OpKind op, Tile tile) {
    Kernel k = row(name, op, Order::int8_sequential, tile);
    k.formats = Isa::kFormats;
    k.input = DType::q8;
    return k;
}
template <class Isa>
constexpr Kernel stream_row(std::string_view name, OpKind op) {
    return int8_row<Isa>(name, op, {contract_tiles, run_stream<Isa>, sizeof(StreamScratch<Isa>)});
}
template <class Isa>
constexpr Kernel matrix_row(std::string_view name, OpKind op) {
    Kernel k = int8_row<Isa>(name, op, {contract_tiles, run_matrix<Isa>, sizeof(MatrixScratch<Isa>)});
    k.tokens.first = Isa::kManyTokens;
    k.rank++;
    return k;
}

}  // namespace RIDGE_ISA
}  // namespace ridge::cpu
