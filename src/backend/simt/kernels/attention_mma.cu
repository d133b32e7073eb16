// Attention of many tokens by matrix instructions, in f32's accuracy although they take 16-bit operands.
//
// A block has kMmaRows query rows, 16 a wave: a run of tokens with all heads that share a KV head. It walks the
// sequence's positions in tiles of 64 (a page), keys and values in shared memory, each loaded while the other is worked
// on, and keeps a running maximum, sum and sum of values for each row (Orders softmax_mma_*):
//
//   q       2^e q = hi + lo in f16, e such that the largest of a row is in 2^14 .. 2^15: exact to 2^-22 of each value
//           and 2^-39 of the largest
//   scores  hi K + lo K, f32 sums
//   p       2^15 exp(score - maximum), in 16 bits as `How` says: hi + lo, exact to 2^-22 and 2^-40 of the largest; or
//           rounded once
//   values  hi V + lo V, f32 sums
//
// K and V are f16 as stored. A tile that a row does not see leaves its numbers as they are to the bit, so a token's
// result depends neither on the other tokens of its block nor on their sequences, which are taken one after the other. But
// a tile's values are multiplied by weights of 0 where a row does not see them: an infinity among them makes NaN of the
// tokens up to 63 positions before it, too.
#include "backend/simt/arch/matrix.h"
#include "backend/simt/kernels/attention.cuh"

namespace ridge::simt {

namespace mx = matrix;

constexpr u32 kKeys = 64;                              // positions of a tile
constexpr u32 kRowLanes = mx::kTile / mx::kLaneColumns;  // lanes that share a row of sums
constexpr u32 kNoSequence = ~0u;
#if defined(RIDGE_MATRIX_NVIDIA)
constexpr bool kSmall = false;
#else
constexpr bool kSmall = true;
#endif

enum class Weights { split, f16, bf16 };

DEVICE u32 min_lanes(u32 v) {
    for (u32 mask = kWave / 2; mask > 0; mask /= 2) v = min(v, shuffle_xor(v, mask));
    return v;
}
DEVICE u32 max_lanes(u32 v) {
    for (u32 mask = kWave / 2; mask > 0; mask /= 2) v = max(v, shuffle_xor(v, mask));
    return v;
}

// 2^up exp(x) or 2^up 2^x for x up to about 0; below -80, where nothing of it is left beside a largest weight of 1, that of
// -80. Accurate as exp() is; of 2^x the coefficients are those of exp, times powers of ln 2.
template <bool exp2, u32 up>
DEVICE f32 weight(f32 x) {
    constexpr f32 magic = 12582912.0f;
    const f32 c = -80.0f > x ? -80.0f : x;
    f32 r, p;
    u32 n;
    if constexpr (exp2) {
        const f32 shifted = c + magic;
        n = f32_bits(shifted) - f32_bits(magic);
        r = c - (shifted - magic);
        p = fma(0x1.414ee8p-13f, r, 0x1.5f03ecp-10f);
        p = fma(p, r, 0x1.3b2e0cp-7f);
        p = fma(p, r, 0x1.c6af8ap-5f);
        p = fma(p, r, 0x1.ebfbdcp-3f);
        p = fma(p, r, 0x1.62e430p-1f);
        p = fma(p, r, 1.0f);
    } else {
        const f32 shifted = fma(c, 0x1.715476p+0f, magic), whole = shifted - magic;
        n = f32_bits(shifted) - f32_bits(magic);
        r = fma(-whole, 0x1.62e430p-1f, c);
        r = fma(-whole, -0x1.05c610p-29f, r);
        p = fma(0x1.6a2466p-10f, r, 0x1.1239e2p-7f);
        p = fma(p, r, 0x1.5558f2p-5f);
        p = fma(p, r, 0x1.555492p-3f);
        p = fma(p, r, 0x1.fffffcp-2f);
        p = fma(p, r, 1.0f);
        p = fma(p, r, 1.0f);
    }
    return p * as_f32((n + 127u + up) << 23);
}

// To bf16's eight bits, nearest, ties to even. NaN stays NaN.
DEVICE f32 to_bf16(f32 x) {
    const u32 b = f32_bits(x);
    return as_f32(is_nan_or_inf(x) ? b : (b + 0x7fffu + (b >> 16 & 1u)) & 0xffff0000u);
}

template <u32 D, Weights how, bool exp2>
struct Flash {
    static constexpr u32 kWaves = mma_waves(D, kSmall), kRows = 16 * kWaves, kThreads = kWaves * kWave;
    static constexpr u32 kStride = mma_stride(D), kSteps = D / 16;
    static constexpr u32 kUp = 15;
    static constexpr f32 kLog2e = 0x1.715476p+0f;

