// Formatting as python has it: "%s" % value and "{}".format(value).
#pragma once

#include <string_view>

#include "text/jinja/functions.h"
#include "text/jinja/value.h"

namespace ridge::text::jinja {

// text % values; `value` is what stands behind the %, a dict for %(name)s.
Value format_percent(Interpreter &run, const Value &text, const Values &values, const Value &value);
// str.format
Value format_braces(Interpreter &run, const Value &text, const Arguments &arguments);

// [[fill]align][sign][#][0][width][grouping][.precision][type]
struct FormatSpec {
    std::string fill = " ";
    char align = '\0';  // < > ^ =; 0: as the type has it
    char sign = '-';    // - + or a space
    bool alternate = false;
    bool zero = false;  // 0: fills numbers behind their sign, where no other alignment is given
    int64_t width = 0;
    char grouping = '\0';
    int64_t precision = -1;  // -1: none
    char type = '\0';
};

// Raises for what is no specification.
FormatSpec parse_format_spec(std::string_view text);
// format(v, spec)
void append_formatted(Text &out, const Value &v, const FormatSpec &spec, Budget &budget);

}  // namespace ridge::text::jinja
