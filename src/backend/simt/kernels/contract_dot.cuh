// int8 dots of one to eight rows of activations with every weight row: the contraction of decode.
//
// A wave takes a unit of two weight rows at a time: neighbours, or of gated units a gate row and its up row. Lane l
// holds the groups l, l + W, .. of 32 weights (W lanes) of both, so the order of a sum is fixed (Order::int8_lanes):
// each lane sums its groups ascending, then the lanes are added in pairs over halves. Two rows share the activations
// that a lane loads and the bookkeeping of a step, which take as many instructions as decoding one row does.
//
// Weight bytes come through a ring in shared memory, a stage for a few units, or where rows are long for a few steps (W
// groups) of one, of which all but one are on their way while that one is read, over the ends of rows: what is in
// flight does not depend on registers, the file's odd alignments cost nothing, and the first stages are on their way
// before the launch in front of this one has ended (weights are never written). Stages are long so that memory is read
// in long pieces.
//
// Shared memory: tables of the format | per wave: stages of two rows of stage_bytes, then their barriers
#pragma once

#define RIDGE_TAB(first, words, i) ::ridge::simt::shared_table((first) + (i))
#include "backend/simt/device.h"
#include "backend/simt/kernels/contract_dot.h"
#include "backend/simt/kernels/glu.cuh"

namespace ridge::simt {

// How the kernels of a file keep tables: RIDGE_TABLE, which it defines first, or those that a launch wants as they are.
#ifdef RIDGE_TABLE
constexpr TableLayout kTable = RIDGE_TABLE;
#else
constexpr TableLayout kTable = kTablesAsTheyAre;
#endif
#if defined(RIDGE_EMULATE)
DEVICE u32 table_word(u32 word) { return dialect::table_words[word]; }
#else
static __attribute__((device)) const u32 all_table_words[TABLE_WORDS] = {
#include "format/tables.def"
};
DEVICE u32 table_word(u32 word) { return all_table_words[word]; }
#endif
// Where this lane reads word `word` of all tables in shared memory.
DEVICE u32 table_at(u32 word) {
    constexpr u32 kEntry = kTable.entry, kCopies = kTable.copies;
    const u32 i = word - kTable.origin;
    if constexpr (kCopies == 1) return 4 * i;
    return i / kEntry * (4 * kEntry * kCopies) + lane() % kCopies * (4 * kEntry) + i % kEntry * 4;
}
DEVICE u32 shared_table(u32 word) { return *reinterpret_cast<const u32 *>(shared() + table_at(word)); }
// Words `word` (even) and the next.
DEVICE u32x2 shared_table2(u32 word) { return *reinterpret_cast<const u32x2 *>(shared() + table_at(word)); }
#define RIDGE_TAB2(first, words, i) ::ridge::simt::shared_table2((first) + (i))
#define TAB2(table, i) RIDGE_TAB2(table, i)

// Words [first, first + words) to shared memory, by all threads of the block.
DEVICE void fill_tables(u32 first, u32 words) {
    constexpr u32 kEntry = kTable.entry, kCopies = kTable.copies, kLine = kEntry * kCopies;
    if constexpr (kCopies == 1) {
        for (u32 i = thread(); i < words; i += kDotThreads)
            *reinterpret_cast<u32 *>(shared() + table_at(first + i)) = table_word(first + i);
    } else {
        static_assert(kCopies == 1 || (kLine % 4 == 0 && kEntry <= 2));
        u32x4 *to = reinterpret_cast<u32x4 *>(shared());  // such a table is alone
        for (u32 i = thread(); i < words * kCopies / 4; i += kDotThreads) {
            const u32 word = first + 4 * i / kLine * kEntry, x = table_word(word);
            const u32 y = kEntry == 2 ? table_word(word + 1) : x;
            to[i] = u32x4{x, y, x, y};
        }
    }
}

}  // namespace ridge::simt

#include "backend/simt/formats.h"
#include "backend/simt/kernels/banks.cuh"
#include "backend/simt/kernels/quantize.cuh"

namespace ridge::simt {

constexpr u32 kDotWaves = kDotThreads / kWave;
constexpr int kStages = 2;  // where copies are not bulk copies; else as many as the host says
constexpr u32 kRows = 2;    // of a unit

// The two rows of a unit: the second one is the first again where a bank has an odd number.
struct DotUnit {
    const std::byte *row[kRows];
    u32 bank[kRows], column[kRows];
};
DEVICE DotUnit unit_at(const ContractDotArgs &a, u32 unit, u32 expert) {
    DotUnit u;
    const u32 b = a.glu != 0 ? 0 : bank_of(a, unit), first = a.glu != 0 ? unit : 2 * (unit - a.bank[b].first);
#pragma unroll
    for (u32 r = 0; r < kRows; r++) {
        u.bank[r] = a.glu != 0 ? r : b;
        const DotBank &bank = a.bank[u.bank[r]];
        u.column[r] = a.glu != 0 ? unit : min(first + r, bank.n - 1);
        u.row[r] = bank.weight + expert * bank.expert_bytes + u64{u.column[r]} * bank.row_bytes;
    }
    return u;
}

// A wave's stages. A stage holds, for each row, a run of bytes from the 16-byte boundary at or before it; where one run
// has the rows of both, it takes the room of both.
struct DotRing {
    u32 at;           // in shared memory
    u32 stage_bytes;  // of one row
    u32 stages;

