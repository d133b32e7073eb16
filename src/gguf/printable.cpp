#include "gguf/printable.h"

#include <fmt/format.h>

#include <cstdint>
#include <iterator>

#include "core/utf8.h"

namespace ridge::gguf {
namespace {

struct CodePoint {
    uint32_t value = 0;
    size_t bytes = 0;  // 0: not UTF-8
};

// Precondition: text is not empty.
CodePoint decode(std::string_view text) {
    const Utf8Step step = utf8_step(text);
    if (step.kind != Utf8::valid) return {};
    const auto lead = static_cast<unsigned char>(text[0]);
    uint32_t value = step.length == 1 ? lead : lead & (0x7Fu >> step.length);
    for (size_t i = 1; i < step.length; i++) value = value << 6 | (static_cast<unsigned char>(text[i]) & 0x3Fu);
    return {value, step.length};
}

bool is_control(uint32_t c) { return c < 0x20 || (c >= 0x7F && c < 0xA0); }

// Zero-width and direction marks, line separators, the byte order mark, language tags.
bool is_invisible(uint32_t c) {
    return c == 0xAD || c == 0x61C || (c >= 0x200B && c <= 0x200F) || (c >= 0x2028 && c <= 0x202E) ||
           (c >= 0x2060 && c <= 0x206F) || c == 0xFEFF || (c >= 0xFFF9 && c <= 0xFFFB) ||
           (c >= 0xE0000 && c <= 0xE007F);
}

}  // namespace

bool valid_utf8(std::string_view text) { return utf8_valid_prefix(text) == text.size(); }

std::string printable(std::string_view text, size_t limit) {
    std::string out;
    auto put = std::back_inserter(out);
    for (size_t shown = 0; !text.empty(); shown++) {
        if (shown == limit) return out + "...";
        const CodePoint c = decode(text);
        if (c.bytes == 0) {
            fmt::format_to(put, "\\x{:02x}", static_cast<unsigned char>(text[0]));
        } else if (c.value == '\n') {
            out += "\\n";
        } else if (c.value == '\t') {
            out += "\\t";
        } else if (c.value == '\\') {
            out += "\\\\";
        } else if (is_control(c.value)) {
            fmt::format_to(put, "\\u{:04x}", c.value);
        } else if (is_invisible(c.value)) {
            fmt::format_to(put, "\\u{{{:x}}}", c.value);
        } else {
            out += text.substr(0, c.bytes);
        }
        text.remove_prefix(c.bytes == 0 ? 1 : c.bytes);
    }
    return out;
}

}  // namespace ridge::gguf
