// Cuts contract and gate_up into tiles and describes a tile in plain pointers.
#include "backend/cpu/contract.h"

#include <algorithm>
#include <array>
#include <variant>

#include "core/error.h"

namespace ridge::cpu {
namespace {

// A launch: up to three banks of one or two matrices (gate and up) that read the same x.
struct Launch {
    struct Bank {
        std::array<WeightId, 2> weight = {kNone, kNone};
        WeightId bias = kNone;
        ValueId out = kNone;
    };
    ValueId x = kNone, ids = kNone;
    uint32_t n_banks = 0, n_matrices = 1;
    GluKind glu = GluKind::silu;
    std::array<Bank, 3> banks;
};

Launch launch_of(const Op &op) {
    Launch l;
    if (const auto *c = std::get_if<Contract>(&op)) {
        l.x = c->x, l.ids = c->ids, l.n_banks = c->n_banks;
        for (uint32_t b = 0; b < c->n_banks; b++)
            l.banks[b] = {{c->banks[b].weight, kNone}, c->banks[b].bias, c->banks[b].out};
    } else {
        const auto &g = std::get<GateUp>(op);
        l.x = g.x, l.ids = g.ids, l.n_banks = 1, l.n_matrices = 2, l.glu = g.kind;
        l.banks[0] = {{g.gate, g.up}, kNone, g.out};
    }
    return l;
}

// How the output rows are split over tiles: not at all, by expert, or one by one.
struct Split {
    uint32_t outputs;  // output rows: m, with ids m * slots
    uint32_t groups;   // 1, experts or outputs
    bool by_expert, one_by_one;
};

Split split_of(const LaunchView &view, const Launch &l) {
    if (l.ids == kNone) return {static_cast<uint32_t>(view.rows(l.x)), 1, false, false};
    const uint32_t outputs = static_cast<uint32_t>(view.rows(l.ids)) * view.cols(l.ids);
    const uint32_t experts = view.program.weight(l.banks[0].weight[0]).experts;
    // Fewer routed rows than experts: most experts have none and the others one, so tiles by expert would mostly be
    // empty and share nothing.
    if (outputs < experts || view.program.levers.has(Lever::moe_by_slot)) return {outputs, outputs, false, true};
    return {outputs, experts, true, false};
}

// Weight rows per tile. A tile should be worth its dispatch (about 0.1 us) and leave enough of them for many workers.
uint32_t rows_per_tile(const LaunchView &view, const Launch &l, const Split &s) {
    if (s.by_expert) return 4 * kRowBlock;  // every tile scans the ids
    uint64_t rows = 0;
    for (uint32_t b = 0; b < l.n_banks; b++) rows += view.program.weight(l.banks[b].weight[0]).n;
    if (s.groups == 1 && s.outputs > 4) return (rows >= 2048 ? 4 : 2) * kRowBlock;
    return kRowBlock * static_cast<uint32_t>(std::clamp<uint64_t>(rows * s.groups / 4096, 1, 4));
}

uint32_t tiles_of_bank(const LaunchView &view, const Launch::Bank &bank, const Split &s, uint32_t block) {
    return s.groups * ((view.program.weight(bank.weight[0]).n + block - 1) / block);
}

}  // namespace

uint32_t contract_tiles(const LaunchView &view) {
    const Launch l = launch_of(view.op);
    const Split s = split_of(view, l);
    if (s.outputs == 0) return 0;
    const uint32_t block = rows_per_tile(view, l, s);
    uint32_t tiles = 0;
    for (uint32_t b = 0; b < l.n_banks; b++) tiles += tiles_of_bank(view, l.banks[b], s, block);
    return tiles;
}

Work contract_work(const LaunchView &view, uint32_t tile) {
    const Launch l = launch_of(view.op);
    const Split s = split_of(view, l);
    const uint32_t block = rows_per_tile(view, l, s);
    uint32_t b = 0;
    for (uint32_t tiles; tile >= (tiles = tiles_of_bank(view, l.banks[b], s, block)); b++) tile -= tiles;
    const Launch::Bank &bank = l.banks[b];

    Work w = {};
    const Weight &shape = view.program.weight(bank.weight[0]);
    w.n = shape.n, w.k = shape.k, w.n_matrices = l.n_matrices, w.glu = l.glu;
    const uint32_t blocks = (w.n + block - 1) / block;
    const uint32_t group = tile / blocks, first = tile % blocks * block;
    w.n_rows = std::min(block, w.n - first);
    w.out = view.ptr<float>(bank.out) + first;

    uint32_t expert = 0;
    w.tokens = {0, s.outputs, nullptr, 0, 1};
    if (l.ids != kNone) {
        const int32_t *ids = view.ptr<const int32_t>(l.ids);
        expert = s.one_by_one ? static_cast<uint32_t>(ids[group]) : group;
        if (view.rows(l.x) != s.outputs) w.tokens.slots = view.cols(l.ids);
        if (s.one_by_one) w.tokens.next = group, w.tokens.end = group + 1;
        if (s.by_expert) w.tokens.ids = ids, w.tokens.expert = static_cast<int32_t>(expert);
    }
    for (uint32_t i = 0; i < l.n_matrices; i++) {
        const Weight &weight = view.program.weight(bank.weight[i]);
        Matrix &m = w.matrix[i];
        m.format = weight.format, m.row_bytes = row_bytes(weight.format, w.k);
        m.rows = view.weight(bank.weight[i]) + (size_t{expert} * w.n + first) * m.row_bytes;
        m.bias = bank.bias == kNone
                     ? nullptr
                     : reinterpret_cast<const float *>(view.weight(bank.bias)) + size_t{expert} * w.n + first;
    }
    if (view.program.value(l.x).type == DType::q8) {
        const Q8View q8 = view.q8(l.x);
        w.codes = q8.codes, w.scale = q8.scale, w.sums = q8.sums;
    } else {
        w.x = view.ptr<const float>(l.x);
    }
    return w;
}

uint32_t take(Tokens &t, uint32_t *x_row, uint32_t *out_row, uint32_t max) {
    constexpr uint32_t kStride = 16;  // ids looked at together, since most experts have few of them
    uint32_t count = 0;
    while (t.next < t.end && count < max) {
        if (t.ids != nullptr) {
            if (t.next + kStride <= t.end) {
                int32_t hit = 0;
                for (uint32_t i = 0; i < kStride; i++) hit |= t.ids[t.next + i] == t.expert;
                if (hit == 0) {
                    t.next += kStride;
                    continue;
                }
            }
            // Stops behind the stride or where the list is full.
            const uint32_t stop = std::min(t.next + kStride, t.end);
            for (; t.next < stop && count < max; t.next++) {
                if (t.ids[t.next] != t.expert) continue;
                x_row[count] = t.next / t.slots, out_row[count] = t.next, count++;
            }
            continue;
        }
        x_row[count] = t.next / t.slots, out_row[count] = t.next, count++, t.next++;
    }
    return count;
}

}  // namespace ridge::cpu
