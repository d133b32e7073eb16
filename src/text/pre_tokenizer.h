// Pre-tokenizers: how a byte-level BPE cuts text into pieces, before and independent of its merges.
//
// One row per family (pre_tokenizer_rows.cpp), by the names that `tokenizer.ggml.pre` uses. A row is a list of
// patterns: each piece that the first one gives is cut again by the second, as if it were the whole text. Matches and
// what lies between them are both pieces, so the pieces put end to end are the text, byte for byte. Text that is not
// UTF-8 is cut into its well-formed stretches, which the patterns see one by one, and the bytes between these.
//
// Every row cuts any text in time proportional to its length: no pattern looks far ahead from more than one place in a
// run, or over more than it then takes. Where the matcher gives up all the same, that is an error, never a missed
// piece.
//
// No Unicode normalisation is applied. (The tokenizers of Qwen, Command R and OLMo declare NFC: for text in another
// form their original gives other tokens, while engines that read GGUF apply none; so the bytes of a prompt always
// survive.)
//
// What is a letter or a number follows the Unicode version of the PCRE2 library (10.42: Unicode 14). Characters that
// were assigned later can be cut otherwise than by a tokenizer with newer tables; all others, but for those of large
// blocks of one kind, are compared one by one (tests/text/test_pre_tokenizer.cpp). Falcon and Chameleon take what is
// punctuation from a table of Unicode 8: 106 characters that became or ceased to be it later are cut otherwise here.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace ridge::text {

struct PreTokenizerRow {
    std::vector<std::string_view> names;
    std::vector<std::string_view> patterns;  // PCRE2 syntax
    // Patterns that come after those and see bytes where they see characters: they can cut within a character.
    std::vector<std::string_view> byte_patterns;
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
