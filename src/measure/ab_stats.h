// What a comparison of two sides says: the ratio of their times, how sure it is, and whether it is more than noise.
//
// A round times every side once, in an order that a drift cannot favour, and gives one logarithm of a ratio; rounds are
// the samples. Their 20% trimmed mean with Yuen's t interval (K. K. Yuen, Biometrika 61, 1974: the deviation is that of
// the winsorised samples) is the estimate: a round in which somebody else had the processor is far out on one side, and
// such rounds move a mean and widen its interval at will, while the trimmed mean leaves out the outer fifth on both
// sides. It needs no resampling, so the same samples always give the same interval.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace ridge::bench {

// The logarithm of a ratio, with a 95% confidence interval of +- half.
struct Estimate {
    double log = 0;
    double half = 0;  // infinity where there are too few samples
    size_t samples = 0;

    double low() const { return log - half; }
    double high() const { return log + half; }
    double ratio() const;
    double ratio_low() const;
    double ratio_high() const;
};
Estimate estimate(std::span<const double> log_ratios);

// Of Student's distribution with n >= 1 degrees of freedom: P(|t| <= x), and the x at which that is `p`.
double student_within(double x, unsigned n);
double student_quantile(double p, unsigned n);

enum class Outcome : uint8_t { helps, flat, hurts };
std::string_view name(Outcome o);

// B against A, beside A against another A measured in the same rounds.
struct Verdict {
    Outcome outcome = Outcome::flat;
    // What two sides of the same levers may differ by here, as a logarithm: the farther end of their interval.
    double floor = 0;
    bool above_noise = false;  // |B against A| > floor
    // The smallest change, as a share, that nearly every repetition of this measurement would tell from none.
    double resolution = 0;
    // How long it would have to run to tell 1%, in seconds: at most `seconds` where it does already; infinity where
    // two sides of the same levers differ by so much for good (their memory lies differently, say).
    double seconds_for_1_percent = 0;
};
// `seconds`: how long the rounds took. Helps and hurts need both: an interval on one side of no change, and a change
// beyond the floor.
Verdict judge(const Estimate &b, const Estimate &a, double seconds);

}  // namespace ridge::bench
