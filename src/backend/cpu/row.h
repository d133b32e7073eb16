// What a kernel row of the including file is made of: the name, features, lever and rank of its instruction set.
#pragma once

#include <string_view>

#include "backend/cpu/isa.h"
#include "backend/cpu/rows.h"

#define RIDGE_ISA_TEXT_(isa) #isa
#define RIDGE_ISA_TEXT(isa) RIDGE_ISA_TEXT_(isa)
#define RIDGE_ROW_NAME(op) "cpu." op "." RIDGE_ISA_TEXT(RIDGE_ISA)

namespace ridge::cpu {
inline namespace RIDGE_ISA {

#if defined(RIDGE_ISA_AVX512VBMI)
constexpr Features kNeeds = kAvx512Vbmi;
constexpr Lever kLever = Lever::avx512;
constexpr int kRank = 25;
#elif defined(RIDGE_ISA_AVX512)
constexpr Features kNeeds = kAvx512;
constexpr Lever kLever = Lever::avx512;
constexpr int kRank = 20;
#elif defined(RIDGE_ISA_AVXVNNI)
constexpr Features kNeeds = kAvxVnni;
constexpr Lever kLever = Lever::avxvnni;
constexpr int kRank = 15;
#elif defined(RIDGE_ISA_AVX2)
constexpr Features kNeeds = kAvx2;
constexpr Lever kLever = Lever::avx2;
constexpr int kRank = 10;
#elif defined(RIDGE_ISA_I8MM)
constexpr Features kNeeds = kI8mm;
constexpr Lever kLever = Lever::i8mm;
constexpr int kRank = 30;
#elif defined(RIDGE_ISA_DOTPROD)
constexpr Features kNeeds = kDotprod;
constexpr Lever kLever = Lever::dotprod;
constexpr int kRank = 20;
#elif defined(RIDGE_ISA_NEON)
constexpr Features kNeeds = kNeon;
constexpr Lever kLever = Lever::neon;
constexpr int kRank = 10;
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

}  // namespace RIDGE_ISA
}  // namespace ridge::cpu
