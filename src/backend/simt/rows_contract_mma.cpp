// Rows of contraction on matrix units, for steps of nine tokens and more: block formats with q8 activations, and float
// formats with f32 ones.
#include <algorithm>
#include <array>

#include "backend/simt/banks.h"
#include "backend/simt/kernels/contract_mma.h"
#include "backend/simt/mma_arguments.h"
#include "backend/simt/mma_tiles.h"
#include "backend/simt/rows.h"
#include "core/error.h"

namespace ridge::simt {
namespace {

MmaMatrix matrix_of(const LaunchView &v, WeightId id, u32 chunk) {
    const Weight &w = v.program.weight(id);
    const FormatInfo &f = info(w.format);
    return {v.weight(id), row_bytes(w.format, w.k), static_cast<u32>(w.format),
            f.is_float() ? 0 : static_cast<u32>(chunk / f.block * f.bytes)};
}

// Shared memory between rows of raw weights: a chunk with what alignment to 16 adds, an odd multiple of 16.
u32 raw_stride(const MmaMatrix &m) {
    const bool aligned = m.chunk_bytes % 16 == 0 && m.row_bytes % 16 == 0;
    const u32 units = (static_cast<u32>(std::min<u64>(m.chunk_bytes, m.row_bytes)) + (aligned ? 0 : 15) + 15) / 16;
    return (units | 1) * 16;
}

// The arguments but for the tiles, whose rows the blocks' shape decides.
ContractMmaArgs arguments(const LaunchView &v, const Banks &b) {
    ContractMmaArgs a{};
    const Weight &w = v.program.weight(b.bank[0].weight);
    a.n_banks = b.gated ? 1 : b.n;
    a.k = w.k, a.rows = static_cast<u32>(v.rows(b.x)), a.slots = 1;
    a.glu = b.gated ? static_cast<u32>(b.kind) + 1 : 0;
    if (v.program.value(b.x).type == DType::q8)
        a.x = q8_of(v, b.x);
    else
        a.x_f32 = v.ptr<const f32>(b.x);
    if (b.q8 != kNone) a.q8 = q8_of(v, b.q8);
    a.chunk = kMmaLongStep;
    for (uint32_t i = 0; i < b.n; i++) {
        const FormatInfo &f = info(v.program.weight(b.bank[i].weight).format);
        if (f.block > a.chunk) a.chunk = kMmaChunk;
        if (f.group == 16) a.halves = 1;
    }
    for (uint32_t i = 0; i < b.n; i++) {
        const Bank &from = b.bank[i];
        MmaBank &to = a.bank[b.gated ? 0 : i];
        MmaMatrix &m = to.matrix[b.gated ? i : 0];
        m = matrix_of(v, from.weight, a.chunk);
        to.n = v.program.weight(from.weight).n;
        to.out = b.out_read ? v.ptr<f32>(from.out) : nullptr;
        to.bias = from.bias == kNone ? nullptr : reinterpret_cast<const f32 *>(v.weight(from.bias));
        if (m.chunk_bytes > 0) a.raw_stride = std::max(a.raw_stride, raw_stride(m));
    }
    return a;
}

// Tiles of weight rows in all banks, which learn where theirs begin.
uint32_t row_tiles(ContractMmaArgs &a, u32 rows) {
    const u32 own = a.glu != 0 ? rows / 2 : rows;
    uint32_t tiles = 0;
    for (u32 i = 0; i < a.n_banks; i++) {
        a.bank[i].first_tile = tiles;
        tiles += (a.bank[i].n + own - 1) / own;
    }
    return tiles;
}

// A shape of blocks and its kernel.
struct Choice {
    MmaShape shape;
    std::string_view kernel;
};
constexpr Choice kShapes[] = {
    {{128, 128, 16}, "contract_mma_128x128"},  // NVIDIA's alone: the first
    {{128, 64, 8}, "contract_mma_128x64"},
    {{128, 32, 4}, "contract_mma_128x32"},
    {{64, 32, 4}, "contract_mma_64x32"},
};
std::span<const Choice> shapes(bool nvidia) { return std::span(kShapes).subspan(nvidia ? 0 : 1); }
uint32_t shared_bytes(const ContractMmaArgs &a, const MmaShape &s, bool nvidia) {
    const MmaLayout at{s.rows, s.tokens, nvidia ? kMmaLongStep : kMmaShortStep, a.halves, nvidia ? a.raw_stride : 0};
    return at.bytes();
}

bool fits(const ContractMmaArgs &a, const MmaShape &s, bool nvidia, const DeviceLimits &device) {
    return shared_bytes(a, s, nvidia) <= device.shared_per_block;
}

// Of 128, 64 or 32 tokens, the largest that shared memory has room for; null: none has.
const Choice *shape_of_tokens(u32 tokens, const ContractMmaArgs &a, bool nvidia, const DeviceLimits &device) {
    for (const Choice &c : shapes(nvidia))
        if (c.shape.tokens == tokens && fits(a, c.shape, nvidia, device)) return &c;
    return nullptr;
}

void launch(Emit &e, const Choice &c, bool nvidia, ContractMmaArgs &a, uint32_t token_tiles) {
    const uint32_t tiles = row_tiles(a, c.shape.rows);
    e.grid("contract_mma", c.kernel, {token_tiles, tiles, 1}, c.shape.waves * e.device().wave,
           shared_bytes(a, c.shape, nvidia), a);
}

// How long a step takes in blocks of a shape, in units of what a block of 128 x 128 multiplies in: a processor works
// its blocks off at the rate of its arithmetic, decoding costs as much as 32 tokens, and with w waves at a time it is
// busy for about w / (w + 4) of the time.
double duration(ContractMmaArgs &a, const MmaShape &s, bool nvidia, const DeviceLimits &device) {
    const uint32_t blocks = row_tiles(a, s.rows) * ((a.rows + s.tokens - 1) / s.tokens);
    const uint32_t each = (blocks + device.processors - 1) / device.processors;
    const uint32_t fit = std::max(1u, (device.shared_per_block + 1024) / (shared_bytes(a, s, nvidia) + 1024));
    const double waves = std::min(each, fit) * s.waves;
    return each * (s.rows / 128.0) * ((s.tokens + 32) / 128.0) * (waves + 4) / waves;
}

template <bool kNvidia>
void emit(const LaunchView &v, Emit &e) {
    ContractMmaArgs a = arguments(v, banks_of(v.op));
    if (a.rows == 0) return;
    const Choice *best = nullptr;
    double least = 0;
    for (const Choice &c : shapes(kNvidia)) {
        if (!fits(a, c.shape, kNvidia, e.device())) continue;
        const double d = duration(a, c.shape, kNvidia, e.device());
        if (best == nullptr || d < least) best = &c, least = d;
    }
    RIDGE_ASSERT(best != nullptr);  // the smallest shape takes 70 KB, on AMD 40 KB
    launch(e, *best, kNvidia, a, (a.rows + best->shape.tokens - 1) / best->shape.tokens);
}

// Float weights: 64 rows x 64 tokens, or x 32 where that leaves processors without a block.
void emit_tf32(const LaunchView &v, Emit &e) {
    ContractMmaArgs a = arguments(v, banks_of(v.op));
    if (a.rows == 0) return;
    const uint32_t tiles = row_tiles(a, 64), wide = (a.rows + 63) / 64;
    if (tiles * wide >= e.device().processors)
        e.grid("contract_tf32", "contract_tf32_64x64", {wide, tiles}, 512, tf32_shared_bytes(64, 64), a);
    else
        e.grid("contract_tf32", "contract_tf32_64x32", {(a.rows + 31) / 32, tiles}, 256, tf32_shared_bytes(64, 32), a);
}

// ---- Experts

// The workspace behind Tile::kSharedZero, for so many routed rows: order | tiles, large, middle and small.
struct Workspace {
    size_t large, middle, small, bytes;  // in bytes from its beginning
};
Workspace workspace(const MmaTiles &t, size_t routed, size_t experts) {
    Workspace w{};
    w.large = (routed * sizeof(u32) + 15) / 16 * 16;
    w.middle = w.large + (routed / t.large + experts) * sizeof(MmaTile);
    w.small = w.middle + experts * sizeof(MmaTile);
    w.bytes = w.small + experts * sizeof(MmaTile);
    return w;
}

// Into which the device cuts routed rows.
MmaTiles tiles_of(const LaunchView &v, const ContractMmaArgs &a, bool nvidia, const DeviceLimits &device) {
    u32 most = nvidia ? 128 : 64;
    while (most > 32 && shape_of_tokens(most, a, nvidia, device) == nullptr) most /= 2;
    return mma_tiles(v.program.levers, most);
}

// For whatever tiles a device has: the smallest are the most.
size_t workspace_bytes(const Program &program, const Op &op, const StepLimits &limits) {
    const Banks b = banks_of(op);
    const Value &ids = program.value(b.ids);
    const size_t routed = rows_of(ids, limits.tokens, limits.outputs) * ids.cols;
    return Tile::kSharedZero + workspace({32, 0, 0}, routed, program.weight(b.bank[0].weight).experts).bytes;
}

template <bool kNvidia>
void emit_experts(const LaunchView &v, Emit &e) {
    const Banks b = banks_of(v.op);
    ContractMmaArgs a = arguments(v, b);
    const auto routed = static_cast<u32>(v.rows(b.ids) * v.cols(b.ids));
    if (routed == 0) return;
    const u32 experts = v.program.weight(b.bank[0].weight).experts;
    const MmaTiles tiles = tiles_of(v, a, kNvidia, e.device());
    const Workspace at = workspace(tiles, routed, experts);
    RIDGE_ASSERT(v.shared != nullptr);
    std::byte *base = v.shared + Tile::kSharedZero;
    const auto tiles_at = [&](size_t offset) { return reinterpret_cast<MmaTile *>(base + offset); };

    MmaGroupArgs g{};
    g.ids = v.ptr<const i32>(b.ids), g.routed = routed, g.experts = experts, g.large = tiles.large;
    g.order = reinterpret_cast<u32 *>(base);
    g.large_tiles = tiles_at(at.large);
    g.middle_tiles = tiles.middle > 0 ? tiles_at(at.middle) : nullptr;
    g.small_tiles = tiles.small > 0 ? tiles_at(at.small) : nullptr;
    e.grid("contract_mma", "contract_mma_group", {experts}, kMmaGroupThreads, 2 * kMmaGroupThreads * sizeof(u32), g);

    a.order = g.order;
    // x has a row per token, which all slots share, or a row per routed row.
    if (a.rows != routed) a.slots = v.cols(b.ids);
    const auto of_size = [&](u32 tokens, const MmaTile *list, u32 count) {
        a.tiles = list;
        const Choice *c = shape_of_tokens(tokens, a, kNvidia, e.device());
        RIDGE_ASSERT(c != nullptr);
        launch(e, *c, kNvidia, a, count);
    };
    // A size that only more routed rows than there are would fill has no tiles.
    const u32 below = tiles.middle > 0 ? tiles.middle : tiles.small;
    if (routed > below) of_size(tiles.large, g.large_tiles, routed / tiles.large + experts);
    if (tiles.middle > 0 && routed > tiles.small) of_size(tiles.middle, g.middle_tiles, experts);
    if (tiles.small > 0) of_size(tiles.small, g.small_tiles, experts);
}

template <bool kNvidia>
TileFill fill(const LaunchView &v, const DeviceLimits &device, std::span<const int32_t> ids) {
    const Banks b = banks_of(v.op);
    const u32 experts = v.program.weight(b.bank[0].weight).experts;
    return tile_fill(ids, experts, tiles_of(v, arguments(v, b), kNvidia, device));
}

// ---- The table

std::string_view refuses_ids(const Program &, const Op &op) {
    return banks_of(op).ids == kNone ? "" : "its rows are routed to experts";
}
std::string_view wants_ids(const Program &, const Op &op) {
    return banks_of(op).ids == kNone ? "its rows are not routed to experts" : "";
}

// Four rows for the matrix units that `needs` names.
template <bool kNvidia>
std::array<Row, 4> rows_for(Features needs, const std::array<std::string_view, 4> &names) {
    Kernel k;
    k.formats = FormatSet::quantized();
    k.input = DType::q8;
    k.tokens = {9};
    k.needs = needs;
    k.order = Order::int8_sequential;
    k.rank = 20;
    k.publishes = true;
    std::array<Row, 4> rows;
    for (size_t i = 0; i < 4; i++) {
        const bool experts = i >= 2;
        k.name = names[i];
        k.op = i % 2 == 0 ? kind<Contract>() : kind<GateUp>();
        k.lever = experts ? Lever::grouped_gemm : Lever::none;
        k.refuses = experts ? wants_ids : refuses_ids;
        k.tile.shared_bytes = experts ? workspace_bytes : nullptr;
        rows[i] = {k, experts ? emit_experts<kNvidia> : emit<kNvidia>, experts ? fill<kNvidia> : nullptr};
    }
    return rows;
}

Row tf32_row(OpKind op, std::string_view name) {
    Kernel k;
    k.name = name, k.op = op;
    k.formats = FormatSet::floats();
    k.tokens = {9};
    k.needs = kMma;
    k.lever = Lever::tf32_split;
    k.order = Order::tf32_split;
    k.rank = 20;
    k.publishes = true;
    k.refuses = refuses_ids;
    return {k, emit_tf32};
}

const std::array<Row, 14> kRows = [] {
    std::array<Row, 14> all;
    const auto mma = rows_for<true>(
        kMma, {"simt.contract.mma", "simt.gate_up.mma", "simt.contract.mma.experts", "simt.gate_up.mma.experts"});
    const auto wmma = rows_for<false>(
        kWmma, {"simt.contract.wmma", "simt.gate_up.wmma", "simt.contract.wmma.experts", "simt.gate_up.wmma.experts"});
    const auto mfma = rows_for<false>(
        kMfma, {"simt.contract.mfma", "simt.gate_up.mfma", "simt.contract.mfma.experts", "simt.gate_up.mfma.experts"});
    auto to = std::copy(mma.begin(), mma.end(), all.begin());
    to = std::copy(wmma.begin(), wmma.end(), to);
    to = std::copy(mfma.begin(), mfma.end(), to);
    *to++ = tf32_row(kind<Contract>(), "simt.contract.tf32");
    *to = tf32_row(kind<GateUp>(), "simt.gate_up.tf32");
    return all;
}();

}  // namespace

ContractMmaArgs mma_arguments(const LaunchView &v) { return arguments(v, banks_of(v.op)); }
uint32_t mma_row_tiles(ContractMmaArgs &a, uint32_t rows) { return row_tiles(a, rows); }

std::span<const Row> contract_mma_rows() { return kRows; }

}  // namespace ridge::simt
