#include "text/tokenizer.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <unordered_map>

#include "core/error.h"
#include "core/utf8.h"
#include "gguf/printable.h"
#include "text/bpe.h"
#include "text/byte_level.h"
#include "text/fallback.h"
#include "text/normalizer.h"
#include "text/spm.h"
#include "text/unigram.h"

namespace ridge::text {

namespace {

using TokenIds = std::unordered_map<std::string_view, int32_t>;

struct Encoding {
    TextEncoder encode;
    bool add_bos, add_eos;  // where the file does not say
    bool space_prefix = false;
};

// One row per family.
struct Family {
    std::string_view model;                                         // tokenizer.ggml.model
    bool needs_types, needs_scores;                                 // cannot work without token_type, scores
    bool reads_spaces;                                              // U+2581 in a text is a space from the start
    std::string (*bytes)(std::string_view stored, TokenType type);  // of a token that is not silent
    Encoding (*encoding)(const Vocabulary &v, const TokenIds &ids);
};

template <class Model>
TextEncoder encoder(std::shared_ptr<const Model> model) {
    return [model](std::string_view text, std::vector<int32_t> &out) { return model->encode(text, out); };
}

std::string byte_level_bytes(std::string_view stored, TokenType type) {
    return type == TokenType::user_defined ? std::string(stored) : byte_level_decode(stored);
}

Encoding byte_level_bpe(const Vocabulary &v, const TokenIds &ids) {
    const auto bpe = std::make_shared<const Bpe>(v, ids);
    return {.encode = encoder(bpe), .add_bos = bpe->row().add_bos, .add_eos = false};
}

// The name of a byte token has been checked (see fallback.h).
std::string sentencepiece_bytes(std::string_view stored, TokenType type) {
    return type == TokenType::byte ? std::string(1, static_cast<char>(*byte_of_name(stored))) : with_spaces(stored);
}

Encoding sentencepiece_bpe(const Vocabulary &v, const TokenIds &ids) {
    const auto spm = std::make_shared<const SentencePieceBpe>(v, ids, SentencePieceBpe::Order::by_score,
                                                              Spaces{.add_prefix = true, .remove_extra = false});
    return {.encode = encoder(spm), .add_bos = true, .add_eos = false, .space_prefix = spm->adds_prefix()};
}

Encoding listed_bpe(const Vocabulary &v, const TokenIds &ids) {
    const auto spm = std::make_shared<const SentencePieceBpe>(v, ids, SentencePieceBpe::Order::by_list,
                                                              Spaces{.add_prefix = false, .remove_extra = false});
    return {.encode = encoder(spm), .add_bos = true, .add_eos = false, .space_prefix = spm->adds_prefix()};
}

Encoding unigram(const Vocabulary &v, const TokenIds &) {
    const auto model = std::make_shared<const Unigram>(v, Spaces{.add_prefix = true, .remove_extra = true});
    return {.encode = encoder(model), .add_bos = false, .add_eos = true, .space_prefix = model->adds_prefix()};
}

constexpr std::array kFamilies{
    Family{"gpt2", false, false, false, byte_level_bytes, byte_level_bpe},
    Family{"llama", true, true, true, sentencepiece_bytes, sentencepiece_bpe},
    Family{"gemma4", true, false, false, sentencepiece_bytes, listed_bpe},
    Family{"t5", true, true, false, sentencepiece_bytes, unigram},
};

const Family &family_of(const Vocabulary &v) {
    const auto family = std::ranges::find(kFamilies, v.model, &Family::model);
    if (family == kFamilies.end()) {
        std::vector<std::string_view> known;
        for (const Family &f : kFamilies) known.push_back(f.model);
        fail(ErrorKind::unsupported,
             "{}: unknown tokenizer '{}' (tokenizer.ggml.model); known: {}. Override with --tokenizer FAMILY", v.origin,
             gguf::printable(v.model), fmt::join(known, ", "));
    }
    return *family;
}

// Tokens that end an answer though no key names them. Some files have those of chats as user-defined, which would let
// a user's text become them; where `is_control` they count as control tokens all the same. The other names mean
// something else in some vocabulary (to Gemma, </s> is the HTML tag), so the file must say that they are control
// tokens.
struct EndName {
    std::string_view name;
    bool is_control;
};
constexpr EndName kEndNames[] = {
    {"<|im_end|>", true},             // ChatML
    {"<|eot_id|>", true},             // Llama 3
    {"<|eom_id|>", true},             //
    {"<|eot|>", true},                // Llama 4
    {"<|eom|>", true},                //
    {"<|end|>", true},                // Phi-3
    {"<end_of_turn>", true},          // Gemma 2, 3
    {"<turn|>", true},                // Gemma 4
    {"<|tool_response>", true},       //
    {"<|end_of_text|>", true},        // Granite
    {"<|endoftext|>", true},          // GPT-2
    {"<|return|>", true},             // gpt-oss
    {"<|call|>", true},               //
    {"<|calls|>", true},              // Solar
    {"<|flush|>", true},              //
    {"<end_of_utterance>", true},     // SmolVLM
    {"<｜end▁of▁sentence｜>", true},  // DeepSeek
    {"<|END_OF_TURN_TOKEN|>", true},  // Command R
    {"[e~[", false},                  // MiniMax
    {"[EOT]", false},                 // Kimi K2
    {"[EOS]", false},                 //
    {"<EOT>", false},
    {"</s>", false},
    {"<eos>", false},
    {"<|fim_pad|>", false},  // Qwen Coder: nothing sensible follows these in an answer
    {"<|repo_name|>", false},
    {"<|file_sep|>", false},
};

// Throws where the arrays of the vocabulary do not fit together.
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
        if (v.tokens[id].size() > Tokenizer::kLongestToken) {
            fail(ErrorKind::limit, "{}: {}[{}] has {} bytes; a token may have {} at most", v.origin, kKey, id,
                 v.tokens[id].size(), Tokenizer::kLongestToken);
        }
        if (v.tokens[id].empty()) continue;  // some files fill up the table with these
        const auto [other, added] = ids.try_emplace(v.tokens[id], static_cast<int32_t>(id));
        if (!added) {
            fail(ErrorKind::file, "{}: {}[{}] and [{}] are the same, '{}'", v.origin, kKey, other->second, id,
                 gguf::printable(v.tokens[id]));
        }
    }
    return ids;
}

