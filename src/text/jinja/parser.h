// A template's source to its statements.
#pragma once

#include <memory>
#include <string_view>

#include "text/jinja/ast.h"

namespace ridge::text::jinja {

// Throws Error{unsupported} with `origin`, line and column for a syntax error, and Error{limit} for nesting without
// end.
std::shared_ptr<const Program> parse_program(std::string_view source, std::string_view origin);

}  // namespace ridge::text::jinja
