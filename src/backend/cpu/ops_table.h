// The table of rows that exist for every instruction set, as the file that includes this one is compiled.
#pragma once

#include "backend/cpu/attention.h"
#include "backend/cpu/ops_norm.h"
#include "backend/cpu/ops_rows.h"
#include "backend/cpu/row.h"

namespace ridge::cpu {
inline namespace RIDGE_ISA {

constexpr Kernel kTable[] = {
    row(RIDGE_ROW_NAME("rmsnorm"), kind<RmsNorm>(), Order::f32_lanes16, tile_of<RmsNormTile>()),
    row(RIDGE_ROW_NAME("add_rmsnorm"), kind<AddRmsNorm>(), Order::f32_lanes16, tile_of<AddRmsNormTile>()),
    row(RIDGE_ROW_NAME("rope"), kind<Rope>(), Order::exact, tile_of<RopeTile>()),
    row(RIDGE_ROW_NAME("kv_write"), kind<KvWrite>(), Order::exact, tile_of<KvWriteTile>()),
    row(RIDGE_ROW_NAME("qk_norm_rope"), kind<QkNormRope>(), Order::f32_lanes16,
        tile_of<QkNormRopeTile>(QkNormRopeTile::kScratch), &QkNormRopeTile::refuses),
    row(RIDGE_ROW_NAME("attention"), kind<Attention>(), Order::softmax_blocks64,
        Tile{&AttentionTile::count, &AttentionTile::run, sizeof(AttentionTile::Scratch), &AttentionTile::shared_bytes},
        &AttentionTile::refuses),
    row(RIDGE_ROW_NAME("add"), kind<Add>(), Order::exact, tile_of<AddTile>()),
    row(RIDGE_ROW_NAME("scale"), kind<Scale>(), Order::exact, tile_of<ScaleTile>()),
    row(RIDGE_ROW_NAME("row_gate"), kind<RowGate>(), Order::exact, tile_of<RowGateTile>()),
    row(RIDGE_ROW_NAME("glu"), kind<Glu>(), Order::exact, tile_of<GluTile>()),
    row(RIDGE_ROW_NAME("softmax"), kind<Softmax>(), Order::f32_lanes16, tile_of<SoftmaxTile>()),
    row(RIDGE_ROW_NAME("normalize"), kind<Normalize>(), Order::f32_lanes16, tile_of<NormalizeTile>()),
    row(RIDGE_ROW_NAME("moe_combine"), kind<MoeCombine>(), Order::exact, tile_of<MoeCombineTile>()),
    row(RIDGE_ROW_NAME("moe_route"), kind<MoeRoute>(), Order::f32_lanes16,
        tile_of<MoeRouteTile>(MoeRouteTile::kScratch), &MoeRouteTile::refuses),
};

}  // namespace RIDGE_ISA
}  // namespace ridge::cpu
