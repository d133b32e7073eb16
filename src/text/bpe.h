// Byte-level byte-pair encoding (the family "gpt2"): bytes become tokens, and neighbours merge (see merges.h) within
// the pieces that a pre-tokenizer cuts.
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

#include "text/merges.h"
#include "text/pre_tokenizer.h"
#include "text/vocabulary.h"

namespace ridge::text {

class Bpe {
  public:
    // `ids`: stored form to id. Throws as `listed_merges` and PreTokenizer do.
    Bpe(const Vocabulary &v, const std::unordered_map<std::string_view, int32_t> &ids);

    // Appends the tokens of `text`. Returns how many bytes had no token.
    size_t encode(std::string_view text, std::vector<int32_t> &out) const;

    const PreTokenizerRow &row() const { return pre_.row(); }

  private:
    struct Hash {
        using is_transparent = void;
        size_t operator()(std::string_view s) const { return std::hash<std::string_view>{}(s); }
    };
    struct Work {  // working memory of one call
        std::vector<std::string_view> pieces;
        std::vector<int32_t> symbols;
        Merges::Work merges;
    };
    size_t encode_piece(std::string_view piece, Work &work, std::vector<int32_t> &out) const;

    PreTokenizer pre_;
    Merges merges_;
    std::array<int32_t, 256> byte_tokens_{};  // negative where the vocabulary lacks the byte
    std::unordered_map<std::string, int32_t, Hash, std::equal_to<>> whole_pieces_;  // where whole_pieces_first
};

}  // namespace ridge::text
