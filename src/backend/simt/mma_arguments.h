// What the rows of contraction on matrix units have in common.
#pragma once

#include "backend/simt/kernels/contract_mma.h"
#include "backend/simt/rows.h"

namespace ridge::simt {

// The arguments of a Contract or GateUp, but for the tiles of weight rows, whose size the blocks' shape decides.
ContractMmaArgs mma_arguments(const LaunchView &v);
// Tiles of `rows` weight rows in all banks, which learn where theirs begin.
uint32_t mma_row_tiles(ContractMmaArgs &a, uint32_t rows);

}  // namespace ridge::simt
