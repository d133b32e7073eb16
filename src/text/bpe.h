// Byte-level byte-pair encoding: bytes become tokens, and neighbours merge, the most urgent pair first.
//
// Merges are applied within a pre-tokenizer's piece: of all neighbouring pairs the one of the lowest rank merges, the
// leftmost of equals, until no pair is left. A heap of candidate pairs over a linked list of symbols makes that
// n log n for a piece of n bytes, so text of any shape stays fast.
//
// A byte without a token (some vocabularies lack bytes that their training text never had) is left out before the
// merges, so its neighbours may merge; the count of such bytes is returned.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/pre_tokenizer.h"
#include "text/vocabulary.h"

namespace ridge::text {

class Bpe {
  public:
    // `ids`: stored form to id. Throws Error{file} for merges that do not fit the tokens, and for merges that end in a
    // control token: those would let a user's text become one.
    Bpe(const Vocabulary &v, const std::unordered_map<std::string_view, int32_t> &ids);

    // Appends the tokens of `text`. Returns how many bytes had no token.
    size_t encode(std::string_view text, std::vector<int32_t> &out) const;

    const PreTokenizerRow &row() const { return pre_.row(); }

  private:
    struct Merge {
        int32_t left, right;
        uint32_t rank;
        int32_t result;
    };
    struct Symbol {
        int32_t token;  // kGone once merged into its left neighbour
        uint32_t previous, next;
    };
    struct Candidate {
        uint32_t rank;
        uint32_t at;  // the left symbol
        int32_t left, right, result;
    };
    struct Hash {
        using is_transparent = void;
        size_t operator()(std::string_view s) const { return std::hash<std::string_view>{}(s); }
    };
    struct Work {  // working memory of one call
        std::vector<std::string_view> pieces;
        std::vector<Symbol> symbols;
        std::vector<Candidate> heap;
    };
    void add_merges(const Vocabulary &v, const std::unordered_map<std::string_view, int32_t> &ids);
    const Merge *find(int32_t left, int32_t right) const;
    void propose(Work &work, uint32_t at) const;
    size_t encode_piece(std::string_view piece, Work &work, std::vector<int32_t> &out) const;

    PreTokenizer pre_;
    std::array<int32_t, 256> byte_tokens_{};  // kGone where the vocabulary lacks the byte
    std::vector<Merge> merges_;               // by left, then right
    std::vector<uint32_t> first_merge_;       // by left token, one past the end as well: its range of merges_
    std::unordered_map<std::string, int32_t, Hash, std::equal_to<>> whole_pieces_;  // where whole_pieces_first
};

}  // namespace ridge::text
