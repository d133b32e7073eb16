// What the contractions with DotBanks (contract_dot.h) have in common.
#pragma once

#include "backend/simt/device.h"
#include "backend/simt/kernels/contract_dot.h"

namespace ridge::simt {

// Of banks whose units lie one behind the other.
template <class Args>
DEVICE u32 bank_of(const Args &a, u32 unit) {
    u32 b = 0;
    if (a.n_banks > 1 && unit >= a.bank[1].first) b = 1;
    if (a.n_banks > 2 && unit >= a.bank[2].first) b = 2;
    return b;
}

// Where row r of the results comes from: an expert of the matrix, and a row of x.
struct RowOfExpert {
    u32 expert, x_row;
};
DEVICE RowOfExpert row_of_expert(const ContractF32Args &a, u32 r) {
    if (a.ids == nullptr) return {0, r};
    return {min(static_cast<u32>(load(a.ids + r)), a.experts - 1), a.x_by_slot != 0 ? r : r / a.slots};
}

}  // namespace ridge::simt
