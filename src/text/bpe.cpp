#include "text/bpe.h"

#include <limits>

#include "core/error.h"
#include "text/byte_level.h"

namespace ridge::text {

namespace {

constexpr int32_t kMissing = -1;

// Some vocabularies lack the bytes that UTF-8 never has, and have a user-defined token of the character that would
// stand for one: that token is the character, not the byte.
bool is_byte(const Vocabulary &v, int32_t id) {
    return v.types.empty() || v.types[id] == TokenType::normal || v.types[id] == TokenType::byte;
}

}  // namespace

Bpe::Bpe(const Vocabulary &v, const std::unordered_map<std::string_view, int32_t> &ids)
    : pre_(v.pre, v.origin), merges_(listed_merges(v, ids), v.tokens.size()) {
    for (unsigned byte = 0; byte < 256; ++byte) {
        const auto found = ids.find(byte_level_symbol(static_cast<uint8_t>(byte)));
        const bool usable = found != ids.end() && is_byte(v, found->second);
        byte_tokens_[byte] = usable ? found->second : kMissing;
    }
    if (pre_.row().whole_pieces_first) {
        for (size_t id = 0; id < v.tokens.size(); ++id) {
            if (v.types.empty() || v.types[id] == TokenType::normal) {
                whole_pieces_.try_emplace(byte_level_decode(v.tokens[id]), static_cast<int32_t>(id));
            }
        }
    }
}

size_t Bpe::encode_piece(std::string_view piece, Work &work, std::vector<int32_t> &out) const {
    if (const auto whole = whole_pieces_.find(piece); whole != whole_pieces_.end()) {
        out.push_back(whole->second);
        return 0;
    }
    work.symbols.clear();
    for (const char byte : piece) {
        const int32_t token = byte_tokens_[static_cast<uint8_t>(byte)];
        if (token != kMissing) work.symbols.push_back(token);
    }
    merges_.apply(work.symbols, work.merges, out);
    return piece.size() - work.symbols.size();
}

size_t Bpe::encode(std::string_view text, std::vector<int32_t> &out) const {
    if (text.size() >= std::numeric_limits<uint32_t>::max()) {
        fail(ErrorKind::limit, "a text of {} bytes is too long to tokenize", text.size());
    }
    Work work;
    pre_.split(text, work.pieces);
    size_t without_token = 0;
    for (const std::string_view piece : work.pieces) without_token += encode_piece(piece, work, out);
    return without_token;
}

}  // namespace ridge::text
