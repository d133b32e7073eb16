#include "text/vocabulary.h"

#include <algorithm>
#include <limits>

#include "core/error.h"
#include "gguf/gguf.h"

namespace ridge::text {

namespace {

std::string origin_of(const gguf::File &file) { return file.paths().front().string(); }

std::vector<std::string> strings_at(const gguf::File &file, std::string_view key) {
    const gguf::Value *value = file.find(key);
    if (value == nullptr) return {};
    const auto views = value->as_strings();
    if (!views) fail(ErrorKind::file, "{}: {} must be an array of strings", origin_of(file), key);
    return {views->begin(), views->end()};
}

// An unsigned number that does not fit an id becomes the largest id, which no vocabulary reaches.
std::optional<int32_t> id_at(const gguf::File &file, std::string_view key) {
    if (file.find(key) == nullptr) return std::nullopt;
    constexpr uint64_t kLargest = std::numeric_limits<int32_t>::max();
    return static_cast<int32_t>(std::min(file.get_u64(key), kLargest));
}

std::optional<bool> flag_at(const gguf::File &file, std::string_view key) {
    if (file.find(key) == nullptr) return std::nullopt;
    return file.get_bool(key, false);
}

std::vector<TokenType> types_at(const gguf::File &file, std::string_view key) {
    const gguf::Value *value = file.find(key);
    if (value == nullptr) return {};
    const auto numbers = value->as_ints();
    if (!numbers) fail(ErrorKind::file, "{}: {} must be an array of integers", origin_of(file), key);
    std::vector<TokenType> types;
    types.reserve(numbers->size());
    for (const int64_t number : *numbers) {
        if (number < static_cast<int64_t>(TokenType::normal) || number > static_cast<int64_t>(TokenType::byte)) {
            fail(ErrorKind::file, "{}: {}[{}] is {}; token types are 1 to 6", origin_of(file), key, types.size(),
                 number);
        }
        types.push_back(static_cast<TokenType>(number));
    }
    return types;
}

}  // namespace

Vocabulary vocabulary_from_gguf(const gguf::File &file, std::string_view pre) {
    Vocabulary v;
    v.origin = origin_of(file);
    v.model = file.get_string("tokenizer.ggml.model");
    v.pre = pre.empty() ? file.get_string("tokenizer.ggml.pre", "") : pre;
    v.tokens = strings_at(file, "tokenizer.ggml.tokens");
    v.types = types_at(file, "tokenizer.ggml.token_type");
    v.merges = strings_at(file, "tokenizer.ggml.merges");
    v.bos = id_at(file, "tokenizer.ggml.bos_token_id");
    v.eos = id_at(file, "tokenizer.ggml.eos_token_id");
    v.eot = id_at(file, "tokenizer.ggml.eot_token_id");
    v.eom = id_at(file, "tokenizer.ggml.eom_token_id");
    v.add_bos = flag_at(file, "tokenizer.ggml.add_bos_token");
    v.add_eos = flag_at(file, "tokenizer.ggml.add_eos_token");
    return v;
}

}  // namespace ridge::text
