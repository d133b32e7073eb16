// Attention of few tokens: the positions of one token and KV head are cut into chunks over blocks, so that all
// processors read. Order::softmax_split.
//
// A block computes up to G heads that share a KV head from one read of its keys and values. Rows of a wave: kWave / L
// positions side by side, L lanes each, eight values of the head a lane; R such loads of keys and R of values are on
// their way at once. The dots of R positions with G heads are summed over L lanes together, each step leaving every
// lane half of them (sum_together), so that in the end a lane has the scores of one head and takes their exponentials.
//
// Which positions a chunk has depends on the token's position and the window alone, and parts are joined ascending: a
// token gives the same bits in every step and on every machine with waves of this size. The block that finishes last of
// a token's KV head joins the parts; a token with one chunk needs none of that.
#include "backend/simt/kernels/attention.cuh"
#include "backend/simt/kernels/quantize.cuh"

namespace ridge::simt {

constexpr u32 kWaves = kSplitThreads / kWave;

// Sums of N numbers over the L lanes of a row. What is left in v, kept<N, L> numbers from first_kept<N, L>() on: a lane
// keeps the upper half of the numbers where its bit is set; when one is left the lanes that differ in lower bits share
// it.
template <u32 N, u32 L>
constexpr u32 kept = N > L ? N / L : 1;
template <u32 N, u32 L>
constexpr u32 sharing = L > N ? L / N : 1;  // lanes with the same numbers
template <u32 N, u32 L>
DEVICE u32 first_kept(u32 lane_in_row) {
    return lane_in_row / sharing<N, L> * kept<N, L>;
}
template <u32 N, u32 L>
DEVICE void sum_together(f32 (&v)[N]) {
    u32 n = N;
#pragma unroll
    for (u32 mask = L / 2; mask > 0; mask /= 2) {
        if (n > 1) {
            n /= 2;
            const bool upper = (lane() & mask) != 0;
#pragma unroll
            for (u32 i = 0; i < N / 2; i++) {
                if (i >= n) break;
                const f32 mine = upper ? v[i + n] : v[i], other = upper ? v[i] : v[i + n];
                v[i] = mine + shuffle_xor(other, mask);
            }
        } else {
            v[0] = v[0] + shuffle_xor(v[0], mask);
        }
    }
}

// Where a chunk lies, and of how many.
struct Chunk {
    u32 first, last, of;  // positions; chunks of the token
};
DEVICE Chunk chunk_of(Visible seen, u32 i) {
    const u32 from = seen.first / kSplitUnit, units = (seen.last - 1) / kSplitUnit + 1 - from;
    // Few units are read sooner by one block than joined.
    const u32 each = units <= kSplitAlone ? kSplitAlone : (units + kSplitChunks - 1) / kSplitChunks;
    const u32 of = (units + each - 1) / each;
    return {max(seen.first, (from + i * each) * kSplitUnit), min(seen.last, (from + (i + 1) * each) * kSplitUnit), of};
}

// The block's shared memory; as split_shared_bytes() counts.
template <u32 G>
struct SplitShared {
    u32 head_dim;
    f32 *base = reinterpret_cast<f32 *>(shared());
    DEVICE f32 *out(u32 wave, u32 g) const { return base + (wave * G + g) * head_dim; }
    DEVICE f32 *top(u32 wave, u32 g) const { return base + kWaves * G * head_dim + (wave * G + g) * 2; }  // and sum
    DEVICE f32 *factor(u32 part, u32 g) const { return base + kWaves * G * (head_dim + 2) + g * kSplitChunks + part; }
    DEVICE f32 *last_factor(u32 g) const { return base + kWaves * G * (head_dim + 2) + G * kSplitChunks + g; }
    DEVICE u32 *is_last() const {
        return reinterpret_cast<u32 *>(base + kWaves * G * (head_dim + 2) + G * (kSplitChunks + 1));
    }
};

template <KvType type, u32 L, u32 G>
struct Split {
    static constexpr u32 R = 4, N = R * G, V = kept<N, L>, S = sharing<N, L>, kRows = kWave / L, kSpan = R * kRows;
    static_assert(V <= R, "a lane has scores of one head");

    const AttentionArgs &a;
    const u32 token, chunk, across;  // across: which of a token's blocks for the same chunk
    const u32 kv_head, first;        // first: of the heads that share it
    // Heads of this block, and the first of them.
    const u32 heads = min(G, a.heads / a.kv_heads - first), first_head = kv_head * (a.heads / a.kv_heads) + first;
    const SplitShared<G> memory{a.head_dim};
    const u32 in_row = lane() % L, row = lane() / L;

