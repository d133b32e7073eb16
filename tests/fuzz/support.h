// For the fuzz harnesses: what every input must hold, whatever is fuzzed.
//
// A ridge::Error is the right answer to a bad input. Findings, each of which ends the process, are: any other
// exception, a message that could drive a terminal, a broken invariant, more than a second of processor time, more
// memory than the harness grants; and what the sanitizers and libFuzzer see by themselves.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/error.h"

namespace ridge::fuzz {

[[noreturn]] void finding(const char *file, int line, const std::string &what);

// Text that a message or a listing may hold: UTF-8 without control characters.
bool is_printable(std::string_view text);

struct Refusal {
    ErrorKind kind;
    std::string message;
};

// Runs `f`; what it refused, or nothing where it did its work. Any exception but ridge::Error is a finding.
std::optional<Refusal> refusal_of(const std::function<void()> &f);

// Stands at the head of an input; its destructor looks at the processor time that passed. Processor time and not the
// clock's: the machine may be busy.
class Stopwatch {
  public:
    Stopwatch();
    ~Stopwatch();
    Stopwatch(const Stopwatch &) = delete;
    Stopwatch &operator=(const Stopwatch &) = delete;

  private:
    double start_;
};

// Bytes on the heap: the most that were alive at a time since start(), above what was alive then.
void start_allocation_meter();
size_t peak_allocation();

// A file without a name on any disk. `bytes`, followed by zeros up to `size`, which take no memory.
class MemoryFile {
  public:
    explicit MemoryFile(std::span<const std::byte> bytes, uint64_t size = 0);
    ~MemoryFile();
    MemoryFile(const MemoryFile &) = delete;
    MemoryFile &operator=(const MemoryFile &) = delete;
    std::filesystem::path path() const { return fmt::format("/proc/self/fd/{}", fd_); }

  private:
    int fd_;
};

}  // namespace ridge::fuzz

#define FUZZ_REQUIRE(condition, ...)                          \
    ((condition) ? static_cast<void>(0)                       \
                 : ::ridge::fuzz::finding(__FILE__, __LINE__, \
                                          std::string(#condition " does not hold: ") + fmt::format(__VA_ARGS__)))