    DEVICE u32 row(u32 stage, u32 r) const { return at + (stage * kRows + r) * stage_bytes; }
    DEVICE Barrier *barrier(u32 stage) const {
        return reinterpret_cast<Barrier *>(shared() + at + stages * kRows * stage_bytes) + stage;
    }
    DEVICE void begin() const {
        if constexpr (kBulkCopies) {
            if (lane() == 0)
                for (u32 s = 0; s < stages; s++) barrier_init(barrier(s), 1);
            sync_wave();
        }
    }
    // Fetches a run of `bytes[r]` bytes from `from[r]` on to each row of a stage, none where they are 0.
    DEVICE void fetch(const std::byte *const (&from)[kRows], const u32 (&bytes)[kRows], u32 stage) const {
        const std::byte *begin[kRows];
        u32 whole[kRows];
#pragma unroll
        for (u32 r = 0; r < kRows; r++) {
            const u64 address = reinterpret_cast<u64>(from[r]);
            const u32 phase = static_cast<u32>(address & 15);
            begin[r] = reinterpret_cast<const std::byte *>(address - phase);
            whole[r] = bytes[r] == 0 ? 0 : (phase + bytes[r] + 15) & ~15u;
        }
        if constexpr (kBulkCopies) {
            if (lane() != 0) return;
            barrier_arrive(barrier(stage), whole[0] + whole[1]);
#pragma unroll
            for (u32 r = 0; r < kRows; r++)
                if (whole[r] != 0) copy_bulk(shared() + row(stage, r), begin[r], whole[r], barrier(stage));
        } else {
            for (u32 r = 0; r < kRows; r++)
                for (u32 c = 16 * lane(); c < whole[r]; c += 16 * kWave)
                    copy_async16(shared() + row(stage, r) + c, begin[r] + c);
        }
    }
    // Until stage number n of all (of which this is `stage`) has arrived; afterwards the one before it is free.
    DEVICE void wait(u32 stage, u32 parity) const {
        if constexpr (kBulkCopies)
            barrier_wait(barrier(stage), parity);
        else
            copy_async_wait<kStages - 2>();
        sync_wave();
    }
};

// One lane's group of 32 weights, decoded: codes as Fmt has them plus kOffset, scales and biases of its halves.
struct DotGroup {
    u32 codes[8];
    f32 scale[2], bias[2];
};

// Words that begin at even addresses of shared memory: the word that `at` lies in, and by how many bits. What lies
// whole words behind it has the same shift.
struct SharedWords {
    u32 aligned, shift;
    DEVICE explicit SharedWords(u32 at) : aligned(at & ~3u), shift(8 * (at & 3)) {}
    // N words from `bytes`, a multiple of 4, behind it on.
    template <u32 N>
    DEVICE void get(u32 bytes, u32 (&w)[N]) const {
        u32 raw[N + 1];
#pragma unroll
        for (u32 i = 0; i <= N; i++) raw[i] = shared_at<u32>(aligned + bytes + 4 * i);
#pragma unroll
        for (u32 i = 0; i < N; i++) w[i] = funnel_right(raw[i], raw[i + 1], shift);
    }
};
DEVICE void shared_words8(u32 at, u32 (&w)[8]) {  // of an address aligned to 16
    const u32x4 a = shared_at<u32x4>(at), b = shared_at<u32x4>(at + 16);
    w[0] = a.x, w[1] = a.y, w[2] = a.z, w[3] = a.w, w[4] = b.x, w[5] = b.y, w[6] = b.z, w[7] = b.w;
}

// Eight signs of seven stored bits: the eighth is their parity, or (lever sign_parity off) all are looked up.
enum class Signs { parity, table };
struct SignTable {
    u8 of[128];
    constexpr SignTable() : of{} {
        for (u32 v = 0; v < 128; v++) {
            u32 odd = 0;
            for (u32 b = 0; b < 7; b++) odd ^= v >> b & 1;
            of[v] = static_cast<u8>(v | odd << 7);
        }
    }
};
#if defined(RIDGE_EMULATE)
static const SignTable sign_table;
#else
static __attribute__((device)) const SignTable sign_table;
#endif
// The lowest bits of eight bytes: the signs that v, of seven bits, stores. Copies of v at every seventh bit do not
// overlap, and bit 8 k of them is bit k of v.
struct SignBits {
    u32 low, high;
};
template <Signs S>
DEVICE SignBits stored_signs(u32 v) {
    if constexpr (S == Signs::table) {
        const u32 all = sign_table.of[v];
        return {dialect::spread4(all), dialect::spread4(all >> 4)};
    }
    const u64 copies = u64{v} * 0x0002040810204081u;
    return {static_cast<u32>(copies) & 0x01010101u,
            (static_cast<u32>(copies >> 32) | dialect::parity32(v) << 24) & 0x01010101u};
}
// dialect::negate4 by such bits.
DEVICE u32 negate_bytes(u32 w, u32 bits) { return (w ^ (bits * 255u)) + bits; }

// Any format by its functions; specialised below where wider loads or another arithmetic are worth it, to the same
// codes.
template <FormatId F, Signs S>
struct DotDecode {
    static constexpr i32 kOffset = 0;
    static DEVICE void get(u32 block, u32 g32, DotGroup &g) {
#pragma unroll
        for (u32 j = 0; j < 8; j++) g.codes[j] = Fmt<F>::codes4(block, g32, j);
        scales_of<F>(block, g32, g.scale, g.bias);
    }
};

// Blocks of Q4_K and Q5_K are multiples of 16 bytes, so all of them are aligned to that. The header is one load: d,
// dmin | scales, see packed6 in dialect.h.
DEVICE void k_header(u32 block, u32 g32, DotGroup &g) {
    const u32x4 h = shared_at<u32x4>(block);
    const u32 shift = 8 * (g32 & 3), low = h.y >> shift, high = h.z >> shift, both = h.w >> shift;
    const u32 scale = g32 < 4 ? low & 63 : (both & 15) | (low >> 2 & 48);
    const u32 minimum = g32 < 4 ? high & 63 : (both >> 4 & 15) | (high >> 2 & 48);
    g.scale[0] = f16_f32(h.x & 0xffffu) * static_cast<f32>(scale);
    g.bias[0] = -(f16_f32(h.x >> 16) * static_cast<f32>(minimum));
}
template <Signs S>
struct DotDecode<FormatId::Q4_K, S> {
    static constexpr i32 kOffset = 0;
    static DEVICE void get(u32 block, u32 g32, DotGroup &g) {
        k_header(block, g32, g);
        shared_words8(block + 16 + 32 * (g32 >> 1), g.codes);
#pragma unroll
        for (u32 j = 0; j < 8; j++) g.codes[j] = g.codes[j] >> (4 * (g32 & 1)) & 0x0f0f0f0fu;
    }
};
template <Signs S>
struct DotDecode<FormatId::Q5_K, S> {
    static constexpr i32 kOffset = 0;
    static DEVICE void get(u32 block, u32 g32, DotGroup &g) {
        k_header(block, g32, g);
        u32 high[8];
        shared_words8(block + 16, high);
        shared_words8(block + 48 + 32 * (g32 >> 1), g.codes);
#pragma unroll
        for (u32 j = 0; j < 8; j++)
            g.codes[j] = (g.codes[j] >> (4 * (g32 & 1)) & 0x0f0f0f0fu) | (high[j] >> g32 & 0x01010101u) << 4;
    }
};
template <Signs S>
struct DotDecode<FormatId::Q6_K, S> {
    static constexpr i32 kOffset = 32;
    static DEVICE void get(u32 block, u32 g32, DotGroup &g) {
        const u32 half = g32 >> 2, quarter = g32 & 3;
        u32 high[8];
        const SharedWords words(block);
        words.get(64 * half + 32 * (quarter & 1), g.codes);
        words.get(128 + 32 * half, high);
#pragma unroll
        for (u32 j = 0; j < 8; j++)
            g.codes[j] = (g.codes[j] >> (4 * (quarter >> 1)) & 0x0f0f0f0fu) | (high[j] >> (2 * quarter) & 0x03030303u)
                                                                                  << 4;
        const f32 d = f16_f32(shared_at<u16>(block + 208));
        const u32 scales = shared_at<u16>(block + 192 + 2 * g32);
        g.scale[0] = d * static_cast<f32>(static_cast<i8>(scales));
        g.scale[1] = d * static_cast<f32>(static_cast<i8>(scales >> 8));
    }
};
template <Signs S>
struct DotDecode<FormatId::Q8_0, S> {
    static constexpr i32 kOffset = 0;
    static DEVICE void get(u32 block, u32, DotGroup &g) {
        SharedWords(block + 2).get(0, g.codes);
        g.scale[0] = f16_f32(shared_at<u16>(block));
    }
};

// Codebooks: the bytes of a group in few loads, and entries of eight weights in one.
DEVICE u32 byte_of(u32 word, u32 i) { return word >> (8 * i) & 255; }
template <Signs S>
struct DotDecode<FormatId::IQ3_XXS, S> {
    static constexpr i32 kOffset = 0;
    static DEVICE void get(u32 block, u32 g32, DotGroup &g) {
        u32 q[2], s[1];
        const SharedWords words(block + 2);
        words.get(8 * g32, q), words.get(64 + 4 * g32, s);
        g.scale[0] = f16_f32(shared_at<u16>(block)) * (0.5f + static_cast<f32>(s[0] >> 28)) * 0.5f;
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            const SignBits signs = stored_signs<S>(s[0] >> (7 * i) & 127);
            g.codes[2 * i] = negate_bytes(TAB(iq3xxs_grid, byte_of(q[i / 2], 2 * i % 4)), signs.low);
            g.codes[2 * i + 1] = negate_bytes(TAB(iq3xxs_grid, byte_of(q[i / 2], 2 * i % 4 + 1)), signs.high);
        }
    }
};
template <Signs S>
struct DotDecode<FormatId::IQ2_XXS, S> {
    static constexpr i32 kOffset = 0;
    static DEVICE void get(u32 block, u32 g32, DotGroup &g) {
        u32 q[2];
        SharedWords(block + 2).get(8 * g32, q);
        g.scale[0] = f16_f32(shared_at<u16>(block)) * (0.5f + static_cast<f32>(q[1] >> 28)) * 0.25f;
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            const SignBits signs = stored_signs<S>(q[1] >> (7 * i) & 127);
            const u32x2 entry = TAB2(iq2xxs_grid, 2 * byte_of(q[0], i));
            g.codes[2 * i] = negate_bytes(entry.x, signs.low);
            g.codes[2 * i + 1] = negate_bytes(entry.y, signs.high);
        }
    }
};
template <Signs S>
struct DotDecode<FormatId::IQ2_XS, S> {
    static constexpr i32 kOffset = 0;
    static DEVICE void get(u32 block, u32 g32, DotGroup &g) {
        u32 q[2];
        SharedWords(block + 2).get(8 * g32, q);
        const u32 scales = shared_at<u8>(block + 66 + g32);
        const f32 d = f16_f32(shared_at<u16>(block));
        g.scale[0] = d * (0.5f + static_cast<f32>(scales & 15)) * 0.25f;
        g.scale[1] = d * (0.5f + static_cast<f32>(scales >> 4)) * 0.25f;
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            const u32 of = q[i / 2] >> (16 * (i & 1)) & 0xffffu;
            const SignBits signs = stored_signs<S>(of >> 9);
            const u32x2 entry = TAB2(iq2xs_grid, 2 * (of & 511));
            g.codes[2 * i] = negate_bytes(entry.x, signs.low);
            g.codes[2 * i + 1] = negate_bytes(entry.y, signs.high);
        }
    }
};
template <Signs S>
struct DotDecode<FormatId::IQ2_S, S> {
    static constexpr i32 kOffset = 0;
    static DEVICE void get(u32 block, u32 g32, DotGroup &g) {
        u32 q[1], s[1];
        const SharedWords words(block + 2);
        words.get(4 * g32, q), words.get(32 + 4 * g32, s);
        const u32 high = shared_at<u8>(block + 66 + g32), scales = shared_at<u8>(block + 74 + g32);
        const f32 d = f16_f32(shared_at<u16>(block));
        g.scale[0] = d * (0.5f + static_cast<f32>(scales & 15)) * 0.25f;
        g.scale[1] = d * (0.5f + static_cast<f32>(scales >> 4)) * 0.25f;
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            const u32x2 entry = TAB2(iq2s_grid, 2 * (byte_of(q[0], i) | (high >> (2 * i) & 3) << 8));
            const u32 signs = byte_of(s[0], i);
            g.codes[2 * i] = dialect::negate4(entry.x, signs & 15);
            g.codes[2 * i + 1] = dialect::negate4(entry.y, signs >> 4);
        }
    }
};
template <Signs S>
struct DotDecode<FormatId::IQ3_S, S> {
    static constexpr i32 kOffset = 0;
    static DEVICE void get(u32 block, u32 g32, DotGroup &g) {
        u32 q[2], s[1];
        const SharedWords words(block + 2);
        words.get(8 * g32, q), words.get(72 + 4 * g32, s);
        const u32 high = shared_at<u8>(block + 66 + g32), scales = shared_at<u8>(block + 106 + (g32 >> 1));
        g.scale[0] = f16_f32(shared_at<u16>(block)) * static_cast<f32>(1 + 2 * (scales >> (4 * (g32 & 1)) & 15));
#pragma unroll
        for (u32 j = 0; j < 8; j++) {
            const u32 entry = byte_of(q[j / 4], j % 4) | (high >> j & 1) << 8;
            g.codes[j] = dialect::negate4(TAB(iq3s_grid, entry), byte_of(s[0], j / 2) >> (4 * (j & 1)) & 15);
        }
    }
};

