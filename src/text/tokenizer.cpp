#include "text/tokenizer.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "core/error.h"
#include "gguf/printable.h"
#include "text/bpe.h"
#include "text/byte_level.h"

namespace ridge::text {

namespace {

using TokenIds = std::unordered_map<std::string_view, int32_t>;

struct Encoding {
    TextEncoder encode;
    bool add_bos;  // where the file does not say
};

// One row per family.
struct Family {
    std::string_view model;                         // tokenizer.ggml.model
    std::string (*bytes)(std::string_view stored);  // of a token that is not found as text
    Encoding (*encoding)(const Vocabulary &v, const TokenIds &ids);
};

Encoding byte_level_bpe(const Vocabulary &v, const TokenIds &ids) {
    auto bpe = std::make_shared<const Bpe>(v, ids);
    const bool add_bos = bpe->row().add_bos;
    return {[bpe](std::string_view text, std::vector<int32_t> &out) { return bpe->encode(text, out); }, add_bos};
}

constexpr std::array kFamilies{
    Family{"gpt2", byte_level_decode, byte_level_bpe},
};

const Family &family_of(const Vocabulary &v) {
    const auto family = std::ranges::find(kFamilies, v.model, &Family::model);
    if (family == kFamilies.end()) {
        std::vector<std::string_view> known;
        for (const Family &f : kFamilies) known.push_back(f.model);
        fail(ErrorKind::unsupported, "{}: tokenizer.ggml.model is '{}', which is not supported; supported: {}",
             v.origin, gguf::printable(v.model), fmt::join(known, ", "));
    }
    return *family;
}

// Control tokens that end an answer though no key names them.
constexpr std::array<std::string_view, 8> kEndNames{"<|im_end|>", "<|endoftext|>",   "<|eot_id|>",    "<|eom_id|>",
                                                    "<|end|>",    "<|end_of_text|>", "<end_of_turn>", "</s>"};

TokenIds ids_by_text(const Vocabulary &v) {
    constexpr std::string_view kKey = "tokenizer.ggml.tokens";
    if (v.tokens.empty()) fail(ErrorKind::file, "{}: {} is missing or empty", v.origin, kKey);
    if (v.tokens.size() >= std::numeric_limits<int32_t>::max()) {
        fail(ErrorKind::file, "{}: {} has {} entries; ids have 31 bits", v.origin, kKey, v.tokens.size());
    }
    if (!v.types.empty() && v.types.size() != v.tokens.size()) {
        fail(ErrorKind::file, "{}: tokenizer.ggml.token_type has {} entries, but {} has {}", v.origin, v.types.size(),
             kKey, v.tokens.size());
    }
    TokenIds ids;
    ids.reserve(v.tokens.size());
    for (size_t id = 0; id < v.tokens.size(); ++id) {
        const auto [other, added] = ids.try_emplace(v.tokens[id], static_cast<int32_t>(id));
        if (!added) {
            fail(ErrorKind::file, "{}: {}[{}] and [{}] are the same, '{}'", v.origin, kKey, other->second, id,
                 gguf::printable(v.tokens[id]));
        }
    }
    return ids;
}

void check_id(const Vocabulary &v, std::string_view key, std::optional<int32_t> id) {
    if (id && (*id < 0 || static_cast<size_t>(*id) >= v.tokens.size())) {
        fail(ErrorKind::file, "{}: tokenizer.ggml.{} is {}, but tokenizer.ggml.tokens has {} entries", v.origin, key,
             *id, v.tokens.size());
    }
}

bool is_silent(TokenType type) {
    return type == TokenType::control || type == TokenType::unknown || type == TokenType::unused;
}

}  // namespace

std::unique_ptr<Tokenizer> Tokenizer::from(const Vocabulary &v) {
    const Family &family = family_of(v);
    const TokenIds ids = ids_by_text(v);
    check_id(v, "bos_token_id", v.bos);
    check_id(v, "eos_token_id", v.eos);
    check_id(v, "eot_token_id", v.eot);
    check_id(v, "eom_token_id", v.eom);

    std::unique_ptr<Tokenizer> t(new Tokenizer);
    const Encoding encoding = family.encoding(v, ids);
    t->encode_text_ = encoding.encode;
    t->bos_ = v.bos;
    t->eos_ = v.eos;
    t->add_bos_ = v.add_bos.value_or(encoding.add_bos);
    t->add_eos_ = v.add_eos.value_or(false);
    if (t->add_bos_ && !v.bos) {
        fail(ErrorKind::file, "{}: a BOS token is to be added, but tokenizer.ggml.bos_token_id is absent", v.origin);
    }
    if (t->add_eos_ && !v.eos) {
        fail(ErrorKind::file, "{}: an EOS token is to be added, but tokenizer.ggml.eos_token_id is absent", v.origin);
    }

    t->types_ = v.types.empty() ? std::vector<TokenType>(v.tokens.size(), TokenType::normal) : v.types;
    t->pieces_.reserve(v.tokens.size());
    for (size_t id = 0; id < v.tokens.size(); ++id) {
        const bool as_text = is_silent(t->types_[id]) || t->types_[id] == TokenType::user_defined;
        t->pieces_.push_back(as_text ? v.tokens[id] : family.bytes(v.tokens[id]));
    }
    for (int32_t id = 0; id < t->size(); ++id) t->index_special(id);

    for (const auto &id : {v.eos, v.eot, v.eom}) {
        if (id) t->ends_.push_back(*id);
    }
    for (const std::string_view name : kEndNames) {
        const auto id = t->named(name);
        if (id && t->type(*id) == TokenType::control) t->ends_.push_back(*id);
    }
    std::ranges::sort(t->ends_);
    return t;
}

void Tokenizer::index_special(int32_t id) {
    const TokenType type = types_[id];
    const std::string_view name = pieces_[id];
    if (name.empty() || (type != TokenType::control && type != TokenType::unknown && type != TokenType::user_defined)) {
        return;
    }
    special_.emplace(name, id);
    auto &lengths = special_lengths_[static_cast<uint8_t>(name[0])];
    const auto length = static_cast<uint32_t>(name.size());
    const auto at = std::ranges::lower_bound(lengths, length, std::greater<>{});
    if (at == lengths.end() || *at != length) lengths.insert(at, length);
}

// Splits off the tokens that are found as text, leftmost and longest first. Plain text collects in `pending` and is
// encoded when a token ends it, so that it may go on in the next segment.
void Tokenizer::encode_segment(std::string_view text, bool parse_special, std::string &pending,
                               std::vector<int32_t> &out, size_t &without_token) const {
    size_t plain = 0;  // where the text not yet in `pending` starts
    for (size_t at = 0; at < text.size();) {
        size_t length = 0;
        for (const uint32_t candidate : special_lengths_[static_cast<uint8_t>(text[at])]) {
            if (candidate > text.size() - at) continue;
            const auto found = special_.find(text.substr(at, candidate));
            if (found == special_.end()) continue;
            if (!parse_special && types_[found->second] != TokenType::user_defined) continue;
            pending.append(text.substr(plain, at - plain));
            without_token += encode_text_(pending, out);
            pending.clear();
            out.push_back(found->second);
            length = candidate;
            break;
        }
        at += std::max<size_t>(length, 1);
        if (length > 0) plain = at;
    }
    pending.append(text.substr(plain));
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, EncodeOptions options, size_t *without_token) const {
    std::vector<int32_t> ids;
    std::string pending;
    size_t missing = 0;
    encode_segment(text, options.parse_special, pending, ids, missing);
    missing += encode_text_(pending, ids);
    if (without_token != nullptr) *without_token = missing;
    if (options.add_special) {
        if (add_bos_ && (ids.empty() || ids.front() != *bos_)) ids.insert(ids.begin(), *bos_);
        if (add_eos_ && (ids.empty() || ids.back() != *eos_)) ids.push_back(*eos_);
    }
    return ids;
}

std::vector<int32_t> Tokenizer::encode(std::span<const Segment> segments, size_t *without_token) const {
    std::vector<int32_t> ids;
    std::string pending;
    size_t missing = 0;
    for (const Segment &segment : segments) encode_segment(segment.text, segment.is_template, pending, ids, missing);
    missing += encode_text_(pending, ids);
    if (without_token != nullptr) *without_token = missing;
    return ids;
}

TokenType Tokenizer::type(int32_t id) const {
    if (id < 0 || id >= size()) {
        fail(ErrorKind::usage, "token {} does not exist: the vocabulary has tokens 0 to {}", id, size() - 1);
    }
    return types_[id];
}

std::string_view Tokenizer::piece(int32_t id, bool special) const {
    if (is_silent(type(id)) && !special) return {};
    return pieces_[id];
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool special) const {
    std::string text;
    for (const int32_t id : ids) text += piece(id, special);
    return text;
}

bool Tokenizer::is_end(int32_t id) const { return std::ranges::binary_search(ends_, id); }

std::optional<int32_t> Tokenizer::named(std::string_view name) const {
    const auto found = special_.find(name);
    if (found == special_.end()) return std::nullopt;
    return found->second;
}

}  // namespace ridge::text
