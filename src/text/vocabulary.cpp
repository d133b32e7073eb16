#include "text/vocabulary.h"

#include <algorithm>
#include <limits>
#include <utility>

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

std::optional<int32_t> id_at(const gguf::File &file, std::string_view key) {
    if (file.find(key) == nullptr) return std::nullopt;
    const uint64_t id = file.get_u64(key);
    if (id > std::numeric_limits<int32_t>::max())
        fail(ErrorKind::file, "{}: {} is {}; ids have 31 bits, and tokenizer.ggml.tokens is the list of them",
             origin_of(file), key, id);
    return static_cast<int32_t>(id);
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

std::vector<float> floats_at(const gguf::File &file, std::string_view key) {
    const gguf::Value *value = file.find(key);
    if (value == nullptr) return {};
    auto numbers = value->as_floats();
    if (!numbers) fail(ErrorKind::file, "{}: {} must be an array of numbers", origin_of(file), key);
    return std::move(*numbers);
}

std::string bytes_at(const gguf::File &file, std::string_view key) {
    const gguf::Value *value = file.find(key);
    if (value == nullptr) return {};
    if (value->type != gguf::Type::array || (value->element != gguf::Type::u8 && value->element != gguf::Type::i8)) {
        fail(ErrorKind::file, "{}: {} must be an array of bytes (u8 or i8)", origin_of(file), key);
    }
    return {reinterpret_cast<const char *>(value->data), value->count};
}

}  // namespace

Vocabulary vocabulary_from_gguf(const gguf::File &file, std::string_view pre, std::string_view family) {
    Vocabulary v;
    v.origin = origin_of(file);
    v.model = family.empty() ? file.get_string("tokenizer.ggml.model") : family;
    v.pre = pre.empty() ? file.get_string("tokenizer.ggml.pre", "") : pre;
    v.tokens = strings_at(file, "tokenizer.ggml.tokens");
    v.types = types_at(file, "tokenizer.ggml.token_type");
    v.scores = floats_at(file, "tokenizer.ggml.scores");
    v.merges = strings_at(file, "tokenizer.ggml.merges");
    v.charsmap = bytes_at(file, "tokenizer.ggml.precompiled_charsmap");
    v.bos = id_at(file, "tokenizer.ggml.bos_token_id");
    v.eos = id_at(file, "tokenizer.ggml.eos_token_id");
    v.eot = id_at(file, "tokenizer.ggml.eot_token_id");
    v.eom = id_at(file, "tokenizer.ggml.eom_token_id");
    v.unknown = id_at(file, "tokenizer.ggml.unknown_token_id");
    v.fim_pad = id_at(file, "tokenizer.ggml.fim_pad_token_id");
    v.fim_rep = id_at(file, "tokenizer.ggml.fim_rep_token_id");
    v.fim_sep = id_at(file, "tokenizer.ggml.fim_sep_token_id");
    v.add_bos = flag_at(file, "tokenizer.ggml.add_bos_token");
    v.add_eos = flag_at(file, "tokenizer.ggml.add_eos_token");
    v.add_space_prefix = flag_at(file, "tokenizer.ggml.add_space_prefix");
    v.remove_extra_spaces = flag_at(file, "tokenizer.ggml.remove_extra_whitespaces");
    return v;
}

}  // namespace ridge::text