// A lane's activations of one group.
struct DotInput {
    u32x4 low, high;
    f32 scale;
    i32 sum[2];
};
DEVICE DotInput input_at(const Q8 &x, u64 group, bool sums) {
    const u32x4 *codes = reinterpret_cast<const u32x4 *>(x.codes) + 2 * group;
    DotInput in{load(codes), load(codes + 1), load(x.scale + group), {0, 0}};
    if (sums) {
        const u32 both = load(reinterpret_cast<const u32 *>(x.sums) + group);
        in.sum[0] = static_cast<i16>(both & 0xffffu), in.sum[1] = static_cast<i16>(both >> 16);
    }
    return in;
}

template <FormatId F>
constexpr i32 kDotOffset = DotDecode<F, Signs::parity>::kOffset;
template <FormatId F>
DEVICE f32 add_dot(const DotGroup &g, const DotInput &x, f32 acc) {
    using D = Fmt<F>;
    constexpr bool kHalves = D::group == 16;
    constexpr i32 kOffset = kDotOffset<F>;
    i32 first = dot4(kOffset != 0 ? -kOffset * x.sum[0] : 0, g.codes[0], x.low.x);
    first = dot4(first, g.codes[1], x.low.y);
    first = dot4(first, g.codes[2], x.low.z);
    first = dot4(first, g.codes[3], x.low.w);
    i32 second = kOffset != 0 ? -kOffset * x.sum[1] : 0;
    if constexpr (!kHalves) second += first;
    second = dot4(second, g.codes[4], x.high.x);
    second = dot4(second, g.codes[5], x.high.y);
    second = dot4(second, g.codes[6], x.high.z);
    second = dot4(second, g.codes[7], x.high.w);
    if constexpr (kHalves) {
        f32 s = g.scale[0] * static_cast<f32>(first);
        s = fma(g.scale[1], static_cast<f32>(second), s);
        acc = fma(x.scale, s, acc);
        if constexpr (D::has_bias) {
            acc = fma(g.bias[0], x.scale * static_cast<f32>(x.sum[0]), acc);
            acc = fma(g.bias[1], x.scale * static_cast<f32>(x.sum[1]), acc);
        }
    } else {
        acc = fma(g.scale[0] * x.scale, static_cast<f32>(second), acc);
        if constexpr (D::has_bias) acc = fma(g.bias[0], x.scale * static_cast<f32>(x.sum[0] + x.sum[1]), acc);
    }
    return acc;
}
template <FormatId F>
constexpr bool kWantsSums = Fmt<F>::has_bias || kDotOffset<F> != 0;

