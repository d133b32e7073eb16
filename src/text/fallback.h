// What becomes of text that a SentencePiece vocabulary has no piece for: its bytes where there are byte tokens, the
// unknown token where there is one. That is the one that tokenizer.ggml.unknown_token_id names, if it is no control
// token, or else the first of the type `unknown`.
//
// A byte token has the type `byte` and is named <0x00> to <0xFF>. Only the type makes it one: text that spells such a
// name stays text.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "text/vocabulary.h"

namespace ridge::text {

// The byte that a stored name stands for.
std::optional<uint8_t> byte_of_name(std::string_view name);

class Fallback {
  public:
    // Throws Error{file} for a byte token whose name is no byte, for two of one byte, and for an unknown token that is
    // not in the vocabulary.
    explicit Fallback(const Vocabulary &v);

    // Appends the tokens of `bytes` to `out`. A run of bytes that have no token becomes one unknown token;
    // `in_unknown` says whether `out` ends in such a run, and the caller clears it after a token of its own.
    // Returns how many bytes had no token.
    size_t append(std::string_view bytes, std::vector<int32_t> &out, bool &in_unknown) const;

  private:
    std::array<int32_t, 256> byte_tokens_;  // negative where there is none
    std::optional<int32_t> unknown_;
};

}  // namespace ridge::text
