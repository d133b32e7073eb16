// A string in which every byte knows who wrote it: the template, or the data it was given.
//
//     bytes    "<|im_start|>user: hi<|im_end|>"
//     flips    the ascending offsets where the writer changes; most strings have none
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/budget.h"

namespace ridge::text::jinja {

class Text {
  public:
    // With a budget, what is appended counts until the text is gone.
    explicit Text(Budget *budget) : budget_(budget) {}
    Text() : Text(nullptr) {}
    Text(Text &&other) noexcept;
    Text &operator=(Text &&other) noexcept;
    Text(const Text &) = delete;
    Text &operator=(const Text &) = delete;
    ~Text();

    const std::string &bytes() const { return bytes_; }
    operator std::string_view() const { return bytes_; }
    size_t size() const { return bytes_.size(); }
    bool empty() const { return bytes_.empty(); }

    void append(std::string_view bytes, bool from_template);
    void append(const Text &other) { append(other, 0, other.size()); }
    // Bytes [begin, end) of `other`, another text.
    void append(const Text &other, size_t begin, size_t end);

    // Who wrote byte `at`; for an empty text the template.
    bool from_template(size_t at) const;
    bool all_from_template() const { return first_ && flips_.empty(); }

    std::vector<Segment> segments() const;

  private:
    std::string bytes_;
    std::vector<size_t> flips_;
    bool first_ = true;  // the writer of the first byte
    Budget *budget_;
    uint64_t held_ = 0;
};

}  // namespace ridge::text::jinja
