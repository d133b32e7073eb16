// Paged attention with an online softmax; Order::softmax_blocks64 (op/order.h) says what is computed, step by step.
//
// Every (token, head) takes exactly those steps, whichever tile it is in and whatever shares the tile, so the bits do
// not depend on how a step is cut, batched or spread over workers.
//
// A row below is one head of one token. A tile is a run of tokens and a KV head (few rows: several KV heads), so that a
// block of keys and values is read once for all of its rows. Where that makes few tiles, a tile is one segment of it:
// it leaves its sums in memory that all workers share, and whoever finishes the last segment joins them.
//
// On Zen 5, whose f32 peak is 135 GMAC/s a core: a prompt of 512 tokens runs at 60% (heads of 64) to 68% (of 128) of
// it, 66% to 77% deep in a context; one token with 8192 behind it reads KV at 27 GB/s for up to four heads a KV head,
// above that products bind.
#pragma once

#include "backend/cpu/attention_block.h"

namespace ridge::cpu {
inline namespace RIDGE_ISA {

static_assert(kAttentionBlock == kPageTokens, "a block lies in one page");
constexpr uint32_t kSegment = 8 * kAttentionBlock;  // positions

// Up to so many rows of a KV head read keys and values as the state has them. More pay for an f32 copy, keys
// transposed: about 2500 cycles for a block of a head of 128. The products are then a fifth faster; but from memory, 32
// rows take 1.2 times as long, since only few rows share a tile with other KV heads.
constexpr uint32_t kFewRows = 32;

struct AttentionTile {
    static constexpr uint32_t kMostHeadDim = 512, kMostGroup = 128;
    // Rows of a tile, fewer of wide heads. The copy is a fiftieth of the work of 256 rows, whose q, sums and scores are
    // half a MiB for heads of 128, half of the second cache.
    static constexpr uint32_t kMostRows = 256, kMostFloats = kMostGroup * kMostHeadDim;
    // Runs are not cut shorter than this for the sake of more tiles: the copy is a sixth of its work.
    static constexpr uint32_t kRunRows = 32;
    // Tiles for each worker, so that none waits long for another. Of few rows fewer: such tiles are alike, and with
    // more KV heads in one memory is read faster (see Pieces).
    static constexpr uint32_t kTilesEach = 4, kFewTilesEach = 2;
    static constexpr size_t kMostShared = size_t{32} << 20;

    struct Scratch {
        alignas(64) float k[kAttentionBlock * kMostHeadDim], v[kAttentionBlock * kMostHeadDim];
        float q[kMostFloats];
        float total[kMostFloats + 2 * kLanes * kMostRows], part[kMostFloats + 2 * kLanes * kMostRows];
        float scores[kMostRows * kAttentionBlock];
        float keep[kMostRows + kLanes], keep_part[kMostRows + kLanes];
        Seen seen[kMostRows];
    };

    static std::string_view refuses(const Program &program, const Op &op) {
        const auto &a = *std::get_if<Attention>(&op);
        const DType k = program.state(a.k_state).type, v = program.state(a.v_state).type;
        if (k != v || !is_kv_type(k)) return "k and v are not both f16, both f32 or both q8_0";
        if (k == DType::q8_0 && a.head_dim % 32 != 0) return "head_dim is not a multiple of 32, which q8_0 needs";
        if (!(a.scale > 0)) return "scale is not positive";
        if (a.heads / a.kv_heads > kMostGroup) return "more than 128 heads share a KV head";
        return a.head_dim > kMostHeadDim ? "head_dim is above 512" : "";
    }

    // First position that a token at `position` sees.
    static uint32_t start(const Attention &op, uint32_t position) {
        return op.window > 0 && position >= op.window ? position + 1 - op.window : 0;
    }
    static uint32_t dim(const Attention &op) { return (op.head_dim + kLanes - 1) / kLanes * kLanes; }
    // Floats that a row carries through a segment: `out`, `sum` by lanes, and `max` with room to spare.
    static size_t row_floats(const Attention &op) { return dim(op) + 2 * size_t{kLanes}; }

    // What the workers share: a counter for each run and KV head, then rows.
    static constexpr size_t kCounters = Tile::kSharedZero / sizeof(uint32_t);
    static size_t shared_bytes(const Program &, const Op &any, const StepLimits &limits) {
        const auto &op = *std::get_if<Attention>(&any);
        const size_t segments = (size_t{limits.pages} * kPageTokens + kSegment - 1) / kSegment;
        if (segments <= 1) return 0;
        const size_t rows = limits.tokens * segments * op.heads * row_floats(op) * sizeof(float);
        return Tile::kSharedZero + (rows < kMostShared ? rows : kMostShared);
    }

    // Few rows read keys and values in pieces of so many positions: in smaller ones sums would be loaded and stored too
    // often, and larger ones of eight heads of 128 do not fit into the nearest cache, 4 KiB each.
    static constexpr uint32_t kPiece = 16;
    // Bytes of a head's row of keys or values.
    static uint32_t head_bytes(DType type, uint32_t n) {
        return static_cast<uint32_t>(type == DType::f32    ? Kv<DType::f32>::bytes(n)
                                     : type == DType::q8_0 ? Kv<DType::q8_0>::bytes(n)
                                                           : Kv<DType::f16>::bytes(n));
    }

    // ---- Tiles

    // Consecutive tokens of one sequence, at consecutive positions, that see `segments` from `segment` on.
    struct Run {
        uint32_t first, last;
        uint32_t segment, segments;
    };
    // body(run) for all runs of a step of at most `most` tokens; it ends the walk by returning true.
    template <class Body>
    static void for_runs(const LaunchView &view, uint32_t most, Body &&body) {
        const auto &op = op_of<Attention>(view);
        const uint32_t tokens = view.step.tokens();
        const int32_t *sequence = view.step.sequence(), *position = view.step.position();
        for (uint32_t i = 0, j; i < tokens; i = j) {
            for (j = i + 1; j < tokens && j - i < most; j++)
                if (sequence[j] != sequence[i] || position[j] != position[j - 1] + 1) break;
            const uint32_t segment = start(op, static_cast<uint32_t>(position[i])) / kSegment;
            if (body(Run{i, j, segment, static_cast<uint32_t>(position[j - 1]) / kSegment - segment + 1})) return;
        }
    }

    struct Cut {
        uint32_t most = 1;             // tokens of a run
        uint32_t runs = 0, parts = 0;  // parts: segments of all runs
        uint32_t heads = 1;            // KV heads of a tile
        bool split = false;            // a tile is one segment
    };
    static Cut cut(const LaunchView &view) {
        const auto &op = op_of<Attention>(view);
        const uint32_t group = op.heads / op.kv_heads, want = kTilesEach * view.workers;
        const auto in_rows = [&](uint32_t rows) { return rows > group ? rows / group : 1; };
        const uint32_t most_rows = kMostRows < kMostFloats / dim(op) ? kMostRows : kMostFloats / dim(op);
        Cut c;
        if (view.step.tokens() == 0) return c;
        size_t rows = 0;
        uint32_t longest = 0;
        const auto count = [&](size_t tiles) {
            c = {};
            c.most = static_cast<uint32_t>(tiles / want < in_rows(most_rows) ? tiles / want : in_rows(most_rows));
            c.most = c.most > in_rows(kRunRows) ? c.most : in_rows(kRunRows);
            rows = 0;
            for_runs(view, c.most, [&](const Run &r) {
                c.runs++, c.parts += r.segments, rows += size_t{r.last - r.first} * r.segments;
                longest = r.last - r.first > longest ? r.last - r.first : longest;
                return false;
            });
        };
        // Tiles of one token each, first with a tile for every 512 positions that the last token has.
        const size_t tiles = size_t{view.step.tokens()} * op.kv_heads;
        const auto last = static_cast<uint32_t>(view.step.position()[view.step.tokens() - 1]);
        count(tiles * (view.shared == nullptr ? 1 : 1 + (last - start(op, last)) / kSegment));
        const bool few = longest * group <= kFewRows && op.head_dim % kLanes == 0;
        c.split = view.shared != nullptr && c.parts > c.runs && (few || size_t{c.runs} * op.kv_heads < want) &&
                  size_t{c.runs} * op.kv_heads <= kCounters &&
                  Tile::kSharedZero + rows * op.heads * row_floats(op) * sizeof(float) <=
                      shared_bytes(view.program, view.op, view.step.limits);
        if (!c.split) count(tiles);
        // A piece of all heads of a tile is for the nearest cache.
        const uint32_t bytes = head_bytes(view.program.state(op.k_state).type, op.head_dim);
        for (uint32_t h = 2; few && h <= op.kv_heads; h++)
            if (op.kv_heads % h == 0 &&
                size_t{c.split ? c.parts : c.runs} * op.kv_heads >= size_t{h} * kFewTilesEach * view.workers &&
                h * bytes * kPiece <= 32768 && h * longest * group <= most_rows)
                c.heads = h;
        return c;
    }
    static uint32_t count(const LaunchView &view) {
        const Cut c = cut(view);
        return (c.split ? c.parts : c.runs) * (op_of<Attention>(view).kv_heads / c.heads);
    }

    // Tiles of the same positions follow each other: workers share the pages of a sequence. Late tokens, who see most,
    // come first.
    static void run(const LaunchView &view, uint32_t tile, std::byte *scratch) {
        const auto &op = op_of<Attention>(view);
        const Cut c = cut(view);
        const uint32_t across = op.kv_heads / c.heads;
        uint32_t at = tile / across, index = 0;  // `at` counts down to the tile's run, then is its segment
        if (!c.split) at = c.runs - 1 - at;
        size_t rows = 0;  // of all heads, of the runs before it
        for_runs(view, c.most, [&](const Run &r) {
            const uint32_t parts = c.split ? r.segments : 1;
            if (at >= parts) {
                at -= parts, index++, rows += size_t{r.last - r.first} * r.segments * op.heads;
                return false;
            }
            const Work work{view, op, r, tile % across * c.heads, c.heads, *reinterpret_cast<Scratch *>(scratch)};
            work.copy_queries();
            if (c.split && r.segments > 1)
                work.one_segment(at, index, rows);
            else
                work.all_segments();
            return true;
        });
    }

    // ---- A run and its KV heads

    struct Work {
        const LaunchView &view;
        const Attention &op;
        const Run run;
        const uint32_t kv_head, heads;
        Scratch &scratch;

        const uint32_t group = op.heads / op.kv_heads, n = dim(op);
        const uint32_t head_rows = (run.last - run.first) * group, rows = head_rows * heads;  // by KV head, token, head
        const uint32_t at = static_cast<uint32_t>(view.step.position()[run.first]);  // position of the first token

        uint32_t position(uint32_t row) const { return at + row % head_rows / group; }
        uint32_t head(uint32_t row) const { return (kv_head + row / head_rows) * group + row % group; }
        // Where the row's head lies in q and out.
        size_t place(uint32_t row) const {
            const size_t token = run.first + row % head_rows / group;
            return (token * op.heads + head(row)) * op.head_dim;
        }
        SoftmaxRows rows_at(float *x) const { return {x + size_t{rows} * (n + kLanes), x + size_t{rows} * n, x}; }

        // Rows of q, filled up with zeros to n.
        [[gnu::flatten]] void copy_queries() const {
            for (uint32_t r = 0; r < rows; r++) {
                const float *from = view.ptr<float>(op.q) + place(r);
                float *to = scratch.q + size_t{r} * n;
                uint32_t d = 0;
                const float *later = view.ptr<float>(op.q) + place(r + 24 < rows ? r + 24 : r);
                for (; d + kLanes <= op.head_dim; d += kLanes) {
                    __builtin_prefetch(later + d);
                    store(to + d, load(from + d));
                }
                if (d < n) store(to + d, load_part(from + d, op.head_dim - d, 0.0f));
            }
        }

        void all_segments() const {
            const SoftmaxRows total = rows_at(scratch.total), part = rows_at(scratch.part);
            segment(run.segment, total);
            for (uint32_t s = run.segment + 1; s < run.segment + run.segments; s++) {
                segment(s, part);
                join(s, total, part);
            }
            finish(total);
        }

        // The s-th segment of the run, which is the index-th and has rows_before shared rows before its own.
        void one_segment(uint32_t s, uint32_t index, size_t rows_before) const {
            auto *shared = reinterpret_cast<float *>(view.shared + Tile::kSharedZero);
            const size_t part = size_t{rows} * row_floats(op);
            shared += rows_before * row_floats(op) + kv_head / heads * run.segments * part;
            segment(run.segment + s, rows_at(shared + s * part));
            uint32_t *done = reinterpret_cast<uint32_t *>(view.shared) + index * op.kv_heads + kv_head;
            if (__atomic_fetch_add(done, 1, __ATOMIC_ACQ_REL) + 1 < run.segments) return;
            __atomic_store_n(done, 0, __ATOMIC_RELAXED);
            const SoftmaxRows total = rows_at(shared);
            for (uint32_t i = 1; i < run.segments; i++) join(run.segment + i, total, rows_at(shared + i * part));
            finish(total);
        }

        void segment(uint32_t s, SoftmaxRows to) const {
            for (uint32_t r = 0; r < rows; r++) to.max[r] = -__builtin_inff();
            __builtin_memset(to.out, 0, size_t{rows} * (n + kLanes) * sizeof(float));
            const DType type = view.program.state(op.k_state).type;
            if (type == DType::f32)
                blocks<DType::f32>(s, to);
            else if (type == DType::q8_0)
                blocks<DType::q8_0>(s, to);
            else
                blocks<DType::f16>(s, to);
        }

        template <DType type>
        void blocks(uint32_t s, SoftmaxRows to) const {
            constexpr uint32_t kEach = kSegment / kAttentionBlock;
            const uint32_t first = start(op, at) / kAttentionBlock, last = position(head_rows - 1) / kAttentionBlock;
            const uint32_t end = s * kEach + kEach - 1 < last ? s * kEach + kEach : last + 1;
            const bool few = head_rows <= kFewRows && n == op.head_dim;
            for (uint32_t b = s * kEach < first ? first : s * kEach; b < end; b++) {
                const Seen tokens = visible(b);
                if (few)
                    few_rows<type>(b, b + 1 < end, tokens, to);
                else
                    many_rows<type>(b, b + 1 < end, tokens, to);
            }
        }

        // What the rows see of block b, and which tokens of the run see any of it.
        Seen visible(uint32_t b) const {
            const uint32_t base = b * kAttentionBlock;
            uint32_t first = base > at ? base - at : 0, last = run.last - run.first;
            while (last > first && start(op, at + last - 1) >= base + kAttentionBlock) last--;
            for (uint32_t i = first; i < last; i++) {
                const uint32_t from = start(op, at + i), seen = at + i + 1 - base;
                const Seen s = {from > base ? from - base : 0, seen < kAttentionBlock ? seen : kAttentionBlock};
                for (uint32_t h = 0; h < heads; h++)
                    for (uint32_t g = 0; g < group; g++) scratch.seen[h * head_rows + i * group + g] = s;
            }
            return {first, last};
        }
        // What any of the rows [r, last) of a KV head sees.
        Seen any(uint32_t r, uint32_t last) const { return {scratch.seen[r].first, scratch.seen[last - 1].last}; }

        static Seen both(Seen a, Seen b) {
            return {a.first > b.first ? a.first : b.first, a.last < b.last ? a.last : b.last};
        }

        // Keys or values of block b, of the tile's first KV head.
        template <DType type>
        KvRows<type> page(StateId id, uint32_t b) const {
            const size_t stride = Kv<type>::bytes(size_t{op.kv_heads} * op.head_dim);
            const auto sequence = static_cast<uint32_t>(view.step.sequence()[run.first]);
            return {view.state<std::byte>(id) + view.step.slot(sequence, b * kAttentionBlock) * stride +
                        kv_head * Kv<type>::bytes(op.head_dim),
                    stride};
        }

        void softmax(uint32_t first, uint32_t last, SoftmaxRows to) const {
            softmax_block(scratch.scores, scratch.seen, {op.scale, op.softcap}, first, last, to, scratch.keep);
        }

        template <DType type>
        void many_rows(uint32_t b, bool more, Seen tokens, SoftmaxRows to) const {
            const uint32_t first = tokens.first * group, last = tokens.last * group;
            const Seen all = any(first, last);
            const KvRows<type> v_page = page<type>(op.v_state, b), next = page<type>(op.k_state, more ? b + 1 : b);
            // A tile at row r asks for its share of a page.
            const auto ask = [&](KvRows<type> from, uint32_t r, uint32_t end) {
                const Later later{from.data, from.stride, head_bytes(type, op.head_dim)};
                const auto row = [&](uint32_t x) { return (x - first) * kAttentionBlock / (last - first); };
                for (uint32_t j = row(r); j < row(end); j++) later.ask(j);
            };
            transpose_keys(page<type>(op.k_state, b), op.head_dim, n, all, scratch.k);
            for_row_tiles<kTileRows>(first, last, [&](auto tile, uint32_t r) {
                ask(v_page, r, r + tile());
                score_columns<tile()>(scratch.q + r * n, n, scratch.k, any(r, r + tile()),
                                      scratch.scores + r * kAttentionBlock);
            });
            softmax(first, last, to);
            const auto v = widen(v_page, all);
            for_row_tiles<kTileRows>(first, last, [&](auto tile, uint32_t r) {
                if (more) ask(next, r, r + tile());
                values<tile()>(r, v, all, scratch.keep + r, to, {});
            });
        }

        // Values of a block that lie in `part`, for R rows from r on, whose sums count `keep` times.
        template <uint32_t R, DType type>
        void values(uint32_t r, KvRows<type> v, Seen part, const float *keep, SoftmaxRows to,
                    const Later &later) const {
            const float *p = scratch.scores + r * kAttentionBlock;
            const Seen *all = scratch.seen + r;
            if (all[0].first == all[R - 1].first && all[0].last == all[R - 1].last)
                return add_values<R>(p, v, both(all[0], part), keep, to.out + r * n, n, later);
            Seen seen[R];
            for (uint32_t i = 0; i < R; i++) seen[i] = both(all[i], part);
            add_ragged_values<R>(p, v, seen, keep, to.out + r * n, n);
        }

        // Pieces of a block in the order in which they are read: keys of 16 positions of all heads, then of the next
        // 16, up to the last that is seen; values alike; then the keys of the next block. A head alone has 256 bytes of
        // every 2 KiB (8 heads of 128 in f16), which all fall into 8 of the 64 sets of the nearest cache, so that
        // little can be fetched ahead: 16 GB/s from memory. All heads together are a stretch without gaps: 27 GB/s.
        template <DType type>
        struct Pieces {
            // What memory delivers in half a microsecond, so that it does while exponentials are computed, too.
            static constexpr uint32_t kAhead = 16384;
            KvRows<type> k, v, next;
            Seen seen;
            uint32_t heads, head_bytes;

            const uint32_t from = seen.first / kPiece, half = heads * ((seen.last + kPiece - 1) / kPiece - from);

            KvRows<type> of_head(KvRows<type> x, uint32_t h) const { return {x.data + h * head_bytes, x.stride}; }
            // What is due kAhead bytes after piece i.
            Later later(uint32_t i) const {
                i += (kAhead + kPiece * head_bytes - 1) / (kPiece * head_bytes);
                const bool beyond = i >= 2 * half;
                const uint32_t at = beyond ? (i - 2 * half) / heads : from + i % half / heads;
                if (beyond && (next.data == nullptr || at >= kAttentionBlock / kPiece)) return {};
                const KvRows<type> rows = of_head(beyond ? next : i < half ? k : v, i % half % heads);
                return {rows.data + at * kPiece * rows.stride, rows.stride, head_bytes, kPiece};
            }
            // body(h, part, i) for the pieces of keys or values, i counting from `first`.
            template <class Body>
            void each(uint32_t first, Body &&body) const {
                for (uint32_t i = 0; i < half; i++) {
                    const uint32_t j = (from + i / heads) * kPiece;
                    body(i % heads, both(seen, {j, j + kPiece}), later(first + i));
                }
            }
        };

        template <DType type>
        void few_rows(uint32_t b, bool more, Seen tokens, SoftmaxRows to) const {
            const uint32_t first = tokens.first * group, last = tokens.last * group;
            const Pieces<type> pieces{page<type>(op.k_state, b),
                                      page<type>(op.v_state, b),
                                      more ? page<type>(op.k_state, b + 1) : KvRows<type>{},
                                      any(first, last),
                                      heads,
                                      head_bytes(type, n)};
            pieces.each(0, [&](uint32_t h, Seen part, Later later) {
                for_row_tiles<4>(h * head_rows + first, h * head_rows + last, [&](auto tile, uint32_t r) {
                    score_rows<tile()>(scratch.q + r * n, n, pieces.of_head(pieces.k, h), part,
                                       scratch.scores + r * kAttentionBlock, later);
                    later = {};
                });
            });
            if (last - first == head_rows)
                softmax(0, rows, to);
            else
                for (uint32_t h = 0; h < heads; h++) softmax(h * head_rows + first, h * head_rows + last, to);
            pieces.each(pieces.half, [&](uint32_t h, Seen part, Later later) {
                const bool once = part.first == pieces.seen.first;
                for_row_tiles<4>(h * head_rows + first, h * head_rows + last, [&](auto tile, uint32_t r) {
                    values<tile()>(r, pieces.of_head(pieces.v, h), part, once ? scratch.keep + r : kOnes, to, later);
                    later = {};
                });
            });
        }

        template <DType type>
        [[gnu::flatten]] KvRows<DType::f32> widen(KvRows<type> v, Seen seen) const {
            for (uint32_t j = seen.first; j < seen.last; j++) {
                float *to = scratch.v + j * n;
                uint32_t d = 0;
                for (; d + kLanes <= op.head_dim; d += kLanes) store(to + d, v.load(j, d));
                if (d < n) store(to + d, v.load_part(j, d, op.head_dim - d));
            }
            return {reinterpret_cast<const std::byte *>(scratch.v), n * sizeof(float)};
        }

        // Segment s, which is not the run's first, joins the total of the rows that see it.
        [[gnu::flatten]] void join(uint32_t s, SoftmaxRows total, SoftmaxRows part) const {
            for (uint32_t r = 0; r < rows; r += kLanes) {
                const F32x16 a = load(total.max + r), b = load(part.max + r), top = maximum(a, b);
                store(scratch.keep + r, exp_(a - top));
                store(scratch.keep_part + r, exp_(b - top));
            }
            for (uint32_t r = 0; r < rows; r++) {
                const uint32_t first = start(op, position(r)) / kSegment, last = position(r) / kSegment;
                if (s < first || s > last) continue;
                const bool copy = s == first;  // the first that this row sees
                const F32x16 c = set1(scratch.keep[r]), c2 = set1(scratch.keep_part[r]);
                const auto add = [&](float *to, const float *from) {
                    store(to, copy ? load(from) : fma(load(from), c2, load(to) * c));
                };
                add(total.sum + r * kLanes, part.sum + r * kLanes);
                for (uint32_t d = 0; d < n; d += kLanes) add(total.out + r * n + d, part.out + r * n + d);
                total.max[r] = copy || !(total.max[r] > part.max[r]) ? part.max[r] : total.max[r];
            }
        }

        [[gnu::flatten]] void finish(SoftmaxRows total) const {
            const float *sinks = op.sinks == kNone ? nullptr : weight_f32(view, op.sinks);
            for (uint32_t r = 0; r < rows; r++) {
                float sum = reduce_add(load(total.sum + r * kLanes)), keep = 1;
                if (sinks != nullptr) {
                    const float max = total.max[r], sink = sinks[head(r)], top = max > sink ? max : sink;
                    keep = exp_(max - top);
                    sum = sum * keep + exp_(sink - top);
                }
                const F32x16 by = set1(keep * (1.0f / sum));
                float *out = view.ptr<float>(op.out) + place(r);
                const float *from = total.out + r * n;
                for_lanes(op.head_dim, [&](auto ld, auto st) { st(out, ld(from, 0.0f) * by); });
            }
        }
    };
};

}  // namespace RIDGE_ISA
}  // namespace ridge::cpu
