// What the bytes of a GGUF tensor mean, one weight at a time, in double: the oracle's own statement of every format.
//
//   weight i of a block = scale * code              code a signed 8-bit integer
//                       = scale * code + bias       in Q4_1, Q5_1, Q2_K, Q4_K and Q5_K
//
// Scale, product and sum are exact in double for all of them. Nothing here is shared with src/format or a backend, and
// formats are named by the number a GGUF file carries (its ggml_type), so that an error has to be made twice, in two
// shapes, to go unnoticed. Speed is of no concern.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ridge::oracle {

struct Element {
    double scale = 0;
    int code = 0;
    double bias = 0;
    bool has_bias = false;
};

// Every ggml_type known here, ascending.
std::span<const uint32_t> types();

// The functions below throw ridge::Error for a type that is not in types().

unsigned block_weights(uint32_t ggml_type);  // 1 for F32, F16, BF16
unsigned block_bytes(uint32_t ggml_type);

// Weight i of the block. For F32, F16 and BF16 the scale is the value and the code 1.
// Precondition: i < block_weights(ggml_type); `block` holds block_bytes(ggml_type) bytes.
Element element(uint32_t ggml_type, const unsigned char *block, unsigned i);

// Its f32 value: the exact result rounded once.
float value(uint32_t ggml_type, const unsigned char *block, unsigned i);

// The n weights stored from `data` on, as exact doubles. Precondition: n is a multiple of the block.
std::vector<double> decode(uint32_t ggml_type, const unsigned char *data, size_t n);

// Overwrites the stored f16 scale `d` of a block, and the second one (m or dmin) where there is one, so that a test can
// ask for zero, subnormal, infinite or NaN scales. MXFP4 takes the low byte as its exponent; BF16 takes the pattern as
// the value, F32 as the upper half of the value.
void plant_scales(uint32_t ggml_type, unsigned char *block, uint16_t d, uint16_t m);

}  // namespace ridge::oracle
