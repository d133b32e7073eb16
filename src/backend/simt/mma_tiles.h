// How rows that are routed to experts are cut into tiles for the matrix units, and how full those are.
//
// An expert's rows fill whole tiles of the largest size; what is left goes into the smallest tile that holds it (lever
// dynamic_m_tile; without it, into one of the largest). The kernel contract_mma_group does the same on the device.
#pragma once

#include <cstdint>
#include <span>

#include "engine/levers.h"

namespace ridge::simt {

struct MmaTiles {
    uint32_t large = 128, middle = 64, small = 32;  // 0: none of that size
};
// `most`: 128, 64 or 32, the largest that the device has.
MmaTiles mma_tiles(const LeverSet &levers, uint32_t most);

struct TileFill {
    uint32_t rows = 0, tile_rows = 0, tiles = 0;  // rows in tiles, and rows that those tiles could hold
};
// Of the routed rows whose experts are `ids`. Ids that name no expert are in no tile.
TileFill tile_fill(std::span<const int32_t> ids, uint32_t experts, const MmaTiles &tiles);

}  // namespace ridge::simt
