// How SentencePiece rewrites text before it looks for pieces: a table of replacements (compatibility forms, case, ...),
// then spaces.
//
//   table     tokenizer.ggml.precompiled_charsmap: the longest entry that the rest of the text starts with is replaced;
//             a character without an entry stays. Bytes that are not UTF-8 stay as well.
//   spaces    with remove_extra_whitespaces those at the start and at the end go, and a run of them becomes one
//   prefix    with add_space_prefix a text that is not empty gets a space before it
//   U+2581    every space is written as this character, as the pieces have it
//
// The charsmap is: size of a trie in bytes u32 | the trie, u32 units | replacements, each ended by a NUL; all
// little-endian. The trie is a double array: a node is an offset, its child for a byte is the unit at offset ^ byte,
// which must carry that byte as its label. A unit is
//
//   bits 0-7 label | 8 has a value | 9 shift | 10-30 offset, shifted left by 8 where bit 9 is set | 31 is a value
//
// and moves on to (its own index ^ offset), where the unit with label 0 holds the value: where a replacement starts.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/vocabulary.h"

namespace ridge::text {

// The table of replacements. Checked whole when it is read, so that no look-up leaves it. Nodes may be shared and so
// may, in a hostile table, form a ring: that is why a look-up ends after kLongestKey bytes.
class CharsMap {
  public:
    // In bytes. The table of NFKC has 240,000, its longest key 12 and its longest replacement 33.
    static constexpr size_t kLargest = 4 << 20;
    static constexpr size_t kLongestKey = 64;
    static constexpr size_t kLongestReplacement = 256;

    // Throws Error{file} for anything that is not such a table, and Error{limit} where it or a replacement is larger;
    // `origin` opens the message. An empty blob replaces nothing.
    CharsMap(std::string_view blob, std::string_view origin);

    struct Match {
        size_t length = 0;  // of the text that is replaced; 0: nothing
        std::string_view replacement;
    };
    Match longest(std::string_view text) const;

  private:
    void check(std::string_view origin) const;
    std::vector<uint32_t> units_;
    std::string replacements_;
};

struct Spaces {
    bool add_prefix;
    bool remove_extra;
};

class Normalizer {
  public:
    // `absent`: the settings that hold where the file does not say.
    Normalizer(const Vocabulary &v, Spaces absent);

    std::string apply(std::string_view text) const;
    bool adds_prefix() const { return spaces_.add_prefix; }

  private:
    CharsMap map_;
    Spaces spaces_;
};

inline constexpr std::string_view kSpaceSymbol = "\xE2\x96\x81";  // U+2581

// `stored` with U+2581 written as a space.
std::string with_spaces(std::string_view stored);

}  // namespace ridge::text
