#include "text/jinja/text.h"

#include <algorithm>
#include <utility>

namespace ridge::text::jinja {

Text::Text(Text &&other) noexcept
    : bytes_(std::exchange(other.bytes_, {})),
      flips_(std::exchange(other.flips_, {})),
      first_(other.first_),
      budget_(other.budget_),
      held_(std::exchange(other.held_, 0)) {}

Text &Text::operator=(Text &&other) noexcept {
    std::swap(bytes_, other.bytes_);
    std::swap(flips_, other.flips_);
    std::swap(first_, other.first_);
    std::swap(budget_, other.budget_);
    std::swap(held_, other.held_);
    return *this;
}

Text::~Text() {
    if (budget_ != nullptr) budget_->release(held_);
}

void Text::append(std::string_view bytes, bool from_template) {
    if (bytes.empty()) return;
    const bool flips = !bytes_.empty() && (first_ == from_template) != (flips_.size() % 2 == 0);
    if (budget_ != nullptr) {
        const uint64_t more = bytes.size() + (flips ? sizeof(size_t) : 0);
        budget_->hold(more);
        held_ += more;
    }
    if (bytes_.empty()) first_ = from_template;
    if (flips) flips_.push_back(bytes_.size());
    bytes_ += bytes;
}

void Text::append(const Text &other, size_t begin, size_t end) {
    RIDGE_ASSERT(&other != this);
    auto flip = std::ranges::upper_bound(other.flips_, begin);
    bool from_template = other.from_template(begin);
    for (; begin < end; from_template = !from_template) {
        const size_t stop = flip == other.flips_.end() ? end : std::min(end, *flip++);
        append(std::string_view(other.bytes_).substr(begin, stop - begin), from_template);
        begin = stop;
    }
}

bool Text::from_template(size_t at) const {
    const auto before = std::ranges::upper_bound(flips_, at) - flips_.begin();
    return first_ == (before % 2 == 0);
}

std::vector<Segment> Text::segments() const {
    std::vector<Segment> out;
    bool from_template = first_;
    for (size_t i = 0, at = 0; at < bytes_.size(); ++i, from_template = !from_template) {
        const size_t end = i < flips_.size() ? flips_[i] : bytes_.size();
        out.push_back({bytes_.substr(at, end - at), from_template});
        at = end;
    }
    return out;
}

}  // namespace ridge::text::jinja