    const AttentionArgs &a;
    std::byte *q_hi = shared(), *q_lo = q_hi + kRows * kStride, *k = q_lo + kRows * kStride, *v = k + kKeys * kStride;
    std::byte *scratch = v + kKeys * kStride + wave() * 512;
    const u32 group = a.heads / a.kv_heads, kv_head = block_x(), run = kRows / group;  // run: tokens of a block
    const u32 n_tokens = tokens(a.step);
    // Late tokens, who see most, come first.
    const u32 first_token = ((n_tokens + run - 1) / run - 1 - block_y()) * run;

    // What is known of a row lies in the 16 bytes between its q and the next.
    struct About {
        u32 position, sequence;  // kNoSequence: the row is none
        f32 down;                // 2^-e
        u32 unused;
    };
    DEVICE About &about(u32 row) const { return *reinterpret_cast<About *>(q_hi + row * kStride + 2 * D); }

    struct Sums {
        f32 m[mx::kLaneRows], l[mx::kLaneRows];
        f32 o[kSteps][mx::kElements];
    };
    // What the lane's rows see of the sequence at hand; `at_all` any of the wave's rows, `by_all` all of them.
    struct Sight {
        Visible of[mx::kLaneRows], at_all, by_all;
        f32 factor[mx::kLaneRows];  // makes exponents of sums
    };

    DEVICE u64 head_at(u32 row) const {
        return (u64{first_token + row / group} * a.heads + kv_head * group + row % group) * a.head_dim;
    }
    DEVICE bool is_row(u32 row) const { return row / group < run && first_token + row / group < n_tokens; }

    // ---- Queries: 16 rows of each wave, eight on their way at a time.

    DEVICE void load_queries() const {
        constexpr u32 kParts = (D + 4 * kWave - 1) / (4 * kWave), kTogether = 8;
        for (u32 first = wave() * 16; first < wave() * 16 + 16; first += kTogether) {
            f32 x[kTogether][kParts][4];
#pragma unroll
            for (u32 i = 0; i < kTogether; i++)
#pragma unroll
                for (u32 part = 0; part < kParts; part++) {
                    const u32 d = (part * kWave + lane()) * 4;
                    f32x4 y{0, 0, 0, 0};
                    if (d < a.head_dim && is_row(first + i))
                        y = load(reinterpret_cast<const f32x4 *>(a.q + head_at(first + i) + d));
                    x[i][part][0] = y.x, x[i][part][1] = y.y, x[i][part][2] = y.z, x[i][part][3] = y.w;
                }
#pragma unroll
            for (u32 i = 0; i < kTogether; i++) {
                f32 most = 0;
#pragma unroll
                for (u32 part = 0; part < kParts; part++)
#pragma unroll
                    for (u32 j = 0; j < 4; j++) most = max(most, abs(x[i][part][j]));
                most = simt::max_lanes(most, kWave);
                // Exponent of `most` to 14; of 0 and of subnormal numbers, as far as f32 goes.
                const u32 e = max(f32_bits(most) >> 23, 15u);
                const f32 up = as_f32((268u - e) << 23), down = as_f32((e - 14u) << 23);
                const u32 row = first + i;
                if (lane() == 0) about(row).down = down;
#pragma unroll
                for (u32 part = 0; part < kParts; part++) {
                    const u32 d = (part * kWave + lane()) * 4;
                    u32 hi[4], lo[4];
#pragma unroll
                    for (u32 j = 0; j < 4; j++) {
                        const f32 scaled = x[i][part][j] * up;
                        hi[j] = f32_f16(scaled);
                        lo[j] = f32_f16(scaled - f16_f32(hi[j]));
                    }
                    if (d >= D) continue;
                    *reinterpret_cast<u32x2 *>(q_hi + row * kStride + 2 * d) = {hi[0] | hi[1] << 16, hi[2] | hi[3] << 16};
                    *reinterpret_cast<u32x2 *>(q_lo + row * kStride + 2 * d) = {lo[0] | lo[1] << 16, lo[2] | lo[3] << 16};
                }
            }
        }
        for (u32 row = thread(); row < kRows; row += kThreads) {
            const u32 token = first_token + row / group;
            about(row).position = is_row(row) ? position_of(a.step, token) : 0;
            about(row).sequence = is_row(row) ? sequence_of(a.step, token) : kNoSequence;
        }
    }

