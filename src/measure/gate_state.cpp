#include "measure/gate_state.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "op/bound.h"

namespace ridge::gate {
namespace {

constexpr size_t kBlock = 32;

// The scale of a block whose largest |x| is `most`: an f16, or NaN.
double scale_of(double most) {
    const double scale = from_f16(to_f16(double{static_cast<float>(most) / 127.0f}));
    return std::isinf(scale) ? std::numeric_limits<double>::quiet_NaN() : scale;
}

double code_of(double x, double scale) {
    if (!(scale > 0)) return 0;
    const float inverse = 1.0f / static_cast<float>(scale);
    // nearbyint: the rounding mode is to nearest, ties to even. + 0.0: no -0 among integers.
    return std::clamp(std::nearbyint(double{static_cast<float>(x) * inverse}), -127.0, 127.0) + 0.0;
}

double largest(RealSpan x) {
    double most = 0;
    for (const double v : x) most = std::isnan(v) || std::isnan(most) ? v + most : std::max(most, std::fabs(v));
    return most;
}

// A block with errors: scale and codes lie between those of the extremes, as both grow with |x|, and codes shrink as
// the scale grows.
void store_block(RealSpan x, RealSpan error, double *codes, double *code_bounds, double &scale, double &scale_bound) {
    double least = 0, most = 0;
    for (size_t j = 0; j < kBlock; j++) {
        least = std::max(least, std::fabs(x[j]) - error[j]);
        most = std::max(most, std::fabs(x[j]) + error[j]);
    }
    scale = scale_of(largest(x));
    const double low = scale_of(least), high = scale_of(most);
    scale_bound = std::isnan(scale) ? 0 : std::max(high - scale, scale - low);
    for (size_t j = 0; j < kBlock; j++) {
        codes[j] = code_of(x[j], scale), code_bounds[j] = 0;
        // Of scales that may be 0, whose codes are, the next one has the largest.
        for (const double s : {low, high, std::min(high, std::max(low, 0x1p-24))})
            for (const double at : {x[j] - error[j], x[j] + error[j]})
                code_bounds[j] = std::max(code_bounds[j], std::fabs(code_of(at, s) - codes[j]));
    }
}

}  // namespace

StoredNumbers stored(DType type, size_t rows, uint32_t cols, RealSpan values, RealSpan error) {
    StoredNumbers s{Reals(values.begin(), values.end()), Reals(error.begin(), error.end())};
    if (type == DType::f16)
        for (size_t i = 0; i < values.size(); i++) {
            if (error[i] == 0)
                s.want[i] = from_f16(to_f16(values[i]));
            else
                s.bound[i] = bound::to_f16(values[i], error[i]);
        }
    if (type != DType::q8_0) return s;
    const size_t w = width(type, cols);
    s.want.assign(rows * w, 0), s.bound.assign(rows * w, 0);
    for (size_t r = 0; r < rows; r++)
        for (size_t b = 0; b < cols / kBlock; b++) {
            const size_t from = r * cols + b * kBlock, codes = r * w + b * kBlock, scale = r * w + cols + b;
            store_block(values.subspan(from, kBlock), error.subspan(from, kBlock), &s.want[codes], &s.bound[codes],
                        s.want[scale], s.bound[scale]);
        }
    return s;
}

Reals to_state(DType type, size_t rows, uint32_t cols, RealSpan values) {
    return stored(type, rows, cols, values, Reals(values.size())).want;
}

Reals from_state(DType type, size_t rows, uint32_t cols, RealSpan numbers) {
    if (type != DType::q8_0) return Reals(numbers.begin(), numbers.end());
    const size_t w = width(type, cols);
    Reals values(rows * cols);
    for (size_t i = 0; i < values.size(); i++) {
        const size_t row = i / cols, c = i % cols;
        values[i] = numbers[row * w + c] * numbers[row * w + cols + c / kBlock];
    }
    return values;
}

}  // namespace ridge::gate
