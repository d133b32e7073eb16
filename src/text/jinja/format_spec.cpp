// One value by a format specification.
#include <algorithm>
#include <cmath>
#include <utility>

#include "core/utf8.h"
#include "text/jinja/format.h"
#include "text/jinja/number.h"
#include "text/jinja/operations.h"
#include "text/jinja/strings.h"

namespace ridge::text::jinja {

namespace {

constexpr int64_t kMaxPrecision = 1000;

// Takes a number off the front of `s`; -1 where none stands there.
int64_t take_number(std::string_view &s) {
    int64_t n = -1;
    while (!s.empty() && s[0] >= '0' && s[0] <= '9') {
        n = std::max<int64_t>(n, 0) * 10 + (s[0] - '0');
        if (n > INT32_MAX) raise("too many digits in a format");
        s.remove_prefix(1);
    }
    return n;
}

bool is_align(char c) { return c == '<' || c == '>' || c == '^' || c == '='; }

bool take(std::string_view &s, char c) {
    if (!s.starts_with(c)) return false;
    s.remove_prefix(1);
    return true;
}

// The digits of a number without its sign.
std::string whole_digits(uint64_t n, const FormatSpec &spec) {
    switch (spec.type) {
        case 'x':
            return fmt::format("{:x}", n);
        case 'X':
            return fmt::format("{:X}", n);
        case 'o':
            return fmt::format("{:o}", n);
        case 'b':
            return fmt::format("{:b}", n);
        default:
            return fmt::format("{}", n);
    }
}

std::string real_digits(double d, const FormatSpec &spec) {
    if (!std::isfinite(d)) {
        const bool is_upper = spec.type == 'F' || spec.type == 'E' || spec.type == 'G';
        return std::isnan(d) ? (is_upper ? "NAN" : "nan") : (is_upper ? "INF" : "inf");
    }
    const auto written = [&](char type, int precision, double value) {
        const std::string format = fmt::format("{{:{}.{}{}}}", spec.alternate ? "#" : "", precision, type);
        return fmt::format(fmt::runtime(format), value);
    };
    const int precision = static_cast<int>(spec.precision < 0 ? 6 : spec.precision);
    switch (spec.type) {
        case 'f':
        case 'F':
        case 'e':
        case 'E':
            return written(spec.type, precision, d);
        case '%':
            return written('f', precision, d * 100) + '%';
        case 'g':
        case 'G':
            return written(spec.type, std::max(precision, 1), d);
        case 'n':  // python's locale is "C"
            return written('g', std::max(precision, 1), d);
        default:
            break;
    }
    if (spec.alternate) raise("'#' needs a type in the format of a float");
    if (spec.precision < 0) return real_to_string(d);
    // As 'g', with a digit behind the point, which has to fit as well.
    const int digits = std::max(precision, 1);
    std::string out = fmt::format("{:.{}g}", d, digits);
    if (out.find_first_of(".e") != std::string::npos) return out;
    if (std::cmp_less(out.size(), digits)) return out + ".0";
    out = fmt::format("{:.{}e}", d, digits - 1);
    const size_t e = out.find('e');
    const size_t zeros = out.find('.') == std::string::npos ? e : out.find_last_not_of('0', e - 1) + 1;
    const size_t kept = out[zeros - 1] == '.' ? zeros - 1 : zeros;
    return out.erase(kept, e - kept);
}

// Puts a separator between groups of the digits before the point, and zeros in front until there are `width`
// characters, of which a separator is not the first.
void group(std::string &digits, const FormatSpec &spec, int64_t width, Budget &budget) {
    const bool is_decimal = std::string_view("xXob").find(spec.type) == std::string_view::npos;
    const size_t each = is_decimal ? 3 : 4;
    const size_t whole = is_decimal ? std::min(digits.find_first_not_of("0123456789"), digits.size()) : digits.size();
    if (whole == 0) return;  // inf, nan
    size_t shown = whole;
    const auto wanted = static_cast<size_t>(std::max<int64_t>(width, 0));
    if (const size_t rest = digits.size() - whole; wanted > rest) {
        budget.require(wanted);
        budget.work(wanted);
        shown = std::max(shown, (wanted - rest) * each / (each + 1));
        while (shown + (shown - 1) / each < wanted - rest) ++shown;
    }
    std::string out;
    for (size_t left = shown; left > 0; --left) {
        if (left < shown && left % each == 0) out += spec.grouping;
        out += left > whole ? '0' : digits[whole - left];
    }
    digits.replace(0, whole, out);
}

void check_number_spec(const Value &v, const FormatSpec &spec, bool as_real) {
    if (v.is(Kind::real) && std::string_view("xXobcd").find(spec.type) < 6) {
        raise("format '{}' is for integers, not for '{}'", spec.type, type_name(v));
    }
    if (!as_real && spec.precision >= 0) raise("a precision is not allowed in the format of an integer");
    const std::string_view ungrouped = spec.grouping == ',' ? "xXobcn" : "cn";
    if (spec.grouping != '\0' && spec.type != '\0' && ungrouped.find(spec.type) != std::string_view::npos) {
        raise("'{}' cannot be used with the format '{}'", spec.grouping, spec.type);
    }
    if (spec.type == 'c' && (spec.sign != '-' || spec.alternate)) raise("the format 'c' takes neither sign nor '#'");
}

// Of the format 'c'.
std::string character(int64_t code) {
    if (code < 0 || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) raise("{} is no character", code);
    std::string out;
    append_utf8(out, static_cast<char32_t>(code));
    return out;
}

void append_number(Text &out, const Value &v, const FormatSpec &spec, Budget &budget) {
    const bool as_real = v.is(Kind::real) || (spec.type != '\0' && std::string_view("eEfFgG%").find(spec.type) < 7);
    check_number_spec(v, spec, as_real);
    const bool is_character = spec.type == 'c';
    const bool negative = as_real ? std::signbit(v.number()) && !std::isnan(v.number()) : v.whole() < 0;
    std::string digits;
    if (as_real) {
        digits = real_digits(std::fabs(v.number()), spec);
    } else if (is_character) {
        digits = character(v.whole());
    } else {
        const auto n = static_cast<uint64_t>(v.whole());
        digits = whole_digits(negative ? 0 - n : n, spec);
    }
    std::string prefix = negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
    if (spec.alternate && !as_real && std::string_view("xXob").find(spec.type) < 4) prefix += {'0', spec.type};
    const char align = spec.align != '\0' ? spec.align : spec.zero ? '=' : '>';
    if (spec.grouping != '\0') {
        const bool fills = align == '=' && spec.fill == "0";
        group(digits, spec, fills ? spec.width - static_cast<int64_t>(prefix.size()) : 0, budget);
    }
    const size_t size = is_character ? 1 : digits.size();
    const int64_t missing = spec.width - static_cast<int64_t>(prefix.size() + size);
    const int64_t left = align == '>' ? missing : align == '^' ? missing / 2 : 0;
    append_repeated(out, spec.fill, true, left, budget);
    out.append(prefix, true);
    if (align == '=') append_repeated(out, spec.fill, true, missing, budget);
    out.append(digits, !is_character);  // a character can be part of a control token, and nothing says who chose it
    if (align != '=') append_repeated(out, spec.fill, true, missing - left, budget);
}

}  // namespace

FormatSpec parse_format_spec(std::string_view s) {
    FormatSpec spec;
    const std::string_view all = s;
    bool has_fill = false;
    if (!s.empty()) {
        const size_t first = character_at(s).length;
        if (s.size() > first && is_align(s[first])) {
            has_fill = true;
            spec.fill = s.substr(0, first);
            spec.align = s[first];
            s.remove_prefix(first + 1);
        } else if (is_align(s[0])) {
            spec.align = s[0];
            s.remove_prefix(1);
        }
    }
    if (!s.empty() && (s[0] == '+' || s[0] == '-' || s[0] == ' ')) {
        spec.sign = s[0];
        s.remove_prefix(1);
    }
    spec.alternate = take(s, '#');
    if (s.starts_with('0')) {
        spec.zero = true;
        if (!has_fill) spec.fill = "0";
        s.remove_prefix(1);
    }
    spec.width = std::max<int64_t>(take_number(s), 0);
    if (s.starts_with(',') || s.starts_with('_')) {
        spec.grouping = s[0];
        s.remove_prefix(1);
    }
    if (take(s, '.')) {
        spec.precision = take_number(s);
        if (spec.precision < 0) raise("the precision is missing in the format '{}'", all);
    }
    if (!s.empty()) {
        spec.type = s[0];
        s.remove_prefix(1);
    }
    if (!s.empty() || (spec.type != '\0' && std::string_view("sdnxXobceEfFgG%").find(spec.type) >= 15)) {
        raise("'{}' is no format", all);
    }
    return spec;
}

void append_formatted(Text &out, const Value &v, const FormatSpec &spec, Budget &budget) {
    if (v.is_number() && spec.type != 's') {
        if (spec.precision > kMaxPrecision) {
            throw Trouble{ErrorKind::limit, fmt::format("a format has a precision of more than {}", kMaxPrecision)};
        }
        return append_number(out, v, spec, budget);
    }
    if (!v.is_string() || (spec.type != '\0' && spec.type != 's')) {
        raise("the format '{}' is not for '{}'", spec.type == '\0' ? 's' : spec.type, type_name(v));
    }
    if (spec.align == '=') raise("the alignment '=' is for numbers only");
    if (spec.sign != '-' || spec.alternate || spec.grouping != '\0') {
        raise("signs, '#' and grouping are for numbers, not for '{}'", type_name(v));
    }
    const int64_t size = length(v, budget);
    const int64_t shown = spec.precision < 0 ? size : std::min(size, spec.precision);
    const int64_t missing = spec.width - shown;
    const int64_t left = spec.align == '>' ? missing : spec.align == '^' ? missing / 2 : 0;
    append_repeated(out, spec.fill, true, left, budget);
    out.append(v.text(), 0, byte_offset(v.text(), static_cast<size_t>(shown)));
    append_repeated(out, spec.fill, true, missing - left, budget);
}

}  // namespace ridge::text::jinja
