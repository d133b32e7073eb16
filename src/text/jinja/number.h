// Numbers as python computes and writes them. Integers have 64 bits: what leaves them is an error.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "text/jinja/ast.h"
#include "text/jinja/value.h"

namespace ridge::text::jinja {

// Preconditions: both are numbers (booleans count as integers).
Value compute(Arithmetic op, const Value &a, const Value &b);
// Less, equal, greater as -1, 0, 1; 2 where one is not a number (NaN).
int compare_numbers(const Value &a, const Value &b);

// The integer that equals `d`, where there is one of 64 bits.
std::optional<int64_t> exact_integer(double d);

std::string real_to_string(double d);  // "1.0", "1e-05", "inf"

// int("...", base) and float("..."); nothing where python would refuse. Raises Error{limit} past 64 bits.
std::optional<int64_t> parse_integer(std::string_view text, int64_t base = 10);
std::optional<double> parse_real(std::string_view text);

// round(): half to even, of the exact decimal value.
double round_real(double d, int64_t digits);

[[noreturn]] void integer_overflow();

}  // namespace ridge::text::jinja
