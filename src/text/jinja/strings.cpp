#include "text/jinja/strings.h"

#include <algorithm>
#include <vector>

#include "text/jinja/operations.h"

namespace ridge::text::jinja {

namespace {

// A new string by character: `map(out, character, byte offset)` appends what becomes of each.
template <class Map>
Value mapped(const Value &s, Budget &budget, Map map) {
    const Text &text = s.text();
    const std::string_view bytes = text;
    budget.work(bytes.size() * 8);
    Text out(&budget);
    std::string piece;
    bool from_template = true;
    for (size_t at = 0; at < bytes.size();) {
        const Character c = character_at(bytes.substr(at));
        if (const bool writer = text.from_template(at); writer != from_template) {
            out.append(piece, from_template);
            piece.clear();
            from_template = writer;
        }
        if (c.code == kIllFormed) {
            piece += bytes.substr(at, c.length);
        } else {
            map(piece, c.code, at);
        }
        at += c.length;
    }
    out.append(piece, from_template);
    return Maker(budget).string(std::move(out), s.string().is_markup);
}

// Knuth, Morris, Pratt: the offset of the first match, in the direction of the iterators, or npos.
template <class Iterator>
size_t first_match(Iterator begin, Iterator end, Iterator what, size_t size, Budget &budget) {
    if (static_cast<size_t>(end - begin) < size) return std::string_view::npos;
    budget.require(size * sizeof(size_t));
    budget.work(size * 2);
    const auto at = [&](size_t i) { return what[static_cast<std::ptrdiff_t>(i)]; };
    // Of the first i + 1 characters of `what`: the length of the longest proper prefix that is a suffix too.
    std::vector<size_t> border(size);
    for (size_t i = 1, n = 0; i < size; ++i) {
        while (n > 0 && at(i) != at(n)) n = border[n - 1];
        n += at(i) == at(n);
        border[i] = n;
    }
    size_t n = 0;
    for (Iterator it = begin; it != end; ++it) {
        while (n > 0 && *it != at(n)) n = border[n - 1];
        n += *it == at(n);
        if (n == size) return static_cast<size_t>(it - begin) + 1 - size;
    }
    return std::string_view::npos;
}

void append_lower(std::string &out, std::string_view s, char32_t c, size_t at) {
    constexpr char32_t kSigma = 0x3A3;
    if (c == kSigma && is_final_sigma(s, at)) {
        out += "\xCF\x82";
    } else {
        append_cased(out, c, Case::lower);
    }
}

}  // namespace

Value upper(const Value &s, Budget &budget) {
    return mapped(s, budget, [](std::string &out, char32_t c, size_t) { append_cased(out, c, Case::upper); });
}

Value lower(const Value &s, Budget &budget) {
    const std::string_view bytes = s.text();
    return mapped(s, budget, [&](std::string &out, char32_t c, size_t at) { append_lower(out, bytes, c, at); });
}

Value swap_case(const Value &s, Budget &budget) {
    const std::string_view bytes = s.text();
    return mapped(s, budget, [&](std::string &out, char32_t c, size_t at) {
        if (is_a(CharacterClass::upper, c)) return append_lower(out, bytes, c, at);
        append_cased(out, c, is_a(CharacterClass::lower, c) ? Case::upper : Case::title);
    });
}

Value capitalize(const Value &s, Budget &budget) {
    const std::string_view bytes = s.text();
    return mapped(s, budget, [&](std::string &out, char32_t c, size_t at) {
        if (at == 0) return append_cased(out, c, Case::title);
        append_lower(out, bytes, c, at);
    });
}

Value title(const Value &s, Budget &budget) {
    const std::string_view bytes = s.text();
    return mapped(s, budget, [&, in_word = false](std::string &out, char32_t c, size_t at) mutable {
        if (in_word) {
            append_lower(out, bytes, c, at);
        } else {
            append_cased(out, c, Case::title);
        }
        in_word = is_a(CharacterClass::cased, c);
    });
}

Value title_by_spaces(const Value &s, Budget &budget) {
    const std::string_view bytes = s.text();
    const auto separates = [](char32_t c) {
        return is_space(c) || (c < 0x80 && std::string_view("-({[<").find(static_cast<char>(c)) < 5);
    };
    // The rest of a word is lowered as a text of its own, as jinja does: a sigma there sees no letter before the rest.
    std::string_view rest;
    size_t rest_begin = 0;
    return mapped(s, budget, [&, in_word = false](std::string &out, char32_t c, size_t at) mutable {
        if (in_word) {
            append_lower(out, rest, c, at - rest_begin);
        } else {
            append_cased(out, c, Case::upper);
            rest_begin = at + character_at(bytes.substr(at)).length;
            size_t end = rest_begin;
            while (end < bytes.size() && !separates(character_at(bytes.substr(end)).code)) {
                end += character_at(bytes.substr(end)).length;
            }
            rest = bytes.substr(rest_begin, end - rest_begin);
        }
        in_word = !separates(c);
    });
}

Value strip(const Value &s, const Value &chars, Sides sides, Budget &budget) {
    const std::string_view bytes = s.text();
    budget.work(bytes.size());
    const bool is_space_strip = chars.is_missing() || chars.is(Kind::none);
    if (!is_space_strip && !chars.is_string()) raise("what strip takes away is a string, not '{}'", type_name(chars));
    const auto goes = [&](std::string_view character) {
        if (is_space_strip) return is_space(character_at(character).code);
        const std::string_view set = chars.text();
        budget.work(set.size());
        for (size_t at = 0; at < set.size();) {
            const size_t length = character_at(set.substr(at)).length;
            if (set.substr(at, length) == character) return true;
            at += length;
        }
        return false;
    };
    size_t begin = 0, end = bytes.size();
    while (sides != Sides::right && begin < end) {
        const size_t length = character_at(bytes.substr(begin)).length;
        if (!goes(bytes.substr(begin, length))) break;
        begin += length;
    }
    while (sides != Sides::left && begin < end) {
        const size_t length = last_character_length(bytes.substr(begin, end - begin));
        if (!goes(bytes.substr(end - length, length))) break;
        end -= length;
    }
    return begin == 0 && end == bytes.size() ? s : substring(s, begin, end, budget);
}

size_t find(std::string_view s, std::string_view what, Budget &budget) {
    if (what.size() <= 1) return s.find(what);
    return first_match(s.begin(), s.end(), what.begin(), what.size(), budget);
}

size_t find_last(std::string_view s, std::string_view what, Budget &budget) {
    if (what.size() <= 1) return s.rfind(what);
    const size_t at = first_match(s.rbegin(), s.rend(), what.rbegin(), what.size(), budget);
    return at == std::string_view::npos ? at : s.size() - at - what.size();
}

Value replace(const Value &s, const Value &from, const Value &to, int64_t count, Budget &budget) {
    const Text &text = s.text();
    const std::string_view bytes = text, pattern = from.text();
    budget.work(bytes.size());
    Text out(&budget);
    size_t done = 0, search = 0;
    for (; count != 0; --count) {
        if (search > bytes.size()) break;
        const size_t found = find(bytes.substr(search), pattern, budget);
        if (found == std::string_view::npos) break;
        const size_t at = search + found;
        budget.work(to.text().size());
        out.append(text, done, at);
        out.append(to.text());
        done = at + pattern.size();
        // An empty pattern stands between all characters.
        search = !pattern.empty() ? done : at == bytes.size() ? at + 1 : at + character_at(bytes.substr(at)).length;
    }
    out.append(text, done, bytes.size());
    return Maker(budget).string(std::move(out), s.string().is_markup);
}

Values split_lines(const Value &s, bool keep_ends, Budget &budget) {
    const std::string_view bytes = s.text();
    budget.work(bytes.size());
    Values lines;
    size_t begin = 0;
    for (size_t at = 0; at < bytes.size();) {
        const Character c = character_at(bytes.substr(at));
        size_t next = at + c.length;
        if (is_line_break(c.code)) {
            if (c.code == '\r' && next < bytes.size() && bytes[next] == '\n') ++next;
            lines.push_back(substring(s, begin, keep_ends ? next : at, budget));
            begin = next;
        }
        at = next;
    }
    if (begin < bytes.size()) lines.push_back(substring(s, begin, bytes.size(), budget));
    return lines;
}

void append_repeated(Text &out, std::string_view filler, bool from_template, int64_t n, Budget &budget) {
    if (n <= 0 || filler.empty()) return;
    const auto times = static_cast<uint64_t>(n);
    if (times > budget.limits().memory / filler.size()) budget.require(budget.limits().memory + 1);
    budget.require(times * filler.size());
    budget.work(times * filler.size());
    for (uint64_t i = 0; i < times; ++i) out.append(filler, from_template);
}

Value pad(const Value &s, int64_t width, const Value &fill, Sides stands, Budget &budget) {
    const std::string_view filler = fill.is_missing() ? std::string_view(" ") : std::string_view(fill.text());
    if (character_count(filler) != 1) raise("the character to fill with is one character");
    width = std::max<int64_t>(width, 0);
    const int64_t missing = width - length(s, budget);
    if (missing <= 0) return s;
    // Where both sides differ by one, python's center favours the left for an odd width.
    const int64_t left = stands == Sides::left    ? 0
                         : stands == Sides::right ? missing
                                                  : missing / 2 + (missing & width & 1);
    Text out(&budget);
    const bool from_template = fill.is_missing() || fill.text().all_from_template();
    append_repeated(out, filler, from_template, left, budget);
    out.append(s.text());
    append_repeated(out, filler, from_template, missing - left, budget);
    return Maker(budget).string(std::move(out), s.string().is_markup);
}

}  // namespace ridge::text::jinja
