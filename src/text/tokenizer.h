// Text to tokens and back, for any vocabulary family.
//
// What families share is here: the token table, tokens that are found as text (control and user-defined ones), BOS and
// EOS. A family adds an encoder for the text between those, and how it stores bytes: one file, and one row in
// tokenizer.cpp.
//
// Any bytes may be encoded, UTF-8 or not, and decode gives them back, but for bytes that the vocabulary has no token
// for (see `encode`). A Tokenizer does not change after it is made and may be used by several threads at once.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

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
    // Throws Error{file} where the vocabulary contradicts itself and Error{unsupported} for an unknown family or
    // pre-tokenizer, naming key and file.
    static std::unique_ptr<Tokenizer> from(const Vocabulary &v);
    Tokenizer(const Tokenizer &) = delete;
    Tokenizer &operator=(const Tokenizer &) = delete;

    // `without_token`, where given, receives the number of bytes that were left out for want of a token.
    std::vector<int32_t> encode(std::string_view text, EncodeOptions options = {},
                                size_t *without_token = nullptr) const;

    // The segments as one text: pieces and merges may span their borders, as if it were rendered first and encoded
    // then, but control tokens are looked for only within each template segment. Adds no BOS: templates write their
    // own.
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
    // Whether an answer ends here: EOS, end of turn, end of message.
    bool is_end(int32_t id) const;
    // The control or user-defined token of this name.
    std::optional<int32_t> named(std::string_view name) const;

  private:
    Tokenizer() = default;
    void index_special(int32_t id);
    void encode_segment(std::string_view text, bool parse_special, std::string &pending, std::vector<int32_t> &out,
                        size_t &without_token) const;

    std::vector<std::string> pieces_;  // by id: the bytes; the name for control tokens
    std::vector<TokenType> types_;     // by id
    std::optional<int32_t> bos_, eos_;
    bool add_bos_ = false, add_eos_ = false;
    std::vector<int32_t> ends_;  // ascending
    // Tokens found as text, by name. Their lengths by first byte, longest first, keep the search short.
    std::unordered_map<std::string_view, int32_t> special_;
    std::array<std::vector<uint32_t>, 256> special_lengths_;
    TextEncoder encode_text_;
};

}  // namespace ridge::text