    // Columns that heads do not fill, once: copies leave them.
    DEVICE void clear_columns() const {
        const u32 from = a.head_dim / 8, n = D / 8 - from;
        for (u32 i = thread(); i < 2 * kKeys * n; i += kThreads)
            *reinterpret_cast<u32x4 *>(k + i / n * kStride + (from + i % n) * 16) = u32x4{0, 0, 0, 0};
    }

    // ---- Sequences of the block

    DEVICE u32 next_sequence(u32 least) const {
        u32 next = kNoSequence;
        for (u32 row = lane(); row < kRows; row += kWave)
            if (about(row).sequence >= least) next = min(next, about(row).sequence);
        return min_lanes(next);
    }
    // Positions that any row of the block sees of a sequence.
    DEVICE Visible seen_of(u32 sequence) const {
        Visible all{~0u, 0};
        for (u32 row = lane(); row < kRows; row += kWave) {
            if (about(row).sequence != sequence) continue;
            const Visible one = visible(about(row).position, a.window);
            all = {min(all.first, one.first), max(all.last, one.last)};
        }
        return {min_lanes(all.first), max_lanes(all.last)};
    }
    DEVICE Sight look(u32 sequence) const {
        Sight s;
        s.at_all = {~0u, 0}, s.by_all = {0, ~0u};
#pragma unroll
        for (u32 r = 0; r < mx::kLaneRows; r++) {
            const About &row = about(wave() * 16 + mx::row_of(lane(), r));
            s.of[r] = {0, row.sequence == kNoSequence ? ~0u : 0};  // a row that is none may as well see everything
            if (row.sequence == sequence) {
                s.of[r] = visible(row.position, a.window);
                s.at_all = {min(s.at_all.first, s.of[r].first), max(s.at_all.last, s.of[r].last)};
            }
            s.by_all = {max(s.by_all.first, s.of[r].first), min(s.by_all.last, s.of[r].last)};
            const f32 scale = a.softcap > 0 ? 1.0f : a.scale * row.down;
            s.factor[r] = exp2 ? scale * kLog2e : scale;
        }
        s.at_all = {min_lanes(s.at_all.first), max_lanes(s.at_all.last)};
        s.by_all = {max_lanes(s.by_all.first), min_lanes(s.by_all.last)};
        return s;
    }

    // ---- A tile

    // Keys or values from `base` on, 0 where no row of the block sees them.
    DEVICE void fetch(std::byte *to, const std::byte *from, u32 page, u32 base, Visible seen) const {
        const u64 stride = Kv<KvType::f16>::bytes(a.kv_heads * a.head_dim);
        from += u64{page} * kKeys * stride + kv_head * Kv<KvType::f16>::bytes(a.head_dim);
        constexpr u32 kChunks = D / 8;
        for (u32 i = thread(); i < kKeys * kChunks; i += kThreads) {
            const u32 j = i / kChunks, c = i % kChunks;
            if (c * 8 >= a.head_dim) continue;
            std::byte *at = to + j * kStride + c * 16;
            if (base + j >= seen.first && base + j < seen.last)
                copy_async16(at, from + j * stride + c * 16);
            else
                *reinterpret_cast<u32x4 *>(at) = u32x4{0, 0, 0, 0};
        }
    }

