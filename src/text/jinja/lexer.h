// A template's source as tokens.
//
// Text and tags alternate: {{ expression }}, {% statement %}, {# comment #}, {% raw %}...{% endraw %}. What white space
// around tags remains is decided here, so that no one after the lexer knows of it:
//     -    before or after a tag's inside takes all white space on that side
//     +    after {% or {#, before %} or #}: takes none
//     else one line break after %} and #} goes (trim_blocks), and so do spaces between the start of a line and {% or {#
//          (lstrip_blocks)
// Line breaks are \n, \r\n and \r, all read as \n; one at the very end is dropped.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/template.h"

namespace ridge::text::jinja {

struct Position {
    uint32_t line = 1, column = 1;  // in characters
};

enum class TokenKind : uint8_t {
    data,            // text to write
    variable_begin,  // {{
    variable_end,
    block_begin,  // {%
    block_end,
    name,
    string,  // its text, escapes resolved
    integer,
    real,
    op,  // one of the operators
    end,
};

struct Token {
    TokenKind kind;
    std::string text;  // the source of numbers without underscores
    Position at;
};

// Throws Error{unsupported} with `origin`, line and column for what is no token, and Error{limit} for a source of more
// than kMaxSource bytes.
std::vector<Token> tokenize(std::string_view source, std::string_view origin);

[[noreturn]] void syntax_error(std::string_view origin, Position at, std::string_view text);

}  // namespace ridge::text::jinja
