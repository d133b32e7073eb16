// Rows whose arithmetic is wrong, each run as one tile.
#pragma once

#include <span>

#include "backend/backend.h"
#include "op/op.h"

namespace ridge::test {

struct WrongRow {
    OpKind op;
    const char *name;  // what is wrong
    void (*run)(const LaunchView &);
};

std::span<const WrongRow> wrong_rows();

}  // namespace ridge::test
