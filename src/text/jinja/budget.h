// What a rendering may still use: values count their bytes for as long as they live, lists that functions work on are
// checked or counted, and what goes over input counts steps by its size.
#pragma once

#include <cstdint>

#include "core/error.h"
#include "text/jinja/template.h"

namespace ridge::text::jinja {

// An error of the template's run, before its place is known: the interpreter adds line and column.
struct Trouble {
    ErrorKind kind;
    std::string text;
};

template <class... Args>
[[noreturn]] void raise(fmt::format_string<Args...> text, Args &&...args) {
    throw Trouble{ErrorKind::usage, fmt::format(text, std::forward<Args>(args)...)};
}

class Budget {
  public:
    explicit Budget(const Limits &limits) : limits_(limits) {}
    Budget(const Budget &) = delete;
    Budget &operator=(const Budget &) = delete;

    const Limits &limits() const { return limits_; }

    void step(uint64_t n = 1) {
        steps_ += n;
        if (steps_ > limits_.steps) {
            throw Trouble{ErrorKind::limit, fmt::format("the template takes more than {} steps", limits_.steps)};
        }
    }
    // For work over `bytes` of text or `bytes` values.
    void work(uint64_t bytes) { step(1 + bytes / 16); }

    // That `bytes` more would fit.
    void require(uint64_t bytes) const {
        if (bytes > limits_.memory || held_ > limits_.memory - bytes) {
            throw Trouble{ErrorKind::limit,
                          fmt::format("the template's values take more than {} MiB", limits_.memory >> 20)};
        }
    }
    void hold(uint64_t bytes) {
        require(bytes);
        held_ += bytes;
    }
    void release(uint64_t bytes) { held_ -= bytes; }

  private:
    Limits limits_;
    uint64_t steps_ = 0, held_ = 0;
};

// Counts bytes for as long as it lives: of what no value holds.
class Held {
  public:
    Held(Budget &budget, uint64_t bytes) : budget_(budget), bytes_(bytes) { budget.hold(bytes); }
    ~Held() { budget_.release(bytes_); }
    Held(const Held &) = delete;
    Held &operator=(const Held &) = delete;

  private:
    Budget &budget_;
    uint64_t bytes_;
};

}  // namespace ridge::text::jinja
