// Rows of all operations but contraction and attention for CUDA and HIP.
#include <algorithm>
#include <cmath>
#include <vector>

#include "backend/simt/kernels/elementwise.h"
#include "backend/simt/kernels/norm.h"
#include "backend/simt/kernels/rope.h"
#include "backend/simt/kernels/route.h"
#include "backend/simt/kernels/sample.h"
#include "backend/simt/rows.h"
#include "engine/program.h"

namespace ridge::simt {
namespace {

constexpr uint32_t kThreads = 256;
constexpr size_t kScratch = 16 * sizeof(float);  // of sums over a block

uint32_t over(uint64_t n, uint32_t by) { return static_cast<uint32_t>((n + by - 1) / by); }
uint32_t rows_of(const LaunchView &v, ValueId x) { return static_cast<uint32_t>(v.rows(x)); }
// A thread for each quad of a row, rows in x.
Grid quads_of(const LaunchView &v, ValueId x) { return {rows_of(v, x), over(v.cols(x), 4 * kThreads)}; }
template <class T>
const T &op_of(const LaunchView &v) {
    return *std::get_if<T>(&v.op);
}
const float *vector_of(const LaunchView &v, WeightId w) {
    return w == kNone ? nullptr : reinterpret_cast<const float *>(v.weight(w));
}

// ---- embed, elements, copies

void emit_embed(const LaunchView &v, Emit &e) {
    const auto &op = op_of<Embed>(v);
    const Weight &table = v.program.weight(op.table);
    e.grid("embed", "embed", quads_of(v, op.out), kThreads, 0,
           EmbedArgs{v.weight(op.table), v.ptr<float>(op.out), step_of(v, e), row_bytes(table.format, table.k), table.k,
                     static_cast<u32>(table.format), op.scale});
}

// One thread for each quad of `out`, whatever its rows.
void emit_elements(const LaunchView &v, Emit &e, std::string_view name, ValueId out, ElementsArgs a) {
    a.out = v.ptr<float>(out), a.n = v.rows(out) * v.cols(out);
    e.grid("elementwise", name, {over(a.n, 4 * kThreads)}, kThreads, 0, a);
}
void emit_glu(const LaunchView &v, Emit &e) {
    const auto &op = op_of<Glu>(v);
    const std::string_view name = op.kind == GluKind::silu   ? "glu_silu"
                                  : op.kind == GluKind::gelu ? "glu_gelu"
                                                             : "glu_clamped";
    emit_elements(v, e, name, op.out, {.a = v.ptr<float>(op.gate), .b = v.ptr<float>(op.up)});
}
void emit_add(const LaunchView &v, Emit &e) {
    const auto &op = op_of<Add>(v);
    emit_elements(v, e, "add", op.out, {.a = v.ptr<float>(op.a), .b = v.ptr<float>(op.b), .scale = op.scale});
}
void emit_scale(const LaunchView &v, Emit &e) {
    const auto &op = op_of<Scale>(v);
    emit_elements(v, e, op.softcap > 0 ? "scale_softcap" : "scale", op.out,
                  {.a = v.ptr<float>(op.x), .scale = op.scale, .softcap = op.softcap});
}
void emit_row_gate(const LaunchView &v, Emit &e) {
    const auto &op = op_of<RowGate>(v);
    e.grid("elementwise", "row_gate", quads_of(v, op.out), kThreads, 0,
           RowsArgs{v.ptr<float>(op.x), v.ptr<float>(op.gate), v.ptr<float>(op.out), {}, v.cols(op.out)});
}
void emit_gather_rows(const LaunchView &v, Emit &e) {
    const auto &op = op_of<GatherRows>(v);
    e.grid("elementwise", "gather_rows", quads_of(v, op.out), kThreads, 0,
           RowsArgs{v.ptr<float>(op.x), nullptr, v.ptr<float>(op.out), step_of(v, e), v.cols(op.out)});
}

// ---- norms, quantize

// Up to so many rows a norm takes the kernels for few rows.
constexpr u32 kMostWideRows = 8;

void emit_norm(const LaunchView &v, Emit &e, NormArgs a, ValueId out, ValueId q8, bool out_read) {
    a.rows = static_cast<u32>(v.rows(out) * (v.cols(out) / a.width));
    const bool publish = q8 != kNone && a.width % 32 == 0;
    if (publish) a.q8 = q8_of(v, q8);
    if (out_read || !publish) a.out = v.ptr<float>(out);
    constexpr std::string_view kHeads[] = {"rmsnorm_heads_1", "rmsnorm_heads_2", "rmsnorm_heads_8"};
    // What is normalised: a value, a sum, a sum with combined rows.
    constexpr std::string_view kNorm[3][6] = {
        {"rmsnorm_1", "rmsnorm_2", "rmsnorm_4", "rmsnorm_8", "rmsnorm_16", "rmsnorm_0"},
        {"add_rmsnorm_1", "add_rmsnorm_2", "add_rmsnorm_4", "add_rmsnorm_8", "add_rmsnorm_16", "add_rmsnorm_0"},
        {"combine_rmsnorm_1", "combine_rmsnorm_2", "combine_rmsnorm_4", "combine_rmsnorm_8", "combine_rmsnorm_16",
         "combine_rmsnorm_0"}};
    constexpr std::string_view kWide[3][3] = {
        {"rmsnorm_wide_512", "rmsnorm_wide_1024", "rmsnorm_wide_2048"},
        {"add_rmsnorm_wide_512", "add_rmsnorm_wide_1024", "add_rmsnorm_wide_2048"},
        {"combine_rmsnorm_wide_512", "combine_rmsnorm_wide_1024", "combine_rmsnorm_wide_2048"}};
    const size_t input = a.slot_weights ? 2 : a.b ? 1 : 0;
    // The fewest quads of a thread that the row fits in; the last kernel takes any.
    const size_t size = a.width <= 1024 ? 0 : a.width <= 2048 ? 1 : a.width <= 4096 ? 2 : a.width <= 8192 ? 3 : 4;
    if (input == 0 && a.width < v.cols(out) && a.width <= 1024)
        e.grid("norm",
               kHeads[a.width <= 128   ? 0
                      : a.width <= 256 ? 1
                                       : 2],
               {over(a.rows, kHeadsOfBlock)}, kThreads, 0, a);
    else if (a.rows <= kMostWideRows && a.width > 1024 && a.width <= 8192) {
        const u32 quads = 256u << size;
        e.grid("norm", kWide[input][size - 1], {a.rows}, norm_wide_threads(quads), norm_wide_shared_bytes(quads), a);
    } else
        e.grid("norm", kNorm[input][a.width > 16384 ? 5 : size], {a.rows}, kThreads, kScratch, a);
    if (q8 != kNone && !publish) emit_quantize(v, e, out, q8);
}
void emit_rmsnorm(const LaunchView &v, Emit &e) {
    const auto &op = op_of<RmsNorm>(v);
    NormArgs a{};
    a.x = v.ptr<float>(op.x), a.weight = vector_of(v, op.weight);
    a.width = op.width, a.eps = op.eps;
    emit_norm(v, e, a, op.out, op.q8, op.out_read);
}
void emit_add_rmsnorm(const LaunchView &v, Emit &e) {
    const auto &op = op_of<AddRmsNorm>(v);
    NormArgs a{};
    a.x = v.ptr<float>(op.a), a.b = v.ptr<float>(op.b), a.weight = vector_of(v, op.weight);
    a.sum = v.ptr<float>(op.sum);
    if (op.slots != kNone) a.slot_weights = v.ptr<float>(op.slots), a.slots = v.cols(op.slots);
    a.width = v.cols(op.a), a.eps = op.eps, a.scale = op.scale;
    emit_norm(v, e, a, op.out, op.q8, op.out_read);
}
void emit_quantize_row(const LaunchView &v, Emit &e) {
    const auto &op = op_of<Quantize>(v);
    emit_quantize(v, e, op.x, op.out);
}

// ---- rope, state

// A table of all positions that a sequence can have, and all that it depends on.
std::string key_of(const RopeTable &op, size_t positions) {
    std::string key = "rope_table";
    const auto add = [&](const void *p, size_t n) { key.append(static_cast<const char *>(p), n); };
    add(&positions, sizeof positions);
    add(op.frequency.data(), op.frequency.size() * sizeof(double));
    add(&op.magnitude, sizeof op.magnitude);
    add(&op.temperature, sizeof op.temperature);
    add(&op.temperature_every, sizeof op.temperature_every);
    return key;
}
void fill_table(const RopeTable &op, std::span<std::byte> bytes) {
    auto *out = reinterpret_cast<float *>(bytes.data());
    const size_t pairs = op.frequency.size(), positions = bytes.size() / (2 * pairs * sizeof(float));
    for (size_t p = 0; p < positions; p++) {
        const auto position = static_cast<double>(p);
        double magnitude = op.magnitude;
        if (op.temperature > 0)
            magnitude *= 1 + op.temperature * std::log(1 + std::floor(position / op.temperature_every));
        for (size_t j = 0; j < pairs; j++) {
            const double angle = position * op.frequency[j];
            *out++ = static_cast<float>(std::cos(angle) * magnitude);
            *out++ = static_cast<float>(std::sin(angle) * magnitude);
        }
    }
}
void emit_rope_table(const LaunchView &v, Emit &e) {
    const auto &op = op_of<RopeTable>(v);
    const size_t positions = size_t{v.step.limits.pages} * kPageTokens, cols = v.cols(op.out);
    if (cols == 0) return;
    const uint64_t table = e.table(key_of(op, positions), positions * cols * sizeof(float),
                                   [&](std::span<std::byte> bytes) { fill_table(op, bytes); });
    e.grid("rope", "rope_table", {v.step.tokens()}, 64, 0,
           RopeTableArgs{reinterpret_cast<const float *>(table), v.ptr<float>(op.out), step_of(v, e), v.cols(op.out)});
}

u32 state_type(const LaunchView &v, StateId s) {
    const DType t = v.program.state(s).type;
    return t == DType::f32 ? kStateF32 : t == DType::f16 ? kStateF16 : kStateQ8;
}
void set_state(const LaunchView &v, HeadsArgs &a, ValueId k_cols, ValueId v_cols, StateId k, StateId vs) {
    a.k_cols = v.cols(k_cols), a.v_cols = v.cols(v_cols);
    a.k_state = v.state<std::byte>(k), a.v_state = v.state<std::byte>(vs);
    a.k_type = state_type(v, k), a.v_type = state_type(v, vs);
}
void emit_heads(const LaunchView &v, Emit &e, HeadsArgs a) {
    const u32 d = a.head_dim, heads = over(a.q_cols, d) + over(a.k_cols, d) + over(a.v_cols, d);
    const u32 quads = d <= 128 ? 1 : d <= 256 ? 2 : 8;
    a.step = step_of(v, e);
    e.grid("rope",
           quads == 1   ? "qk_norm_rope_1"
           : quads == 2 ? "qk_norm_rope_2"
                        : "qk_norm_rope_8",
           {v.step.tokens(), over(heads, kHeadsOfBlock)}, kThreads, kHeadsOfBlock * 128 * quads * sizeof(float), a);
}
void emit_rope(const LaunchView &v, Emit &e) {
    const auto &op = op_of<Rope>(v);
    HeadsArgs a{};
    a.q = v.ptr<float>(op.x), a.q_out = v.ptr<float>(op.out), a.table = v.ptr<float>(op.table);
    a.q_cols = v.cols(op.x), a.head_dim = op.head_dim, a.n_rot = v.cols(op.table);
    a.adjacent = op.pairs == RopePairs::adjacent ? 1 : 0;
    emit_heads(v, e, a);
}
void emit_kv_write(const LaunchView &v, Emit &e) {
    const auto &op = op_of<KvWrite>(v);
    HeadsArgs a{};
    a.k = v.ptr<float>(op.k), a.v = v.ptr<float>(op.v);
    set_state(v, a, op.k, op.v, op.k_state, op.v_state);
    a.head_dim = 128;  // a piece of a row
    emit_heads(v, e, a);
}
void emit_qk_norm_rope(const LaunchView &v, Emit &e) {
    const auto &op = op_of<QkNormRope>(v);
    HeadsArgs a{};
    a.q = v.ptr<float>(op.q), a.k = v.ptr<float>(op.k), a.v = v.ptr<float>(op.v);
    a.q_out = v.ptr<float>(op.q_out), a.table = v.ptr<float>(op.table);
    a.q_norm = vector_of(v, op.q_norm), a.k_norm = vector_of(v, op.k_norm);
    set_state(v, a, op.k, op.v, op.k_state, op.v_state);
    a.q_cols = v.cols(op.q), a.head_dim = op.head_dim, a.n_rot = v.cols(op.table), a.eps = op.eps;
    a.adjacent = op.pairs == RopePairs::adjacent ? 1 : 0;
    emit_heads(v, e, a);
}
template <class T>
std::string_view refuses_heads(const Program &, const Op &op) {
    return std::get_if<T>(&op)->head_dim > 1024 ? "head_dim is above 1024" : "";
}

// ---- softmax, selection, experts

void emit_rows(const LaunchView &v, Emit &e, std::string_view name, ValueId x, size_t shared, const RouteArgs &a) {
    e.grid("route", name, {rows_of(v, x)}, kThreads, shared, a);
}
void emit_softmax(const LaunchView &v, Emit &e) {
    const auto &op = op_of<Softmax>(v);
    emit_rows(v, e, "softmax", op.x, kScratch, {v.ptr<float>(op.x), v.ptr<float>(op.out), nullptr, v.cols(op.x), 0, 0});
}
void emit_normalize(const LaunchView &v, Emit &e) {
    const auto &op = op_of<Normalize>(v);
    emit_rows(v, e, "normalize", op.x, kScratch,
              {v.ptr<float>(op.x), v.ptr<float>(op.out), nullptr, v.cols(op.x), 0, 0});
}
void emit_top_k(const LaunchView &v, Emit &e) {
    const auto &op = op_of<TopK>(v);
    const u32 n = v.cols(op.x), k = v.cols(op.ids);
    const RouteArgs a{v.ptr<float>(op.x), v.ptr<float>(op.weights), v.ptr<i32>(op.ids), n, k, 0};
    if (n <= kMostRouted)
        emit_rows(v, e, "top_k", op.x, route_shared_bytes(n, k), a);
    else
        emit_rows(v, e, "top_k_large", op.x, kScratch, a);
}
void emit_moe_route(const LaunchView &v, Emit &e) {
    const auto &op = op_of<MoeRoute>(v);
    const u32 n = v.cols(op.logits), k = v.cols(op.ids);
    const RouteArgs a{v.ptr<float>(op.logits), v.ptr<float>(op.weights), v.ptr<i32>(op.ids), n, k,
                      op.normalize ? 1u : 0u};
    const u32 few = n <= 128 ? 1 : 2;
    if (n <= 256 && k <= kRouteFew)
        e.grid("route", few == 1 ? "moe_route_1" : "moe_route_2", {rows_of(v, op.logits)}, 128 * few,
               route_few_shared_bytes(few), a);
    else
        emit_rows(v, e, "moe_route", op.logits, route_shared_bytes(n, k), a);
}
std::string_view refuses_route(const Program &program, const Op &op) {
    return program.value(std::get_if<MoeRoute>(&op)->logits).cols > kMostRouted ? "more than 4096 experts" : "";
}
void emit_moe_combine(const LaunchView &v, Emit &e) {
    const auto &op = op_of<MoeCombine>(v);
    e.grid("route", "moe_combine", {rows_of(v, op.out), over(v.cols(op.out), 4 * kCombineThreads)}, kCombineThreads, 0,
           CombineArgs{v.ptr<float>(op.x), v.ptr<float>(op.weights), v.ptr<float>(op.out), v.cols(op.out),
                       v.cols(op.weights)});
}

// Blocks of a row: each thread takes four quads, as far as that makes no more blocks than are waited for in vain.
u32 arg_max_blocks(u32 n) { return std::min(over(n, 16 * kThreads), 128u); }
size_t arg_max_shared(const Program &program, const Op &op, const StepLimits &limits) {
    const Value &x = program.value(std::get_if<ArgMax>(&op)->x);
    return Tile::kSharedZero +
           ridge::rows_of(x, limits.tokens, limits.outputs) * arg_max_blocks(x.cols) * sizeof(u32x2);
}
void emit_arg_max(const LaunchView &v, Emit &e) {
    const auto &op = op_of<ArgMax>(v);
    constexpr u32 kMostRows = Tile::kSharedZero / sizeof(u32);  // that have a counter
    const u32 n = v.cols(op.x), rows = rows_of(v, op.x), blocks = arg_max_blocks(n);
    for (u32 first = 0; first < rows; first += kMostRows)
        e.grid("route", "arg_max", {std::min(rows - first, kMostRows), blocks}, kThreads, kScratch + 64,
               ArgMaxArgs{v.ptr<float>(op.x) + size_t{first} * n, v.ptr<i32>(op.ids) + first,
                          reinterpret_cast<u32 *>(v.shared),
                          reinterpret_cast<u32x2 *>(v.shared + Tile::kSharedZero) + size_t{first} * blocks, n, blocks});
}

// Blocks of a row: each thread takes 16 logits at a time, once where that makes no more than the last block can join.
u32 sample_blocks(u32 n) { return std::min(over(n, kSampleHeld * kSampleThreads), 64u); }
size_t sample_shared(const Program &program, const Op &op, const StepLimits &limits) {
    const u32 n = program.value(std::get_if<Sample>(&op)->x).cols;
    return Tile::kSharedZero + size_t{limits.outputs} * sample_blocks(n) * kMostPlaces * sizeof(u64);
}
void emit_sample(const LaunchView &v, Emit &e) {
    static_assert(kWordsOfDraw == kDrawWords);
    const auto &op = op_of<Sample>(v);
    constexpr u32 kMostRows = Tile::kSharedZero / sizeof(u32);  // that have a counter
    const u32 n = v.cols(op.x), rows = rows_of(v, op.x), blocks = sample_blocks(n);
    for (u32 first = 0; first < rows; first += kMostRows)
        e.grid("sample", "sample", {std::min(rows - first, kMostRows), blocks}, kSampleThreads, sizeof(SampleShared),
               SampleArgs{v.ptr<float>(op.x), v.ptr<i32>(op.ids), reinterpret_cast<u32 *>(v.shared),
                          reinterpret_cast<u64 *>(v.shared + Tile::kSharedZero), step_of(v, e), n, blocks,
                          over(n, blocks * kSampleHeld * kSampleThreads), first});
}

template <class T>
Row row(std::string_view name, Order order, void (*emit)(const LaunchView &, Emit &)) {
    Row r;
    r.kernel.name = name, r.kernel.op = kind<T>(), r.kernel.order = order;
    r.emit = emit;
    return r;
}

std::vector<Row> make_rows() {
    std::vector<Row> rows;
    const auto add = [&](Row r) -> Kernel & { return rows.emplace_back(std::move(r)).kernel; };
    add(row<Embed>("simt.embed", Order::exact, emit_embed)).formats = FormatSet::all();
    add(row<RmsNorm>("simt.rmsnorm", Order::f32_quads256, emit_rmsnorm)).publishes = true;
    add(row<AddRmsNorm>("simt.add_rmsnorm", Order::f32_quads256, emit_add_rmsnorm)).publishes = true;
    add(row<Quantize>("simt.quantize", Order::exact, emit_quantize_row));
    add(row<RopeTable>("simt.rope_table", Order::exact, emit_rope_table));
    add(row<Rope>("simt.rope", Order::exact, emit_rope)).refuses = refuses_heads<Rope>;
    add(row<KvWrite>("simt.kv_write", Order::exact, emit_kv_write));
    add(row<QkNormRope>("simt.qk_norm_rope", Order::f32_quads256, emit_qk_norm_rope)).refuses =
        refuses_heads<QkNormRope>;
    add(row<Glu>("simt.glu", Order::exact, emit_glu));
    add(row<Add>("simt.add", Order::exact, emit_add));
    add(row<Scale>("simt.scale", Order::exact, emit_scale));
    add(row<RowGate>("simt.row_gate", Order::exact, emit_row_gate));
    add(row<GatherRows>("simt.gather_rows", Order::exact, emit_gather_rows));
    add(row<Softmax>("simt.softmax", Order::f32_quads256, emit_softmax));
    add(row<Normalize>("simt.normalize", Order::f32_quads256, emit_normalize));
    add(row<TopK>("simt.top_k", Order::exact, emit_top_k));
    add(row<MoeRoute>("simt.moe_route", Order::f32_quads256, emit_moe_route)).refuses = refuses_route;
    add(row<MoeCombine>("simt.moe_combine", Order::exact, emit_moe_combine));
    add(row<ArgMax>("simt.arg_max", Order::exact, emit_arg_max)).tile.shared_bytes = arg_max_shared;
    add(row<Sample>("simt.sample", Order::exact, emit_sample)).tile.shared_bytes = sample_shared;
    return rows;
}

}  // namespace

void emit_quantize(const LaunchView &view, Emit &emit, ValueId x, ValueId q8) {
    const auto quads = static_cast<uint32_t>(view.rows(x) * (view.cols(x) / 4));
    emit.grid("elementwise", "quantize", {over(quads, kThreads)}, kThreads, 0,
              QuantizeArgs{view.ptr<float>(x), q8_of(view, q8), quads});
}

std::span<const Row> other_rows() {
    static const std::vector<Row> rows = make_rows();
    return rows;
}

}  // namespace ridge::simt