// What a step adds to the sums of both rows: `at` is where the step's bytes of each lie, `group` this lane's of the
// row.
template <FormatId F, Signs S = Signs::parity>
struct OneFormat {
    static constexpr bool kWhole = true;  // a.stage_units may be set
    static DEVICE u32 step_bytes(const DotBank &) { return kWave * 32 / Fmt<F>::block * Fmt<F>::bytes; }
    template <u32 M>
    static DEVICE void add(const ContractDotArgs &a, const u32 (&)[kRows], const u32 (&at)[kRows], u32 group, u32 x_row,
                           u32 tokens, f32 (&acc)[kRows][M]) {
        constexpr u32 kGroups = Fmt<F>::block / 32;
        DotGroup g[kRows];
#pragma unroll
        for (u32 r = 0; r < kRows; r++)
            DotDecode<F, S>::get(at[r] + lane() / kGroups * Fmt<F>::bytes, lane() % kGroups, g[r]);
#pragma unroll
        for (u32 t = 0; t < M; t++) {
            const u64 row = x_row + (M == 1 ? 0 : min(t, tokens - 1));
            const DotInput x = input_at(a.x, row * (a.k / 32) + group, kWantsSums<F>);
#pragma unroll
            for (u32 r = 0; r < kRows; r++) acc[r][t] = add_dot<F>(g[r], x, acc[r][t]);
        }
    }
};

