// Attention of one head of one token by one block, for heads of any size and every type of keys and values.
//
// Order::softmax_blocks64 step by step, so it gives the CPU's bits. It is what the faster kernels are measured against,
// and what takes the shapes that they leave.
#include "backend/simt/kernels/attention.cuh"

namespace ridge::simt {

constexpr u32 kBlock = 64, kSegment = 8 * kBlock, kLanes = 16;

// Maximum, weights (lane thread() % 16 of 16) and sums of values, (head_dim) in shared memory, of a part of the
// softmax.
struct SoftmaxPart {
    f32 m, l;
    f32 *o;
};

template <KvType type>
struct General {
    const AttentionArgs &a;
    const std::byte *k, *v;  // of the KV head
    const i32 *pages;
    Visible seen;
    const f32 *q;  // (head_dim)
    f32 *p;        // (kBlock)

    DEVICE u64 row(u32 position) const { return u64{slot(pages, position)} * Kv<type>::bytes(a.kv_heads * a.head_dim); }

    // 16 lanes take a position.
    DEVICE void scores(u32 base) const {
        const u32 l = thread() % kLanes;
        for (u32 j = thread() / kLanes; j < kBlock; j += kGeneralThreads / kLanes) {
            const bool sees = base + j >= seen.first && base + j < seen.last;
            f32 dot = 0;
            if (sees) {
                const std::byte *key = k + row(base + j);
                for (u32 d = l; d < a.head_dim; d += kLanes) dot = fma(q[d], Kv<type>::value(key, d), dot);
            }
            dot = sum_lanes(dot, kLanes);
            if (l == 0) p[j] = sees ? capped(dot, a.scale, a.softcap) : kMinusInfinity;
        }
        sync();
    }

    DEVICE void block(u32 base, SoftmaxPart &part) const {
        scores(base);
        const f32 scale = a.softcap > 0 ? 1.0f : a.scale;
        const u32 j = thread() % 32;
        const f32 top = max_lanes(max(p[j], p[j + 32]), 32) * scale;
        const f32 m = part.m > top ? part.m : top;
        sync();
        if (thread() < kBlock) p[thread()] = exp(fma(p[thread()], scale, -m));
        const f32 c = exp(part.m - m);
        sync();
        f32 sum = 0;
        for (u32 i = thread() % kLanes; i < kBlock; i += kLanes) sum = sum + p[i];
        part.l = fma(part.l, c, sum), part.m = m;
        const u32 first = max(base, seen.first), last = min(base + kBlock, seen.last);
        const std::byte *values = v + row(base);
        const u64 stride = Kv<type>::bytes(a.kv_heads * a.head_dim);
        for (u32 d = thread(); d < a.head_dim; d += kGeneralThreads) {
            f32 o = part.o[d] * c;
            for (u32 i = first; i < last; i++)
                o = fma(p[i - base], Kv<type>::value(values + (i - base) * stride, d), o);
            part.o[d] = o;
        }
        sync();
    }

    DEVICE void segment(u32 s, SoftmaxPart &part) const {
        part.m = kMinusInfinity, part.l = 0;
        for (u32 d = thread(); d < a.head_dim; d += kGeneralThreads) part.o[d] = 0;
        const u32 last = min((s + 1) * kSegment, seen.last);
        for (u32 base = max(s * kSegment, seen.first / kBlock * kBlock); base < last; base += kBlock) block(base, part);
    }

    DEVICE void join(SoftmaxPart &total, const SoftmaxPart &part) const {
        const f32 m = total.m > part.m ? total.m : part.m;
        const f32 c = exp(total.m - m), by = exp(part.m - m);
        total.l = fma(part.l, by, total.l * c), total.m = m;
        for (u32 d = thread(); d < a.head_dim; d += kGeneralThreads) total.o[d] = fma(part.o[d], by, total.o[d] * c);
    }
};

template <KvType type>
DEVICE void attention_general(const AttentionArgs &a) {
    f32 *p = reinterpret_cast<f32 *>(shared()), *q = p + kBlock;
    SoftmaxPart total{0, 0, q + a.head_dim}, part{0, 0, total.o + a.head_dim};
    const u32 token = block_x(), head = block_y(), kv_head = head / (a.heads / a.kv_heads);
    const u64 at = (u64{token} * a.heads + head) * a.head_dim, kv_at = kv_head * Kv<type>::bytes(a.head_dim);
    wait_for_previous();
    let_next_start();
    for (u32 d = thread(); d < a.head_dim; d += kGeneralThreads) q[d] = load(a.q + at + d);
    sync();
    const Visible seen = visible(position_of(a.step, token), a.window);
    const i32 *pages = pages_of(a.step, sequence_of(a.step, token));
    const General<type> work{a, a.k + kv_at, a.v + kv_at, pages, seen, q, p};
    const u32 first = seen.first / kSegment, last = (seen.last - 1) / kSegment;
    work.segment(first, total);
    for (u32 s = first + 1; s <= last; s++) {
        work.segment(s, part);
        work.join(total, part);
    }
    f32 sum = sum_lanes(total.l, kLanes), keep = 1;
    if (a.sinks != nullptr) {
        const f32 sink = load(a.sinks + head), top = total.m > sink ? total.m : sink;
        keep = exp(total.m - top);
        sum = sum * keep + exp(sink - top);
    }
    const f32 by = keep * divide(1.0f, sum);
    for (u32 d = thread(); d < a.head_dim; d += kGeneralThreads) store(a.out + at + d, total.o[d] * by);
}

KERNEL(attention_general_f32, AttentionArgs, kGeneralThreads, 4) { attention_general<KvType::f32>(a); }
KERNEL(attention_general_f16, AttentionArgs, kGeneralThreads, 4) { attention_general<KvType::f16>(a); }
KERNEL(attention_general_q8_0, AttentionArgs, kGeneralThreads, 4) { attention_general<KvType::q8_0>(a); }

}  // namespace ridge::simt
