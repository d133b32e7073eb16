// Rows of contraction in f16 on matrix units, for steps of nine tokens and more.
#include <algorithm>
#include <vector>

#include "backend/simt/banks.h"
#include "backend/simt/kernels/contract_f16.h"
#include "backend/simt/mma_arguments.h"
#include "backend/simt/rows.h"

namespace ridge::simt {
namespace {

constexpr uint32_t kThreads = 256, kRows = 128;

// Behind Tile::kSharedZero: a power of two for each row of x, then x in f16.
size_t factors_bytes(size_t rows) { return (rows * sizeof(f32) + 255) / 256 * 256; }
size_t workspace(const Program &p, const Op &op, const StepLimits &l) {
    const Value &x = p.value(banks_of(op).x);
    const size_t rows = rows_of(x, l.tokens, l.outputs);
    return Tile::kSharedZero + factors_bytes(rows) + rows * f16_columns(x.cols) * sizeof(u16);
}

template <bool kNvidia>
void emit(const LaunchView &v, Emit &e) {
    ContractF16Args a{};
    a.mma = mma_arguments(v);
    const uint32_t rows = a.mma.rows;
    if (rows == 0) return;
    std::byte *base = v.shared + Tile::kSharedZero;
    F16InputArgs in{};
    in.x = a.mma.x, in.k = a.mma.k, in.stride = f16_columns(a.mma.k);
    in.factor = reinterpret_cast<f32 *>(base);
    in.out = reinterpret_cast<u16 *>(base + factors_bytes(rows));
    e.grid("contract_f16", "f16_inputs", {rows}, kThreads, kThreads / e.device().wave * sizeof(u32), in);

    a.x = in.out, a.factor = in.factor, a.stride = in.stride;
    const uint32_t processors = e.device().processors, stride = f16_stride(kNvidia ? kF16LongStep : kF16ShortStep);
    const uint32_t tiles = mma_row_tiles(a.mma, kRows), raw = kNvidia ? 2 * kRows * a.mma.raw_stride : 0;
    const auto shared = [&](uint32_t tokens) {
        const uint32_t values = tokens * (kRows / 2 + 4) * sizeof(f32);
        return std::max(2 * (kRows + tokens) * stride + raw, values);
    };
    const auto launch = [&](std::string_view kernel, uint32_t tokens, uint32_t threads) {
        e.grid("contract_f16", kernel, {(rows + tokens - 1) / tokens, tiles}, threads, shared(tokens), a);
    };
    // A large tile decodes each weight for more tokens. Two blocks on a processor cover each other's waits; where
    // shared memory holds one, it has as many threads as two.
    const auto blocks = [&](uint32_t tokens) { return tiles * ((rows + tokens - 1) / tokens); };
    const bool two = 2 * (shared(128) + 1024) <= e.device().shared_per_block;
    const auto fits = [&](uint32_t tokens) { return shared(tokens) <= e.device().shared_per_block; };
    if (kNvidia && rows > 128 && fits(256) && blocks(256) >= 2 * processors)
        return launch("contract_f16_256_512", 256, 512);
    // So, too, where large tiles just give every processor one.
    const bool one_each = blocks(128) <= processors && blocks(128) * 4 >= 3 * processors;
    if (kNvidia && (one_each || (!two && blocks(128) > processors))) return launch("contract_f16_128_512", 128, 512);
    if (blocks(128) >= 2 * processors) return launch("contract_f16_128_256", 128, 256);
    launch("contract_f16_64_256", 64, 256);
}

std::string_view refuses(const Program &, const Op &op) {
    return banks_of(op).ids != kNone ? "its rows are routed to experts" : "";
}

const std::vector<Row> kTable = [] {
    std::vector<Row> rows;
    const auto add = [&](OpKind op, std::string_view name, Features needs, auto emit_row) {
        Kernel k;
        k.name = name, k.op = op;
        k.formats = FormatSet::quantized();
        k.input = DType::q8;
        k.tokens = {9};
        k.needs = needs | kLargeShared;
        k.lever = Lever::f16_mma;
        k.order = Order::f16_mma;
        k.rank = 30;
        k.publishes = true;
        k.refuses = refuses;
        k.tile.shared_bytes = workspace;
        rows.push_back({k, emit_row});
    };
    add(kind<Contract>(), "simt.contract.f16.mma", kMma, emit<true>);
    add(kind<Contract>(), "simt.contract.f16.wmma", kWmma, emit<false>);
    add(kind<Contract>(), "simt.contract.f16.mfma", kMfmaF16, emit<false>);
    add(kind<GateUp>(), "simt.gate_up.f16.mma", kMma, emit<true>);
    add(kind<GateUp>(), "simt.gate_up.f16.wmma", kWmma, emit<false>);
    add(kind<GateUp>(), "simt.gate_up.f16.mfma", kMfmaF16, emit<false>);
    return rows;
}();

}  // namespace

std::span<const Row> contract_f16_rows() { return kTable; }

}  // namespace ridge::simt