    // What a wave gathers: of its lane's head the maximum and the lane's own share of the sum; of all heads eight sums
    // of values for the positions of its row.
    struct Sums {
        f32 m, l;
        f32 o[G][8];
    };

    // Lane of this row that has number n of a sum_together.
    DEVICE u32 holder(u32 n) const { return lane() - in_row + n / V * S; }

    // `base`: the first position of this wave's first span, `at` its slot.
    DEVICE void positions(const Chunk &c, const i32 *pages, u32 base, u64 at, Sums &s) const {
        using Raw = typename Kv<type>::Raw;
        const u64 stride = Kv<type>::bytes(a.kv_heads * a.head_dim), head = kv_head * Kv<type>::bytes(a.head_dim);
        const std::byte *k = a.k + head, *v = a.v + head;
        const bool used = in_row * 8 < a.head_dim;
        const u32 d = used ? in_row * 8 : 0;
        f32 q[G][8];
#pragma unroll
        for (u32 g = 0; g < G; g++) {
            const f32 *from = a.q + (u64{token} * a.heads + first_head + g) * a.head_dim + d;
            const bool there = used && g < heads;
            const f32x4 zero = {0, 0, 0, 0};
            const f32x4 x = there ? load(reinterpret_cast<const f32x4 *>(from)) : zero;
            const f32x4 y = there ? load(reinterpret_cast<const f32x4 *>(from + 4)) : zero;
            q[g][0] = x.x, q[g][1] = x.y, q[g][2] = x.z, q[g][3] = x.w;
            q[g][4] = y.x, q[g][5] = y.y, q[g][6] = y.z, q[g][7] = y.w;
        }
        const f32 scale = a.softcap > 0 ? 1.0f : a.scale;
        constexpr u32 kStep = kWaves * kSpan;
        // Spans are aligned, so each lies in one page.
        for (u64 next; base < c.last; base += kStep, at = next) {
            next = base + kStep < c.last ? slot(pages, base + kStep) : 0;
            Raw keys[R], values[R];
#pragma unroll
            for (u32 r = 0; r < R; r++) {
                const u32 j = r * kRows + row;
                if (used && base + j >= c.first && base + j < c.last) {
                    keys[r] = Kv<type>::load8(k + (at + j) * stride, d);
                    values[r] = Kv<type>::load8(v + (at + j) * stride, d);
                } else {
                    keys[r] = Raw{}, values[r] = Raw{};
                }
            }
            f32 dots[N];
#pragma unroll
            for (u32 r = 0; r < R; r++) {
                f32 x[8];
                Kv<type>::values(keys[r], x);
#pragma unroll
                for (u32 g = 0; g < G; g++) {
                    f32 sum = q[g][0] * x[0];
#pragma unroll
                    for (u32 e = 1; e < 8; e++) sum = fma(q[g][e], x[e], sum);
                    dots[g * R + r] = sum;
                }
            }
            sum_together<N, L>(dots);
            f32 top = kMinusInfinity;
#pragma unroll
            for (u32 i = 0; i < V; i++) {
                const u32 j = base + (first_kept<N, L>(in_row) + i) % R * kRows + row;
                dots[i] = j >= c.first && j < c.last ? capped(dots[i], a.scale, a.softcap) : kMinusInfinity;
                top = max(top, dots[i]);
            }
#pragma unroll
            for (u32 mask = S; mask < S * (R / V); mask *= 2) top = max(top, shuffle_xor(top, mask));
#pragma unroll
            for (u32 mask = L; mask < kWave; mask *= 2) top = max(top, shuffle_xor(top, mask));
            top = top * scale;
            const f32 m = s.m > top ? s.m : top, by = exp(s.m - m);
            s.m = m, s.l = s.l * by;
#pragma unroll
            for (u32 i = 0; i < V; i++) {
                dots[i] = exp(fma(dots[i], scale, -m));
                s.l = s.l + dots[i];
            }
#pragma unroll
            for (u32 g = 0; g < G; g++) {
                const f32 c_g = shuffle(by, holder(g * R));
#pragma unroll
                for (u32 e = 0; e < 8; e++) s.o[g][e] = s.o[g][e] * c_g;
            }
#pragma unroll
            for (u32 r = 0; r < R; r++) {
                f32 x[8];
                Kv<type>::values(values[r], x);
#pragma unroll
                for (u32 g = 0; g < G; g++) {
                    const f32 p = shuffle(dots[(g * R + r) % V], holder(g * R + r));
#pragma unroll
                    for (u32 e = 0; e < 8; e++) s.o[g][e] = fma(p, x[e], s.o[g][e]);
                }
            }
        }
    }

