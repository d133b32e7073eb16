// Rows of contraction without matrix instructions: int8 dots for steps of few tokens (and, slower, of any), and f32.
#include <algorithm>
#include <array>
#include <vector>

#include "backend/simt/banks.h"
#include "backend/simt/kernels/contract_dot.h"
#include "backend/simt/rows.h"
#include "core/error.h"
#include "format/tables.h"

namespace ridge::simt {
namespace {

constexpr uint32_t kThreads = kDotThreads, kLeastStages = 2, kMostStages = 8, kUnitRows = 2;  // as in contract_dot.cuh
constexpr uint32_t kResident = 3;  // blocks of a processor that its shared memory is divided by

// The kernels' names, by the rows of x that they take together.
struct Kernels {
    Format format;
    std::string_view file;
    std::array<std::string_view, 4> name;  // of 1, 2, 4, 8
    TableLayout layout;                    // as the file has it
    uint32_t table_first = 0, table_words = 0;
};

#define NAMES(prefix)                                                                             \
    {                                                                                             \
        "contract_dot_" #prefix "_1", "contract_dot_" #prefix "_2", "contract_dot_" #prefix "_4", \
            "contract_dot_" #prefix "_8"                                                          \
    }
#define ROW(NAME, prefix, file, ...) \
    { Format::NAME, "contract_dot_" #file, NAMES(prefix), __VA_ARGS__ }
constexpr Kernels kKernels[] = {
    ROW(Q4_0, q4_0, plain, kValueTables),
    ROW(Q4_1, q4_1, plain, kValueTables),
    ROW(Q5_0, q5_0, plain, kValueTables),
    ROW(Q5_1, q5_1, plain, kValueTables),
    ROW(Q8_0, q8_0, plain, kValueTables),
    ROW(IQ4_NL, iq4_nl, plain, kValueTables, iq4nl_values),
    ROW(IQ4_XS, iq4_xs, plain, kValueTables, iq4nl_values),
    ROW(MXFP4, mxfp4, plain, kValueTables, mxfp4_values),
    ROW(Q2_K, q2_K, k, kTablesAsTheyAre),
    ROW(Q3_K, q3_K, k, kTablesAsTheyAre),
    ROW(Q4_K, q4_K, k, kTablesAsTheyAre),
    ROW(Q5_K, q5_K, k, kTablesAsTheyAre),
    ROW(Q6_K, q6_K, k, kTablesAsTheyAre),
    ROW(TQ1_0, tq1_0, k, kTablesAsTheyAre),
    ROW(TQ2_0, tq2_0, k, kTablesAsTheyAre),
    ROW(IQ2_XXS, iq2_xxs, iq2_xxs, table_layout(iq2xxs_grid, 2, 8), iq2xxs_grid),
    ROW(IQ2_XS, iq2_xs, iq2_xs, table_layout(iq2xs_grid, 2), iq2xs_grid),
    ROW(IQ2_S, iq2_s, iq2_s, table_layout(iq2s_grid, 2), iq2s_grid),
    ROW(IQ3_XXS, iq3_xxs, iq3_xxs, table_layout(iq3xxs_grid), iq3xxs_grid),
    ROW(IQ3_S, iq3_s, iq3_s, table_layout(iq3s_grid), iq3s_grid),
    ROW(IQ1_S, iq1_s, iq1, table_layout(iq1s_grid), iq1s_grid),
    ROW(IQ1_M, iq1_m, iq1, table_layout(iq1s_grid), iq1s_grid),
};
// The formats whose signs are a bit for each weight but one, looked up in a table instead (lever sign_parity off), and
// two with a bit for every weight, whose kernels are the same text as above: what differs there is noise.
constexpr Kernels kSignTable[] = {
    ROW(IQ2_XXS, iq2_xxs_signs, iq2_xxs, table_layout(iq2xxs_grid, 2, 8), iq2xxs_grid),
    ROW(IQ2_XS, iq2_xs_signs, iq2_xs, table_layout(iq2xs_grid, 2), iq2xs_grid),
    ROW(IQ3_XXS, iq3_xxs_signs, iq3_xxs, table_layout(iq3xxs_grid), iq3xxs_grid),
    ROW(IQ2_S, iq2_s_signs, iq2_s, table_layout(iq2s_grid, 2), iq2s_grid),
    ROW(IQ3_S, iq3_s_signs, iq3_s, table_layout(iq3s_grid), iq3s_grid),
};
constexpr Kernels kAny = {Format::F32, "contract_dot_any", NAMES(any), kTablesAsTheyAre};
#undef ROW
#undef NAMES

const Kernels &kernels_of(Format f, bool sign_table) {
    if (sign_table)
        for (const Kernels &k : kSignTable)
            if (k.format == f) return k;
    for (const Kernels &k : kKernels)
        if (k.format == f) return k;
    return kAny;
}

FormatSet signed_formats() {
    FormatSet s;
    for (const Kernels &k : kSignTable) s = s | FormatSet{k.format};
    return s;
}

DotBank dot_bank(const LaunchView &v, const Bank &b, uint32_t first, uint32_t wave) {
    const Weight &w = v.program.weight(b.weight);
    const FormatInfo &f = info(w.format);
    const size_t row = row_bytes(w.format, w.k);
    DotBank d{};
    d.weight = v.weight(b.weight);
    d.bias = b.bias == kNone ? nullptr : reinterpret_cast<const f32 *>(v.weight(b.bias));
    d.out = b.out == kNone ? nullptr : v.ptr<f32>(b.out);
    d.expert_bytes = row * w.n, d.row_bytes = static_cast<u32>(row);
    d.n = w.n, d.first = first;
    d.format = static_cast<u32>(w.format);
    d.step_bytes = wave * 32 / std::max(f.block, 1u) * f.bytes;
    return d;
}

// Fills what both kinds of arguments have; a unit is `per` rows of a bank. Returns the routed rows, 0 without ids.
template <class Args>
uint32_t fill(const LaunchView &v, const Banks &b, uint32_t wave, uint32_t per, Args &a) {
    uint32_t units = 0;
    for (uint32_t i = 0; i < b.n; i++) {
        a.bank[i] = dot_bank(v, b.bank[i], units, wave);
        units += (a.bank[i].n + per - 1) / per;
    }
    const Weight &w = v.program.weight(b.bank[0].weight);
    a.n_banks = b.n, a.k = w.k;
    a.units = b.gated ? w.n : units;
    a.glu = b.gated ? static_cast<u32>(b.kind) + 1 : 0;
    if (b.ids == kNone) return 0;
    a.ids = v.ptr<const i32>(b.ids);
    a.experts = w.experts, a.slots = v.cols(b.ids);
    const auto routed = static_cast<uint32_t>(v.rows(b.ids) * v.cols(b.ids));
    a.x_by_slot = v.rows(b.x) == routed && a.slots > 1 ? 1 : 0;
    return routed;
}

// Whether the launch in front is one of emit_dots that reads the same ids, so that it does not write them and waits for
// them before it lets the next one start.
void emit_int8(const LaunchView &v, Emit &e);
void emit_sign_table(const LaunchView &v, Emit &e);
bool settles_ids(const Front &front, ValueId ids) {
    return front.row != nullptr && (front.row->emit == emit_int8 || front.row->emit == emit_sign_table) &&
           banks_of(*front.op).ids == ids;
}

void emit_dots(const LaunchView &v, Emit &e, bool sign_table) {
    const Banks b = banks_of(v.op);
    const uint32_t wave = e.device().wave, waves = kThreads / wave;
    ContractDotArgs a{};
    const uint32_t routed = fill(v, b, wave, kUnitRows, a);
    a.x = q8_of(v, b.x);
    a.tokens = routed > 0 ? 1 : static_cast<uint32_t>(v.rows(b.x));

    const Kernels *k = &kernels_of(v.program.weight(b.bank[0].weight).format, sign_table);
    bool same = true;
    uint32_t first = UINT32_MAX, last = 0, step = 0, row = 0;
    for (uint32_t i = 0; i < b.n; i++) {
        const Format f = v.program.weight(b.bank[i].weight).format;
        const Kernels &of = kernels_of(f, sign_table);
        same = same && &of == k;
        if (of.table_words > 0)
            first = std::min(first, of.table_first), last = std::max(last, of.table_first + of.table_words);
        step = std::max(step, a.bank[i].step_bytes), row = std::max(row, a.bank[i].row_bytes);
    }
    if (!same) k = &kAny;
    if (last > 0) {
        a.table_first = first, a.table_words = last - first;
        a.ring_at = ((last - k->layout.origin) * k->layout.copies * 4 + 15) / 16 * 16;
    }
    // As many blocks as are resident at once, of all routed rows that share a launch: each wave goes on to its next
    // units.
    const uint32_t sharing = v.program.levers.has(Lever::expert_ids_on_device) ? std::max(routed, 1u) : 1;
    const uint32_t resident = std::max(e.device().processors * kResident / sharing, 1u);
    a.blocks = std::min((a.units + waves - 1) / waves, resident);
    uint32_t of_wave = (a.units + a.blocks * waves - 1) / (a.blocks * waves);
    if (b.q8 != kNone) {
        // A block makes whole blocks of 32 of the output.
        const uint32_t blocks = a.units / 32, all = e.device().processors * kResident, each = (blocks + all - 1) / all;
        a.q8 = q8_of(v, b.q8), a.q8_units = 32 * each, a.blocks = (blocks + each - 1) / each;
        of_wave = a.q8_units / waves;
        if (!b.out_read) a.bank[0].out = nullptr;
    }
    // Beside its bytes a run of rows has up to 15 before and 15 behind them; behind a wave's stages is a barrier of 8
    // bytes for each. The driver keeps 1 KiB for each block; another is for the values that are published.
    const auto stage_bytes = [](uint32_t bytes) { return (bytes + 30) / 16 * 16; };
    const auto ring_bytes = [&](uint32_t bytes, uint32_t stages) {
        return (stages * kUnitRows * stage_bytes(bytes) + stages * 8 + 15) / 16 * 16;
    };
    constexpr uint32_t kKept = 1024, kValues = 1024;
    const uint32_t most = (e.device().shared_per_block + kKept) / kResident - kKept - kValues;
    const auto fits = [&](uint32_t bytes, uint32_t stages) {
        return a.ring_at + waves * ring_bytes(bytes, stages) <= most;
    };
    const uint32_t steps = (a.k / 32 + wave - 1) / wave;
    a.stage_steps = 1, a.stages = kLeastStages;
    uint32_t bytes = 0;
    bool whole = same;  // no bank has an odd row left
    for (uint32_t i = 0; i < b.n && !b.gated; i++) whole = whole && a.bank[i].n % kUnitRows == 0;
    if (whole && fits(row, a.stages)) {
        // Units of one bank, or pairs, follow each other in memory. A wave takes one run of them: of a large matrix the
        // blocks that come fetch while those that are there compute (93% of the read ceiling in the heads measured).
        uint32_t units = 1;
        while (units < of_wave && (b.n == 1 || b.gated) && fits((units + 1) * row, a.stages)) units++;
        const uint32_t runs = (of_wave + units - 1) / units;
        a.stage_units = (of_wave + runs - 1) / runs;
        bytes = a.stage_units * row;
        if (b.q8 == kNone) a.blocks = (a.units + waves * a.stage_units - 1) / (waves * a.stage_units);
    } else {
        // As many steps of a row as there is room for, in pieces that are alike.
        while (a.stage_steps < steps && fits(std::min((a.stage_steps + 1) * step, row), a.stages)) a.stage_steps++;
        const uint32_t pieces = (steps + a.stage_steps - 1) / a.stage_steps;
        a.stage_steps = (steps + pieces - 1) / pieces;
        bytes = std::min(a.stage_steps * step, row);
    }
    while (a.stages < kMostStages && fits(bytes, a.stages + 1)) a.stages++;
    a.stage_bytes = stage_bytes(bytes), a.ring_bytes = ring_bytes(bytes, a.stages);
    a.values_at = a.ring_at + waves * a.ring_bytes;
    const uint32_t shared = a.values_at + std::min(a.tokens, 8u) * a.q8_units * static_cast<uint32_t>(sizeof(f32));
    a.ids_settled = routed > 0 && settles_ids(e.front(), b.ids) ? 1 : 0;
    const uint32_t m = a.tokens == 1 ? 0 : a.tokens == 2 ? 1 : a.tokens <= 4 ? 2 : 3, per = 1u << m;
    const Grid grid{a.blocks, std::max(routed, 1u), (a.tokens + per - 1) / per};
    // A grid that leaves half of the device free lets the next one in at once; a larger one would have its blocks crowd
    // on the processors that are done first.
    a.next_early = uint64_t{grid.x} * grid.y * grid.z <= 2 * e.device().processors ? 1 : 0;
    if (routed == 0 || v.program.levers.has(Lever::expert_ids_on_device)) {
        e.grid(k->file, k->name[m], grid, kThreads, shared, a);
        return;
    }
    // Expert by expert from the host: a launch for each routed row, as where ids come back first.
    const std::span<const int32_t> ids = e.read_ids(reinterpret_cast<uint64_t>(a.ids), routed);
    for (uint32_t r = 0; r < routed; r++) {
        ContractDotArgs one = a;
        const uint64_t expert = std::min(static_cast<uint32_t>(ids[r]), a.experts - 1);
        const uint64_t x_row = a.x_by_slot != 0 ? r : r / a.slots;
        one.ids = nullptr;
        one.x.codes += x_row * a.k, one.x.scale += x_row * (a.k / 32), one.x.sums += x_row * (a.k / 16);
        if (b.q8 != kNone)
            one.q8.codes += uint64_t{r} * a.units, one.q8.scale += uint64_t{r} * (a.units / 32),
                one.q8.sums += uint64_t{r} * (a.units / 16);
        for (uint32_t i = 0; i < b.n; i++) {
            DotBank &bank = one.bank[i];
            bank.weight += expert * bank.expert_bytes;
            if (bank.bias) bank.bias += expert * bank.n;
            if (bank.out) bank.out += uint64_t{r} * bank.n;
        }
        e.grid(k->file, k->name[0], {a.blocks, 1, 1}, kThreads, shared, one);
    }
}

void emit_int8(const LaunchView &v, Emit &e) { emit_dots(v, e, false); }
void emit_sign_table(const LaunchView &v, Emit &e) { emit_dots(v, e, true); }

// f32 activations: a launch of kernel `name`, a block of which makes `units` of the result in a row of x.
void emit_f32_blocks(const LaunchView &v, Emit &e, std::string_view name, uint32_t units, uint32_t threads,
                     uint32_t shared) {
    const Banks b = banks_of(v.op);
    ContractF32Args a{};
    const uint32_t routed = fill(v, b, e.device().wave, 1, a);
    a.x = v.ptr<const f32>(b.x);
    a.rows = routed > 0 ? routed : static_cast<uint32_t>(v.rows(b.x));
    a.grid_rows = std::min(a.rows, 32768u);
    e.grid(name, name, {(a.units + units - 1) / units, a.grid_rows}, threads, shared, a);
    if (b.q8 != kNone) emit_quantize(v, e, b.bank[0].out, b.q8);
}
void emit_f32(const LaunchView &v, Emit &e) {
    emit_f32_blocks(v, e, "contract_f32", kThreads / e.device().wave, kThreads, 0);
}
void emit_float(const LaunchView &v, Emit &e) {
    constexpr uint32_t kFloatThreads = 128;
    emit_f32_blocks(v, e, "contract_float", 1, kFloatThreads, 4 * sizeof(float));
}

// Contract and GateUp have the same rows.
template <class T>
void add_rows(std::vector<Row> &rows, std::array<std::string_view, 5> names) {
    Kernel k;
    k.op = kind<T>();
    k.input = DType::q8;
    k.order = Order::int8_lanes;
    k.publishes = true;
    // Of mixed formats this is the one there is.
    k.name = names[0], k.formats = FormatSet::quantized(), k.rank = 8;
    rows.push_back({k, emit_int8});
    k.name = names[1], k.formats = signed_formats(), k.lever = Lever::sign_parity, k.rank = 10;
    rows.push_back({k, emit_int8});
    k.name = names[2], k.lever = Lever::none, k.rank = 9;
    rows.push_back({k, emit_sign_table});
    k.name = names[3], k.formats = FormatSet::all(), k.input = DType::f32, k.order = Order::f32_lanes, k.rank = 0;
    rows.push_back({k, emit_f32});
    k.name = names[4], k.formats = FormatSet::floats(), k.order = Order::f32_quads128, k.rank = 1;
    rows.push_back({k, emit_float});
}

const std::vector<Row> kRows = [] {
    std::vector<Row> rows;
    add_rows<Contract>(rows, {"simt.contract.int8dot", "simt.contract.int8dot.sign_parity",
                              "simt.contract.int8dot.sign_table", "simt.contract.f32", "simt.contract.float"});
    add_rows<GateUp>(rows, {"simt.gate_up.int8dot", "simt.gate_up.int8dot.sign_parity",
                            "simt.gate_up.int8dot.sign_table", "simt.gate_up.f32", "simt.gate_up.float"});
    return rows;
}();

}  // namespace

std::span<const Row> contract_dot_rows() { return kRows; }

}  // namespace ridge::simt
