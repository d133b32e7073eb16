// Characters as python's str methods see them: what is white space or a letter, and how case maps.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ridge::text::jinja {

// One character of a text that may be ill-formed: a unit of ill-formed bytes counts as one character.
struct Character {
    char32_t code;  // kIllFormed where the bytes are no character
    size_t length;  // bytes
};
constexpr char32_t kIllFormed = 0xFFFFFFFF;

// `s` must not be empty.
Character character_at(std::string_view s);
// The length in bytes of the last character of `s`, which must not be empty.
size_t last_character_length(std::string_view s);
// In characters.
size_t character_count(std::string_view s);
// The byte offset of character `index`, or the size where there are fewer.
size_t byte_offset(std::string_view s, size_t index);

bool is_space(char32_t c);       // str.isspace
bool is_line_break(char32_t c);  // where str.splitlines cuts

enum class CharacterClass { letter, decimal, digit, numeric, printable, lower, upper, cased, case_ignorable };
bool is_a(CharacterClass what, char32_t c);
inline bool is_word(char32_t c) {
    return c == '_' || is_a(CharacterClass::letter, c) || is_a(CharacterClass::numeric, c);
}

enum class Case { upper, lower, title };
// Appends the mapping of `c`, which may be several characters. A sigma maps as in the middle of a word.
void append_cased(std::string &out, char32_t c, Case to);
// Whether the sigma at byte `at` of `s` ends a word, and so has the lower case of a final sigma.
bool is_final_sigma(std::string_view s, size_t at);

}  // namespace ridge::text::jinja
