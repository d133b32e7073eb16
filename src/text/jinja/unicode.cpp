#include "text/jinja/unicode.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/error.h"
#include "core/utf8.h"

namespace ridge::text::jinja {

namespace {

struct CaseRange {
    Case kind;
    char32_t first, last;
    uint32_t step;
    int32_t delta;
};

struct CaseSpecial {
    Case kind;
    char32_t code;
    std::string_view text;
};

#define RANGE(kind, first, last, step, delta) CaseRange{Case::kind, first, last, step, delta},
#define SPECIAL(kind, code, text)
constexpr CaseRange kRanges[] = {
#include "text/jinja/case_tables.def"
};
#undef RANGE
#undef SPECIAL
#define RANGE(kind, first, last, step, delta)
#define SPECIAL(kind, code, text) CaseSpecial{Case::kind, code, text},
constexpr CaseSpecial kSpecials[] = {
#include "text/jinja/case_tables.def"
};
#undef RANGE
#undef SPECIAL

// The classes as patterns, by CharacterClass. Printable is what python's repr leaves as it is.
// Digits are decimals and what else stands for one digit: superscripts, digits in circles.
constexpr std::array<const char *, 9> kClassPatterns{
    R"(\p{L})",
    R"(\p{Nd})",
    R"([\p{Nd}\x{B2}\x{B3}\x{B9}\x{1369}-\x{1371}\x{19DA}\x{2070}\x{2074}-\x{2079}\x{2080}-\x{2089}\x{2460}-\x{2468})"
    R"(\x{2474}-\x{247C}\x{2488}-\x{2490}\x{24EA}\x{24F5}-\x{24FD}\x{24FF}\x{2776}-\x{277E}\x{2780}-\x{2788})"
    R"(\x{278A}-\x{2792}\x{10A40}-\x{10A43}\x{10E60}-\x{10E68}\x{11052}-\x{1105A}\x{1F100}-\x{1F10A}])",
    R"(\p{N})",
    R"([^\p{C}\p{Z}])",
    R"(\p{Lowercase})",
    R"(\p{Uppercase})",
    R"(\p{Cased})",
    R"(\p{Case_Ignorable})",
};

struct ClassPattern {
    std::unique_ptr<pcre2_code, decltype(&pcre2_code_free)> code{nullptr, pcre2_code_free};

    explicit ClassPattern(const char *source) {
        int error = 0;
        PCRE2_SIZE offset = 0;
        code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(source), PCRE2_ZERO_TERMINATED, PCRE2_UTF, &error,
                                 &offset, nullptr));
        RIDGE_ASSERT(code != nullptr);
    }
};

bool matches(CharacterClass what, std::string_view utf8) {
    static const std::vector<ClassPattern> patterns(kClassPatterns.begin(), kClassPatterns.end());
    thread_local const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> data(
        pcre2_match_data_create(1, nullptr), pcre2_match_data_free);
    if (!data) fail(ErrorKind::limit, "out of memory while rendering a template");
    return pcre2_match(patterns[static_cast<size_t>(what)].code.get(), reinterpret_cast<PCRE2_SPTR>(utf8.data()),
                       utf8.size(), 0, 0, data.get(), nullptr) >= 0;
}

bool is_ascii_a(CharacterClass what, char32_t c) {
    const bool lower = c >= 'a' && c <= 'z';
    const bool upper = c >= 'A' && c <= 'Z';
    switch (what) {
        case CharacterClass::lower:
            return lower;
        case CharacterClass::upper:
            return upper;
        case CharacterClass::letter:
        case CharacterClass::cased:
            return lower || upper;
        case CharacterClass::decimal:
        case CharacterClass::digit:
        case CharacterClass::numeric:
            return c >= '0' && c <= '9';
        case CharacterClass::printable:
            return c >= 0x20 && c < 0x7F;
        case CharacterClass::case_ignorable:
            return std::string_view("'.:^`").find(static_cast<char>(c)) < 5;
    }
    return false;
}

}  // namespace

Character character_at(std::string_view s) {
    const auto first = static_cast<uint8_t>(s[0]);
    if (first < 0x80) return {first, 1};
    const Utf8Step step = utf8_step(s);
    if (step.kind != Utf8::valid) return {kIllFormed, step.length};
    return {utf8_code(s.substr(0, step.length)), step.length};
}

size_t last_character_length(std::string_view s) {
    // A character or an ill-formed unit is at most 4 bytes, and starts with no continuation byte unless it is one byte.
    for (size_t length = std::min<size_t>(4, s.size()); length > 1; --length) {
        const std::string_view tail = s.substr(s.size() - length);
        if ((static_cast<uint8_t>(tail[0]) & 0xC0) != 0x80 && character_at(tail).length == length) return length;
    }
    return 1;
}

size_t character_count(std::string_view s) {
    size_t count = 0;
    for (size_t at = 0; at < s.size(); at += character_at(s.substr(at)).length) ++count;
    return count;
}

size_t byte_offset(std::string_view s, size_t index) {
    size_t at = 0;
    for (; index > 0 && at < s.size(); --index) at += character_at(s.substr(at)).length;
    return at;
}

bool is_space(char32_t c) {
    return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_line_break(char32_t c) {
    return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

bool is_a(CharacterClass what, char32_t c) {
    if (c < 0x80) return is_ascii_a(what, c);
    if (c == kIllFormed) return false;
    std::string utf8;
    append_utf8(utf8, c);
    return matches(what, utf8);
}

void append_cased(std::string &out, char32_t c, Case to) {
    if (c < 0x80) {
        const bool changes = to == Case::lower ? c >= 'A' && c <= 'Z' : c >= 'a' && c <= 'z';
        out += static_cast<char>(changes ? c ^ 0x20 : c);
        return;
    }
    const auto special = std::ranges::lower_bound(kSpecials, std::pair(to, c), {},
                                                  [](const CaseSpecial &s) { return std::pair(s.kind, s.code); });
    if (special != std::end(kSpecials) && special->kind == to && special->code == c) {
        out += special->text;
        return;
    }
    const auto range = std::ranges::lower_bound(kRanges, std::pair(to, c), {},
                                                [](const CaseRange &r) { return std::pair(r.kind, r.last); });
    const bool found =
        range != std::end(kRanges) && range->kind == to && range->first <= c && (c - range->first) % range->step == 0;
    append_utf8(out, found ? static_cast<char32_t>(static_cast<int32_t>(c) + range->delta) : c);
}

bool is_final_sigma(std::string_view s, size_t at) {
    std::string_view before = s.substr(0, at);
    bool after_letter = false;
    while (!before.empty()) {
        const std::string_view last = before.substr(before.size() - last_character_length(before));
        const char32_t c = character_at(last).code;
        before.remove_suffix(last.size());
        if (is_a(CharacterClass::case_ignorable, c)) continue;
        after_letter = is_a(CharacterClass::cased, c);
        break;
    }
    if (!after_letter) return false;
    for (size_t next = at + character_at(s.substr(at)).length; next < s.size();) {
        const Character c = character_at(s.substr(next));
        if (!is_a(CharacterClass::case_ignorable, c.code)) return !is_a(CharacterClass::cased, c.code);
        next += c.length;
    }
    return true;
}

}  // namespace ridge::text::jinja
