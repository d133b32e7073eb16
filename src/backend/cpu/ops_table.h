// The table of rows that exist for every instruction set, as the file that includes this one is compiled.
#pragma once

#include "backend/cpu/attention.h"
#include "backend/cpu/ops_norm.h"
#include "backend/cpu/ops_rows.h"
#include "backend/cpu/rows.h"

#define RIDGE_ISA_TEXT_(isa) #isa
#define RIDGE_ISA_TEXT(isa) RIDGE_ISA_TEXT_(isa)
#define RIDGE_ROW_NAME(op) "cpu." op "." RIDGE_ISA_TEXT(RIDGE_ISA)

namespace ridge::cpu {
inline namespace RIDGE_ISA {

#if defined(RIDGE_ISA_AVX512)
constexpr Features kNeeds = kAvx512;
constexpr Lever kLever = Lever::avx512;
constexpr int kRank = 2;
#elif defined(RIDGE_ISA_AVX2)
constexpr Features kNeeds = kAvx2;
constexpr Lever kLever = Lever::avx2;
constexpr int kRank = 1;
#else
constexpr Features kNeeds = 0;
constexpr Lever kLever = Lever::none;
constexpr int kRank = 0;
#endif

template <class T>
constexpr Tile tile_of(size_t scratch = 0) {
    return {&T::count, &T::run, scratch};
}

constexpr Kernel row(std::string_view name, OpKind op, Order order, Tile tile,
                     decltype(Kernel::refuses) refuses = nullptr) {
    Kernel k;
    k.name = name;
    k.op = op;
    k.needs = kNeeds;
    k.lever = kLever;
    k.order = order;
    k.rank = kRank;
    k.tile = tile;
    k.refuses = refuses;
    return k;
}

constexpr Kernel kTable[] = {
    row(RIDGE_ROW_NAME("rmsnorm"), kind<RmsNorm>(), Order::f32_lanes16, tile_of<RmsNormTile>()),
    row(RIDGE_ROW_NAME("add_rmsnorm"), kind<AddRmsNorm>(), Order::f32_lanes16, tile_of<AddRmsNormTile>()),
    row(RIDGE_ROW_NAME("rope"), kind<Rope>(), Order::exact, tile_of<RopeTile>()),
    row(RIDGE_ROW_NAME("kv_write"), kind<KvWrite>(), Order::exact, tile_of<KvWriteTile>()),
    row(RIDGE_ROW_NAME("qk_norm_rope"), kind<QkNormRope>(), Order::f32_lanes16,
        tile_of<QkNormRopeTile>(QkNormRopeTile::kScratch), &QkNormRopeTile::refuses),
    row(RIDGE_ROW_NAME("attention"), kind<Attention>(), Order::softmax_blocks64,
        tile_of<AttentionTile>(sizeof(AttentionTile::Scratch)), &AttentionTile::refuses),
    row(RIDGE_ROW_NAME("add"), kind<Add>(), Order::exact, tile_of<AddTile>()),
    row(RIDGE_ROW_NAME("silu_mul"), kind<SiluMul>(), Order::exact, tile_of<SiluMulTile>()),
    row(RIDGE_ROW_NAME("softmax"), kind<Softmax>(), Order::f32_lanes16, tile_of<SoftmaxTile>()),
    row(RIDGE_ROW_NAME("normalize"), kind<Normalize>(), Order::f32_lanes16, tile_of<NormalizeTile>()),
    row(RIDGE_ROW_NAME("moe_combine"), kind<MoeCombine>(), Order::exact, tile_of<MoeCombineTile>()),
    row(RIDGE_ROW_NAME("moe_route"), kind<MoeRoute>(), Order::f32_lanes16,
        tile_of<MoeRouteTile>(MoeRouteTile::kScratch), &MoeRouteTile::refuses),
};

}  // namespace RIDGE_ISA
}  // namespace ridge::cpu
