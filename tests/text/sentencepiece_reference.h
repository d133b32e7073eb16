// The recorded reference of tests/data/sentencepiece.json (tools/make_sentencepiece_reference.py), and vocabularies of
// the SentencePiece families that are written down by hand.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "text/reference.h"
#include "text/tokenizer.h"
#include "text/vocabulary.h"

namespace ridge::text::testing {

inline const nlohmann::json &sentencepiece() {
    static const nlohmann::json json = data("sentencepiece.json");
    return json;
}

inline Vocabulary sentencepiece_vocabulary(const std::string &name) {
    const nlohmann::json &json = sentencepiece().at(name);
    Vocabulary v;
    v.origin = "sentencepiece.json";
    v.model = json.at("family");
    v.tokens = json.at("tokens").get<std::vector<std::string>>();
    v.scores = json.at("scores").get<std::vector<float>>();
    for (const int type : json.at("types")) v.types.push_back(static_cast<TokenType>(type));
    v.bos = json.at("bos").get<int32_t>();
    v.eos = json.at("eos").get<int32_t>();
    v.unknown = json.at("unknown").get<int32_t>();
    v.add_space_prefix = json.at("add_space_prefix").get<bool>();
    v.remove_extra_spaces = json.at("remove_extra_whitespaces").get<bool>();
    v.charsmap = from_hex(json.at("charsmap"));
    return v;
}

// Compares every text of the reference; the number compared.
inline size_t compare_with_sentencepiece(const std::string &name) {
    const auto tokenizer = Tokenizer::from(sentencepiece_vocabulary(name));
    const nlohmann::json &texts = sentencepiece().at("texts");
    const nlohmann::json &ids = sentencepiece().at(name).at("ids");
    EXPECT_EQ(texts.size(), ids.size());
    for (size_t i = 0; i < texts.size(); ++i) {
        const auto text = texts[i].get<std::string>();
        EXPECT_EQ(tokenizer->encode(text, kPlain), ids[i].get<Ids>()) << name << " " << i << ": '" << text << "'";
    }
    return texts.size();
}

// Adds a token; its id.
inline int32_t add(Vocabulary &v, const std::string &token, float score, TokenType type = TokenType::normal) {
    v.tokens.push_back(token);
    v.scores.push_back(score);
    v.types.push_back(type);
    return static_cast<int32_t>(v.tokens.size()) - 1;
}

// <unk> 0, <s> 1, </s> 2, then the 256 bytes, then `pieces` from 259 on, each with a lower score.
inline Vocabulary spm_vocabulary(const std::vector<std::string> &pieces, const std::string &family = "llama") {
    Vocabulary v;
    v.origin = "spm";
    v.model = family;
    add(v, "<unk>", 0, TokenType::unknown);
    add(v, "<s>", 0, TokenType::control);
    add(v, "</s>", 0, TokenType::control);
    for (int byte = 0; byte < 256; ++byte) add(v, fmt::format("<0x{:02X}>", byte), 0, TokenType::byte);
    for (const std::string &piece : pieces) add(v, piece, -static_cast<float>(v.tokens.size()));
    v.bos = 1;
    v.eos = 2;
    return v;
}

// What the tokens are called, for messages that can be read.
inline std::vector<std::string> names(const Tokenizer &tokenizer, const Ids &ids) {
    std::vector<std::string> names;
    for (const int32_t id : ids) names.emplace_back(tokenizer.piece(id, true));
    return names;
}

}  // namespace ridge::text::testing