void check_family(const Vocabulary &v, const Family &family) {
    if (family.needs_types && v.types.empty()) {
        fail(ErrorKind::file,
             "{}: tokenizer.ggml.token_type is missing; without it the family '{}' cannot tell text from bytes and "
             "control tokens",
             v.origin, family.model);
    }
    if (!family.needs_scores) return;
    constexpr std::string_view kKey = "tokenizer.ggml.scores";
    if (v.scores.empty()) {
        fail(ErrorKind::file, "{}: {} is missing or empty; the family '{}' cannot work without", v.origin, kKey,
             family.model);
    }
    if (v.scores.size() != v.tokens.size()) {
        fail(ErrorKind::file, "{}: {} has {} entries, but tokenizer.ggml.tokens has {}", v.origin, kKey,
             v.scores.size(), v.tokens.size());
    }
    const auto bad = std::ranges::find_if(v.scores, [](float score) { return !std::isfinite(score); });
    if (bad != v.scores.end()) {
        fail(ErrorKind::file, "{}: {}[{}] is {}; scores are finite numbers", v.origin, kKey, bad - v.scores.begin(),
             *bad);
    }
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

// The ids of tokens that are control tokens though the file says user-defined.
std::vector<size_t> mistyped(const Vocabulary &v, const TokenIds &ids) {
    std::vector<size_t> found;
    for (const EndName &end : kEndNames) {
        const auto token = ids.find(end.name);
        if (!end.is_control || v.types.empty() || token == ids.end()) continue;
        if (v.types[token->second] == TokenType::user_defined) found.push_back(token->second);
    }
    return found;
}

// Phi-3 was published with tokens that take the white space after them with them (`rstrip`), which no key of a file
// says. Its vocabulary is known by two of them.
std::vector<int32_t> strips_after(const Vocabulary &v, const TokenIds &ids) {
    std::vector<int32_t> strips;
    if (v.model != "llama" || !ids.contains("<|placeholder1|>") || !ids.contains("<|assistant|>")) return strips;
    for (size_t id = 0; id < v.tokens.size(); ++id) {
        const std::string_view name = v.tokens[id];
        if (v.types[id] != TokenType::control && v.types[id] != TokenType::user_defined) continue;
        if (name != "<unk>" && name != "<s>" && name != "<|endoftext|>") strips.push_back(static_cast<int32_t>(id));
    }
    return strips;
}

// White space as Unicode has it.
std::string_view without_leading_space(std::string_view text) {
    constexpr std::string_view kSpaces[] = {"\t",     "\n",     "\v",     "\f",     "\r",     " ",      "\u0085",
                                            "\u00A0", "\u1680", "\u2000", "\u2001", "\u2002", "\u2003", "\u2004",
                                            "\u2005", "\u2006", "\u2007", "\u2008", "\u2009", "\u200A", "\u2028",
                                            "\u2029", "\u202F", "\u205F", "\u3000"};
    for (;;) {
        const auto *space = std::ranges::find_if(kSpaces, [&](std::string_view s) { return text.starts_with(s); });
        if (space == std::end(kSpaces)) return text;
        text.remove_prefix(space->size());
    }
}

}  // namespace

