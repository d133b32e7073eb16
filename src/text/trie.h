// A set of byte strings, each with a number, that is searched from a position of a text: the tokens found as text, and
// the pieces of a unigram vocabulary.
//
// Nodes are numbered breadth first, so the children of a node lie side by side, ascending by their byte. A search takes
// one step per byte, and no more steps than the longest string has bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

namespace ridge::text {

class Trie {
  public:
    struct Entry {
        std::string_view key;  // not empty
        int32_t value;         // not negative
    };
    struct Match {
        size_t length = 0;  // 0: no string starts here
        int32_t value = -1;
    };
    static constexpr uint32_t kRoot = 0;
    static constexpr uint32_t kNoNode = std::numeric_limits<uint32_t>::max();

    // Of equal keys the first entry counts. Throws Error{limit} where the keys have 4 GiB or more.
    explicit Trie(std::vector<Entry> entries = {});

    uint32_t child(uint32_t node, uint8_t byte) const;                 // kNoNode where there is none
    int32_t value(uint32_t node) const { return nodes_[node].value; }  // negative where no string ends here

    // The longest string that `text` starts with.
    Match longest(std::string_view text) const;

  private:
    struct Node {
        uint32_t first_child = 0;
        uint32_t children = 0;
        int32_t value = -1;
    };
    std::vector<Node> nodes_;
    std::vector<uint8_t> bytes_;               // by node: the byte that leads to it
    std::array<uint32_t, 256> root_children_;  // most searches end here
};

}  // namespace ridge::text
