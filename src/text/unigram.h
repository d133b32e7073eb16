// SentencePiece unigram (the family "t5"): of all ways to cut the text into pieces, the one whose scores (log
// probabilities) add up to the most.
//
// The text is normalised first (see normalizer.h). The best path is found from left to right, one character at a time:
// best[end] = max over the pieces [start, end) of best[start] + score, added as float, as `sentencepiece` does: where
// paths are as good as each other, rounding decides, and must decide as it did when the model was trained. A character
// that is no piece itself may stand as unknown, for 10 less than the lowest score of a normal piece; it then becomes
// byte tokens or the unknown token (see fallback.h). Of equal sums the one that was found first counts, that with the
// longest last piece.
//
// Takes time proportional to the text times the longest piece that matches in it.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "text/fallback.h"
#include "text/normalizer.h"
#include "text/trie.h"
#include "text/vocabulary.h"

namespace ridge::text {

class Unigram {
  public:
    // `v` has types and a finite score for every token. Throws Error{file} as Fallback and CharsMap do.
    Unigram(const Vocabulary &v, Spaces absent);

    // Appends the tokens of `text`. Returns how many bytes had no token.
    size_t encode(std::string_view text, std::vector<int32_t> &out) const;

    bool adds_prefix() const { return normalizer_.adds_prefix(); }

  private:
    struct Step;
    std::vector<Step> best_path(std::string_view text) const;

    Normalizer normalizer_;
    Fallback fallback_;
    Trie pieces_;
    std::vector<float> scores_;  // by id
    float unknown_score_;
};

}  // namespace ridge::text
