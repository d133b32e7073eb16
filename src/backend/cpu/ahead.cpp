#include "backend/cpu/ahead.h"

#include <algorithm>

#include "backend/cpu/contract.h"
#include "engine/trace.h"

namespace ridge::cpu {

// Experts are chosen by an earlier launch.
bool Ahead::knows(const Launch &launch, const Op &op) {
    return launch.kernel->tile.count == contract_tiles && expert_ids(op) == kNone;
}

void Ahead::aim(const LaunchView &view, uint32_t first, uint32_t end) {
    tile_ = first, end_ = end, left_ = kMost, spans_ = {};
    next_tile(view);
}

bool Ahead::next_tile(const LaunchView &view) {
    if (tile_ >= end_) return false;
    const Work w = contract_work(view, tile_++);
    for (uint32_t i = 0; i < w.n_matrices; i++)
        spans_[i] = {w.matrix[i].rows, size_t{w.n_rows} * w.matrix[i].row_bytes};
    return true;
}

bool Ahead::step(const LaunchView &view) {
    constexpr size_t kLine = 64, kLines = 8;
    if (left_ < kLines * kLine) return false;
    while (spans_[0].empty() && spans_[1].empty())
        if (!next_tile(view)) return false;
    std::span<const std::byte> &span = spans_[0].empty() ? spans_[1] : spans_[0];
    const size_t bytes = std::min(span.size(), kLines * kLine);
    for (size_t i = 0; i < bytes; i += kLine) __builtin_prefetch(span.data() + i, 0, 2);
    span = span.subspan(bytes);
    left_ -= bytes;
    return true;
}

}  // namespace ridge::cpu
