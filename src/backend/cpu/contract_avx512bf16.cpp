// contract and gate_up of BF16 weights with AVX512_BF16 (Order::bf16_pairs16): activations are rounded to bf16 and a
// vdpbf16ps multiplies 32 pairs, twice what an fma does.
//
// Sixteen rows at a time, all listed tokens: activations of a span of columns are rounded once for a tile, then four rows
// and four tokens at a time fill the registers with sums (four loads of weights and four of activations to sixteen
// vdpbf16ps, of which Zen 4 and 5 do one and two a cycle beside two loads).
#include <cstring>

#include "backend/cpu/contract_loops.h"

namespace ridge::cpu {
inline namespace RIDGE_ISA {
namespace {

constexpr uint32_t kBf16Listed = 32;   // tokens at a time
constexpr uint32_t kBf16Span = 2048;   // columns at a time
constexpr uint32_t kBf16Rows = 4 * kRowBlock;
constexpr uint32_t kPair = 2 * kLanes;  // columns of a vector

struct Bf16Scratch {
    alignas(64) uint16_t x[kBf16Listed][kBf16Span];
    alignas(64) float lanes[2][kBf16Rows][kBf16Listed][kLanes];
    alignas(64) float sums[2][kBf16Listed][kLanes];
    uint32_t x_row[kBf16Listed], out_row[kBf16Listed];
};

// n columns, then zeros up to a whole vector.
void round_to_bf16(const float *x, uint32_t n, uint16_t *to) {
    for (uint32_t i = 0; i < n; i += kPair) {
        const uint32_t left = n - i;
        const __m512 low = left >= kLanes ? _mm512_loadu_ps(x + i) : load_part(x + i, left, 0).v;
        const __m512 high = left >= kPair    ? _mm512_loadu_ps(x + i + kLanes)
                            : left <= kLanes ? _mm512_setzero_ps()
                                             : load_part(x + i + kLanes, left - kLanes, 0).v;
        const __m512bh both = _mm512_cvtne2ps_pbh(high, low);
        std::memcpy(to + i, &both, sizeof both);
    }
}

FN __m512bh load_pairs(const void *p) {
    __m512bh v;
    std::memcpy(&v, p, sizeof v);
    return v;
}
FN __m512bh load_pairs_part(const std::byte *p, uint32_t n) {
    const __m512i v = _mm512_maskz_loadu_epi16(static_cast<__mmask32>((uint64_t{1} << n) - 1), p);
    return reinterpret_cast<__m512bh>(v);
}

// Adds n products to the lanes of four rows and T tokens. Meanwhile, where `ask` says so, as many bytes of the next four
// rows are asked for, from `later` on.
template <uint32_t T>
void add_pairs(const std::byte *const *rows, const uint16_t (*x)[kBf16Span], uint32_t n,
               float (*lanes)[kBf16Listed][kLanes], const std::byte *later, bool ask) {
    __m512 sum[4][T];
#pragma GCC unroll 16
    for (uint32_t i = 0; i < 4 * T; i++) sum[i / T][i % T] = _mm512_load_ps(lanes[i / T][i % T]);
    const auto step = [&](uint32_t k, auto weights) __attribute__((always_inline)) {
        for (uint32_t i = 0; ask && i < 4; i++, later += 64) __builtin_prefetch(later);
        __m512bh xs[T];
#pragma GCC unroll 4
        for (uint32_t t = 0; t < T; t++) xs[t] = load_pairs(x[t] + k);
#pragma GCC unroll 4
        for (uint32_t r = 0; r < 4; r++) {
            const __m512bh w = weights(rows[r] + 2 * k);
#pragma GCC unroll 4
            for (uint32_t t = 0; t < T; t++) sum[r][t] = _mm512_dpbf16_ps(sum[r][t], w, xs[t]);
        }
    };
    uint32_t k = 0;
    for (; k + kPair <= n; k += kPair) step(k, [](const std::byte *p) { return load_pairs(p); });
    if (k < n) step(k, [&](const std::byte *p) { return load_pairs_part(p, n - k); });
#pragma GCC unroll 16
    for (uint32_t i = 0; i < 4 * T; i++) _mm512_store_ps(lanes[i / T][i % T], sum[i / T][i % T]);
}

void run_bf16(const LaunchView &view, uint32_t tile, std::byte *scratch) {
    const Work w = contract_work(view, tile);
    auto &s = *reinterpret_cast<Bf16Scratch *>(scratch);
    Tokens tokens = w.tokens;
    const uint32_t quads = (w.n_rows + 3) / 4;
    while (const uint32_t count = take(tokens, s.x_row, s.out_row, kBf16Listed)) {
        for (uint32_t i = 0; i < w.n_matrices; i++)
            for (uint32_t r = 0; r < 4 * quads; r++)
                for (uint32_t t = 0; t < count; t++) store(s.lanes[i][r][t], set1(0));
        for (uint32_t first = 0; first < w.k; first += kBf16Span) {
            const uint32_t n = w.k - first < kBf16Span ? w.k - first : kBf16Span;
            for (uint32_t t = 0; t < count; t++) round_to_bf16(w.x + size_t{s.x_row[t]} * w.k + first, n, s.x[t]);
            for (uint32_t i = 0; i < w.n_matrices; i++) {
                const Matrix &m = w.matrix[i];
                for (uint32_t q = 0; q < quads; q++) {
                    const std::byte *rows[4];
                    for (uint32_t r = 0; r < 4; r++)
                        rows[r] = m.rows + (4 * q + r < w.n_rows ? 4 * q + r : w.n_rows - 1) * m.row_bytes + 2 * first;
                    uint32_t t = 0;
                    const auto lanes = [&] {
                        return reinterpret_cast<float(*)[kBf16Listed][kLanes]>(s.lanes[i][4 * q][t]);
                    };
                    const std::byte *later = m.rows + 4 * (q + 1) * m.row_bytes + 4 * 2 * size_t{first};
                    for (; t + 4 <= count; t += 4) add_pairs<4>(rows, s.x + t, n, lanes(), later, t == 0);
                    for (; t < count; t++) add_pairs<1>(rows, s.x + t, n, lanes(), later, t == 0);
                }
            }
        }
        for (uint32_t r = 0; r < w.n_rows; r += kLanes) {
            const uint32_t n = w.n_rows - r < kLanes ? w.n_rows - r : kLanes;
            for (uint32_t t = 0; t < count; t++) {
                for (uint32_t i = 0; i < w.n_matrices; i++)
                    for (uint32_t q = 0; q < n; q += 4) {
                        const auto lane = [&](uint32_t j) { return load(s.lanes[i][r + q + j][t]); };
                        reduce_add4(lane(0), lane(1), lane(2), lane(3), s.sums[i][t] + q);
                    }
                finish(w, r, n, s.out_row[t], s.sums[0][t], w.n_matrices == 2 ? s.sums[1][t] : nullptr);
            }
        }
    }
}

constexpr Kernel bf16_row(std::string_view name, OpKind op) {
    Kernel k = row(name, op, Order::bf16_pairs16, {contract_tiles, run_bf16, sizeof(Bf16Scratch)});
    k.formats = {Format::BF16};
    k.needs = kAvx512Bf16;
    k.lever = Lever::bf16_dot;
    k.rank += 2;
    return k;
}

constexpr Kernel kTable[] = {
    bf16_row(RIDGE_ROW_NAME("contract.bf16"), kind<Contract>()),
    bf16_row(RIDGE_ROW_NAME("gate_up.bf16"), kind<GateUp>()),
};

}  // namespace
}  // namespace RIDGE_ISA

constinit const RowTable kContractAvx512Bf16 = kTable;

}  // namespace ridge::cpu
