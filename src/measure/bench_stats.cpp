#include "measure/bench_stats.h"

#include <algorithm>
#include <cmath>

namespace ridge {

Samples::Samples(std::vector<double> values) : in_order_(std::move(values)), sorted_(in_order_) {
    std::sort(sorted_.begin(), sorted_.end());
}

void Samples::add(double value) {
    in_order_.push_back(value);
    sorted_.insert(std::upper_bound(sorted_.begin(), sorted_.end(), value), value);
}

// Between neighbours in proportion.
double Samples::quantile(double q) const {
    if (empty()) return 0;
    const double at = q * static_cast<double>(count() - 1);
    const auto low = static_cast<size_t>(at);
    const size_t high = std::min(low + 1, count() - 1);
    return sorted_[low] + (at - static_cast<double>(low)) * (sorted_[high] - sorted_[low]);
}

double Samples::median() const { return quantile(0.5); }

double Samples::mean() const {
    double sum = 0;
    for (double v : in_order_) sum += v;
    return empty() ? 0 : sum / static_cast<double>(count());
}

double Samples::deviation() const {
    if (count() < 2) return 0;
    const double m = mean();
    double sum = 0;
    for (double v : in_order_) sum += (v - m) * (v - m);
    return std::sqrt(sum / static_cast<double>(count() - 1));
}

double Samples::spread() const {
    const double m = median();
    return m == 0 ? 0 : (quantile(0.75) - quantile(0.25)) / 2 / m;
}

}  // namespace ridge
