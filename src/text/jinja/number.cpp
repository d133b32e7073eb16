#include "text/jinja/number.h"

#include <array>
#include <charconv>
#include <cmath>

#include "text/jinja/unicode.h"

namespace ridge::text::jinja {

namespace {

int64_t floor_quotient(int64_t a, int64_t b) {
    if (b == 0) raise("integer division or modulo by zero");
    if (a == INT64_MIN && b == -1) integer_overflow();
    const int64_t q = a / b;
    return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

double floor_remainder(double a, double b) {
    if (b == 0) raise("float modulo by zero");
    double r = std::fmod(a, b);
    if (r != 0 && (r < 0) != (b < 0)) r += b;
    return r == 0 ? std::copysign(0.0, b) : r;
}

Value power(const Value &base, const Value &exponent) {
    if (base.is_whole() && exponent.is_whole() && exponent.whole() >= 0) {
        int64_t result = 1, square = base.whole();
        for (int64_t left = exponent.whole(); left > 0;) {
            if ((left & 1) != 0 && __builtin_mul_overflow(result, square, &result)) integer_overflow();
            left >>= 1;
            if (left > 0 && __builtin_mul_overflow(square, square, &square)) integer_overflow();
        }
        return Value::integer(result);
    }
    const double a = base.number(), b = exponent.number();
    if (a == 0 && b < 0) raise("0.0 cannot be raised to a negative power");
    const double result = std::pow(a, b);
    if (a < 0 && std::isnan(result) && !std::isnan(b)) {
        raise("a negative number to a power that is not whole is a complex number, which templates cannot use");
    }
    if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) raise("the power is too large");
    return Value::real(result);
}

Value compute_whole(Arithmetic op, int64_t a, int64_t b) {
    int64_t result = 0;
    switch (op) {
        case Arithmetic::add:
            if (__builtin_add_overflow(a, b, &result)) integer_overflow();
            return Value::integer(result);
        case Arithmetic::subtract:
            if (__builtin_sub_overflow(a, b, &result)) integer_overflow();
            return Value::integer(result);
        case Arithmetic::multiply:
            if (__builtin_mul_overflow(a, b, &result)) integer_overflow();
            return Value::integer(result);
        case Arithmetic::floor_divide:
            return Value::integer(floor_quotient(a, b));
        default:
            if (b == 0) raise("integer division or modulo by zero");
            if (b == -1) return Value::integer(0);  // where the quotient could overflow
            result = a % b;
            return Value::integer(result != 0 && (result < 0) != (b < 0) ? result + b : result);
    }
}

std::string_view strip_spaces(std::string_view s) {
    while (!s.empty() && is_space(character_at(s).code)) s.remove_prefix(character_at(s).length);
    while (!s.empty()) {
        const std::string_view last = s.substr(s.size() - last_character_length(s));
        if (!is_space(character_at(last).code)) break;
        s.remove_suffix(last.size());
    }
    return s;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Takes out the underscores that stand between digits; nothing where one stands elsewhere.
std::optional<std::string> without_underscores(std::string_view s, bool letters) {
    const auto digit = [&](char c) { return is_digit(c) || (letters && (c | 0x20) >= 'a' && (c | 0x20) <= 'z'); };
    std::string out;
    for (size_t i = 0; i < s.size(); ++i) {
        if (s[i] != '_') {
            out += s[i];
        } else if (i == 0 || i + 1 == s.size() || !digit(s[i - 1]) || !digit(s[i + 1])) {
            return std::nullopt;
        }
    }
    return out;
}

}  // namespace

void integer_overflow() { throw Trouble{ErrorKind::limit, "an integer leaves 64 bits"}; }

Value compute(Arithmetic op, const Value &a, const Value &b) {
    if (op == Arithmetic::power) return power(a, b);
    if (op == Arithmetic::divide) {
        if (b.number() == 0) raise("division by zero");
        return Value::real(a.number() / b.number());
    }
    if (a.is_whole() && b.is_whole()) return compute_whole(op, a.whole(), b.whole());
    const double x = a.number(), y = b.number();
    switch (op) {
        case Arithmetic::add:
            return Value::real(x + y);
        case Arithmetic::subtract:
            return Value::real(x - y);
        case Arithmetic::multiply:
            return Value::real(x * y);
        case Arithmetic::floor_divide:
            if (y == 0) raise("float floor division by zero");
            return Value::real(std::floor((x - floor_remainder(x, y)) / y + 0.5));
        default:
            return Value::real(floor_remainder(x, y));
    }
}

int compare_numbers(const Value &a, const Value &b) {
    if (a.is_whole() && b.is_whole()) return a.whole() < b.whole() ? -1 : a.whole() > b.whole();
    const double x = a.number(), y = b.number();
    if (std::isnan(x) || std::isnan(y)) return 2;
    // A 64-bit integer rounds as a double: compare exactly, as integers, where the real is one.
    const auto i = a.is_whole() ? a.whole() : exact_integer(x);
    const auto j = b.is_whole() ? b.whole() : exact_integer(y);
    if (i && j) return *i < *j ? -1 : *i > *j;
    return x < y ? -1 : x > y;
}

std::optional<int64_t> exact_integer(double d) {
    if (!(d >= -0x1p63 && d < 0x1p63) || std::trunc(d) != d) return std::nullopt;
    return static_cast<int64_t>(d);
}

std::string real_to_string(double d) {
    if (std::isnan(d)) return "nan";
    if (std::isinf(d)) return d < 0 ? "-inf" : "inf";
    std::array<char, 64> buffer;
    // The shortest digits that read back as the same number: "-1.2345e-05".
    const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), d, std::chars_format::scientific).ptr;
    const std::string_view text(buffer.data(), static_cast<size_t>(end - buffer.data()));
    int exponent = 0;
    const size_t digits = text.find('e') + 2;  // behind the sign
    std::from_chars(text.data() + digits, text.data() + text.size(), exponent);
    if (text[digits - 1] == '-') exponent = -exponent;
    if (exponent < -4 || exponent >= 16) return std::string(text);
    const auto fixed = std::to_chars(buffer.data(), buffer.data() + buffer.size(), d, std::chars_format::fixed).ptr;
    std::string out(buffer.data(), static_cast<size_t>(fixed - buffer.data()));
    if (out.find('.') == std::string::npos) out += ".0";
    return out;
}

