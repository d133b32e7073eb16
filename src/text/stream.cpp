#include "text/stream.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/utf8.h"

namespace ridge::text {

std::string Utf8Stream::feed(std::string_view bytes) {
    tail_ += bytes;
    std::string out;
    std::string_view rest = tail_;
    while (!rest.empty()) {
        const size_t valid = utf8_valid_prefix(rest);
        out += rest.substr(0, valid);
        rest.remove_prefix(valid);
        if (rest.empty()) break;
        const Utf8Step step = utf8_step(rest);
        if (step.kind == Utf8::incomplete) break;
        out += kReplacementCharacter;
        rest.remove_prefix(step.length);
    }
    tail_ = std::string(rest);
    return out;
}

std::string Utf8Stream::finish() {
    const bool unfinished = !std::exchange(tail_, {}).empty();
    return unfinished ? std::string(kReplacementCharacter) : std::string();
}

StopMatcher::StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {
    for (const std::string &stop : stops_) {
        if (stop.empty()) fail(ErrorKind::usage, "a stop string must not be empty");
        longest_ = std::max(longest_, stop.size());
    }
}

std::string StopMatcher::feed(std::string_view text) {
    if (stopped_) return {};
    const size_t seen = held_.size();
    std::string all = std::exchange(held_, {});
    all += text;
    for (size_t end = seen + 1; end <= all.size(); ++end) {
        const std::string_view head = std::string_view(all).substr(0, end);
        size_t length = 0;
        for (const std::string &stop : stops_) {
            if (head.ends_with(stop)) length = std::max(length, stop.size());
        }
        if (length > 0) {
            stopped_ = true;
            all.resize(end - length);
            return all;
        }
    }
    for (size_t keep = longest_ > 0 ? std::min(all.size(), longest_ - 1) : 0; keep > 0; --keep) {
        const std::string_view tail = std::string_view(all).substr(all.size() - keep);
        if (std::ranges::any_of(stops_, [&](const std::string &stop) { return stop.starts_with(tail); })) {
            held_ = tail;
            all.resize(all.size() - keep);
            break;
        }
    }
    return all;
}

std::string StopMatcher::finish() { return std::exchange(held_, {}); }

}  // namespace ridge::text
