// Byte-pair merging, for every family that has it: neighbouring symbols become one, the most urgent pair first.
//
// Of all neighbouring pairs that have a merge the one of the lowest rank is applied, the leftmost of equals, until no
// pair is left. A heap of candidate pairs over a linked list of symbols makes that n log n for n symbols, so text of
// any shape stays fast.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/vocabulary.h"

namespace ridge::text {

class Merges {
  public:
    struct Merge {
        int32_t left, right;  // symbols
        uint32_t rank;
        int32_t result;
    };
    // Working memory of a call, for the caller to keep between calls.
    class Work {
        friend Merges;
        struct Symbol {
            int32_t id;  // negative once merged into its left neighbour
            uint32_t previous, next;
        };
        struct Candidate {
            uint32_t rank;
            uint32_t at;  // the left symbol
            int32_t left, right, result;
        };
        std::vector<Symbol> symbols;
        std::vector<Candidate> heap;
    };

    // Symbols are 0 to n_symbols - 1. Where a pair is listed twice its lowest rank counts.
    Merges(std::vector<Merge> merges, size_t n_symbols);

    // Appends what `symbols` (fewer than 2^32) merge to.
    void apply(std::span<const int32_t> symbols, Work &work, std::vector<int32_t> &out) const;

  private:
    const Merge *find(int32_t left, int32_t right) const;
    void propose(Work &work, uint32_t at) const;

    std::vector<Merge> merges_;          // by left, then right
    std::vector<uint32_t> first_merge_;  // by left symbol, one past the end as well: its range of merges_
};

// The merges of tokenizer.ggml.merges, ranked by their order. Throws Error{file} for merges that do not fit the tokens,
// and for merges that end in a control, byte or unused token: those would let a user's text become one.
std::vector<Merges::Merge> listed_merges(const Vocabulary &v, const std::unordered_map<std::string_view, int32_t> &ids);

}  // namespace ridge::text
