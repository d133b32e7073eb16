// sample: the token that is drawn from a row of logits, in one launch.
//
// Each block finds the k best of its part, in no order, and the last of a row to be done the k best of those. It sorts
// them, each by counting those before it, and draws by the text of op/sampling.h: exponentials one by each thread, sums
// by one thread for each, in order.
//
// A candidate is one number: the logit as an integer in the order of logits, above the complement of its id. So larger
// ones are better, no two are equal, and of equal logits the lower id is better.
#include "backend/simt/kernels/sample.h"
#include "backend/simt/kernels/sums.cuh"

namespace ridge::simt {

static_assert(kSampleThreads == kRowThreads);

// How the token of an output is drawn: Draw in engine/step.h, and where it lies.
struct Draw {
    f32 temperature, top_p, min_p;
    u32 top_k;
    double uniform;
};
DEVICE Draw draw_of(const Step &s, u32 output) {
    const i32 *w = pages_of(s, s.max_sequences) + kWordsOfDraw * u64{output};
    const auto word = [&](u32 i) { return static_cast<u32>(load(w + i)); };
    return {as_f32(word(0)), as_f32(word(1)), as_f32(word(2)), word(3),
            __builtin_bit_cast(double, u64{word(5)} << 32 | word(4))};
}

constexpr u64 kAbsent = 0;
constexpr u32 kBad = ~0u;  // the key of a NaN or +infinity, better than all others

DEVICE u32 key_of(u64 candidate) { return static_cast<u32>(candidate >> 32); }
DEVICE u64 candidate_of(f32 v, u32 id) {
    constexpr f32 infinity = __builtin_inff();
    if (v == -infinity) return kAbsent;
    const u32 bits = v == 0 ? 0 : f32_bits(v);  // both zeros are equal
    const u32 key = v < infinity ? bits ^ (bits >> 31 != 0 ? ~0u : 1u << 31) : kBad;
    return u64{key} << 32 | ~id;
}
DEVICE double logit_of(u64 candidate) {
    const u32 key = key_of(candidate);
    return static_cast<double>(as_f32(key >> 31 != 0 ? key ^ 1u << 31 : ~key));
}

// A thread holds kSampleHeld candidates and one of the best so far.
constexpr u32 kHeld = kSampleHeld + 1;

// Sums over the block. Calls take turns at two scratch places, so that one barrier does.
DEVICE u32x2 add_block(u32x2 v, u32 turn, SampleShared &s) {
    v.x = static_cast<u32>(sum_lanes(static_cast<i32>(v.x), kRun));
    v.y = static_cast<u32>(sum_lanes(static_cast<i32>(v.y), kRun));
    u32x2 *counts = s.counts[turn % 2];
    if (run_lane() == 0) counts[run()] = v;
    sync();
    u32x2 sum = {};
    for (u32 i = 0; i < kRuns; i++) sum.x += counts[i].x, sum.y += counts[i].y;
    return sum;
}

// The largest `at` that k of the block's numbers number(0 .. kHeld - 1) are not below, and how many are not. It is
// found by two bits at a time from the top, and fewer bits are enough where they tell k apart. 0: fewer than k are not
// 0.
struct Edge {
    u32 at, count;
};
template <class Number>
DEVICE Edge find(u32 k, u32 &turn, SampleShared &s, Number number) {
    Edge e = {};
    for (u32 bits = 32; bits > 0 && e.count != k; bits -= 2) {
        const u32 step = 1u << (bits - 2);
        u32x2 n = {};  // not below at + step, and, in the upper half, at + 2 step; at + 3 step
        for_rounds<kHeld>(0, [&](u32 r) {
            const u32 v = number(r);
            n.x += (v >= e.at + step ? 1 : 0) + (v >= e.at + 2 * step ? 1u << 16 : 0);
            n.y += v >= e.at + 3 * step ? 1 : 0;
        });
        n = add_block(n, turn++, s);
        const u32 counts[3] = {n.x & 0xffffu, n.x >> 16, n.y};
        const u32 at = e.at;
        for_rounds<3>(0, [&](u32 i) {
            if (counts[i] >= k) e = {at + (i + 1) * step, counts[i]};
        });
    }
    return e;
}

// Leaves in s.best the k best of what take(round, held) puts into held[0 .. kSampleHeld - 1] of all threads in all
// rounds, in no order, and kAbsent where there are fewer.
template <class Take>
DEVICE void select(u32 k, u32 rounds, u32 &turn, SampleShared &s, Take take) {
    u64 held[kHeld];
    for (u32 round = 0; round < rounds; round++) {
        take(round, held);
        held[kSampleHeld] = round > 0 && thread() < k ? s.best[thread()] : kAbsent;
        const Edge key = find(k, turn, s, [&](u32 r) { return key_of(held[r]); });
        u64 edge = u64{key.at} << 32;
        if (key.count > k) {  // of those with this key only some
            u32x2 better = {};
            for_rounds<kHeld>(0, [&](u32 r) { better.x += key_of(held[r]) > key.at ? 1 : 0; });
            better = add_block(better, turn++, s);
            edge |= find(k - better.x, turn, s, [&](u32 r) {
                        return key_of(held[r]) == key.at ? static_cast<u32>(held[r]) : 0;
                    }).at;
        }
        u32 count = 0;
        for_rounds<kHeld>(0, [&](u32 r) { count += held[r] != kAbsent && held[r] >= edge ? 1 : 0; });
        u32 end = count;  // of this thread's places in its run
        for (u32 by = 1; by < kRun; by *= 2) {
            const u32 before = shuffle(end, run_lane() >= by ? lane() - by : lane());
            if (run_lane() >= by) end += before;
        }
        if (run_lane() == kRun - 1) s.starts[run()] = end;
        sync();
        u32 place = end - count, all = 0;
        for (u32 i = 0; i < kRuns; i++) {
            if (i < run()) place += s.starts[i];
            all += s.starts[i];
        }
        for_rounds<kHeld>(0, [&](u32 r) {
            if (held[r] != kAbsent && held[r] >= edge) s.best[place++] = held[r];
        });
        if (thread() >= all && thread() < k) s.best[thread()] = kAbsent;
        sync();
    }
}

KERNEL(sample, SampleArgs, kRowThreads, 1) {
    let_next_start();
    wait_for_previous();
    SampleShared &s = *reinterpret_cast<SampleShared *>(shared());
    const u32 row = a.first + block_x();
    const Draw draw = draw_of(a.step, row);
    const u32 k = draw.temperature > 0 ? min(max(draw.top_k, 1u), kMostPlaces) : 1;
    const f32 *x = a.x + u64{row} * a.n;
    const bool aligned = a.n % 4 == 0;
    u32 turn = 0;
    select(k, a.rounds, turn, s, [&](u32 round, u64 *held) {
        const u32 first = (round * a.blocks + block_y()) * (kSampleHeld / 4) * kRowThreads + thread();
        for_rounds<kSampleHeld / 4>(0, [&](u32 r) {
            const u32 q = first + r * kRowThreads;
            const f32x4 v = load_quad(x, q, a.n, aligned, -__builtin_inff());
            held[4 * r] = candidate_of(v.x, 4 * q), held[4 * r + 1] = candidate_of(v.y, 4 * q + 1);
            held[4 * r + 2] = candidate_of(v.z, 4 * q + 2), held[4 * r + 3] = candidate_of(v.w, 4 * q + 3);
        });
    });

    u64 *parts = a.parts + u64{row} * a.blocks * kMostPlaces;  // k of each block, side by side
    if (thread() < k) store(parts + block_y() * k + thread(), s.best[thread()]);
    fence();
    sync();
    if (thread() == 0) s.is_last = atomic_add(a.counters + block_x(), 1) == a.blocks - 1 ? 1 : 0;
    sync();
    if (s.is_last == 0) return;
    fence();
    const u32 among = a.blocks * k, at_once = kSampleHeld * kRowThreads;
    select(k, (among + at_once - 1) / at_once, turn, s, [&](u32 round, u64 *held) {
        for_rounds<kSampleHeld>(0, [&](u32 r) {
            const u32 i = (round * kSampleHeld + r) * kRowThreads + thread();
            held[r] = i < among ? load(parts + i) : kAbsent;
        });
    });

    const u64 mine = thread() < k ? s.best[thread()] : kAbsent;
    u32 n = 0, before = 0;
    for (u32 i = 0; i < k; i++) {
        n += s.best[i] != kAbsent ? 1 : 0;
        before += s.best[i] > mine ? 1 : 0;
    }
    if (mine != kAbsent) s.sorted[before] = mine;
    sync();
    u32 place = 0;
    if (n > 1) {
        if (thread() < n) {
            const double below = logit_of(s.sorted[thread()]) - logit_of(s.sorted[0]);
            s.cut[thread()] = sampling::exp(below);
            s.weight[thread()] = sampling::exp(below / static_cast<double>(draw.temperature));
        }
        sync();
        if (run_lane() == 0 && run() < 2)
            sampling::add_up(run() == 0 ? s.cut : s.weight, run() == 0 ? s.cut_sum : s.weight_sum, n);
        sync();
        const u32 kept = sampling::kept(s.cut, s.cut_sum, n, draw.top_p, draw.min_p);
        place = sampling::drawn(s.weight_sum, kept, draw.uniform);
    }
    if (thread() != 0) return;
    const bool none = n == 0 || key_of(s.sorted[0]) == kBad;
    store(a.out + row, none ? -1 : static_cast<i32>(~static_cast<u32>(s.sorted[place])));
    store(a.counters + block_x(), 0u);
}

}  // namespace ridge::simt
