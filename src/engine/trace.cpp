#include "engine/trace.h"

#include <algorithm>
#include <array>
#include <limits>

namespace ridge {
namespace {

// What the tokens of a step attend to. A sequence's tokens follow each other, so it is described by its ends.
StepTrace::Window seen(const StepView &step, uint32_t window) {
    struct Range {
        uint32_t first = std::numeric_limits<uint32_t>::max(), last = 0;
    };
    std::vector<Range> sequences(step.limits.sequences);
    StepTrace::Window w{.window = window};
    const uint32_t most = window > 0 ? window : std::numeric_limits<uint32_t>::max();
    for (uint32_t i = 0; i < step.tokens(); i++) {
        const auto position = static_cast<uint32_t>(step.position()[i]);
        Range &r = sequences[static_cast<size_t>(step.sequence()[i])];
        r.first = std::min(r.first, position), r.last = std::max(r.last, position);
        w.kv_positions += std::min(position + 1, most);
    }
    for (const Range &r : sequences)
        if (r.first <= r.last) w.kv_rows += r.last + 1 - (r.first + 1 - std::min(r.first + 1, most));
    return w;
}

}  // namespace

void StepTrace::begin(const Program &p, const StepView &step) {
    const Window all = seen(step, 0);
    count = {
        .tokens = step.tokens(), .outputs = step.outputs(), .kv_positions = all.kv_positions, .kv_rows = all.kv_rows};
    prompt = count.tokens > step.limits.sequences;
    wall = logits = apart = waiting = overhead = 0;
    workers = 1, barriers = 0;
    launches.clear();
    launches.reserve(p.nodes.size());
    windows.clear();
    for (const Node &n : p.nodes) {
        const Attention *a = std::get_if<Attention>(&n.op);
        if (a == nullptr || a->window == 0) continue;
        const auto same = [a](const Window &w) { return w.window == a->window; };
        if (std::none_of(windows.begin(), windows.end(), same)) windows.push_back(seen(step, a->window));
    }
    stamp_cost();  // not while the clock runs
    began = TraceClock::now();
}

void StepTrace::end(const Program &p) {
    wall = time_of(TraceClock::now());
    double sum = 0;
    size_t counted = 0;
    for (const LaunchTrace &l : launches)
        if (const double share = count_of(p, l).expert_share; share >= 0) sum += share, counted++;
    if (counted > 0) count.expert_share = sum / static_cast<double>(counted);
}

StepCount StepTrace::count_of(const Program &p, const LaunchTrace &launch) const {
    const Op &op = p.nodes[launch.node].op;
    StepCount c = count;
    if (const Attention *a = std::get_if<Attention>(&op))
        for (const Window &w : windows)
            if (w.window == a->window) c.kv_positions = w.kv_positions, c.kv_rows = w.kv_rows;
    const uint32_t total = expert_total(p, op);
    c.expert_share = launch.experts > 0 && total > 0 ? static_cast<double>(launch.experts) / total : -1;
    return c;
}

uint32_t count_experts(const int32_t *ids, size_t n, uint32_t experts) {
    constexpr size_t kWords = 64;
    std::array<uint64_t, kWords> bits{};
    uint32_t found = 0;
    // Almost all models have fewer experts than the table has bits; others take several passes.
    for (uint32_t first = 0; first < experts; first += kWords * 64) {
        bits.fill(0);
        const uint32_t here = std::min<uint32_t>(experts - first, kWords * 64);
        for (size_t i = 0; i < n; i++) {
            const uint32_t id = static_cast<uint32_t>(ids[i]) - first;
            if (id < here) bits[id / 64] |= uint64_t{1} << (id % 64);
        }
        for (uint64_t word : bits) found += static_cast<uint32_t>(__builtin_popcountll(word));
    }
    return found;
}

ValueId expert_ids(const Op &op) {
    if (const Contract *c = std::get_if<Contract>(&op)) return c->ids;
    if (const GateUp *g = std::get_if<GateUp>(&op)) return g->ids;
    return kNone;
}

uint32_t expert_total(const Program &p, const Op &op) {
    if (const Contract *c = std::get_if<Contract>(&op)) return p.weight(c->banks[0].weight).experts;
    if (const GateUp *g = std::get_if<GateUp>(&op)) return p.weight(g->gate).experts;
    return 0;
}

double stamp_cost() {
    static const double cost = [] {
        // The least of several: interruptions only add.
        constexpr int kStamps = 1000;
        double least = std::numeric_limits<double>::max();
        for (int round = 0; round < 5; round++) {
            const TraceClock::time_point start = TraceClock::now();
            TraceClock::time_point last;
            for (int i = 0; i < kStamps; i++) last = TraceClock::now();
            least = std::min(least, std::chrono::duration<double>(last - start).count() / kStamps);
        }
        return least;
    }();
    return cost;
}

}  // namespace ridge