std::unique_ptr<Tokenizer> Tokenizer::from(const Vocabulary &v) {
    const Family &family = family_of(v);
    const TokenIds ids = ids_by_text(v);
    check_family(v, family);
    check_id(v, "bos_token_id", v.bos);
    check_id(v, "eos_token_id", v.eos);
    check_id(v, "eot_token_id", v.eot);
    check_id(v, "eom_token_id", v.eom);
    check_id(v, "fim_pad_token_id", v.fim_pad);
    check_id(v, "fim_rep_token_id", v.fim_rep);
    check_id(v, "fim_sep_token_id", v.fim_sep);
    if (const auto wrong = mistyped(v, ids); !wrong.empty()) {
        Vocabulary corrected = v;
        for (const size_t id : wrong) corrected.types[id] = TokenType::control;
        return from(corrected);
    }

    std::unique_ptr<Tokenizer> t(new Tokenizer);
    const Encoding encoding = family.encoding(v, ids);
    t->encode_text_ = encoding.encode;
    t->space_prefix_ = encoding.space_prefix;
    t->reads_spaces_ = family.reads_spaces;
    t->bos_ = v.bos;
    t->eos_ = v.eos;
    t->add_bos_ = v.add_bos.value_or(encoding.add_bos);
    t->add_eos_ = v.add_eos.value_or(encoding.add_eos);
    if (t->add_bos_ && !v.bos) {
        fail(ErrorKind::file, "{}: a BOS token is to be added, but tokenizer.ggml.bos_token_id is absent", v.origin);
    }
    if (t->add_eos_ && !v.eos) {
        fail(ErrorKind::file, "{}: an EOS token is to be added, but tokenizer.ggml.eos_token_id is absent", v.origin);
    }

    t->types_ = v.types.empty() ? std::vector<TokenType>(v.tokens.size(), TokenType::normal) : v.types;
    t->pieces_.reserve(v.tokens.size());
    for (size_t id = 0; id < v.tokens.size(); ++id) {
        const TokenType type = t->types_[id];
        t->pieces_.push_back(is_silent(type) ? v.tokens[id] : family.bytes(v.tokens[id], type));
    }
    t->strips_after_ = strips_after(v, ids);
    t->index_names();
    t->find_ends(v);
    return t;
}

bool Tokenizer::is_found_as_text(int32_t id) const {
    return types_[id] == TokenType::control || types_[id] == TokenType::unknown ||
           types_[id] == TokenType::user_defined;
}

void Tokenizer::index_names() {
    std::vector<Trie::Entry> user_defined, special;
    for (int32_t id = 0; id < size(); ++id) {
        if (!is_found_as_text(id) || pieces_[id].empty()) continue;
        special.push_back({pieces_[id], id});
        if (types_[id] == TokenType::user_defined) user_defined.push_back({pieces_[id], id});
    }
    special_ = Trie(std::move(special));
    user_defined_ = Trie(std::move(user_defined));
}

