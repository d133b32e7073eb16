// Rotary positions: how far each pair of elements turns per position, for every way of stretching a context.
//
//   plain      f_j = base^(-2j / n_rot)
//   linear     f_j / factor
//   yarn       f_j / factor for slow pairs, f_j for fast ones, a ramp between: pair j makes r_j = original f_j / 2 pi
//   turns
//              within the original context; the ramp is linear in j, from the pair of r = beta_fast to that of
//              beta_slow (Peng et al., "YaRN", 2023, section 3.2)
//   longrope   f_j / short_factor[j], or, for contexts above the original one, f_j / long_factor[j]
//   factors    f_j / rope_freqs[j] on top of any of the first three: Llama 3's stretching, worked out in the file
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "model/model.h"

namespace ridge {

// The tensors that hold factors.
inline constexpr std::string_view kRopeFactors = "rope_freqs.weight", kRopeShort = "rope_factors_short.weight",
                                  kRopeLong = "rope_factors_long.weight";

// (n_rot / 2), radians per position. `factors` is empty or has as many, all positive.
std::vector<double> rope_frequencies(const RopeParams &rope, uint32_t n_rot, std::span<const float> factors);

// The attention factor where a file gives none: by how much longer contexts sharpen attention.
double yarn_magnitude(double factor);                               // 0.1 ln(factor) + 1
double longrope_magnitude(double factor, double original_context);  // sqrt(1 + ln(factor) / ln(original_context))

}  // namespace ridge
