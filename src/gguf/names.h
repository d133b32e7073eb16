// Look-up by name. A sorted list and not a hash table: whoever makes a file can choose names that collide.
#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <optional>
#include <string_view>
#include <vector>

namespace ridge::gguf {

class NameIndex {
  public:
    // Of n entries; `name_at(i)` is the name of entry i.
    template <class NameAt>
    NameIndex(size_t n, NameAt name_at) : order_(n) {
        std::iota(order_.begin(), order_.end(), size_t{0});
        std::sort(order_.begin(), order_.end(), [&](size_t a, size_t b) {
            const int c = name_at(a).compare(name_at(b));
            return c != 0 ? c < 0 : a < b;
        });
    }
    NameIndex() = default;

    template <class NameAt>
    std::optional<size_t> find(std::string_view name, NameAt name_at) const {
        auto at = std::lower_bound(order_.begin(), order_.end(), name,
                                   [&](size_t i, std::string_view n) { return name_at(i) < n; });
        if (at == order_.end() || name_at(*at) != name) return std::nullopt;
        return *at;
    }

    struct Pair {
        size_t first, second;
    };
    // Two entries of one name, the second in file order after the first; empty where names are unique.
    template <class NameAt>
    std::optional<Pair> duplicate(NameAt name_at) const {
        for (size_t i = 1; i < order_.size(); i++)
            if (name_at(order_[i - 1]) == name_at(order_[i])) return Pair{order_[i - 1], order_[i]};
        return std::nullopt;
    }

  private:
    std::vector<size_t> order_;
};

}  // namespace ridge::gguf