    // The sums of a wave to shared memory.
    DEVICE void leave(Sums &s) const {
#pragma unroll
        for (u32 mask = S; mask < S * (R / V); mask *= 2) s.l = s.l + shuffle_xor(s.l, mask);
#pragma unroll
        for (u32 mask = L; mask < kWave; mask *= 2) s.l = s.l + shuffle_xor(s.l, mask);
        if (row == 0 && in_row % (L / G) == 0) {
            f32 *top = memory.top(wave(), in_row / (L / G));
            top[0] = s.m, top[1] = s.l;
        }
#pragma unroll
        for (u32 g = 0; g < G; g++) {
#pragma unroll
            for (u32 mask = L; mask < kWave; mask *= 2)
#pragma unroll
                for (u32 e = 0; e < 8; e++) s.o[g][e] = s.o[g][e] + shuffle_xor(s.o[g][e], mask);
            if (row == g % kRows && in_row * 8 < a.head_dim) {
                f32x4 *to = reinterpret_cast<f32x4 *>(memory.out(wave(), g) + in_row * 8);
                to[0] = f32x4{s.o[g][0], s.o[g][1], s.o[g][2], s.o[g][3]};
                to[1] = f32x4{s.o[g][4], s.o[g][5], s.o[g][6], s.o[g][7]};
            }
        }
    }

    struct Top {
        f32 m, l;
    };
    // The last factor of a head whose softmax is complete.
    DEVICE void close(Top t, u32 g) const {
        f32 keep = 1;
        if (a.sinks != nullptr) {
            const f32 sink = load(a.sinks + first_head + g), m = t.m > sink ? t.m : sink;
            keep = exp(t.m - m);
            t.l = t.l * keep + exp(sink - m);
        }
        *memory.last_factor(g) = keep * divide(1.0f, t.l);
    }
    // M lanes each have maximum and sum of a part, -inf and 0 where there is none. Leaves the parts' factors in shared
    // memory and gives maximum and sum of all.
    template <u32 M>
    DEVICE Top join(Top part, u32 i, u32 g, bool writes) const {
        const f32 m = max_lanes(part.m, M), by = exp(part.m - m);
        if (writes) *memory.factor(i, g) = by;
        return {m, sum_lanes(part.l * by, M)};
    }

    DEVICE f32 *part_at(u32 chunk) const {
        return a.parts + ((u64{token} * a.across + across) * kSplitChunks + chunk) * split_part_floats(G, a.head_dim);
    }

    // body(i, g, there) for the values of all heads: number i of them is of head g. All threads take part; for those
    // that have none `there` is false, and i and g are a value's all the same.
    template <class Body>
    DEVICE void for_values(Body &&body) const {
        const u32 n = heads * a.head_dim;
        for (u32 first_value = 0; first_value < n; first_value += kSplitThreads) {
            const u32 i = min(first_value + thread(), n - 1);
            body(i, i / a.head_dim, first_value + thread() < n);
        }
    }
    // Value i of the block's heads, complete.
    DEVICE void put(u32 i, f32 x, bool there) const {
        const u32 column = first_head * a.head_dim + i, columns = a.heads * a.head_dim;
        if (a.out_read != 0 && there) store(a.out + u64{token} * columns + column, x);
        if (a.q8.codes != nullptr) store_q8(x, q8_row(a.q8, token, columns), column, there);
    }