std::optional<int64_t> parse_integer(std::string_view text, int64_t base) {
    std::string_view s = strip_spaces(text);
    if (base != 0 && (base < 2 || base > 36)) raise("int() base must be >= 2 and <= 36, or 0");
    const bool negative = s.starts_with('-');
    if (negative || s.starts_with('+')) s.remove_prefix(1);
    const auto prefixed = [&](char letter, int64_t value) {
        if (s.size() < 2 || s[0] != '0' || (s[1] | 0x20) != letter || (base != 0 && base != value)) return false;
        s.remove_prefix(2);
        if (s.starts_with('_')) s.remove_prefix(1);
        base = value;
        return true;
    };
    const bool has_prefix = prefixed('x', 16) || prefixed('o', 8) || prefixed('b', 2);
    const auto digits = without_underscores(s, true);
    if (!digits || digits->empty()) return std::nullopt;
    if (base == 0) {
        // Zeros may lead nothing but zeros.
        if (!has_prefix && (*digits)[0] == '0' && digits->find_first_not_of('0') != std::string::npos) {
            return std::nullopt;
        }
        base = 10;
    }
    int64_t value = 0;
    const std::string signed_digits = (negative ? "-" : "") + *digits;
    if ((*digits)[0] == '-') return std::nullopt;
    const char *end = signed_digits.data() + signed_digits.size();
    const auto [at, error] = std::from_chars(signed_digits.data(), end, value, static_cast<int>(base));
    if (error == std::errc::invalid_argument || at != end) return std::nullopt;
    if (error == std::errc::result_out_of_range) integer_overflow();
    return value;
}

std::optional<double> parse_real(std::string_view text) {
    const auto digits = without_underscores(strip_spaces(text), false);
    if (!digits) return std::nullopt;
    std::string_view s = *digits;
    const bool negative = s.starts_with('-');
    if (negative || s.starts_with('+')) s.remove_prefix(1);
    if (s.empty() || !(is_digit(s[0]) || s[0] == '.' || (s[0] | 0x20) == 'i' || (s[0] | 0x20) == 'n')) {
        return std::nullopt;
    }
    if (s.find('(') != std::string_view::npos) return std::nullopt;
    double value = 0;
    const auto [at, error] = std::from_chars(s.data(), s.data() + s.size(), value);
    if (at != s.data() + s.size() || error == std::errc::invalid_argument) return std::nullopt;
    if (error == std::errc::result_out_of_range) {
        const size_t e = s.find_first_of("eE");
        const bool is_small = e == std::string_view::npos ? s[0] == '0' || s[0] == '.' : s[e + 1] == '-';
        value = is_small ? 0.0 : HUGE_VAL;
    }
    return negative ? -value : value;
}

double round_real(double d, int64_t digits) {
    if (!std::isfinite(d) || digits > 323) return d;
    if (digits < -308) return std::copysign(0.0, d);
    if (digits < 0) {
        const double unit = std::pow(10.0, static_cast<double>(-digits));
        return std::nearbyint(d / unit) * unit;
    }
    // Writing digits rounds the exact decimal value, half to even.
    const std::string text = fmt::format("{:.{}f}", d, static_cast<int>(digits));
    double value = 0;
    std::from_chars(text.data(), text.data() + text.size(), value);
    return value;
}

}  // namespace ridge::text::jinja
