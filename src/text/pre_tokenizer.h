// Pre-tokenizers: how a byte-level BPE cuts text into pieces, before and independent of its merges.
//
// One row per family, by the names that `tokenizer.ggml.pre` uses. A row is a list of patterns: each piece that the
// first one gives is cut again by the second, as if it were the whole text. Matches and what lies between them are both
// pieces, so the pieces put end to end are the text, byte for byte. Text that is not UTF-8 is cut into its well-formed
// stretches, which the patterns see one by one, and the bytes between these.
//
// No Unicode normalisation is applied. (The Qwen tokenizers declare NFC: for text in another form their original
// gives other tokens, while engines that read GGUF apply none; so the bytes of a prompt always survive.)
//
// What is a letter or a number follows the Unicode version of the PCRE2 library (10.42: Unicode 14). Characters that
// were assigned later can be cut otherwise than by a tokenizer with newer tables; all others were compared one by one.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace ridge::text {

struct PreTokenizerRow {
    std::vector<std::string_view> names;
    std::vector<std::string_view> patterns;  // PCRE2 syntax
    // A piece that is itself a token becomes that token, whatever the merges would give.
    bool whole_pieces_first = false;
    // Whether BOS is put first where `tokenizer.ggml.add_bos_token` does not say.
    bool add_bos = false;
};

std::span<const PreTokenizerRow> pre_tokenizer_rows();

class PreTokenizer {
  public:
    // Throws Error{unsupported} for an unknown name (or an empty one), listing the known ones; `origin` opens the
    // message.
    PreTokenizer(std::string_view name, std::string_view origin);

    const PreTokenizerRow &row() const { return *row_; }

    // Appends the pieces of `text`, views into it. Takes time proportional to its length.
    void split(std::string_view text, std::vector<std::string_view> &pieces) const;

  private:
    struct Pattern;  // a compiled pattern
    struct Match;    // its working memory, one per call: a PreTokenizer may be used by several threads at once
    void split_stage(size_t stage, std::string_view text, std::span<Match> matches,
                     std::vector<std::string_view> &pieces) const;

    const PreTokenizerRow *row_;
    std::vector<std::shared_ptr<const Pattern>> patterns_;
};

}  // namespace ridge::text
