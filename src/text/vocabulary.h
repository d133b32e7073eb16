// A vocabulary as a model file states it: plain data, from `tokenizer.*` of a GGUF file or built by hand.
//
// Nothing in it is trusted: `Tokenizer` checks that it fits together.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ridge::gguf {
class File;
}

namespace ridge::text {

// As `tokenizer.ggml.token_type` numbers them.
enum class TokenType : int32_t {
    normal = 1,
    unknown = 2,       // stands for what the vocabulary cannot say
    control = 3,       // steers the model; no text of a user's may become one unasked
    user_defined = 4,  // found in the text before it is cut into pieces
    unused = 5,        // only fills the table
    byte = 6,
};

struct Vocabulary {
    std::string origin;  // the file, for messages
    std::string model;   // tokenizer.ggml.model: the family
    std::string pre;     // tokenizer.ggml.pre: the pre-tokenizer of a byte-level BPE; empty where not given
    std::vector<std::string> tokens;  // by id, in the family's stored form
    std::vector<TokenType> types;     // by id; empty where the file has none: all are normal
    std::vector<float> scores;        // by id; empty where the file has none
    std::vector<std::string> merges;  // "left right", the most urgent first
    std::string charsmap;             // the replacements of a SentencePiece normalizer (see normalizer.h)
    std::optional<int32_t> bos, eos, eot, eom, unknown;
    std::optional<int32_t> fim_pad, fim_rep, fim_sep;  // of code models: padding, repository, file separator
    std::optional<bool> add_bos, add_eos, add_space_prefix, remove_extra_spaces;
};

// `pre` and `family`, where not empty, stand in for the file's own tokenizer.ggml.pre and tokenizer.ggml.model (the
// command line's --pre and --tokenizer). Throws Error{file} where a key is missing or has another type, naming it and
// the file.
Vocabulary vocabulary_from_gguf(const gguf::File &file, std::string_view pre = {}, std::string_view family = {});

}  // namespace ridge::text
