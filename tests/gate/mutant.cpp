#include "gate/mutant.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"

namespace ridge::test {
namespace {

// The mutant that runs, and the row it was made of.
const Mutant *current = nullptr;
Tile original;

uint32_t altered_count(const LaunchView &view) {
    Altered a(view);
    if (current->alter) current->alter(a);
    return original.count(a.view());
}
void altered_run(const LaunchView &view, uint32_t tile, std::byte *scratch) {
    Altered a(view);
    if (current->alter) current->alter(a);
    original.run(a.view(), tile, scratch);
}
uint32_t one_tile(const LaunchView &) { return 1; }
void instead_run(const LaunchView &view, uint32_t, std::byte *) { current->instead(view); }

}  // namespace

Altered::Altered(const LaunchView &v)
    : program(v.program),
      op(v.op),
      bindings(v.bindings),
      limits(v.step.limits),
      words(v.step.base, v.step.base + v.step.limits.words()) {}

std::byte *Altered::own(ValueId v) {
    const size_t bytes = rows(v) * row_bytes(program.value(v).type, program.value(v).cols);
    const auto *from = view().ptr<const std::byte>(v);
    copies_.emplace_back(from, from + bytes);
    bindings.values[static_cast<size_t>(v)] = reinterpret_cast<uint64_t>(copies_.back().data());
    return copies_.back().data();
}

std::byte *Altered::own_weight(WeightId w) {
    const std::byte *from = view().weight(w);
    copies_.emplace_back(from, from + program.weight(w).bytes());
    bindings.weights[static_cast<size_t>(w)] = reinterpret_cast<uint64_t>(copies_.back().data());
    return copies_.back().data();
}

std::span<std::byte> Altered::own_state(StateId s) {
    const int32_t *table = pages(0);
    const int32_t last = *std::max_element(table, table + size_t{limits.sequences} * limits.pages);
    const size_t slots = (static_cast<size_t>(last) + 1) * kPageTokens;
    const auto *from = view().state<const std::byte>(s);
    copies_.emplace_back(from, from + slots * row_bytes(program.state(s).type, program.state(s).cols));
    bindings.states[static_cast<size_t>(s)] = reinterpret_cast<uint64_t>(copies_.back().data());
    return copies_.back();
}

void Altered::set_draw(uint32_t output, const Draw &draw) {
    StepBuffer other(StepLimits{.tokens = 1, .outputs = 1, .sequences = 1, .pages = 1});
    other.add(0, 0, 0, true);
    other.set_draw(0, draw);
    std::copy_n(other.view().draws(), kDrawWords, pages(limits.sequences) + size_t{kDrawWords} * output);
}

MutantBackend::MutantBackend(Backend &inner, const Kernel &row, const Mutant &mutant)
    : Forwarding(inner), kernels_(inner.kernels().begin(), inner.kernels().end()) {
    RIDGE_ASSERT(current == nullptr);
    current = &mutant, original = row.tile;
    Kernel &k = kernels_[static_cast<size_t>(&row - inner.kernels().data())];
    k.name = "mutant";
    if (mutant.instead)
        k.tile = {one_tile, instead_run, 0};
    else
        k.tile = {altered_count, altered_run, row.tile.scratch_bytes};
}

MutantBackend::~MutantBackend() { current = nullptr; }

}  // namespace ridge::test
