// Reads values one after the other from hostile bytes. Every failure names the file, the byte, the entry and the field.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "gguf/printable.h"

namespace ridge::gguf {

class Cursor {
  public:
    Cursor(std::span<const std::byte> bytes, const std::string &file) : bytes_(bytes), file_(file) {}

    size_t at() const { return at_; }
    size_t size() const { return bytes_.size(); }
    size_t left() const { return bytes_.size() - at_; }
    const std::byte *data() const { return bytes_.data() + at_; }
    // Where something that was read stands in the file; a string begins with its length.
    size_t offset_of(const std::byte *p) const { return static_cast<size_t>(p - bytes_.data()); }
    size_t offset_of(std::string_view s) const { return offset_of(reinterpret_cast<const std::byte *>(s.data())) - 8; }

    // What is being read, for messages: entry `index` of `section`, called `name` once that is known.
    void enter(std::string_view section, uint64_t index) {
        section_ = section;
        index_ = index;
        name_ = {};
    }
    void call(std::string_view name) { name_ = name; }

    template <class T>
    T number(std::string_view field) {
        need(sizeof(T), field);
        T v;
        std::memcpy(&v, data(), sizeof v);
        at_ += sizeof v;
        return v;
    }

    // A u64 length and that many bytes.
    std::string_view string(std::string_view field) {
        const size_t start = at_;
        const auto length = number<uint64_t>(field);
        if (length > left())
            refuse(start, field, "its length is {} bytes, but only {} are left in the file ({} bytes)", length, left(),
                   size());
        const std::string_view text(reinterpret_cast<const char *>(data()), length);
        at_ += length;
        return text;
    }

    void skip(uint64_t n, std::string_view field) {
        need(n, field);
        at_ += n;
    }

    template <class... Args>
    [[noreturn]] void refuse(size_t offset, std::string_view field, fmt::format_string<Args...> text,
                             Args &&...args) const {
        std::string where(section_);
        if (index_ != kNoIndex) where += fmt::format(" {}", index_);
        if (!name_.empty()) where += fmt::format(" '{}'", printable(name_));
        fail(ErrorKind::file, "{}: byte {}: {}: {}: {}", file_, offset, where, field,
             fmt::format(text, std::forward<Args>(args)...));
    }

    static constexpr uint64_t kNoIndex = ~uint64_t{0};

  private:
    void need(uint64_t n, std::string_view field) const {
        if (n > left())
            refuse(at_, field,
                   "needs {} bytes, but the file ends after {} more; it is truncated: download or copy it again", n,
                   left());
    }

    std::span<const std::byte> bytes_;
    const std::string &file_;
    size_t at_ = 0;
    std::string_view section_ = "header";
    uint64_t index_ = kNoIndex;
    std::string_view name_;
};

}  // namespace ridge::gguf