// Of whatever format each row has: banks of a launch may differ.
struct AnyFormat {
    static DEVICE u32 step_bytes(const DotBank &bank) { return bank.step_bytes; }
    static constexpr bool kWhole = false;  // a second copy of all formats does not fit into the cache of instructions
    template <FormatId F, u32 M>
    static DEVICE void add_row(const ContractDotArgs &a, u32 at, u32 group, u32 x_row, u32 tokens, f32 (&acc)[M]) {
        constexpr u32 kGroups = Fmt<F>::block / 32;
        DotGroup g;
        DotDecode<F, Signs::parity>::get(at + lane() / kGroups * Fmt<F>::bytes, lane() % kGroups, g);
#pragma unroll
        for (u32 t = 0; t < M; t++) {
            const u64 row = x_row + (M == 1 ? 0 : min(t, tokens - 1));
            acc[t] = add_dot<F>(g, input_at(a.x, row * (a.k / 32) + group, kWantsSums<F>), acc[t]);
        }
    }
    template <u32 M>
    static DEVICE void add(const ContractDotArgs &a, const u32 (&bank)[kRows], const u32 (&at)[kRows], u32 group,
                           u32 x_row, u32 tokens, f32 (&acc)[kRows][M]) {
#pragma unroll
        for (u32 r = 0; r < kRows; r++) switch (static_cast<FormatId>(a.bank[bank[r]].format)) {
#define FORMAT(NAME, prefix, id, block, bytes, g, bias_)                    \
    case FormatId::NAME:                                                    \
        add_row<FormatId::NAME, M>(a, at[r], group, x_row, tokens, acc[r]); \
        break;
#include "format/formats.def"
                default:
                    break;
            }
    }
};

