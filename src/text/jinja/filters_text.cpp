// Filters that make strings of strings.
#include <algorithm>
#include <array>
#include <cmath>

#include "text/jinja/format.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/number.h"
#include "text/jinja/operations.h"
#include "text/jinja/strings.h"

namespace ridge::text::jinja {

namespace {

using Args = const Arguments &;

template <Value (*f)(const Value &, Budget &)>
Value of_str(Interpreter &run, const Value &v, Args) {
    return f(to_str(v, run.budget), run.budget);
}

Value string(Interpreter &run, const Value &v, Args) { return to_str(v, run.budget); }

Value trim(Interpreter &run, const Value &v, Args a) {
    return strip(to_str(v, run.budget), a[0], Sides::both, run.budget);
}

Value replace_filter(Interpreter &run, const Value &v, Args a) {
    const int64_t count = a.has(2) && !a[2].is(Kind::none) ? a.whole(2, -1) : -1;
    const Value out =
        replace(to_str(v, run.budget), to_str(a[0], run.budget), to_str(a[1], run.budget), count, run.budget);
    // Python's str() takes the mark of Markup away.
    Text plain(&run.budget);
    plain.append(out.text());
    return run.make.string(std::move(plain));
}

Value indent(Interpreter &run, const Value &v, Args a) {
    if (v.is_undefined()) raise("{}", v.text().bytes());
    if (!v.is_string()) raise("indent takes a string, not '{}'", type_name(v));
    Text step(&run.budget);
    if (a[0].is_string()) {
        step.append(a[0].text());
    } else {
        append_repeated(step, " ", true, a.whole(0, 4), run.budget);
    }
    const bool first = a.truth(1, false), blank = a.truth(2, false);
    // Jinja adds a line break before it splits: a text that ends in one keeps it.
    Text text(&run.budget);
    text.append(v.text());
    text.append("\n", true);
    const Values lines = split_lines(run.make.string(std::move(text)), false, run.budget);
    Text out(&run.budget);
    for (size_t i = 0; i < lines.size(); ++i) {
        if (i > 0) out.append("\n", true);
        if (i == 0 ? first : blank || !lines[i].text().empty()) {
            run.budget.work(step.size());
            out.append(step);
        }
        out.append(lines[i].text());
    }
    return run.make.string(std::move(out), v.string().is_markup);
}

Value center(Interpreter &run, const Value &v, Args a) {
    return pad(to_str(v, run.budget), a.whole(0, 80), Value(), Sides::both, run.budget);
}

Value truncate(Interpreter &run, const Value &v, Args a) {
    const int64_t most = a.whole(0, 255);
    const Value end = a.has(2) ? a[2] : run.make.string("...", true);
    if (!end.is_string()) raise("the end that truncate adds is a string");
    const int64_t end_length = length(end, run.budget);
    const int64_t leeway = a.has(3) && !a[3].is(Kind::none) ? a.whole(3, 0) : 5;
    if (most < end_length) raise("truncate to {} characters leaves no room for its end of {}", most, end_length);
    if (leeway < 0) raise("the leeway of truncate is at least 0");
    if (length(v, run.budget) - leeway <= most) return v;
    if (!v.is_string()) raise("truncate takes a string, not '{}'", type_name(v));
    size_t cut = byte_offset(v.text(), static_cast<size_t>(most - end_length));
    if (!a.truth(1, false)) {
        const size_t space = std::string_view(v.text()).substr(0, cut).rfind(' ');
        if (space != std::string_view::npos) cut = space;
    }
    Text out(&run.budget);
    out.append(v.text(), 0, cut);
    out.append(end.text());
    return run.make.string(std::move(out), v.string().is_markup);
}

Value escape(Interpreter &run, const Value &v, Args) {
    Text out(&run.budget);
    append_escaped(out, v, run.budget);
    return run.make.string(std::move(out), true);
}

Value force_escape(Interpreter &run, const Value &v, Args a) {
    Text plain(&run.budget);
    append_str(plain, v, run.budget);
    return escape(run, run.make.string(std::move(plain)), a);
}

Value safe(Interpreter &run, const Value &v, Args) {
    Text out(&run.budget);
    append_str(out, v, run.budget);
    return run.make.string(std::move(out), true);
}

Value format(Interpreter &run, const Value &v, Args a) {
    const Value text = to_str(v, run.budget);
    if (!a.positional.empty() && !a.named.empty()) {
        raise("format takes arguments by position or by name, not both at once");
    }
    if (a.named.empty()) return format_percent(run, text, a.positional, run.make.tuple(a.positional));
    Value names = run.make.dict();
    for (const auto &[name, value] : a.named) run.make.insert(names, run.make.string(name, true), value);
    return format_percent(run, text, {names}, names);
}

Value word_count(Interpreter &run, const Value &v, Args) {
    const Value text = to_str(v, run.budget);
    const std::string_view s = text.text();
    run.budget.work(s.size() * 8);
    int64_t words = 0;
    bool in_word = false;
    for (size_t at = 0; at < s.size();) {
        const Character c = character_at(s.substr(at));
        const bool is_in = is_word(c.code);
        words += is_in && !in_word;
        in_word = is_in;
        at += c.length;
    }
    return Value::integer(words);
}

void append_url_quoted(Text &out, const Value &v, bool in_query, Budget &budget) {
    const Value text = to_str(v, budget);
    const std::string_view s = text.text();
    budget.work(s.size() * 4);
    for (size_t at = 0; at < s.size(); ++at) {
        const char c = s[at];
        const bool is_plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                              std::string_view("_.-~").find(c) < 4 || (c == '/' && !in_query);
        const bool from_template = text.text().from_template(at);
        if (is_plain) {
            out.append({&c, 1}, from_template);
        } else if (c == ' ' && in_query) {
            out.append("+", from_template);
        } else {
            out.append(fmt::format("%{:02X}", static_cast<uint8_t>(c)), from_template);
        }
    }
}

Value url_encode(Interpreter &run, const Value &v, Args) {
    Text out(&run.budget);
    if (v.is_string() || !is_iterable(v)) {
        append_url_quoted(out, v, false, run.budget);
        return run.make.string(std::move(out));
    }
    Values pairs;
    if (v.is(Kind::dict)) {
        for (const auto &[key, value] : v.dict().entries) pairs.push_back(run.make.tuple({key, value}));
    } else {
        pairs = iterate(v, run.budget);
    }
    for (size_t i = 0; i < pairs.size(); ++i) {
        const Values both = iterate(pairs[i], run.budget);
        if (both.size() != 2) raise("urlencode takes pairs, but an item has {} values", both.size());
        if (i > 0) out.append("&", true);
        append_url_quoted(out, both[0], true, run.budget);
        out.append("=", true);
        append_url_quoted(out, both[1], true, run.budget);
    }
    return run.make.string(std::move(out));
}

Value file_size(Interpreter &run, const Value &v, Args a) {
    double bytes = 0;
    if (v.is_number()) {
        bytes = v.number();
    } else {
        const auto parsed = v.is_string() ? parse_real(v.text()) : std::nullopt;
        if (!parsed) raise("filesizeformat takes a number, not '{}'", type_name(v));
        bytes = *parsed;
    }
    const bool binary = a.truth(0, false);
    const double base = binary ? 1024 : 1000;
    if (!std::isfinite(bytes)) raise("filesizeformat takes a finite number");
    if (bytes == 1) return run.make.string("1 Byte", true);
    if (bytes < base) return run.make.string(fmt::format("{:.0f} Bytes", std::trunc(bytes)), true);
    constexpr std::string_view kPrefixes = "kMGTPEZY";
    double unit = base * base;
    size_t i = 0;
    while (bytes >= unit && i + 1 < kPrefixes.size()) {
        unit *= base;
        ++i;
    }
    const char prefix = binary && i == 0 ? 'K' : kPrefixes[i];
    return run.make.string(fmt::format("{:.1f} {}{}", base * bytes / unit, prefix, binary ? "iB" : "B"), true);
}

constexpr std::array kRows{
    Native{.name = "string", .call = string},
    Native{.name = "upper", .call = of_str<upper>},
    Native{.name = "lower", .call = of_str<lower>},
    Native{.name = "capitalize", .call = of_str<capitalize>},
    Native{.name = "title", .call = of_str<title_by_spaces>},
    Native{.name = "trim", .call = trim, .parameters = {"chars"}},
    Native{.name = "replace", .call = replace_filter, .parameters = {"old", "new", "count"}, .required = 2},
    Native{.name = "indent", .call = indent, .parameters = {"width", "first", "blank"}},
    Native{.name = "center", .call = center, .parameters = {"width"}},
    Native{.name = "truncate", .call = truncate, .parameters = {"length", "killwords", "end", "leeway"}},
    Native{.name = "escape", .call = escape},
    Native{.name = "e", .call = escape},
    Native{.name = "forceescape", .call = force_escape},
    Native{.name = "safe", .call = safe},
    Native{.name = "format", .call = format, .takes_all = true},
    Native{.name = "wordcount", .call = word_count},
    Native{.name = "urlencode", .call = url_encode},
    Native{.name = "filesizeformat", .call = file_size, .parameters = {"binary"}},
};

}  // namespace

std::span<const Native> filters_text() { return kRows; }

}  // namespace ridge::text::jinja
