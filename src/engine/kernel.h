// Kernel rows: every selectable implementation of an operation on a backend, as a table.
//
// The plan filters rows by operation, formats, input type, layout, tokens, features and levers and takes the highest
// rank of what is left. Gate and bench enumerate the same table, so a kernel cannot exist ungated or unmeasured.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>

#include "engine/levers.h"
#include "engine/step.h"
#include "format/format.h"
#include "op/op.h"
#include "op/order.h"

namespace ridge {

struct Program;
struct LaunchView;

// How a weight lies in memory.
enum class Layout : uint8_t {
    file,  // as in the GGUF file
};

// Instruction-set or device features, bits defined by each backend.
using Features = uint32_t;

struct TokenRange {
    uint32_t first = 1;
    uint32_t last = std::numeric_limits<uint32_t>::max();
    bool has(uint32_t m) const { return m >= first && m <= last; }
};

// The work of a row: `count` independent tiles, any of which may run on any worker, in any order, at the same time.
struct Tile {
    uint32_t (*count)(const LaunchView &) = nullptr;
    // `scratch` is private to the worker, `scratch_bytes` long, 64-byte aligned, and holds nothing between tiles.
    void (*run)(const LaunchView &, uint32_t tile, std::byte *scratch) = nullptr;
    size_t scratch_bytes = 0;
    // Memory that all workers share during a launch, for steps within the limits. Every launch finds and leaves the
    // first kSharedZero bytes of it zero (counters) and the rest as it comes. Where LaunchView::shared is null a row
    // does without.
    static constexpr size_t kSharedZero = 4096;
    size_t (*shared_bytes)(const Program &, const Op &, const StepLimits &) = nullptr;
};

struct Kernel {
    std::string_view name;  // backend.operation.idea: "cpu.contract.int8.avx2"
    OpKind op = 0;
    FormatSet formats;         // weights it can read; empty for operations without formatted weights
    DType input = DType::f32;  // activations it reads
    Layout layout = Layout::file;
    TokenRange tokens;
    Features needs = 0;
    Lever lever = Lever::none;  // none: the baseline, always legal
    Order order = Order::exact;
    int rank = 0;            // among legal rows the highest wins
    bool publishes = false;  // writes `q8` of operations that ask for it (op.h)
    Tile tile;
    // Why this row cannot run `op` although the fields above fit ("k is not a multiple of 256"); empty: it can.
    std::string_view (*refuses)(const Program &, const Op &) = nullptr;
};

}  // namespace ridge
