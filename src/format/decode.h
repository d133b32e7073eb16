// The formats for C++ kernels, derived from formats.def and the format headers.
//
//   Decode<F>        one format at compile time, for kernels that are templates over the format (C++, CUDA, HIP)
//   decoder(f)       the same functions behind pointers, for the host
//   dequantize(...)  whole rows
// The blocks are in file order. All functions read one block, or a run of values of a float format; g counts groups of
// `group` weights, g32 groups of 32, j (0..7) fours within those; codes4 gives four signed bytes, lowest lane first.
#pragma once

#include <cstddef>
#include <span>

#include "format/dialect.h"
#include "format/format.h"

namespace ridge {

using dialect::f32;
using dialect::i32;
using dialect::u32;

namespace file_order {
using namespace dialect;
using Src = Bytes;
#include "format/all.h"
}  // namespace file_order

// A field of a block, as dialect.h explains.
struct Field {
    u32 offset, bytes, align;
};

// Members as `block`, `bytes`, `group` in FormatInfo. bias is there where has_bias is, value in the float formats.
template <Format F>
struct Decode;

#define RIDGE_FIELD(...) {__VA_ARGS__},
#define RIDGE_BIAS_0(prefix)
#define RIDGE_BIAS_1(prefix) \
    static FN f32 bias(const std::byte *block_, u32 g) { return file_order::prefix##_bias({block_}, g); }
#define FORMAT(NAME, prefix, id, block_, bytes_, group_, bias_)                                       \
    template <>                                                                                       \
    struct Decode<Format::NAME> {                                                                     \
        static constexpr u32 block = block_, bytes = bytes_, group = group_;                          \
        static constexpr bool has_bias = bias_ != 0;                                                  \
        static constexpr Field fields[] = {prefix##_fields(RIDGE_FIELD)};                             \
        static FN f32 scale(const std::byte *b, u32 g) { return file_order::prefix##_scale({b}, g); } \
        RIDGE_BIAS_##bias_(prefix) static FN u32 codes4(const std::byte *b, u32 g32, u32 j) {         \
            return file_order::prefix##_codes4({b}, g32, j);                                          \
        }                                                                                             \
    };
#define FORMAT_FLOAT(NAME, prefix, id, bytes_)                                                        \
    template <>                                                                                       \
    struct Decode<Format::NAME> {                                                                     \
        static constexpr u32 block = 1, bytes = bytes_, group = 0;                                    \
        static constexpr bool has_bias = false;                                                       \
        static constexpr Field fields[] = {prefix##_fields(RIDGE_FIELD)};                             \
        static FN f32 value(const std::byte *b, u32 i) { return file_order::prefix##_value({b}, i); } \
    };
#include "format/formats.def"
#undef RIDGE_BIAS_0
#undef RIDGE_BIAS_1
#undef RIDGE_FIELD

// nullptr where a format has no such function: value is for the float formats, scale and codes4 for all others.
struct DecodeFns {
    f32 (*scale)(const std::byte *block, u32 g);
    f32 (*bias)(const std::byte *block, u32 g);
    u32 (*codes4)(const std::byte *block, u32 g32, u32 j);
    f32 (*value)(const std::byte *values, u32 i);
};

const DecodeFns &decoder(Format f);

// The fields of a block in the order of their offsets; they fill it without gaps.
std::span<const Field> fields(Format f);

// n weights from src to dst. Precondition: n is a multiple of the block.
void dequantize(Format f, const std::byte *src, float *dst, size_t n);
void dequantize(Format f, const DecodeFns &fns, const std::byte *src, float *dst, size_t n);

}  // namespace ridge
