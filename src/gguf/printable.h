// Text from files that nobody vouches for, made safe for a terminal and a log.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ridge::gguf {

bool valid_utf8(std::string_view text);

// `text` with control characters (C0, DEL, C1), invisible formatting characters (which can reorder what is shown),
// invalid UTF-8 and backslashes written as escapes, cut after `limit` characters with "..." where it is longer.
std::string printable(std::string_view text, size_t limit = 80);

}  // namespace ridge::gguf
