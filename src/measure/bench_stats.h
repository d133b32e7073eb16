// Samples of a measurement and what is said about them.
#pragma once

#include <cstddef>
#include <vector>

namespace ridge {

class Samples {
  public:
    Samples() = default;
    explicit Samples(std::vector<double> values);
    void add(double value);

    bool empty() const { return sorted_.empty(); }
    size_t count() const { return sorted_.size(); }
    const std::vector<double> &in_order() const { return in_order_; }  // as they were taken
    // Of no samples all of these are 0.
    double least() const { return empty() ? 0 : sorted_.front(); }
    double most() const { return empty() ? 0 : sorted_.back(); }
    double median() const;  // of an even count the mean of the middle two
    double mean() const;
    double deviation() const;  // standard deviation of the samples, n - 1
    // Half of the distance between the quartiles, as a share of the median: what a repetition may differ by.
    double spread() const;
    // The samples under f, say from seconds to rates.
    template <class F>
    Samples map(F &&f) const {
        Samples s;
        for (double v : in_order_) s.add(f(v));
        return s;
    }

  private:
    double quantile(double q) const;
    std::vector<double> in_order_, sorted_;
};

}  // namespace ridge