    DEVICE void scores(f32 (&s)[4][mx::kElements]) const {
#pragma unroll
        for (u32 c = 0; c < 4; c++)
#pragma unroll
            for (u32 e = 0; e < mx::kElements; e++) s[c][e] = 0;
        const std::byte *hi = q_hi + wave() * 16 * kStride, *lo = q_lo + wave() * 16 * kStride;
#pragma unroll
        for (u32 step = 0; step < kSteps; step++) {
            const mx::Rows x = mx::load_rows(hi + 32 * step, kStride), y = mx::load_rows(lo + 32 * step, kStride);
#pragma unroll
            for (u32 c = 0; c < 4; c++) {
                const mx::Columns keys = mx::load_columns(k + 16 * c * kStride + 32 * step, kStride);
                mx::add_f16(s[c], x, keys);
                mx::add_f16(s[c], y, keys);
            }
        }
    }

    // Scores become weights; sums move on.
    DEVICE void softmax(f32 (&s)[4][mx::kElements], const Sight &sight, u32 base, Sums &sums) const {
        const bool all = base >= sight.by_all.first && base + kKeys <= sight.by_all.last;
#pragma unroll
        for (u32 r = 0; r < mx::kLaneRows; r++) {
            if (a.softcap > 0) {
                const f32 down = about(wave() * 16 + mx::row_of(lane(), r)).down;
#pragma unroll
                for (u32 c = 0; c < 4; c++)
#pragma unroll
                    for (u32 e = 0; e < mx::kLaneColumns; e++) {
                        f32 &x = s[c][r * mx::kLaneColumns + e];
                        x = capped(x * down, a.scale, a.softcap);
                    }
            }
            if (!all)
#pragma unroll
                for (u32 c = 0; c < 4; c++)
#pragma unroll
                    for (u32 e = 0; e < mx::kLaneColumns; e++) {
                        const u32 j = base + 16 * c + mx::column_of(lane(), e);
                        if (j < sight.of[r].first || j >= sight.of[r].last)
                            s[c][r * mx::kLaneColumns + e] = kMinusInfinity;
                    }
            f32 top = kMinusInfinity;
#pragma unroll
            for (u32 c = 0; c < 4; c++)
#pragma unroll
                for (u32 e = 0; e < mx::kLaneColumns; e++) top = max(top, s[c][r * mx::kLaneColumns + e]);
            top = simt::max_lanes(top, kRowLanes) * sight.factor[r];
            const f32 m = sums.m[r] > top ? sums.m[r] : top;
            const f32 below = m == kMinusInfinity ? 0.0f : m;  // of a row that has seen nothing yet
            const f32 keep = weight<exp2, 0>(sums.m[r] - below);
            f32 sum = 0;
#pragma unroll
            for (u32 c = 0; c < 4; c++)
#pragma unroll
                for (u32 e = 0; e < mx::kLaneColumns; e++) {
                    f32 &x = s[c][r * mx::kLaneColumns + e];
                    const f32 p = weight<exp2, kUp>(fma(x, sight.factor[r], -below));
                    x = x == kMinusInfinity ? 0.0f : p;
                    sum = sum + x;
                }
            sums.m[r] = m, sums.l[r] = fma(sums.l[r], keep, sum);
#pragma unroll
            for (u32 step = 0; step < kSteps; step++)
#pragma unroll
                for (u32 e = 0; e < mx::kLaneColumns; e++)
                    sums.o[step][r * mx::kLaneColumns + e] = sums.o[step][r * mx::kLaneColumns + e] * keep;
        }
    }

    DEVICE void values(const f32 (&p)[4][mx::kElements], Sums &sums) const {
#pragma unroll
        for (u32 c = 0; c < 4; c++) {
            const mx::Rows hi = mx::rows_of_sums16(
                p[c], scratch, [](f32 x) { return f32_f16(how == Weights::bf16 ? to_bf16(x) : x); });
            mx::Rows lo;
            if constexpr (how == Weights::split)
                lo = mx::rows_of_sums16(p[c], scratch, [](f32 x) { return f32_f16(x - f16_f32(f32_f16(x))); });
#pragma unroll
            for (u32 step = 0; step < kSteps; step++) {
                const mx::Columns x = mx::load_columns_transposed16(v + 16 * c * kStride + 32 * step, kStride);
                mx::add_f16(sums.o[step], hi, x);
                if constexpr (how == Weights::split) mx::add_f16(sums.o[step], lo, x);
            }
        }
    }

