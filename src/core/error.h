// Errors a person can act on: what is wrong, where, and what would work.
//
// Everything that can fail because of input (files, flags, prompts, limits) throws ridge::Error with a whole
// sentence. The kind decides the exit code of the command line and, later, the status of the server.
// Broken invariants of our own are not errors but bugs: RIDGE_ASSERT.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace ridge {

enum class ErrorKind {
    usage = 2,        // flags or arguments; exit code 2
    file = 3,         // a file that cannot be opened or is malformed
    unsupported = 4,  // well-formed, but nothing here can run it
    limit = 5,        // context length, memory, device limits
    device = 6,       // a driver or device failed
};

class Error : public std::runtime_error {
  public:
    Error(ErrorKind kind, const std::string &message) : std::runtime_error(message), kind_(kind) {}
    ErrorKind kind() const { return kind_; }
    int exit_code() const { return static_cast<int>(kind_); }

  private:
    ErrorKind kind_;
};

template <class... Args>
[[noreturn]] void fail(ErrorKind kind, fmt::format_string<Args...> text, Args &&...args) {
    throw Error(kind, fmt::format(text, std::forward<Args>(args)...));
}

[[noreturn]] void assertion_failed(const char *condition, const char *file, int line);

}  // namespace ridge

// Stays on in release builds: it guards memory, and none stands in an inner loop.
#define RIDGE_ASSERT(condition) \
    ((condition) ? static_cast<void>(0) : ::ridge::assertion_failed(#condition, __FILE__, __LINE__))
