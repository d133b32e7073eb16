// What Contract and GateUp have in common, for rows that serve both.
#pragma once

#include <array>
#include <cstdint>
#include <variant>

#include "op/op.h"

namespace ridge::simt {

struct Banks {
    uint32_t n = 0;
    std::array<Bank, 3> bank;  // of gated units the gate and the up matrix, with the one result as `out` of both
    ValueId x = kNone, ids = kNone;
    bool gated = false;
    GluKind kind = GluKind::silu;
    ValueId q8 = kNone;
    bool out_read = true;
};

// Precondition: `op` is one of the two.
inline Banks banks_of(const Op &op) {
    if (const auto *c = std::get_if<Contract>(&op)) return {c->n_banks, c->banks, c->x, c->ids};
    const auto &g = std::get<GateUp>(op);
    return {2, {Bank{g.gate, kNone, g.out}, Bank{g.up, kNone, g.out}}, g.x, g.ids, true, g.kind, g.q8, g.out_read};
}

}  // namespace ridge::simt