    DEVICE void walk(u32 sequence, Sums &sums) const {
        const Visible seen = seen_of(sequence);
        const Sight sight = look(sequence);
        const i32 *pages = pages_of(a.step, sequence);
        const u32 last = (seen.last - 1) / kKeys;
        u32 t = seen.first / kKeys, page = static_cast<u32>(load(pages + t));
        fetch(k, a.k, page, t * kKeys, seen);
        copy_async_commit();
        fetch(v, a.v, page, t * kKeys, seen);
        copy_async_commit();
        for (; t <= last; t++) {
            const u32 base = t * kKeys, next = t < last ? static_cast<u32>(load(pages + t + 1)) : 0;
            const bool active = base < sight.at_all.last && base + kKeys > sight.at_all.first;
            f32 s[4][mx::kElements];
            copy_async_wait<1>();
            sync();
            if (active) scores(s);
            sync();
            if (t < last) fetch(k, a.k, next, base + kKeys, seen);
            copy_async_commit();
            if (active) softmax(s, sight, base, sums);
            copy_async_wait<1>();
            sync();
            if (active) values(s, sums);
            sync();
            if (t < last) fetch(v, a.v, next, base + kKeys, seen);
            copy_async_commit();
        }
        copy_async_wait<0>();
    }

    DEVICE void finish(Sums &sums) const {
#pragma unroll
        for (u32 r = 0; r < mx::kLaneRows; r++) {
            const u32 row = wave() * 16 + mx::row_of(lane(), r);
            f32 sum = sum_lanes(sums.l[r], kRowLanes), keep = 1;
            if (a.sinks != nullptr) {
                const f32 sink = load(a.sinks + kv_head * group + row % group) * (exp2 ? kLog2e : 1.0f);
                const f32 m = sums.m[r] > sink ? sums.m[r] : sink;
                keep = weight<exp2, 0>(sums.m[r] - m);
                sum = fma(sum, keep, weight<exp2, kUp>(sink - m));
            }
            if (!is_row(row)) continue;
            const f32 by = keep * divide(1.0f, sum);
            f32 *to = a.out + head_at(row);
#pragma unroll
            for (u32 step = 0; step < kSteps; step++)
#pragma unroll
                for (u32 e = 0; e < mx::kLaneColumns; e++) {
                    const u32 d = 16 * step + mx::column_of(lane(), e);
                    const f32 x = sums.o[step][r * mx::kLaneColumns + e] * by;
                    if constexpr (mx::kLaneColumns == 4) {
                        if (e % 2 == 0 && d < a.head_dim)
                            store(reinterpret_cast<f32x2 *>(to + d),
                                  f32x2{x, sums.o[step][r * mx::kLaneColumns + e + 1] * by});
                    } else if (d < a.head_dim) {
                        store(to + d, x);
                    }
                }
        }
    }

    DEVICE void all() const {
        load_queries();
        clear_columns();
        Sums sums;
#pragma unroll
        for (u32 r = 0; r < mx::kLaneRows; r++) sums.m[r] = kMinusInfinity, sums.l[r] = 0;
#pragma unroll
        for (u32 step = 0; step < kSteps; step++)
#pragma unroll
            for (u32 e = 0; e < mx::kElements; e++) sums.o[step][e] = 0;
        sync();
        for (u32 s = next_sequence(0); s != kNoSequence; s = next_sequence(s + 1)) walk(s, sums);
        finish(sums);
    }
};

template <u32 D, Weights how, bool exp2>
DEVICE void attention_mma(const AttentionArgs &a) {
    wait_for_previous();
    let_next_start();
    const Flash<D, how, exp2> work{a};
    work.all();
}

#define MMA(name, D, how, exp2)                                                                       \
    KERNEL(attention_mma_##name##_h##D, AttentionArgs, mma_waves(D, kSmall) * kWave, D > 128 ? 1 : D > 64 ? 3 : 4) { \
        attention_mma<D, Weights::how, exp2>(a);                                                      \
    }
#include "backend/simt/kernels/attention_mma.def"

}  // namespace ridge::simt