// A wave's part of a launch: units `first`, `first` + `stride`, .. below `end`, or runs of a.stage_units of them.
template <class Formats, u32 M>
struct DotWave {
    const ContractDotArgs &a;
    const DotRing ring;
    const u32 first, end, stride;
    const u32 expert, x_row, out_row, tokens;
    const u32 steps = (a.k / 32 + kWave - 1) / kWave;

    // Steps [from, to) of a unit, whose bytes lie at `at`.
    DEVICE void add(const u32 (&bank)[kRows], u32 (&at)[kRows], u32 from, u32 to, f32 (&acc)[kRows][M]) const {
        for (u32 step = from; step < to; step++) {
            const u32 group = step * kWave + lane();
            if (group < a.k / 32) Formats::add(a, bank, at, group, x_row, tokens, acc);
#pragma unroll
            for (u32 r = 0; r < kRows; r++) at[r] += Formats::step_bytes(a.bank[bank[r]]);
        }
    }
    // The sums of a unit to where they go: its rows are `column` of `bank` and, with `second`, the next; of gated units
    // row `unit` of both banks.
    DEVICE void finish(u32 unit, u32 bank_id, u32 column, bool second, f32 (&acc)[kRows][M]) const {
#pragma unroll
        for (u32 t = 0; t < M; t++) {
            f32 v[kRows];
#pragma unroll
            for (u32 r = 0; r < kRows; r++) v[r] = sum_lanes(acc[r][t]);
            if (lane() != t || t >= tokens) continue;
            if (a.glu != 0) {
                const f32 x = glu(a.glu - 1, v[0], v[1]);
                if (a.bank[0].out != nullptr) store(a.bank[0].out + u64{out_row + t} * a.units + unit, x);
                if (a.q8_units != 0)
                    *reinterpret_cast<f32 *>(shared() + a.values_at +
                                             (t * a.q8_units + unit - block_x() * a.q8_units) * 4) = x;
                continue;
            }
            const DotBank &bank = a.bank[bank_id];
#pragma unroll
            for (u32 r = 0; r < kRows; r++) {
                if (r > 0 && !second) continue;
                if (bank.bias != nullptr) v[r] = v[r] + load(bank.bias + expert * bank.n + column + r);
                store(bank.out + u64{out_row + t} * bank.n + column + r, v[r]);
            }
        }
    }

    // The wave's next unit. Finding one takes as many instructions as a sixth of its products; in one bank, or in two
    // that are paired, units lie at one distance.
    DEVICE void next(DotUnit &u, u32 unit) const {
        if (a.glu == 0 && (a.n_banks > 1 || a.bank[0].n % kRows != 0)) {
            u = unit_at(a, unit, expert);
            return;
        }
        const u32 columns = a.glu != 0 ? stride : kRows * stride;
#pragma unroll
        for (u32 r = 0; r < kRows; r++) {
            u.column[r] += columns;
            u.row[r] += u64{columns} * a.bank[a.glu != 0 ? r : 0].row_bytes;
        }
    }

    // ready() is called when the first stages are on their way, and returns when x may be read.

