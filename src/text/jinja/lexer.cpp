#include "text/jinja/lexer.h"

#include <algorithm>
#include <array>

#include "core/error.h"
#include "core/utf8.h"
#include "gguf/printable.h"
#include "text/jinja/unicode.h"

namespace ridge::text::jinja {

void syntax_error(std::string_view origin, Position at, std::string_view text) {
    fail(ErrorKind::unsupported, "{}: chat template, line {}, column {}: {}", origin, at.line, at.column, text);
}

namespace {

// Longest first.
constexpr std::array<std::string_view, 26> kOperators{"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                      "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                      ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};

std::string with_plain_line_breaks(std::string_view source) {
    std::string out;
    out.reserve(source.size());
    for (size_t i = 0; i < source.size(); ++i) {
        if (source[i] == '\r') {
            out += '\n';
            if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
        } else {
            out += source[i];
        }
    }
    if (out.ends_with('\n')) out.pop_back();
    return out;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

class Lexer {
  public:
    Lexer(std::string source, std::string_view origin) : source_(std::move(source)), origin_(origin) {}

    std::vector<Token> run() {
        while (at_ < source_.size()) text_and_tag();
        add(TokenKind::end, {}, at_);
        return std::move(tokens_);
    }

  private:
    std::string_view rest(size_t at) const { return std::string_view(source_).substr(std::min(at, source_.size())); }

    // Offsets are asked for in ascending order, but for errors.
    Position position(size_t offset) {
        if (offset < counted_) {
            counted_ = 0;
            here_ = {};
        }
        while (counted_ < offset) {
            if (source_[counted_] == '\n') {
                ++here_.line;
                here_.column = 1;
                ++counted_;
            } else {
                counted_ += character_at(rest(counted_)).length;
                ++here_.column;
            }
        }
        return here_;
    }

    [[noreturn]] void error(size_t at, std::string_view text) { syntax_error(origin_, position(at), text); }

    void add(TokenKind kind, std::string text, size_t at) { tokens_.push_back({kind, std::move(text), position(at)}); }

    size_t skip_spaces(size_t at) const {
        while (at < source_.size()) {
            const Character c = character_at(rest(at));
            if (!is_space(c.code)) break;
            at += c.length;
        }
        return at;
    }

    // Moves behind `close`, a tag's end that stands at at_ with its sign: '-' takes the white space that follows.
    void leave(size_t sign_length, size_t close_length, bool trims_line) {
        const char sign = sign_length == 0 ? '\0' : source_[at_];
        at_ += sign_length + close_length;
        if (sign == '-') at_ = skip_spaces(at_);
        if (sign == '\0' && trims_line && rest(at_).starts_with('\n')) ++at_;
        line_starting_ = at_ > 0 && source_[at_ - 1] == '\n';
    }

    // The text [begin, end) before a tag with this sign.
    void add_data(size_t begin, size_t end, char sign, bool is_block) {
        std::string_view text = std::string_view(source_).substr(begin, end - begin);
        if (sign == '-') {
            while (!text.empty()) {
                const std::string_view last = text.substr(text.size() - last_character_length(text));
                if (!is_space(character_at(last).code)) break;
                text.remove_suffix(last.size());
            }
        } else if (sign != '+' && is_block) {
            const size_t line = text.rfind('\n') + 1;  // npos + 1 is 0
            if ((line > 0 || line_starting_) && skip_spaces(begin + line) >= end) text = text.substr(0, line);
        }
        if (!text.empty()) add(TokenKind::data, std::string(text), begin);
    }

    void text_and_tag() {
        const size_t begin = at_;
        size_t open = begin;
        while (true) {
            open = source_.find('{', open);
            if (open == std::string::npos || open + 1 == source_.size()) {
                add(TokenKind::data, source_.substr(begin), begin);
                at_ = source_.size();
                return;
            }
            const char c = source_[open + 1];
            if (c == '{' || c == '%' || c == '#') break;
            ++open;
        }
        const char type = source_[open + 1];
        at_ = open + 2;
        char sign = at_ < source_.size() ? source_[at_] : '\0';
        if (sign == '-' || sign == '+') {
            ++at_;
        } else {
            sign = '\0';
        }
        add_data(begin, open, sign, type != '{');
        line_starting_ = false;
        if (type == '#') return comment(open);
        if (type == '%' && raw(open)) return;
        add(type == '{' ? TokenKind::variable_begin : TokenKind::block_begin, {}, open);
        tag(type, open);
    }

    void comment(size_t open) {
        if (at_ == source_.size()) return;  // at the very end it is nothing, as jinja has it
        const size_t close = source_.find("#}", at_);
        if (close == std::string::npos) error(open, "this comment has no end; '#}' was expected");
        const bool has_sign = close > at_ && (source_[close - 1] == '-' || source_[close - 1] == '+');
        at_ = has_sign ? close - 1 : close;
        leave(has_sign ? 1 : 0, 2, true);
    }

    // Behind `word` and a tag's end from `at` on, as offsets {sign, end of the sign}; false where something else
    // stands.
    bool is_word_and_end(size_t at, std::string_view word, bool plus, size_t &sign, size_t &sign_length) const {
        at = skip_spaces(at);
        if (!rest(at).starts_with(word)) return false;
        sign = skip_spaces(at + word.size());
        const char c = sign < source_.size() ? source_[sign] : '\0';
        sign_length = c == '-' || (plus && c == '+') ? 1 : 0;
        return rest(sign + sign_length).starts_with("%}");
    }

    // {% raw %} ... {% endraw %}, whose inside is text.
    bool raw(size_t open) {
        size_t sign = 0, sign_length = 0;
        if (!is_word_and_end(at_, "raw", false, sign, sign_length)) return false;
        at_ = sign;
        leave(sign_length, 2, false);
        const size_t begin = at_;
        for (size_t close = source_.find("{%", begin); close != std::string::npos;
             close = source_.find("{%", close + 1)) {
            const char c = close + 2 < source_.size() ? source_[close + 2] : '\0';
            const bool has_sign = c == '-' || c == '+';
            if (!is_word_and_end(close + 2 + (has_sign ? 1 : 0), "endraw", true, sign, sign_length)) continue;
            add_data(begin, close, has_sign ? c : '\0', true);
            at_ = sign;
            leave(sign_length, 2, true);
            return true;
        }
        error(open, "this raw block has no end; '{% endraw %}' was expected");
    }

    // The inside of {{ }} or {% %}, until it is closed.
    void tag(char type, size_t open) {
        const std::string_view close = type == '{' ? "}}" : "%}";
        std::string brackets;  // the ends that are awaited
        while (true) {
            at_ = skip_spaces(at_);
            if (at_ >= source_.size()) {
                error(open, fmt::format("this tag has no end; '{}' was expected", close));
            }
            const char c = source_[at_];
            if (brackets.empty()) {
                const size_t sign_length = c == '-' || (c == '+' && type == '%') ? 1 : 0;
                if (rest(at_ + sign_length).starts_with(close)) {
                    add(type == '{' ? TokenKind::variable_end : TokenKind::block_end, {}, at_);
                    leave(sign_length, 2, type == '%');
                    return;
                }
            }
            if (is_digit(c)) {
                number();
            } else if (c == '"' || c == '\'') {
                string();
            } else if (const size_t length = name_length(); length > 0) {
                add(TokenKind::name, source_.substr(at_, length), at_);
                at_ += length;
            } else {
                op(brackets);
            }
        }
    }

    size_t name_length() const {
        size_t end = at_;
        while (end < source_.size()) {
            const Character c = character_at(rest(end));
            if (!is_word(c.code)) break;
            end += c.length;
        }
        return end - at_;
    }

    // Digits with single underscores between them, from `at`; the end, or `at` where there are none.
    template <class IsDigit>
    size_t digits(size_t at, IsDigit is) const {
        size_t end = at;
        while (end < source_.size()) {
            if (is(source_[end])) {
                ++end;
            } else if (source_[end] == '_' && end > at && end + 1 < source_.size() && is(source_[end + 1])) {
                end += 2;
            } else {
                break;
            }
        }
        return end;
    }

    void add_number(TokenKind kind, size_t end) {
        std::string text = source_.substr(at_, end - at_);
        std::erase(text, '_');
        add(kind, std::move(text), at_);
        at_ = end;
    }

    void number() {
        const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';
        const size_t whole = digits(at_, is_digit);
        size_t end = whole;
        if (rest(end).starts_with('.') && end + 1 < source_.size() && is_digit(source_[end + 1])) {
            end = digits(end + 1, is_digit);
        }
        if (rest(end).starts_with('e') || rest(end).starts_with('E')) {
            const size_t sign = end + 1 < source_.size() && (source_[end + 1] == '-' || source_[end + 1] == '+');
            if (const size_t exponent = digits(end + 1 + sign, is_digit); exponent > end + 1 + sign) end = exponent;
        }
        if (end > whole && !after_dot) return add_number(TokenKind::real, end);

        const std::string_view s = rest(at_);
        const char letter = s.size() > 2 && s[0] == '0' ? static_cast<char>(s[1] | 0x20) : '\0';
        const size_t first = at_ + 2 + (s.size() > 3 && s[2] == '_' ? 1 : 0);
        const auto prefixed = [&](char expected, auto is) {
            const size_t last = letter == expected ? digits(first, is) : first;
            if (last > first) add_number(TokenKind::integer, last);
            return last > first;
        };
        if (prefixed('x', [](char c) { return is_digit(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f'); })) return;
        if (prefixed('o', [](char c) { return c >= '0' && c <= '7'; })) return;
        if (prefixed('b', [](char c) { return c == '0' || c == '1'; })) return;
        // Zeros lead no other digits: "007" is two numbers, and so an error later.
        add_number(TokenKind::integer, s[0] == '0' ? digits(at_, [](char c) { return c == '0'; }) : whole);
    }

    void op(std::string &brackets) {
        const auto it = std::ranges::find_if(kOperators, [&](std::string_view o) { return rest(at_).starts_with(o); });
        if (it == kOperators.end()) {
            error(at_, fmt::format("'{}' begins nothing that a template may hold",
                                   gguf::printable(rest(at_).substr(0, character_at(rest(at_)).length))));
        }
        const char c = (*it)[0];
        if (c == '(' || c == '[' || c == '{') {
            brackets += c == '(' ? ')' : c == '[' ? ']' : '}';
        } else if (c == ')' || c == ']' || c == '}') {
            if (brackets.empty()) error(at_, fmt::format("'{}' closes nothing", c));
            if (brackets.back() != c) {
                error(at_, fmt::format("'{}' was expected, but '{}' stands here", brackets.back(), c));
            }
            brackets.pop_back();
        }
        add(TokenKind::op, std::string(*it), at_);
        at_ += it->size();
    }

    void string() {
        const size_t open = at_;
        const char quote = source_[at_++];
        std::string out;
        while (true) {
            if (at_ >= source_.size()) error(open, fmt::format("this string has no end; {} was expected", quote));
            const char c = source_[at_++];
            if (c == quote) break;
            if (c == '\\') {
                if (at_ >= source_.size()) error(open, fmt::format("this string has no end; {} was expected", quote));
                escape(out);
            } else {
                out += c;
            }
        }
        add(TokenKind::string, std::move(out), open);
    }

    void hex_escape(std::string &out, size_t count) {
        uint32_t code = 0;
        for (size_t i = 0; i < count; ++i, ++at_) {
            const char c = at_ < source_.size() ? source_[at_] : '\0';
            const int digit = is_digit(c)                              ? c - '0'
                              : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10
                                                                       : -1;
            if (digit < 0) error(at_, fmt::format("{} hexadecimal digits were expected in this escape", count));
            code = code << 4 | static_cast<uint32_t>(digit);
        }
        if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) {
            error(at_ - count, fmt::format("U+{:04X} is no character", code));
        }
        append_utf8(out, code);
    }

    // Behind a backslash.
    void escape(std::string &out) {
        constexpr std::string_view kFrom = "\\'\"abfnrtv";
        constexpr std::string_view kTo = "\\'\"\a\b\f\n\r\t\v";
        const char c = source_[at_];
        if (static_cast<uint8_t>(c) >= 0x80) {
            // Python's own way with these: the character becomes an escape before escapes are read.
            const Character character = character_at(rest(at_));
            at_ += character.length;
            const uint32_t code = character.code;
            out += code < 0x100     ? fmt::format("\\x{:02x}", code)
                   : code < 0x10000 ? fmt::format("\\u{:04x}", code)
                                    : fmt::format("\\U{:08x}", code);
            return;
        }
        ++at_;
        if (const size_t known = kFrom.find(c); known != std::string_view::npos) {
            out += kTo[known];
        } else if (c == '\n') {
            // A line break behind a backslash is not there.
        } else if (c >= '0' && c <= '7') {
            uint32_t code = 0;
            --at_;
            for (int i = 0; i < 3 && at_ < source_.size() && source_[at_] >= '0' && source_[at_] <= '7'; ++i, ++at_) {
                code = code << 3 | static_cast<uint32_t>(source_[at_] - '0');
            }
            append_utf8(out, code);
        } else if (c == 'x') {
            hex_escape(out, 2);
        } else if (c == 'u') {
            hex_escape(out, 4);
        } else if (c == 'U') {
            hex_escape(out, 8);
        } else if (c == 'N') {
            error(at_ - 2, "characters cannot be named (\\N); \\u and four digits would work");
        } else {
            out += '\\';
            out += c;
        }
    }

    std::string source_;
    std::string_view origin_;
    std::vector<Token> tokens_;
    size_t at_ = 0;
    bool line_starting_ = true;  // what was read last ends with a line break
    size_t counted_ = 0;         // here_ is the position of this offset
    Position here_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source, std::string_view origin) {
    if (source.size() > kMaxSource) {
        fail(ErrorKind::limit, "{}: the chat template has {} bytes; at most {} are read", origin, source.size(),
             kMaxSource);
    }
    return Lexer(with_plain_line_breaks(source), origin).run();
}

}  // namespace ridge::text::jinja
