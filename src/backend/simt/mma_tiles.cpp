#include "backend/simt/mma_tiles.h"

#include <vector>

namespace ridge::simt {

MmaTiles mma_tiles(const LeverSet &levers, uint32_t most) {
    if (most == 32 || levers.has(Lever::m_tile_32)) return {32, 0, 0};
    if (!levers.has(Lever::dynamic_m_tile)) return {most, 0, 0};
    return {most, most == 64 ? 0u : 64u, 32};
}

TileFill tile_fill(std::span<const int32_t> ids, uint32_t experts, const MmaTiles &tiles) {
    std::vector<uint32_t> rows(experts, 0);
    for (const int32_t id : ids)
        if (id >= 0 && static_cast<uint32_t>(id) < experts) rows[static_cast<size_t>(id)]++;
    TileFill f;
    for (const uint32_t n : rows) {
        const uint32_t whole = n / tiles.large, left = n % tiles.large;
        f.rows += n, f.tiles += whole + (left > 0 ? 1 : 0), f.tile_rows += whole * tiles.large;
        if (left == 0) continue;
        f.tile_rows += left <= tiles.small ? tiles.small : left <= tiles.middle ? tiles.middle : tiles.large;
    }
    return f;
}

}  // namespace ridge::simt
