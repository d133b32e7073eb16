// The methods of strings, as python's str has them.
#include <algorithm>
#include <array>

#include "text/jinja/format.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/operations.h"
#include "text/jinja/strings.h"

namespace ridge::text::jinja {

namespace {

using Args = const Arguments &;

template <Value (*f)(const Value &, Budget &)>
Value simple(Interpreter &run, const Value &self, Args) {
    return f(self, run.budget);
}

template <Sides sides>
Value strip_method(Interpreter &run, const Value &self, Args a) {
    return strip(self, a[0], sides, run.budget);
}

template <Sides stands>
Value pad_method(Interpreter &run, const Value &self, Args a) {
    if (a.has(1)) a.text(1, {});
    return pad(self, a.whole(0, 0), a[1], stands, run.budget);
}

// The bytes that [start, end) of the arguments `first` and `first` + 1 mean; nothing where start lies past the end.
struct Window {
    size_t begin, end;
    bool is_valid;
};

Window window(Interpreter &run, const Value &self, Args a, size_t first) {
    const auto is_given = [&](size_t i) { return a.has(i) && !a[i].is(Kind::none); };
    if (!is_given(first) && !is_given(first + 1)) return {0, self.text().size(), true};
    const int64_t size = length(self, run.budget);
    const auto bound = [&](size_t i, int64_t preset) {
        const int64_t n = is_given(i) ? a.whole(i, 0) : preset;
        return n < 0 ? std::max<int64_t>(n < -size ? 0 : n + size, 0) : n;
    };
    const int64_t begin = bound(first, 0), end = std::min(bound(first + 1, size), size);
    if (begin > end) return {0, 0, false};
    return {byte_offset(self.text(), static_cast<size_t>(begin)), byte_offset(self.text(), static_cast<size_t>(end)),
            true};
}

template <bool at_end>
Value has_affix(Interpreter &run, const Value &self, Args a) {
    const Window w = window(run, self, a, 1);
    const std::string_view s = std::string_view(self.text()).substr(w.begin, w.end - w.begin);
    const auto matches = [&](const Value &v) {
        if (!v.is_string()) raise("the argument is a string or a tuple of strings, not '{}'", type_name(v));
        run.budget.work(v.text().size());
        return w.is_valid && (at_end ? s.ends_with(v.text().bytes()) : s.starts_with(v.text().bytes()));
    };
    if (!a[0].is(Kind::tuple)) return Value::boolean(matches(a[0]));
    return Value::boolean(std::ranges::any_of(a[0].sequence().items, matches));
}

template <bool from_end, bool must_be>
Value find_method(Interpreter &run, const Value &self, Args a) {
    const std::string_view what = a.text(0, {}), s = self.text();
    const Window w = window(run, self, a, 1);
    run.budget.work(s.size());
    size_t at = std::string_view::npos;
    if (w.is_valid) {
        const std::string_view part = s.substr(w.begin, w.end - w.begin);
        at = from_end ? find_last(part, what, run.budget) : find(part, what, run.budget);
    }
    if (at == std::string_view::npos) {
        if (must_be) raise("substring not found");
        return Value::integer(-1);
    }
    return Value::integer(static_cast<int64_t>(character_count(s.substr(0, w.begin + at))));
}

Value count(Interpreter &run, const Value &self, Args a) {
    const std::string_view what = a.text(0, {});
    const Window w = window(run, self, a, 1);
    const std::string_view s = std::string_view(self.text()).substr(w.begin, w.end - w.begin);
    run.budget.work(s.size());
    if (!w.is_valid) return Value::integer(0);
    if (what.empty()) return Value::integer(static_cast<int64_t>(character_count(s)) + 1);
    int64_t n = 0;
    for (size_t from = 0;; ++n) {
        const size_t at = find(s.substr(from), what, run.budget);
        if (at == std::string_view::npos) return Value::integer(n);
        from += at + what.size();
    }
}

Value replace_method(Interpreter &run, const Value &self, Args a) {
    a.text(0, {});
    a.text(1, {});
    return replace(self, a[0], a[1], a.whole(2, -1), run.budget);
}

// At white space, which counts at neither end.
Values split_spaces(Interpreter &run, const Value &self, int64_t most, bool from_end) {
    const std::string_view s = self.text();
    Values parts;
    size_t begin = 0, end = s.size();
    const auto skip = [&](bool spaces) {
        while (begin < end) {
            const size_t length =
                from_end ? last_character_length(s.substr(begin, end - begin)) : character_at(s.substr(begin)).length;
            const std::string_view c = from_end ? s.substr(end - length, length) : s.substr(begin, length);
            if (is_space(character_at(c).code) != spaces) break;
            (from_end ? end : begin) = from_end ? end - length : begin + length;
        }
    };
    for (skip(true); begin < end; skip(true)) {
        if (most-- == 0) {
            parts.push_back(substring(self, begin, end, run.budget));
            break;
        }
        const size_t from = begin, to = end;
        skip(false);
        parts.push_back(from_end ? substring(self, end, to, run.budget) : substring(self, from, begin, run.budget));
    }
    return parts;
}

template <bool from_end>
Value split(Interpreter &run, const Value &self, Args a) {
    int64_t most = a.whole(1, -1);
    if (most < 0) most = -1;
    const std::string_view s = self.text();
    run.budget.work(s.size());
    Values parts;
    if (!a.has(0) || a[0].is(Kind::none)) {
        parts = split_spaces(run, self, most, from_end);
    } else {
        const std::string_view separator = a.text(0, {});
        if (separator.empty()) raise("empty separator");
        size_t begin = 0, end = s.size();
        while (most-- != 0) {
            const std::string_view rest = s.substr(begin, end - begin);
            const size_t at = from_end ? find_last(rest, separator, run.budget) : find(rest, separator, run.budget);
            if (at == std::string_view::npos) break;
            if (from_end) {
                parts.push_back(substring(self, begin + at + separator.size(), end, run.budget));
                end = begin + at;
            } else {
                parts.push_back(substring(self, begin, begin + at, run.budget));
                begin += at + separator.size();
            }
        }
        parts.push_back(substring(self, begin, end, run.budget));
    }
    if (from_end) std::ranges::reverse(parts);
    return run.make.list(std::move(parts));
}

template <bool from_end>
Value partition(Interpreter &run, const Value &self, Args a) {
    const std::string_view separator = a.text(0, {}), s = self.text();
    if (separator.empty()) raise("empty separator");
    run.budget.work(s.size());
    const size_t at = from_end ? find_last(s, separator, run.budget) : find(s, separator, run.budget);
    const Value empty = run.make.string("", true);
    if (at == std::string_view::npos) {
        return run.make.tuple(from_end ? Values{empty, empty, self} : Values{self, empty, empty});
    }
    return run.make.tuple(
        {substring(self, 0, at, run.budget), a[0], substring(self, at + separator.size(), s.size(), run.budget)});
}

template <bool at_end>
Value without_affix(Interpreter &run, const Value &self, Args a) {
    const std::string_view affix = a.text(0, {}), s = self.text();
    if (affix.empty() || !(at_end ? s.ends_with(affix) : s.starts_with(affix))) return self;
    return at_end ? substring(self, 0, s.size() - affix.size(), run.budget)
                  : substring(self, affix.size(), s.size(), run.budget);
}

Value split_lines_method(Interpreter &run, const Value &self, Args a) {
    return run.make.list(split_lines(self, a.truth(0, false), run.budget));
}

Value join_method(Interpreter &run, const Value &self, Args a) {
    Text out(&run.budget);
    bool first = true;
    for (const Value &v : iterate(a[0], run.budget)) {
        if (!v.is_string()) raise("join takes strings, but an item is of type '{}'", type_name(v));
        run.budget.work(v.text().size() + self.text().size());
        if (!std::exchange(first, false)) out.append(self.text());
        if (self.string().is_markup) {
            append_escaped(out, v, run.budget);
        } else {
            out.append(v.text());
        }
    }
    return run.make.string(std::move(out), self.string().is_markup);
}

Value zero_fill(Interpreter &run, const Value &self, Args a) {
    const std::string_view s = self.text();
    const size_t sign = s.starts_with('+') || s.starts_with('-') ? 1 : 0;
    Text out(&run.budget);
    out.append(self.text(), 0, sign);
    append_repeated(out, "0", true, std::max<int64_t>(a.whole(0, 0), 0) - length(self, run.budget), run.budget);
    out.append(self.text(), sign, s.size());
    return run.make.string(std::move(out), self.string().is_markup);
}

Value expand_tabs(Interpreter &run, const Value &self, Args a) {
    const int64_t size = a.whole(0, 8);
    const std::string_view s = self.text();
    run.budget.work(s.size());
    Text out(&run.budget);
    int64_t column = 0;
    for (size_t at = 0; at < s.size();) {
        const size_t next = at + character_at(s.substr(at)).length;
        if (s[at] == '\t') {
            const int64_t spaces = size > 0 ? size - column % size : 0;
            append_repeated(out, " ", self.text().from_template(at), spaces, run.budget);
            column += spaces;
        } else {
            out.append(self.text(), at, next);
            column = s[at] == '\n' || s[at] == '\r' ? 0 : column + 1;
        }
        at = next;
    }
    return run.make.string(std::move(out), self.string().is_markup);
}

Value format_method(Interpreter &run, const Value &self, Args a) { return format_braces(run, self, a); }

Value format_map(Interpreter &run, const Value &self, Args a) {
    if (!a[0].is(Kind::dict)) raise("format_map takes a dict, not '{}'", type_name(a[0]));
    Arguments named;
    for (const auto &[key, value] : a[0].dict().entries) {
        if (key.is_string()) named.named.emplace_back(key.text().bytes(), value);
    }
    return format_braces(run, self, named);
}

constexpr std::array kRows{
    Native{.name = "upper", .call = simple<upper>},
    Native{.name = "lower", .call = simple<lower>},
    Native{.name = "swapcase", .call = simple<swap_case>},
    Native{.name = "capitalize", .call = simple<capitalize>},
    Native{.name = "title", .call = simple<title>},
    Native{.name = "strip", .call = strip_method<Sides::both>, .parameters = {"chars"}, .by_position = true},
    Native{.name = "lstrip", .call = strip_method<Sides::left>, .parameters = {"chars"}, .by_position = true},
    Native{.name = "rstrip", .call = strip_method<Sides::right>, .parameters = {"chars"}, .by_position = true},
    Native{.name = "center",
           .call = pad_method<Sides::both>,
           .parameters = {"width", "fill"},
           .required = 1,
           .by_position = true},
    Native{.name = "ljust",
           .call = pad_method<Sides::left>,
           .parameters = {"width", "fill"},
           .required = 1,
           .by_position = true},
    Native{.name = "rjust",
           .call = pad_method<Sides::right>,
           .parameters = {"width", "fill"},
           .required = 1,
           .by_position = true},
    Native{.name = "zfill", .call = zero_fill, .parameters = {"width"}, .required = 1, .by_position = true},
    Native{.name = "expandtabs", .call = expand_tabs, .parameters = {"tabsize"}},
    Native{.name = "startswith",
           .call = has_affix<false>,
           .parameters = {"prefix", "start", "end"},
           .required = 1,
           .by_position = true},
    Native{.name = "endswith",
           .call = has_affix<true>,
           .parameters = {"suffix", "start", "end"},
           .required = 1,
           .by_position = true},
    Native{.name = "find",
           .call = find_method<false, false>,
           .parameters = {"sub", "start", "end"},
           .required = 1,
           .by_position = true},
    Native{.name = "rfind",
           .call = find_method<true, false>,
           .parameters = {"sub", "start", "end"},
           .required = 1,
           .by_position = true},
    Native{.name = "index",
           .call = find_method<false, true>,
           .parameters = {"sub", "start", "end"},
           .required = 1,
           .by_position = true},
    Native{.name = "rindex",
           .call = find_method<true, true>,
           .parameters = {"sub", "start", "end"},
           .required = 1,
           .by_position = true},
    Native{.name = "count", .call = count, .parameters = {"sub", "start", "end"}, .required = 1, .by_position = true},
    Native{.name = "replace",
           .call = replace_method,
           .parameters = {"old", "new", "count"},
           .required = 2,
           .by_position = true},
    Native{.name = "split", .call = split<false>, .parameters = {"sep", "maxsplit"}},
    Native{.name = "rsplit", .call = split<true>, .parameters = {"sep", "maxsplit"}},
    Native{.name = "partition", .call = partition<false>, .parameters = {"sep"}, .required = 1, .by_position = true},
    Native{.name = "rpartition", .call = partition<true>, .parameters = {"sep"}, .required = 1, .by_position = true},
    Native{.name = "removeprefix",
           .call = without_affix<false>,
           .parameters = {"prefix"},
           .required = 1,
           .by_position = true},
    Native{.name = "removesuffix",
           .call = without_affix<true>,
           .parameters = {"suffix"},
           .required = 1,
           .by_position = true},
    Native{.name = "splitlines", .call = split_lines_method, .parameters = {"keepends"}},
    Native{.name = "join", .call = join_method, .parameters = {"iterable"}, .required = 1, .by_position = true},
    Native{.name = "format", .call = format_method, .takes_all = true},
    Native{.name = "format_map", .call = format_map, .parameters = {"mapping"}, .required = 1, .by_position = true},
};

// ---- isalpha() and its like: of every character, and there is one

template <class Holds>
Value all_of(Interpreter &run, const Value &self, bool empty, Holds holds) {
    const std::string_view s = self.text();
    run.budget.work(s.size() * 8);
    for (size_t at = 0; at < s.size();) {
        const Character c = character_at(s.substr(at));
        if (!holds(c.code, at)) return Value::boolean(false);
        at += c.length;
    }
    return Value::boolean(empty || !s.empty());
}

template <CharacterClass... classes>
Value all_in(Interpreter &run, const Value &self, Args) {
    return all_of(run, self, false, [](char32_t c, size_t) { return (is_a(classes, c) || ...); });
}

Value is_space_method(Interpreter &run, const Value &self, Args) {
    return all_of(run, self, false, [](char32_t c, size_t) { return is_space(c); });
}

Value is_ascii(Interpreter &run, const Value &self, Args) {
    return all_of(run, self, true, [](char32_t c, size_t) { return c < 0x80; });
}

Value is_printable(Interpreter &run, const Value &self, Args) {
    return all_of(run, self, true, [](char32_t c, size_t) { return c == ' ' || is_a(CharacterClass::printable, c); });
}

Value is_identifier(Interpreter &run, const Value &self, Args) {
    return all_of(run, self, false, [](char32_t c, size_t at) {
        return c == '_' || is_a(CharacterClass::letter, c) || (at > 0 && is_a(CharacterClass::decimal, c));
    });
}

template <CharacterClass refused>
Value is_cased(Interpreter &run, const Value &self, Args) {
    bool any = false;
    const Value all = all_of(run, self, false, [&](char32_t c, size_t) {
        any = any || is_a(CharacterClass::cased, c);
        return !is_a(refused, c);
    });
    return Value::boolean(all.boolean() && any);
}

Value is_title(Interpreter &run, const Value &self, Args) {
    bool any = false, in_word = false;
    const Value all = all_of(run, self, false, [&](char32_t c, size_t) {
        const bool is_upper = is_a(CharacterClass::upper, c), is_lower = is_a(CharacterClass::lower, c);
        const bool fits = in_word ? !is_upper : !is_lower;
        in_word = is_upper || is_lower;
        any = any || in_word;
        return fits;
    });
    return Value::boolean(all.boolean() && any);
}

constexpr std::array kTestRows{
    Native{.name = "isalpha", .call = all_in<CharacterClass::letter>},
    Native{.name = "isdecimal", .call = all_in<CharacterClass::decimal>},
    Native{.name = "isdigit", .call = all_in<CharacterClass::digit>},
    Native{.name = "isnumeric", .call = all_in<CharacterClass::numeric>},
    Native{.name = "isalnum", .call = all_in<CharacterClass::letter, CharacterClass::numeric>},
    Native{.name = "isspace", .call = is_space_method},
    Native{.name = "isascii", .call = is_ascii},
    Native{.name = "isprintable", .call = is_printable},
    Native{.name = "isidentifier", .call = is_identifier},
    Native{.name = "islower", .call = is_cased<CharacterClass::upper>},
    Native{.name = "isupper", .call = is_cased<CharacterClass::lower>},
    Native{.name = "istitle", .call = is_title},
};

}  // namespace

std::span<const Native> methods_string() { return kRows; }
std::span<const Native> methods_string_tests() { return kTestRows; }

}  // namespace ridge::text::jinja
