// Filters of single values: conversions, numbers, defaults, JSON.
#include <array>
#include <cmath>

#include "text/jinja/interpreter.h"
#include "text/jinja/number.h"
#include "text/jinja/operations.h"

namespace ridge::text::jinja {

namespace {

using Args = const Arguments &;

Value count(Interpreter &run, const Value &v, Args) { return Value::integer(length(v, run.budget)); }

Value preset(Interpreter &run, const Value &v, Args a) {
    if (!v.is_undefined() && !(a.truth(1, false) && !truth(v))) return v;
    return a.has(0) ? a[0] : run.make.string("", true);
}

Value of_real(double d, const Value &otherwise) {
    if (std::isnan(d) || std::isinf(d)) return otherwise;
    const auto whole = exact_integer(std::trunc(d));
    if (!whole) integer_overflow();
    return Value::integer(*whole);
}

Value to_integer(Interpreter &, const Value &v, Args a) {
    const Value otherwise = a.has(0) ? a[0] : Value::integer(0);
    if (v.is_undefined()) raise("{}", v.text().bytes());
    if (v.is_whole()) return Value::integer(v.whole());
    if (v.is(Kind::real)) return of_real(v.number(), otherwise);
    if (!v.is_string()) return otherwise;
    if (const auto whole = parse_integer(v.text(), a.whole(1, 10))) return Value::integer(*whole);
    const auto real = parse_real(v.text());
    return real ? of_real(*real, otherwise) : otherwise;
}

Value to_real(Interpreter &, const Value &v, Args a) {
    if (v.is_undefined()) raise("{}", v.text().bytes());
    if (v.is_number()) return Value::real(v.number());
    const auto real = v.is_string() ? parse_real(v.text()) : std::nullopt;
    if (real) return Value::real(*real);
    return a.has(0) ? a[0] : Value::real(0);
}

Value absolute(Interpreter &, const Value &v, Args) {
    if (v.is_undefined()) raise("{}", v.text().bytes());
    if (v.is(Kind::real)) return Value::real(std::fabs(v.number()));
    if (!v.is_whole()) raise("abs takes a number, not '{}'", type_name(v));
    if (v.whole() == INT64_MIN) integer_overflow();
    return Value::integer(std::abs(v.whole()));
}

// round() of an integer to tens, hundreds, ...: half to even.
Value round_whole(int64_t n, int64_t digits) {
    if (digits >= 0) return Value::integer(n);
    if (digits < -18) return Value::integer(0);
    int64_t unit = 1;
    for (int64_t i = digits; i < 0; ++i) unit *= 10;
    const int64_t rest = ((n % unit) + unit) % unit;
    int64_t low = 0;
    if (__builtin_sub_overflow(n, rest, &low)) integer_overflow();
    const bool up = rest > unit / 2 || (rest == unit / 2 && (low / unit) % 2 != 0);
    if (up && __builtin_add_overflow(low, unit, &low)) integer_overflow();
    return Value::integer(low);
}

Value round(Interpreter &, const Value &v, Args a) {
    if (v.is_undefined()) raise("{}", v.text().bytes());
    if (!v.is_number()) raise("round takes a number, not '{}'", type_name(v));
    const int64_t digits = a.whole(0, 0);
    const std::string_view method = a.text(1, "common");
    if (method == "common") {
        return v.is_whole() ? round_whole(v.whole(), digits) : Value::real(round_real(v.number(), digits));
    }
    if (method != "ceil" && method != "floor") raise("the method of round is common, ceil or floor");
    const double unit = std::pow(10.0, static_cast<double>(digits));
    const double scaled = v.number() * unit;
    if (!std::isfinite(scaled) || unit == 0) raise("round cannot scale {} by {}", v.number(), unit);
    return Value::real((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / unit);
}

Value json(Interpreter &run, const Value &v, Args a) {
    JsonOptions options;
    options.ensure_ascii = a.truth(0, false);
    if (a.has(1) && !a[1].is(Kind::none)) {
        options.has_indent = true;
        options.item_separator = ",";
        if (a[1].is_string()) {
            options.indent = a[1].text().bytes();
        } else {
            const int64_t width = a.whole(1, 0);
            if (width > 1000) throw Trouble{ErrorKind::limit, "JSON is indented by at most 1000"};
            options.indent.assign(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
        }
    }
    if (a.has(2) && !a[2].is(Kind::none)) {
        const Values separators = iterate(a[2], run.budget);
        if (separators.size() != 2 || !separators[0].is_string() || !separators[1].is_string()) {
            raise("the separators of JSON are two strings");
        }
        options.item_separator = separators[0].text().bytes();
        options.key_separator = separators[1].text().bytes();
    }
    options.sort_keys = a.truth(3, false);
    return to_json(v, options, run.budget);
}

Value attr(Interpreter &run, const Value &v, Args a) {
    const std::string_view name = a.text(0, {});
    if (v.is_undefined()) raise("{}", v.text().bytes());
    const Value found = find_attribute(run, v, name);
    return found.is_missing() ? run.make.undefined(fmt::format("'{}' has no such attribute", type_name(v))) : found;
}

constexpr std::array kRows{
    Native{.name = "length", .call = count},
    Native{.name = "count", .call = count},
    Native{.name = "default", .call = preset, .parameters = {"default_value", "boolean"}},
    Native{.name = "d", .call = preset, .parameters = {"default_value", "boolean"}},
    Native{.name = "int", .call = to_integer, .parameters = {"default", "base"}},
    Native{.name = "float", .call = to_real, .parameters = {"default"}},
    Native{.name = "abs", .call = absolute},
    Native{.name = "round", .call = round, .parameters = {"precision", "method"}},
    Native{.name = "tojson", .call = json, .parameters = {"ensure_ascii", "indent", "separators", "sort_keys"}},
    Native{.name = "attr", .call = attr, .parameters = {"name"}, .required = 1},
};

}  // namespace

std::span<const Native> filters_value() { return kRows; }

}  // namespace ridge::text::jinja
