#include "core/utf8.h"

#include <cstdint>
#include <cstring>

namespace ridge {

namespace {

// Sequences by first byte: how long they are and what their second byte may be. The later bytes are 80..BF always.
struct Lead {
    uint8_t length;
    uint8_t second_low;
    uint8_t second_high;
};

Lead lead_of(uint8_t byte) {
    if (byte < 0x80) return {1, 0, 0};
    if (byte < 0xC2) return {0, 0, 0};  // a continuation byte, or the start of an overlong form
    if (byte < 0xE0) return {2, 0x80, 0xBF};
    if (byte == 0xE0) return {3, 0xA0, 0xBF};
    if (byte == 0xED) return {3, 0x80, 0x9F};  // above are the surrogates
    if (byte < 0xF0) return {3, 0x80, 0xBF};
    if (byte == 0xF0) return {4, 0x90, 0xBF};
    if (byte < 0xF4) return {4, 0x80, 0xBF};
    if (byte == 0xF4) return {4, 0x80, 0x8F};  // above is past U+10FFFF
    return {0, 0, 0};
}

}  // namespace

Utf8Step utf8_step(std::string_view s) {
    const Lead lead = lead_of(static_cast<uint8_t>(s[0]));
    if (lead.length == 0) return {Utf8::invalid, 1};
    for (size_t i = 1; i < lead.length; ++i) {
        if (i == s.size()) return {Utf8::incomplete, i};
        const auto byte = static_cast<uint8_t>(s[i]);
        const uint8_t low = i == 1 ? lead.second_low : 0x80;
        const uint8_t high = i == 1 ? lead.second_high : 0xBF;
        if (byte < low || byte > high) return {Utf8::invalid, i};
    }
    return {Utf8::valid, lead.length};
}

char32_t utf8_code(std::string_view character) {
    const auto byte = [&](size_t i) { return char32_t{static_cast<uint8_t>(character[i])}; };
    switch (character.size()) {
        case 1:
            return byte(0);
        case 2:
            return (byte(0) & 0x1F) << 6 | (byte(1) & 0x3F);
        case 3:
            return (byte(0) & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
        default:
            return (byte(0) & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
    }
}

size_t utf8_valid_prefix(std::string_view s) {
    size_t at = 0;
    while (at < s.size()) {
        // Eight ASCII bytes at a time: most text is mostly ASCII.
        uint64_t eight = 0;
        if (s.size() - at >= sizeof eight) {
            std::memcpy(&eight, s.data() + at, sizeof eight);
            if ((eight & 0x8080808080808080u) == 0) {
                at += sizeof eight;
                continue;
            }
        }
        const Utf8Step step = utf8_step(s.substr(at));
        if (step.kind != Utf8::valid) break;
        at += step.length;
    }
    return at;
}

void append_utf8(std::string &out, char32_t code) {
    if (code < 0x80) {
        out += static_cast<char>(code);
    } else if (code < 0x800) {
        out += static_cast<char>(0xC0 | (code >> 6));
        out += static_cast<char>(0x80 | (code & 0x3F));
    } else if (code < 0x10000) {
        out += static_cast<char>(0xE0 | (code >> 12));
        out += static_cast<char>(0x80 | ((code >> 6) & 0x3F));
        out += static_cast<char>(0x80 | (code & 0x3F));
    } else {
        out += static_cast<char>(0xF0 | (code >> 18));
        out += static_cast<char>(0x80 | ((code >> 12) & 0x3F));
        out += static_cast<char>(0x80 | ((code >> 6) & 0x3F));
        out += static_cast<char>(0x80 | (code & 0x3F));
    }
}

}  // namespace ridge
