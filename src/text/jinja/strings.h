// What filters and methods of strings share. All keep who wrote each byte, and Markup as such.
#pragma once

#include <string_view>

#include "text/jinja/unicode.h"
#include "text/jinja/value.h"

namespace ridge::text::jinja {

Value upper(const Value &s, Budget &budget);
Value lower(const Value &s, Budget &budget);
Value swap_case(const Value &s, Budget &budget);
Value capitalize(const Value &s, Budget &budget);
Value title(const Value &s, Budget &budget);  // as the method has it: any letter behind no letter begins a word
// As the filter has it: words begin behind white space, '-' and opening brackets.
Value title_by_spaces(const Value &s, Budget &budget);

enum class Sides { both, left, right };
// Without the characters of `chars` at the ends; white space where that is missing or none.
Value strip(const Value &s, const Value &chars, Sides sides, Budget &budget);

// The byte offset of the first or last `what` in `s`, or npos. Takes time linear in the bytes up to there and in
// `what`; the caller counts those of `s`.
size_t find(std::string_view s, std::string_view what, Budget &budget);
size_t find_last(std::string_view s, std::string_view what, Budget &budget);

// At most `count` times; negative: always.
Value replace(const Value &s, const Value &from, const Value &to, int64_t count, Budget &budget);

Values split_lines(const Value &s, bool keep_ends, Budget &budget);

// Filled to `width` characters.
Value pad(const Value &s, int64_t width, const Value &fill, Sides text_stands, Budget &budget);

// `filler` n times into `out`; bounded before anything is allocated.
void append_repeated(Text &out, std::string_view filler, bool from_template, int64_t n, Budget &budget);

}  // namespace ridge::text::jinja
