// SentencePiece BPE (the family "llama": Llama 1 and 2, Mistral, Phi-3, Gemma) and its sibling with listed merges
// (the family "gemma4"): characters become tokens, and neighbours merge (see merges.h).
//
// There is no pre-tokenizer: the text is normalised (see normalizer.h) and merged as a whole. In the family "llama"
// any two neighbours merge whose texts put together are a token, the highest score first; "gemma4" has a list as
// byte-level BPE has. Only normal and user-defined tokens are pieces: no text merges to a control token or to a byte
// token, and unused tokens are no text's.
//
// A character that is no token, and all that is not UTF-8, becomes byte tokens or the unknown token (see fallback.h).
//
// Where no token has two characters side by side nothing can merge across the place between them, so the text is cut
// there, which changes no result: in most vocabularies that is before every word. What is left is merged in n log n.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/fallback.h"
#include "text/merges.h"
#include "text/normalizer.h"
#include "text/vocabulary.h"

namespace ridge::text {

class SentencePieceBpe {
  public:
    enum class Order { by_score, by_list };

    // `v` has types, and by_score a finite score for every token; `ids`: stored form to id. Throws Error{file} as
    // Fallback, CharsMap and (by_list) listed_merges do.
    SentencePieceBpe(const Vocabulary &v, const std::unordered_map<std::string_view, int32_t> &ids, Order order,
                     Spaces absent);

    // Appends the tokens of `text`. Returns how many bytes had no token.
    size_t encode(std::string_view text, std::vector<int32_t> &out) const;

    bool adds_prefix() const { return normalizer_.adds_prefix(); }

    // The symbols that text starts from, by character. A symbol is a token, or (numbered from the size of the
    // vocabulary on) a character that is no token but starts or ends one.
    class Characters {
      public:
        explicit Characters(const Vocabulary &v);
        int32_t find(char32_t code) const;  // negative where it is no symbol
        const std::vector<std::string> &partial() const { return partial_; }

      private:
        int32_t &at(char32_t code);
        static constexpr size_t kPageSize = 256;
        std::vector<uint16_t> pages_;   // by code / kPageSize; page 0 is empty
        std::vector<int32_t> symbols_;  // (pages, kPageSize)
        std::vector<std::string> partial_;
    };

    // Which characters stand side by side in a token: a set of hashes, so it may hold too much, never too little.
    class Joints {
      public:
        explicit Joints(const Vocabulary &v);
        bool contains(char32_t left, char32_t right) const;

      private:
        uint64_t bit_of(char32_t left, char32_t right) const;
        unsigned shift_;  // 64 - log2 of the number of bits
        std::vector<uint64_t> bits_;
    };

  private:
    struct Work;
    size_t merge(Work &work, std::vector<int32_t> &out) const;

    Normalizer normalizer_;
    Fallback fallback_;
    Characters characters_;
    Joints joints_;
    Merges merges_;
    int32_t n_tokens_;
};

}  // namespace ridge::text
