#include "text/fallback.h"

#include <algorithm>

#include "core/error.h"
#include "gguf/printable.h"

namespace ridge::text {

namespace {

constexpr int32_t kMissing = -1;

int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
}

}  // namespace

std::optional<uint8_t> byte_of_name(std::string_view name) {
    if (name.size() != 6 || !name.starts_with("<0x") || name[5] != '>') return std::nullopt;
    const int high = hex_digit(name[3]);
    const int low = hex_digit(name[4]);
    if (high < 0 || low < 0) return std::nullopt;
    return static_cast<uint8_t>(high * 16 + low);
}

Fallback::Fallback(const Vocabulary &v) {
    byte_tokens_.fill(kMissing);
    for (size_t id = 0; id < v.types.size(); ++id) {
        if (v.types[id] == TokenType::unknown && !unknown_) unknown_ = static_cast<int32_t>(id);
        if (v.types[id] != TokenType::byte) continue;
        const auto byte = byte_of_name(v.tokens[id]);
        if (!byte) {
            fail(ErrorKind::file,
                 "{}: tokenizer.ggml.tokens[{}] is '{}', but its type says that it is a byte; bytes are named <0x00> "
                 "to <0xFF>",
                 v.origin, id, gguf::printable(v.tokens[id]));
        }
        int32_t &token = byte_tokens_[*byte];
        if (token != kMissing) {
            fail(ErrorKind::file, "{}: tokenizer.ggml.tokens[{}] and [{}] are the same byte, '{}'", v.origin, token, id,
                 gguf::printable(v.tokens[id]));
        }
        token = static_cast<int32_t>(id);
    }
    if (v.unknown) {
        if (*v.unknown < 0 || static_cast<size_t>(*v.unknown) >= v.tokens.size()) {
            fail(ErrorKind::file, "{}: tokenizer.ggml.unknown_token_id is {}, but tokenizer.ggml.tokens has {} entries",
                 v.origin, *v.unknown, v.tokens.size());
        }
        // No text of a user's may become a control token, even where a file calls one the unknown token.
        const TokenType type = v.types[*v.unknown];
        if (type == TokenType::unknown || type == TokenType::normal) unknown_ = v.unknown;
    }
}

size_t Fallback::append(std::string_view bytes, std::vector<int32_t> &out, bool &in_unknown) const {
    size_t without_token = 0;
    for (const char byte : bytes) {
        if (const int32_t token = byte_tokens_[static_cast<uint8_t>(byte)]; token != kMissing) {
            out.push_back(token);
            in_unknown = false;
            continue;
        }
        ++without_token;
        if (unknown_ && !in_unknown) out.push_back(*unknown_);
        in_unknown = true;
    }
    return without_token;
}

}  // namespace ridge::text