    // A stage has a few steps of one unit.
    template <class Ready>
    DEVICE void pieces(Ready ready) const {
        u32 ahead = first, ahead_step = 0;
        DotUnit u{};
        if (first < end) u = unit_at(a, first, expert);
        DotUnit ahead_unit = u;
        const auto fetch = [&](u32 stage) {
            if (ahead < end) {
                const std::byte *from[kRows];
                u32 bytes[kRows];
#pragma unroll
                for (u32 r = 0; r < kRows; r++) {
                    const DotBank &bank = a.bank[ahead_unit.bank[r]];
                    const u32 begin = ahead_step * bank.step_bytes;
                    from[r] = ahead_unit.row[r] + begin;
                    bytes[r] = min(a.stage_steps * bank.step_bytes, bank.row_bytes - begin);
                }
                ring.fetch(from, bytes, stage);
                ahead_step += a.stage_steps;
                if (ahead_step >= steps) {
                    ahead_step = 0, ahead += stride;
                    if (ahead < end) next(ahead_unit, ahead);
                }
            }
            if constexpr (!kBulkCopies) copy_async_commit();
        };
        for (u32 s = 0; s < ring.stages - 1; s++) fetch(s);
        ready();
        u32 stage = 0, parity = 0;
        for (u32 unit = first; unit < end; unit += stride) {
            f32 acc[kRows][M] = {};
            for (u32 begin = 0; begin < steps; begin += a.stage_steps) {
                ring.wait(stage, parity);
                fetch(stage == 0 ? ring.stages - 1 : stage - 1);
                u32 at[kRows];
#pragma unroll
                for (u32 r = 0; r < kRows; r++)
                    at[r] =
                        ring.row(stage, r) +
                        static_cast<u32>((reinterpret_cast<u64>(u.row[r]) + begin * a.bank[u.bank[r]].step_bytes) & 15);
                add(u.bank, at, begin, min(begin + a.stage_steps, steps), acc);
                if (++stage == ring.stages) stage = 0, parity ^= 1;
            }
            finish(unit, u.bank[0], u.column[0], u.column[1] != u.column[0], acc);
            if (unit + stride < end) next(u, unit + stride);
        }
    }

    // Where a run of units begins: of gated units their rows of each bank, of others all rows of one.
    struct Rows {
        const std::byte *from[kRows];
    };
    DEVICE Rows rows_at(u32 unit) const {
        Rows rows{};
        const u32 b = a.glu != 0 ? 0 : bank_of(a, unit);
        const u32 column = a.glu != 0 ? unit : kRows * (unit - a.bank[b].first);
#pragma unroll
        for (u32 r = 0; r < kRows; r++) {
            if (r > 0 && a.glu == 0) break;
            const DotBank &bank = a.bank[b + r];
            rows.from[r] = bank.weight + expert * bank.expert_bytes + u64{column} * bank.row_bytes;
        }
        return rows;
    }
    DEVICE void next(Rows &rows, u32 unit) const {
        if (a.glu == 0 && a.n_banks > 1) {
            rows = rows_at(unit);
            return;
        }
        rows.from[0] += u64{a.glu != 0 ? stride : kRows * stride} * a.bank[0].row_bytes;
        if (a.glu != 0) rows.from[1] += u64{stride} * a.bank[1].row_bytes;
    }

    // A stage has whole units, so that what a stage costs is paid once for a few: where rows are short that is as much
    // as their products. The rows of a run lie one behind the other.
    template <class Ready>
    DEVICE void whole_rows(Ready ready) const {
        u32 ahead = first;
        Rows here{};
        if (first < end) here = rows_at(first);
        Rows ahead_rows = here;
        const bool gated = a.glu != 0;
        const auto fetch = [&](u32 stage) {
            if (ahead < end) {
                const u32 units = min(a.stage_units, end - ahead), b = gated ? 0 : bank_of(a, ahead);
                const u32 bytes[kRows] = {(gated ? units : kRows * units) * a.bank[b].row_bytes,
                                          gated ? units * a.bank[1].row_bytes : 0};
                ring.fetch(ahead_rows.from, bytes, stage);
                ahead += stride;
                if (ahead < end) next(ahead_rows, ahead);
            }
            if constexpr (!kBulkCopies) copy_async_commit();
        };
        for (u32 s = 0; s < ring.stages - 1; s++) fetch(s);
        ready();
        u32 stage = 0, parity = 0;
        for (u32 run = first; run < end; run += stride) {
            ring.wait(stage, parity);
            fetch(stage == 0 ? ring.stages - 1 : stage - 1);
            const u32 b = gated ? 0 : bank_of(a, run), units = min(a.stage_units, end - run);
            const u32 bank[kRows] = {b, gated ? 1 : b};
            const u32 bytes = a.bank[b].row_bytes;
            u32 row[kRows];
            row[0] = ring.row(stage, 0) + static_cast<u32>(reinterpret_cast<u64>(here.from[0]) & 15);
            row[1] = gated ? ring.row(stage, 1) + static_cast<u32>(reinterpret_cast<u64>(here.from[1]) & 15)
                           : row[0] + bytes;
            for (u32 i = 0; i < units; i++) {
                f32 acc[kRows][M] = {};
                u32 at[kRows] = {row[0], row[1]};
                add(bank, at, 0, steps, acc);
                finish(run + i, b, kRows * (run + i - a.bank[b].first), true, acc);
                row[0] += gated ? bytes : kRows * bytes;
                row[1] += gated ? a.bank[1].row_bytes : kRows * bytes;
            }
            if (run + stride < end) next(here, run + stride);
            if (++stage == ring.stages) stage = 0, parity ^= 1;
        }
    }
};

