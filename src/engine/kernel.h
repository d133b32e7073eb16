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

namespace ridge {

struct Program;
struct LaunchView;

// Reduction order: rows with the same id give the same bits for the same problem, whatever the number of tokens,
// threads, splits or lanes.
enum class Order : uint8_t {
    // No reduction, or one that is exact.
    exact,
    // Sums of f32 products over k: lane l = 0..15 adds fma(w, x) for k = l, l+16, l+32, ... ascending; then lanes l and
    // l+8
    // are added, then l and l+4, l+2, l+1. Missing elements count as +0.
    f32_lanes16,
    // int8 dots: for blocks of 32 of k ascending, for the groups in the block ascending (one of 32, or two of 16):
    // acc = fma(w_scale * x_scale, float(integer dot), acc), then, where the format has a bias,
    // acc = fma(w_bias * x_scale, float(integer sum), acc). One f32 accumulator that starts at +0.
    int8_sequential,
    // Softmax over the KV: blocks of 64 positions ascending; inside a block lanes as in f32_lanes16 for q.k; running
    // maximum,
    // sum and output rescaled once per block.
    softmax_blocks64,
};

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
    int rank = 0;  // among legal rows the highest wins
    Tile tile;
    // Why this row cannot run `op` although the fields above fit ("k is not a multiple of 256"); empty: it can.
    std::string_view (*refuses)(const Program &, const Op &) = nullptr;
};

}  // namespace ridge
