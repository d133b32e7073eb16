// Text to tokens and back, for any vocabulary family.
//
// What families share is here: the token table, tokens that are found as text (control and user-defined ones), BOS and
// EOS. A family adds an encoder for the text between those, and how it stores bytes: one file, and one row in
// tokenizer.cpp.
//
// Found as text: leftmost first, of several the longest. User-defined tokens are found in any text, control and unknown
// tokens only where asked for. Byte tokens (<0x0A>) never are. Among the segments of a chat a control token is found
// within one segment of the template, before anything that spans borders, so no text of a user's takes one apart.
//
// Space prefix: SentencePiece vocabularies mostly have their words with the space before them, so (where
// tokenizer.ggml.add_space_prefix says so) each stretch of plain text gets one space before it: at the start of the
// text, and after every token found as text. That is what the published tokenizers of Llama, Mistral, Phi-3 and T5 do.
// The segments of a chat are one text, so a stretch may run over their borders. `decode` takes ids from the start of a
// text and drops exactly these spaces again; `piece` never does, for a generated token continues what was there.
//
// Any bytes may be encoded, UTF-8 or not, and decode gives them back, but for bytes that the vocabulary has no token
// for (see `encode`), and what a SentencePiece family rewrites: U+2581 comes back as a space, and the replacements and
// removed spaces of a normalizer (see normalizer.h) do not come back. A Tokenizer does not change after it is made and
// may be used by several threads at once.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/trie.h"
#include "text/vocabulary.h"

namespace ridge::text {

struct EncodeOptions {
    bool add_special = true;     // BOS and EOS where the model wants them; never a second one
    bool parse_special = false;  // the text may name control tokens ("<|im_end|>")
};

// A stretch of text by who wrote it: a template may name control tokens, a user may not.
struct Segment {
    std::string text;
    bool is_template = false;
};

// Appends the tokens of plain text; returns how many of its bytes have no token.
using TextEncoder = std::function<size_t(std::string_view text, std::vector<int32_t> &out)>;

class Tokenizer {
  public:
    // Searches take time in proportion to the longest token, so a vocabulary must not choose it. (Published ones have
    // 1024 bytes at most.)
    static constexpr size_t kLongestToken = 2048;

    // Throws Error{file} where the vocabulary contradicts itself, Error{unsupported} for an unknown family or
    // pre-tokenizer and Error{limit} for a token of more than kLongestToken bytes, naming key and file.
    static std::unique_ptr<Tokenizer> from(const Vocabulary &v);
    Tokenizer(const Tokenizer &) = delete;
    Tokenizer &operator=(const Tokenizer &) = delete;

    // `without_token`, where given, receives the number of bytes that were left out for want of a token.
    std::vector<int32_t> encode(std::string_view text, EncodeOptions options = {},
                                size_t *without_token = nullptr) const;

    // The segments as one text: pieces, merges and user-defined tokens may span their borders, as if it were rendered
    // first and encoded then, but control tokens are looked for only within each template segment. Adds no BOS:
    // templates write their own.
    std::vector<int32_t> encode(std::span<const Segment> segments, size_t *without_token = nullptr) const;

    // The bytes of one token; part of a UTF-8 sequence possibly (see stream.h). Control, unknown and unused tokens have
    // none, unless `special`: then their names. Throws Error{usage} for an id that is not in the vocabulary.
    std::string_view piece(int32_t id, bool special = false) const;
    std::string decode(std::span<const int32_t> ids, bool special = false) const;

    int32_t size() const { return static_cast<int32_t>(pieces_.size()); }
    TokenType type(int32_t id) const;
    std::optional<int32_t> bos() const { return bos_; }
    std::optional<int32_t> eos() const { return eos_; }
    bool adds_bos() const { return add_bos_; }
    bool adds_eos() const { return add_eos_; }
    // Whether an answer ends here: EOS, end of turn, end of message; a call of a tool, whose result must come next.
    bool is_end(int32_t id) const;
    // Without any (a file may lack tokenizer.ggml.token_type) what a template writes as one becomes plain text.
    bool has_control_tokens() const;
    // The control or user-defined token of this name.
    std::optional<int32_t> named(std::string_view name) const;

  private:
    struct Progress;  // an encoding that is under way
    Tokenizer() = default;
    void index_names();
    void find_ends(const Vocabulary &v);
    void add_text(std::string_view text, bool parse_special, Progress &progress) const;
    void end_stretch(Progress &progress) const;
    void encode_plain(std::string_view text, Progress &progress) const;
    bool is_found_as_text(int32_t id) const;

    std::vector<std::string> pieces_;  // by id: the bytes; the name for control tokens
    std::vector<TokenType> types_;     // by id
    std::optional<int32_t> bos_, eos_;
    bool add_bos_ = false, add_eos_ = false;
    bool space_prefix_ = false;
    bool reads_spaces_ = false;  // U+2581 in a text is a space, where user-defined tokens are looked for as well
    std::vector<int32_t> ends_;  // ascending
    std::vector<int32_t> strips_after_;  // ascending: tokens that take the white space after them with them
    Trie user_defined_, special_;        // tokens found as text, by name: in any text, where asked for
    TextEncoder encode_text_;
};

}  // namespace ridge::text
