// The byte alphabet of GPT-2: byte-level vocabularies store each byte as one printable character.
//
// The 188 bytes 21..7E, A1..AC and AE..FF are the characters of the same number; the other 68 (controls, space, DEL,
// no-break space, soft hyphen) are U+0100, U+0101, ... in ascending order. So a space is stored as U+0120.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ridge::text {

// The stored form of `byte`, as UTF-8.
std::string byte_level_symbol(uint8_t byte);

// The bytes that a stored token stands for. A token with any character outside the alphabet stands for itself:
// such tokens were added to a vocabulary by hand, as plain text.
std::string byte_level_decode(std::string_view stored);

}  // namespace ridge::text
