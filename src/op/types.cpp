#include "op/types.h"

#include "core/error.h"

namespace ridge {

std::string_view name(DType t) {
    switch (t) {
        case DType::f32:
            return "f32";
        case DType::f16:
            return "f16";
        case DType::i32:
            return "i32";
        case DType::q8:
            return "q8";
        case DType::q8_0:
            return "q8_0";
    }
    return "?";
}

size_t bytes_per_element(DType t) {
    RIDGE_ASSERT(t != DType::q8 && t != DType::q8_0);
    return t == DType::f16 ? 2 : 4;
}

size_t row_bytes(DType t, uint32_t cols) {
    if (t == DType::q8) return cols + sizeof(float) * (cols / 32) + sizeof(int16_t) * (cols / 16);
    if (t == DType::q8_0) return sizeof(Q8Block) * (cols / 32);
    return bytes_per_element(t) * cols;
}

}  // namespace ridge
