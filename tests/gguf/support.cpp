#include "support.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <new>

namespace {

std::atomic<size_t> live{0}, peak{0};

void *allocate_or_null(size_t n) noexcept {
    void *p = std::malloc(n == 0 ? 1 : n);
    if (p == nullptr) return nullptr;
    const size_t now = live += malloc_usable_size(p);
    size_t seen = peak;
    while (seen < now && !peak.compare_exchange_weak(seen, now)) {
    }
    return p;
}

void *allocate(size_t n) {
    void *p = allocate_or_null(n);
    if (p == nullptr) throw std::bad_alloc();
    return p;
}

void release(void *p) noexcept {
    if (p == nullptr) return;
    live -= malloc_usable_size(p);
    std::free(p);
}

size_t live_at_start = 0;

}  // namespace

void *operator new(size_t n) { return allocate(n); }
void *operator new[](size_t n) { return allocate(n); }
void *operator new(size_t n, const std::nothrow_t &) noexcept { return allocate_or_null(n); }
void *operator new[](size_t n, const std::nothrow_t &) noexcept { return allocate_or_null(n); }
void operator delete(void *p) noexcept { release(p); }
void operator delete[](void *p) noexcept { release(p); }
void operator delete(void *p, size_t) noexcept { release(p); }
void operator delete[](void *p, size_t) noexcept { release(p); }

namespace ridge::gguf::test {

void start_allocation_meter() {
    live_at_start = live;
    peak = live.load();
}

size_t peak_allocation() { return peak - live_at_start; }

uint64_t touch(std::span<const std::pair<std::string_view, Value>> metadata, std::span<const Tensor> tensors) {
    uint64_t sum = 0;
    for (const auto &[key, v] : metadata) {
        sum += key.size() + v.as_u64().value_or(0) + static_cast<uint64_t>(v.as_i64().value_or(0));
        sum += v.as_f64().has_value() + v.as_bool().value_or(false);
        for (char c : v.as_string().value_or("")) sum += static_cast<unsigned char>(c);
        if (const auto all = v.as_strings())
            for (std::string_view s : *all)
                for (char c : s) sum += static_cast<unsigned char>(c);
        if (const auto all = v.as_floats()) sum += all->size();
        if (const auto all = v.as_ints())
            for (int64_t n : *all) sum += static_cast<uint64_t>(n);
        sum += preview(v).size() + type_text(v).size();
        for (size_t i = 0; i < v.bytes; i++) sum += std::to_integer<unsigned>(v.data[i]);
    }
    for (const Tensor &t : tensors) {
        sum += t.name.size() + t.elements();
        for (size_t i = 0; i < t.bytes; i++) sum += std::to_integer<unsigned>(t.data[i]);
    }
    return sum;
}

std::string caught(const std::function<void()> &f, ErrorKind *kind) {
    try {
        f();
    } catch (const Error &e) {
        *kind = e.kind();
        return e.what();
    }
    ADD_FAILURE() << "nothing was thrown";
    return {};
}

void expect_words(const std::string &message, const std::vector<std::string> &words) {
    for (const std::string &w : words)
        EXPECT_NE(message.find(w), std::string::npos) << "no '" << w << "' in: " << message;
    for (char c : message) EXPECT_GE(static_cast<unsigned char>(c), 0x20) << "a control character in: " << message;
}

void report(const std::string &input, std::string message, const std::filesystem::path &folder) {
    const char *wanted = std::getenv("RIDGE_PRINT_ERRORS");
    if (wanted == nullptr || std::string_view(wanted) != "1") return;
    const std::string prefix = folder.string() + "/";
    for (size_t at; (at = message.find(prefix)) != std::string::npos;) message.erase(at, prefix.size());
    for (size_t at = 0; (at = message.find('|', at)) != std::string::npos; at += 2) message.replace(at, 1, "\\|");
    fmt::print("| {} | {} |\n", input, message);
}

}  // namespace ridge::gguf::test
