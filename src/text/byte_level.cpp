#include "text/byte_level.h"

#include <array>

#include "core/utf8.h"

namespace ridge::text {

namespace {

constexpr bool stands_for_itself(unsigned byte) {
    return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
}

constexpr unsigned kFirstSubstitute = 0x100;
constexpr unsigned kSubstitutes = 68;

struct Alphabet {
    std::array<uint16_t, 256> character{};            // by byte
    std::array<uint8_t, kSubstitutes> substituted{};  // the byte of U+0100 + index

    constexpr Alphabet() {
        unsigned next = 0;
        for (unsigned byte = 0; byte < 256; ++byte) {
            if (stands_for_itself(byte)) {
                character[byte] = static_cast<uint16_t>(byte);
            } else {
                substituted[next] = static_cast<uint8_t>(byte);
                character[byte] = static_cast<uint16_t>(kFirstSubstitute + next++);
            }
        }
    }
};
constexpr Alphabet kAlphabet;

}  // namespace

std::string byte_level_symbol(uint8_t byte) {
    std::string symbol;
    append_utf8(symbol, kAlphabet.character[byte]);
    return symbol;
}

std::string byte_level_decode(std::string_view stored) {
    std::string bytes;
    bytes.reserve(stored.size());
    for (size_t at = 0; at < stored.size();) {
        const Utf8Step step = utf8_step(stored.substr(at));
        if (step.kind != Utf8::valid) return std::string(stored);
        const char32_t code = utf8_code(stored.substr(at, step.length));
        if (code < 256 && stands_for_itself(code)) {
            bytes += static_cast<char>(code);
        } else if (code >= kFirstSubstitute && code < kFirstSubstitute + kSubstitutes) {
            bytes += static_cast<char>(kAlphabet.substituted[code - kFirstSubstitute]);
        } else {
            return std::string(stored);
        }
        at += step.length;
    }
    return bytes;
}

}  // namespace ridge::text
