// UTF-8, looked at one sequence at a time (Unicode 15, table 3-7: no overlong forms, no surrogates, at most U+10FFFF).
//
// Ill-formed bytes are grouped as Unicode recommends (and as browsers and Python do): the longest prefix of a
// well-formed sequence that then breaks off is one unit, any other stray byte is a unit of its own.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ridge {

enum class Utf8 {
    valid,       // one whole character
    invalid,     // one unit of ill-formed bytes, whatever follows
    incomplete,  // the text ends inside a sequence that could still become a character
};

struct Utf8Step {
    Utf8 kind;
    size_t length;  // bytes, at least 1
};

// What `s` starts with; `s` must not be empty.
Utf8Step utf8_step(std::string_view s);

// The code point of `character`, which is one whole character.
char32_t utf8_code(std::string_view character);

// Length of the longest prefix of `s` that is well-formed.
size_t utf8_valid_prefix(std::string_view s);

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

// Appends `code` (a Unicode scalar value) to `out`.
void append_utf8(std::string &out, char32_t code);

}  // namespace ridge