template <class Formats, u32 M>
DEVICE void contract_dot(const ContractDotArgs &a) {
    if (a.next_early != 0 && a.ids == nullptr) let_next_start();
    const bool publish = a.q8_units != 0;
    const u32 run = max(a.stage_units, 1u);
    const u32 first = (publish ? block_x() * a.q8_units : block_x() * kDotWaves * run) + wave() * run;
    const u32 end = publish ? min(a.units, (block_x() + 1) * a.q8_units) : a.units;

    // A block works on M rows of x.
    u32 expert = 0, x_row = block_z() * M, out_row = x_row;
    const u32 tokens = min(M, a.tokens - x_row);
    if (a.ids != nullptr) {
        out_row = block_y();
        if (a.ids_settled == 0) wait_for_previous();  // the expert is not known before
        // A launch behind this one may take the ids for settled.
        if (a.ids_settled == 0 && a.next_early != 0) let_next_start();
        expert = min(static_cast<u32>(load_settled(a.ids + out_row)), a.experts - 1);
        x_row = a.x_by_slot != 0 ? out_row : out_row / a.slots;
    }

    const DotRing ring{a.ring_at + wave() * a.ring_bytes, a.stage_bytes, kBulkCopies ? a.stages : kStages};
    ring.begin();
    const DotWave<Formats, M> part{a,      ring,  first,   end,   (publish ? kDotWaves : a.blocks * kDotWaves) * run,
                                   expert, x_row, out_row, tokens};
    const auto ready = [&] {
        fill_tables(a.table_first, a.table_words);
        if (a.table_words > 0) sync();
        if (a.ids == nullptr || a.ids_settled != 0) wait_for_previous();
    };
    if constexpr (Formats::kWhole) {
        if (a.stage_units != 0)
            part.whole_rows(ready);
        else
            part.pieces(ready);
    } else {
        part.pieces(ready);
    }
    if (a.next_early == 0) let_next_start();
    if (!publish) return;
    // The block's units are whole blocks of 32 of the output, a value for each lane.
    sync();
    const u32 l = lane(), base = block_x() * a.q8_units, here = end - base;
    for (u32 i = wave() * kWave; i < tokens * here; i += kDotThreads) {
        const bool there = i + l < tokens * here;
        const u32 t = there ? (i + l) / here : 0, u = there ? (i + l) % here : 0;
        const f32 v = *reinterpret_cast<const f32 *>(shared() + a.values_at + (t * a.q8_units + u) * 4);
        store_q8(v, q8_row(a.q8, out_row + t, a.units), base + u, there);
    }
}

}  // namespace ridge::simt

// The kernels of one format, for 1, 2, up to 4 and up to 8 rows of activations.
#define RIDGE_CONTRACT_DOT(name, Formats)                                                             \
    namespace ridge::simt {                                                                           \
    KERNEL(contract_dot_##name##_1, ContractDotArgs, kDotThreads, 3) { contract_dot<Formats, 1>(a); } \
    KERNEL(contract_dot_##name##_2, ContractDotArgs, kDotThreads, 3) { contract_dot<Formats, 2>(a); } \
    KERNEL(contract_dot_##name##_4, ContractDotArgs, kDotThreads, 2) { contract_dot<Formats, 4>(a); } \
    KERNEL(contract_dot_##name##_8, ContractDotArgs, kDotThreads, 2) { contract_dot<Formats, 8>(a); } \
    }
#define RIDGE_CONTRACT_DOT_FORMAT(NAME, prefix) RIDGE_CONTRACT_DOT(prefix, OneFormat<FormatId::NAME>)
#define RIDGE_CONTRACT_DOT_SIGN_TABLE(NAME, prefix) \
    RIDGE_CONTRACT_DOT(prefix##_signs, OneFormat<FormatId::NAME RIDGE_COMMA Signs::table>)
#define RIDGE_COMMA ,
