#include "fuzz/support.h"

#include <sanitizer/allocator_interface.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>

#include "core/utf8.h"
#include "gguf/printable.h"

namespace ridge::fuzz {
namespace {

constexpr double kMostSeconds = 1;

double processor_seconds() {
    timespec t{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

std::atomic<size_t> live{0}, peak{0};
size_t live_at_start = 0;

void on_malloc(const volatile void *, size_t n) {
    const size_t now = live += n;
    if (now > peak) peak = now;
}

void on_free(const volatile void *p) {
    if (p != nullptr) live -= __sanitizer_get_allocated_size(p);
}

}  // namespace

void finding(const char *file, int line, const std::string &what) {
    std::fprintf(stderr, "FINDING %s:%d: %s\n", file, line, what.c_str());
    std::abort();
}

bool is_printable(std::string_view text) {
    if (utf8_valid_prefix(text) != text.size()) return false;
    for (size_t i = 0; i < text.size(); i++) {
        const auto c = static_cast<unsigned char>(text[i]);
        if (c < 0x20 || c == 0x7F) return false;
        // U+0080 to U+009F: control characters in two bytes.
        if (c == 0xC2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xA0) return false;
    }
    return true;
}

std::optional<Refusal> refusal_of(const std::function<void()> &f) {
    try {
        f();
        return std::nullopt;
    } catch (const Error &e) {
        const std::string message = e.what();
        FUZZ_REQUIRE(is_printable(message), "the message would drive a terminal: {}", gguf::printable(message, 500));
        FUZZ_REQUIRE(!message.empty() && message.size() <= 2000, "a message of {} bytes", message.size());
        return Refusal{e.kind(), message};
    } catch (const std::exception &e) {
        finding(__FILE__, __LINE__, fmt::format("an exception that is no ridge::Error: {}", e.what()));
    } catch (...) {
        finding(__FILE__, __LINE__, "an exception that is no std::exception");
    }
}

Stopwatch::Stopwatch() : start_(processor_seconds()) {}

Stopwatch::~Stopwatch() {
    const double seconds = processor_seconds() - start_;
    FUZZ_REQUIRE(seconds <= kMostSeconds, "took {:.2f} s of processor time", seconds);
}

void start_allocation_meter() {
    static const bool installed = __sanitizer_install_malloc_and_free_hooks(on_malloc, on_free) != 0;
    FUZZ_REQUIRE(installed, "no allocation can be counted");
    live_at_start = live;
    peak = live.load();
}

size_t peak_allocation() { return peak > live_at_start ? peak - live_at_start : 0; }

MemoryFile::MemoryFile(std::span<const std::byte> bytes, uint64_t size) : fd_(memfd_create("fuzz", MFD_CLOEXEC)) {
    FUZZ_REQUIRE(fd_ >= 0, "no file in memory");
    for (size_t done = 0; done < bytes.size();) {
        const ssize_t n = ::write(fd_, bytes.data() + done, bytes.size() - done);
        FUZZ_REQUIRE(n > 0, "a file in memory cannot be written");
        done += static_cast<size_t>(n);
    }
    if (size > bytes.size())
        FUZZ_REQUIRE(::ftruncate(fd_, static_cast<off_t>(size)) == 0, "a file in memory of {} bytes", size);
}

MemoryFile::~MemoryFile() { ::close(fd_); }

}  // namespace ridge::fuzz