void Tokenizer::find_ends(const Vocabulary &v) {
    for (const auto &id : {v.eos, v.eot, v.eom, v.fim_pad, v.fim_rep, v.fim_sep}) {
        if (id) ends_.push_back(*id);
    }
    for (const EndName &end : kEndNames) {
        const auto id = named(end.name);
        if (id && type(*id) == TokenType::control) ends_.push_back(*id);
    }
    // In the format of gpt-oss and Solar <|end|> ends one message of an answer, and these end the answer.
    if (named("<|return|>") || named("<|flush|>")) {
        const auto end_of_message = named("<|end|>");
        if (end_of_message) std::erase(ends_, *end_of_message);
    }
    std::ranges::sort(ends_);
}

// Text between control tokens collects in `stretch`, over the borders of segments, and is encoded when one ends it.
struct Tokenizer::Progress {
    std::string stretch;
    std::vector<int32_t> ids;
    size_t without_token = 0;
};

// `text` begins where the text does, or after a token that was found.
void Tokenizer::encode_plain(std::string_view text, Progress &progress) const {
    const bool strips = !progress.ids.empty() && std::ranges::binary_search(strips_after_, progress.ids.back());
    if (strips) text = without_leading_space(text);
    progress.without_token += encode_text_(text, progress.ids);
}

void Tokenizer::end_stretch(Progress &progress) const {
    const std::string stretch = reads_spaces_ ? with_spaces(progress.stretch) : std::move(progress.stretch);
    progress.stretch.clear();
    const std::string_view text = stretch;
    size_t plain = 0;  // where the text not yet encoded starts
    for (size_t at = 0; at < text.size();) {
        const Trie::Match match = user_defined_.longest(text.substr(at));
        if (match.length == 0) {
            ++at;
            continue;
        }
        encode_plain(text.substr(plain, at - plain), progress);
        progress.ids.push_back(match.value);
        at += match.length;
        plain = at;
    }
    encode_plain(text.substr(plain), progress);
}

void Tokenizer::add_text(std::string_view text, bool parse_special, Progress &progress) const {
    size_t rest = 0;  // where the text that is not yet in `stretch` starts
    for (size_t at = 0; parse_special && at < text.size();) {
        const Trie::Match match = special_.longest(text.substr(at));
        if (match.length > 0 && types_[match.value] != TokenType::user_defined) {
            progress.stretch.append(text.substr(rest, at - rest));
            end_stretch(progress);
            progress.ids.push_back(match.value);
            rest = at + match.length;
        }
        at += std::max<size_t>(match.length, 1);
    }
    progress.stretch.append(text.substr(rest));
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, EncodeOptions options, size_t *without_token) const {
    Progress progress;
    add_text(text, options.parse_special, progress);
    end_stretch(progress);
    if (without_token != nullptr) *without_token = progress.without_token;
    std::vector<int32_t> &ids = progress.ids;
    if (options.add_special) {
        if (add_bos_ && (ids.empty() || ids.front() != *bos_)) ids.insert(ids.begin(), *bos_);
        if (add_eos_ && (ids.empty() || ids.back() != *eos_)) ids.push_back(*eos_);
    }
    return std::move(ids);
}

std::vector<int32_t> Tokenizer::encode(std::span<const Segment> segments, size_t *without_token) const {
    Progress progress;
    for (const Segment &segment : segments) add_text(segment.text, segment.is_template, progress);
    end_stretch(progress);
    if (without_token != nullptr) *without_token = progress.without_token;
    return std::move(progress.ids);
}

bool Tokenizer::has_control_tokens() const { return std::ranges::find(types_, TokenType::control) != types_.end(); }

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
    bool prefixed = space_prefix_;  // whether a stretch of plain text starts here
    for (const int32_t id : ids) {
        std::string_view bytes = piece(id, special);
        // An unknown token mostly stands inside such a stretch.
        const bool found = is_found_as_text(id) && types_[id] != TokenType::unknown;
        if (prefixed && !found && bytes.starts_with(' ')) bytes.remove_prefix(1);
        text += bytes;
        prefixed = space_prefix_ && found;
    }
    return text;
}

bool Tokenizer::is_end(int32_t id) const { return std::ranges::binary_search(ends_, id); }

std::optional<int32_t> Tokenizer::named(std::string_view name) const {
    const Trie::Match match = special_.longest(name);
    if (match.length != name.size() || name.empty()) return std::nullopt;
    return match.value;
}

}  // namespace ridge::text