    DEVICE void run() const {
        const Visible seen = visible(position_of(a.step, token), a.window);
        const u32 sequence = sequence_of(a.step, token);
        const Chunk c = chunk_of(seen, chunk);
        const i32 *pages = pages_of(a.step, sequence);
        const u32 base = c.first / kSpan * kSpan + wave() * kSpan;
        const u64 at = chunk < c.of && base < c.last ? slot(pages, base) : 0;
        wait_for_previous();
        let_next_start();
        if (chunk >= c.of) return;
        Sums s;
        s.m = kMinusInfinity, s.l = 0;
#pragma unroll
        for (u32 g = 0; g < G; g++)
#pragma unroll
            for (u32 e = 0; e < 8; e++) s.o[g][e] = 0;
        positions(c, pages, base, at, s);
        leave(s);
        sync();
        const u32 i = thread() % kWaves, g = thread() / kWaves % G;
        const bool one_of_all = thread() < kWaves * G;
        const Top all = join<kWaves>({memory.top(i, g)[0], memory.top(i, g)[1]}, i, g, one_of_all);
        f32 *mine = part_at(chunk);
        if (one_of_all && i == 0 && g < heads) {
            if (c.of == 1)
                close(all, g);
            else
                store(reinterpret_cast<f32x2 *>(mine) + g, f32x2{all.m, all.l});
        }
        sync();
        for_values([&](u32 n, u32 head, bool there) {
            f32 o = 0;
#pragma unroll
            for (u32 w = 0; w < kWaves; w++) o = fma(memory.out(w, 0)[n], *memory.factor(w, head), o);
            if (c.of == 1)
                put(n, o * *memory.last_factor(head), there);
            else if (there)
                store(mine + 2 * G + n, o);
        });
        if (c.of > 1 && is_last(c.of)) join_chunks(c.of);
    }

    // Whether all other chunks have left their parts.
    DEVICE bool is_last(u32 of) const {
        release_to_barrier();
        sync();
        if (thread() == 0) {
            u32 *counter = a.counters + token * a.across + across;
            const bool last = atomic_add(counter, 1) + 1 == of;
            if (last) store(counter, 0u);
            *memory.is_last() = last;
        }
        sync();
        const bool last = *memory.is_last() != 0;
        if (last) release_to_barrier();
        return last;
    }

    // A row of lanes for each head, a lane for each chunk.
    DEVICE void join_chunks(u32 of) const {
        static_assert(kSplitThreads / kSplitChunks >= G);
        const u32 i = thread() % kSplitChunks, g = thread() / kSplitChunks;
        const bool has_part = i < of && g < heads;
        f32x2 top{kMinusInfinity, 0};
        if (has_part) top = load(reinterpret_cast<const f32x2 *>(part_at(i)) + g);
        const Top all = join<kSplitChunks>({top.x, top.y}, i, g, has_part);
        if (g < heads && i == 0) close(all, g);
        sync();
        const u64 stride = split_part_floats(G, a.head_dim);
        for_values([&](u32 n, u32 head, bool there) {
            const f32 *from = part_at(0) + 2 * G + n;
            f32 o = 0;
            for (u32 first_part = 0; first_part < of; first_part += 8) {
                f32 x[8];
#pragma unroll
                for (u32 j = 0; j < 8; j++) x[j] = first_part + j < of ? load(from + (first_part + j) * stride) : 0.0f;
#pragma unroll
                for (u32 j = 0; j < 8; j++)
                    if (first_part + j < of) o = fma(x[j], *memory.factor(first_part + j, head), o);
            }
            put(n, o * *memory.last_factor(head), there);
        });
    }
};

// A token that one chunk holds leaves the blocks of the others without work: each of the first G takes one head then.
// Its keys and values are few and read from the cache. Of two heads the exponentials and sums are not worth another
// block.
template <KvType type, u32 L, u32 G>
DEVICE void attention_split(const AttentionArgs &a) {
    const u32 group = a.heads / a.kv_heads, ways = (group + G - 1) / G;
    const u32 kv_head = block_y() / ways, first = block_y() % ways * G;
    if constexpr (G > 2) {
        if (chunk_of(visible(position_of(a.step, block_z()), a.window), 0).of == 1) {
            const u32 head = first + block_x();
            const bool there = block_x() < G && head < group;
            const Split<type, L, 1> one{a, block_z(), there ? 0u : 1u, block_y(), kv_head, there ? head : first};
            one.run();
            return;
        }
    }
    const Split<type, L, G> work{a, block_z(), block_x(), block_y(), kv_head, first};
    work.run();
}

#define SPLIT(lanes, heads)                                                                             \
    KERNEL(attention_split_f16_l##lanes##_g##heads, AttentionArgs, kSplitThreads, heads > 4 ? 1 : 2) {  \
        attention_split<KvType::f16, lanes, heads>(a);                                                  \
    }                                                                                                   \
    KERNEL(attention_split_q8_0_l##lanes##_g##heads, AttentionArgs, kSplitThreads, heads > 4 ? 1 : 2) { \
        attention_split<KvType::q8_0, lanes, heads>(a);                                                 \
    }
#include "backend/simt/kernels/attention_split.def"

}  // namespace ridge::simt
