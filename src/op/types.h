// The nouns of a program: values, weights, state, devices. Ids are indices into the program's tables.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "format/format.h"

namespace ridge {

using ValueId = int32_t;
using WeightId = int32_t;
using StateId = int32_t;
using DeviceId = int32_t;
constexpr int32_t kNone = -1;

// Element type of an activation buffer.
//   q8: what `quantize` makes of an f32 vector: blocks of 32 int8 codes with one f32 scale and two sums of 16 codes.
//       x = scale * code, |code| <= 127; the sums serve the biases of every weight format. Layout: Q8View.
//   q8_0: of state only. Rows are blocks as Format::Q8_0 has them (Q8Block), x = scale * code. KvWrite in op.h says
//       what a write makes of f32 values.
enum class DType : uint8_t { f32, f16, i32, q8, q8_0 };
std::string_view name(DType t);

// Rows of a value as a multiple of what a step brings.
enum class Rows : uint8_t { tokens, outputs };

// An activation: (rows, cols), rows = step's tokens (or wanted outputs) times `per_row`.
struct Value {
    std::string name;  // "3.ffn_norm": layer and what it is
    DType type = DType::f32;
    Rows rows = Rows::tokens;
    uint32_t per_row = 1;  // experts per token for routed values
    uint32_t cols = 0;
    DeviceId device = 0;
};

// A weight matrix (experts, n, k) as the file stores it: row i of expert e holds k weights in blocks of `format`.
// Norm weights and biases are (1, 1, k).
struct Weight {
    std::string name;  // as in the file
    Format format = Format::F32;
    uint32_t n = 1, k = 0, experts = 1;
    const std::byte *data = nullptr;  // file order, in the mapping
    size_t bytes() const { return row_bytes(format, k) * n * experts; }
};

// Element types of keys and values.
constexpr bool is_kv_type(DType t) { return t == DType::f32 || t == DType::f16 || t == DType::q8_0; }

// What a model remembers between steps. Per token: one row of `cols` for each position of each sequence, in pages.
struct State {
    enum class Per : uint8_t { token, sequence };
    std::string name;  // "3.k"
    Per per = Per::token;
    uint32_t cols = 0;
    DType type = DType::f16;
    DeviceId device = 0;
};

// 32 values of q8_0 in 34 bytes, aligned to 2.
struct Q8Block {
    uint16_t scale;  // f16
    int8_t codes[32];
};
static_assert(sizeof(Q8Block) == 34);

size_t bytes_per_element(DType t);  // q8 and q8_0 have none: use row_bytes(DType, cols)
// Bytes of one row. q8 rows are laid out by planes over the whole buffer, so this is the sum of its planes. cols is a
// multiple of 32 for q8 and q8_0.
size_t row_bytes(DType t, uint32_t cols);

// Activations as `quantize` leaves them for m rows of k columns (k a multiple of 32):
//   codes int8 (m, k) | scale f32 (m, k/32) | sums i16 (m, k/16)
struct Q8View {
    int8_t *codes;
    float *scale;
    int16_t *sums;
    Q8View(void *base, size_t m, size_t k)
        : codes(static_cast<int8_t *>(base)),
          scale(reinterpret_cast<float *>(codes + m * k)),
          sums(reinterpret_cast<int16_t *>(scale + m * (k / 32))) {}
};

}  // namespace ridge
