#include "measure/ab_stats.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

namespace ridge::bench {
namespace {

constexpr double kTrimmed = 0.2;  // of the samples, on each side
constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace

double Estimate::ratio() const { return std::exp(log); }
double Estimate::ratio_low() const { return std::exp(low()); }
double Estimate::ratio_high() const { return std::exp(high()); }

Estimate estimate(std::span<const double> log_ratios) {
    std::vector<double> x(log_ratios.begin(), log_ratios.end());
    std::sort(x.begin(), x.end());
    const size_t n = x.size(), cut = static_cast<size_t>(kTrimmed * static_cast<double>(n));
    Estimate e;
    e.samples = n;
    e.half = kInfinity;
    if (n == 0) return e;
    const size_t left = n - 2 * cut;
    for (size_t i = cut; i < n - cut; i++) e.log += x[i] / static_cast<double>(left);
    if (left < 3) return e;
    double mean = 0, squares = 0;
    const auto winsorised = [&](size_t i) { return x[std::clamp(i, cut, n - cut - 1)]; };
    for (size_t i = 0; i < n; i++) mean += winsorised(i) / static_cast<double>(n);
    for (size_t i = 0; i < n; i++) squares += (winsorised(i) - mean) * (winsorised(i) - mean);
    const double deviation = std::sqrt(squares / static_cast<double>(n - 1));
    const double share = static_cast<double>(left) / static_cast<double>(n);
    e.half = student_quantile(0.95, static_cast<unsigned>(left - 1)) * deviation /
             (share * std::sqrt(static_cast<double>(n)));
    return e;
}

// The finite series for whole degrees of freedom: Abramowitz and Stegun 26.7.3 and 26.7.4.
double student_within(double x, unsigned n) {
    const double theta = std::atan(std::abs(x) / std::sqrt(static_cast<double>(n)));
    const double s = std::sin(theta), c = std::cos(theta);
    const bool odd = n % 2 == 1;
    double term = odd ? c : 1, sum = n == 1 ? 0 : term;
    for (unsigned i = odd ? 3 : 2; i < n; i += 2) {
        term *= c * c * (i - 1) / i;
        sum += term;
    }
    return odd ? 2 / std::numbers::pi * (theta + s * sum) : s * sum;
}

double student_quantile(double p, unsigned n) {
    double low = 0, high = 1;
    while (student_within(high, n) < p) high *= 2;
    for (int i = 0; i < 60; i++) {
        const double middle = (low + high) / 2;
        (student_within(middle, n) < p ? low : high) = middle;
    }
    return high;
}

std::string_view name(Outcome o) { return o == Outcome::helps ? "helps" : o == Outcome::hurts ? "hurts" : "flat"; }

Verdict judge(const Estimate &b, const Estimate &a, double seconds) {
    Verdict v;
    v.floor = std::max(std::abs(a.low()), std::abs(a.high()));
    v.above_noise = std::abs(b.log) > v.floor;
    if (v.above_noise && b.high() < 0) v.outcome = Outcome::helps;
    if (v.above_noise && b.low() > 0) v.outcome = Outcome::hurts;
    // A change of twice the half width has its interval on one side of zero in 97.5% of all repetitions.
    const double smallest = std::max(2 * b.half, v.floor + b.half);
    v.resolution = std::expm1(smallest);
    const double wanted = std::log(1.01);
    // Intervals shrink with the root of the time; a difference of the two A that is none of chance stays.
    const double lasting = std::abs(a.log) > a.half ? std::abs(a.log) : 0;
    if (smallest <= wanted)
        v.seconds_for_1_percent = seconds;
    else if (lasting >= wanted)
        v.seconds_for_1_percent = kInfinity;
    else {
        const double shrink = std::max(2 * b.half / wanted, (smallest - lasting) / (wanted - lasting));
        v.seconds_for_1_percent = std::max(seconds, seconds * shrink * shrink);
    }
    return v;
}

}  // namespace ridge::bench
