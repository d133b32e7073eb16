// How routed rows are cut into tiles of the matrix units, and how full those are.
#include <gtest/gtest.h>

#include <vector>

#include "backend/simt/mma_tiles.h"

namespace ridge::simt {
namespace {

// `rows[e]` rows of expert e.
std::vector<int32_t> routed(std::vector<uint32_t> rows) {
    std::vector<int32_t> ids;
    for (size_t e = 0; e < rows.size(); e++) ids.insert(ids.end(), rows[e], static_cast<int32_t>(e));
    return ids;
}

TEST(MmaTiles, LeversChooseTheSizes) {
    const LeverSet on = LeverSet::defaults().with(Lever::dynamic_m_tile);
    const auto sizes = [](const MmaTiles &t) { return std::vector<uint32_t>{t.large, t.middle, t.small}; };
    EXPECT_EQ(sizes(mma_tiles(on, 128)), (std::vector<uint32_t>{128, 64, 32}));
    EXPECT_EQ(sizes(mma_tiles(on, 64)), (std::vector<uint32_t>{64, 0, 32}));
    EXPECT_EQ(sizes(mma_tiles(on, 32)), (std::vector<uint32_t>{32, 0, 0}));
    EXPECT_EQ(sizes(mma_tiles(on.without(Lever::dynamic_m_tile), 128)), (std::vector<uint32_t>{128, 0, 0}));
    EXPECT_EQ(sizes(mma_tiles(on.with(Lever::m_tile_32), 128)), (std::vector<uint32_t>{32, 0, 0}));
}

TEST(MmaTiles, WhatIsLeftGoesIntoTheSmallestTileThatHoldsIt) {
    const auto tile_rows = [](uint32_t rows, const MmaTiles &t) { return tile_fill(routed({rows}), 1, t).tile_rows; };
    const MmaTiles dynamic{128, 64, 32}, fixed{128, 0, 0}, amd{64, 0, 32};
    EXPECT_EQ(tile_rows(1, dynamic), 32u);
    EXPECT_EQ(tile_rows(33, dynamic), 64u);
    EXPECT_EQ(tile_rows(65, dynamic), 128u);
    EXPECT_EQ(tile_rows(128, dynamic), 128u);
    EXPECT_EQ(tile_rows(129, dynamic), 160u);
    EXPECT_EQ(tile_rows(1, fixed), 128u);
    EXPECT_EQ(tile_rows(33, amd), 64u);
    EXPECT_EQ(tile_rows(96, amd), 96u);
}

TEST(MmaTiles, FillCountsRowsOfExpertsOnly) {
    std::vector<int32_t> ids = routed({16, 0, 200, 64});
    ids.push_back(-1);
    ids.push_back(4);
    const TileFill f = tile_fill(ids, 4, {128, 64, 32});
    EXPECT_EQ(f.rows, 280u);
    EXPECT_EQ(f.tiles, 4u);
    EXPECT_EQ(f.tile_rows, 32u + 128u + 128u + 64u);
    EXPECT_EQ(tile_fill({}, 4, {128, 64, 32}).tile_rows, 0u);
}

}  // namespace
}  // namespace ridge::simt
