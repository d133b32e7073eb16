// Operands for the gate: random activations of several characters, random weights of any format at the scale of a real
// model, and the gate's own statement of f16, q8 and q8_0. Nothing is shared with a backend.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/program.h"
#include "op/op.h"
#include "oracle/ops.h"

namespace ridge::gate {

using oracle::Reals;
using oracle::RealSpan;

class Random {
  public:
    explicit Random(uint64_t seed) : bits_(seed) {}
    uint64_t bits() { return bits_(); }
    uint32_t below(uint32_t n) { return static_cast<uint32_t>(bits_() % n); }
    double uniform() { return static_cast<double>(bits_() >> 11) * 0x1p-53; }  // [0, 1)
    double normal();

  private:
    std::mt19937_64 bits_;
};

// What a row of activations is like. All values are f32 (held in double), finite, and small enough for no overflow.
enum class Character : uint8_t {
    normal,
    outliers,       // one in 64, at least one, is 10,000 times larger
    zeros,          // every second run of 32 is zero
    subnormal,      // every second run of 32 is below the smallest normal number
    one_hot,        // a single 1
    negative_zero,  // every second run of 32 and some others are -0
};
void fill(Random &random, Character character, std::span<double> row);
// (rows, cols): row i has character (i + first) mod 6.
Reals activations(Random &random, size_t rows, size_t cols, size_t first = 0);
Reals normals(Random &random, size_t count, double scale = 1);

// Bytes at an address that is a multiple of 32, as GGUF files align tensors, and no longer than asked for, so that a
// sanitizer sees a read past the end.
class Bytes {
  public:
    Bytes() = default;
    explicit Bytes(size_t size);
    std::byte *data() const { return data_.get(); }
    size_t size() const { return size_; }

  private:
    struct Free {
        void operator()(std::byte *p) const;
    };
    std::unique_ptr<std::byte[], Free> data_;
    size_t size_ = 0;
};

// Random weights of standard deviation about 1/sqrt(k), in random blocks. Every fifth row of a matrix (rows 4, 9, ...)
// consists of blocks with zero, subnormal and hundredfold scales among ordinary ones.
Bytes random_weight(Random &random, const Weight &shape);
Bytes f32_weight(RealSpan values);

// A weight as the oracle reads it, all (experts * n, k).
struct DecodedWeight {
    Reals value;                // rounded to f32, as the format is defined
    std::vector<int32_t> code;  // value = scale * code + bias (block formats)
    Reals scale, bias;
    bool has_bias = false;
    size_t group = 32;  // weights that share scale and bias, at most 32
};
DecodedWeight decode(const Weight &weight);

// Numbers in one row of a value or state: cols, but q8 rows hold codes, then scales, then sums, and q8_0 rows codes,
// then scales.
size_t width(DType type, uint32_t cols);
// (rows, width) from and to the bytes of a value or state.
Reals unpack(DType type, uint32_t cols, size_t rows, std::span<const std::byte> bytes);
std::vector<std::byte> pack(DType type, uint32_t cols, size_t rows, RealSpan numbers);

// (rows, k) f32 to (rows, width of q8), as Quantize is defined: scale = max|x| / 127 in f32, code = x / scale in f32
// rounded to the nearest integer, ties to even, and held within +-127 (a subnormal scale is inexact); scale 0 has
// codes 0.
Reals quantize(size_t rows, size_t k, RealSpan x);

// The unit of `kind`, and what reports call it: "gelu".
Reals glu(GluKind kind, RealSpan gate, RealSpan up);
std::string_view name(GluKind kind);

uint16_t to_f16(double x);  // to nearest, ties to even
double from_f16(uint16_t pattern);

}  // namespace ridge::gate
