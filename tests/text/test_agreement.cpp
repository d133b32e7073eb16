// Token-for-token agreement with published tokenizers, under the vocabularies of real models, over the corpus.
//
// One test for each vocabulary. The reference is the published tokenizer (`tokenizers`, `tiktoken`, `sentencepiece`);
// what llama.cpp makes of the same file was compared with it when the reference was made, and every difference of its
// own has a reason in tokenizer_ids.json. Texts that are not UTF-8 have no reference: their bytes must come back.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <optional>

#include "gguf/gguf.h"
#include "support/real_models.h"
#include "text/chat.h"
#include "text/reference.h"
#include "text/tokenizer.h"

namespace ridge::text {
namespace {

using testing::Ids;
using testing::kParsed;
using testing::kPlain;

constexpr const char *kVocabularies[] = {
    "SmolLM2-135M-Instruct.Q4_1.gguf",
    "Qwen2.5-Coder-0.5B-Instruct.Q4_K_M.gguf",
    "gemma-3-270m-q4_k_m.gguf",
    "vocabularies/deepseek-v4.gguf",
    "vocabularies/ggml-vocab-aquila.gguf",
    "vocabularies/ggml-vocab-baichuan.gguf",
    "vocabularies/ggml-vocab-command-r.gguf",
    "vocabularies/ggml-vocab-deepseek-coder.gguf",
    "vocabularies/ggml-vocab-deepseek-llm.gguf",
    "vocabularies/ggml-vocab-falcon.gguf",
    "vocabularies/ggml-vocab-gemma-4.gguf",
    "vocabularies/ggml-vocab-gpt-2.gguf",
    "vocabularies/ggml-vocab-gpt-neox.gguf",
    "vocabularies/ggml-vocab-llama-bpe.gguf",
    "vocabularies/ggml-vocab-llama-spm.gguf",
    "vocabularies/ggml-vocab-mpt.gguf",
    "vocabularies/ggml-vocab-nomic-bert-moe.gguf",
    "vocabularies/ggml-vocab-phi-3.gguf",
    "vocabularies/ggml-vocab-qwen2.gguf",
    "vocabularies/ggml-vocab-qwen35.gguf",
    "vocabularies/ggml-vocab-refact.gguf",
    "vocabularies/ggml-vocab-starcoder.gguf",
    "vocabularies/llama4.gguf",
    "vocabularies/mistral-tekken.gguf",
    "vocabularies/mistral-v1.gguf",
    "vocabularies/mistral-v3.gguf",
    "vocabularies/qwen3.6.gguf",
};

struct Agreement {
    size_t compared = 0, differences = 0;

    // `expected`: as `brief`, `full` all ids where the reference has them.
    void compare(const std::string &what, const std::string &vocabulary, const std::string &text, const Ids &ids,
                 const std::string &expected, const nlohmann::json &full) {
        ++compared;
        const auto all = full.find(text);
        if (testing::brief(ids) == expected && (all == full.end() || all->get<Ids>() == ids)) return;
        ++differences;
        if (differences > 10) return;
        ADD_FAILURE() << "'" << text << "', " << what << ": " << testing::brief(ids) << ", the reference has "
                      << expected << "; our ids: " << nlohmann::json(ids).dump()
                      << "\nthe reference's: tools/make_tokenizer_reference.py --show " << vocabulary << " '" << text
                      << "'";
    }
};

// `reference`: an entry of tokenizer_ids.json, or tokenizer_small.json.
Agreement compare_corpus(const Tokenizer &tokenizer, const nlohmann::json &reference, const std::string &vocabulary) {
    Agreement agreement;
    const auto plain = testing::words(reference.at("ids"));
    const auto none = nlohmann::json::object();
    const bool special = reference.contains("ids_with_special");
    const auto &parsed = special ? reference.at("ids_with_special") : none;
    const auto &full_parsed = special ? reference.at("full_with_special") : none;
    size_t at = 0;
    for (const auto &c : testing::corpus()) {
        if (!c.has_reference) continue;
        const std::string &expected = plain.at(at++);
        const nlohmann::json &full = reference.at("full");
        agreement.compare("plain", vocabulary, c.name, tokenizer.encode(c.bytes, kPlain), expected, full);
        if (!special) continue;
        const bool differs = parsed.contains(c.name);
        agreement.compare(
            "control tokens found", vocabulary, c.name, tokenizer.encode(c.bytes, kParsed),
            differs ? parsed.at(c.name).get<std::string>() : expected,
            full_parsed.contains(c.name) || !differs ? (full_parsed.contains(c.name) ? full_parsed : full) : none);
    }
    EXPECT_EQ(at, plain.size());
    return agreement;
}

// What a byte-level vocabulary has no token for is left out, and counted.
void expect_bytes_come_back(const Tokenizer &tokenizer) {
    for (const auto &c : testing::corpus()) {
        size_t without_token = 0;
        const std::string back = tokenizer.decode(tokenizer.encode(c.bytes, kPlain, &without_token));
        if (without_token == 0) {
            EXPECT_EQ(back, c.bytes) << c.name;
        } else {
            EXPECT_EQ(back.size() + without_token, c.bytes.size()) << c.name;
        }
    }
}

class Vocabularies : public ::testing::TestWithParam<const char *> {};

TEST_P(Vocabularies, AgreeWithThePublishedTokenizer) {
    const std::string name = GetParam();
    static const auto references = testing::data("tokenizer_ids.json");
    const auto &all = references.at("vocabularies");
    const auto reference = std::ranges::find_if(all, [&](const auto &r) { return r.at("file") == name; });
    ASSERT_NE(reference, all.end());
    const auto path = test::real_model(name);
    RIDGE_NEEDS_MODEL(path);
    const auto file = gguf::File::open(path);
    const auto v = vocabulary_from_gguf(file, reference->value("pre", ""));
    const auto tokenizer = Tokenizer::from(v);
    const Agreement agreement = compare_corpus(*tokenizer, *reference, name);
    EXPECT_EQ(agreement.differences, 0u);
    EXPECT_GE(agreement.compared, 400u);
    if (v.model == "gpt2") expect_bytes_come_back(*tokenizer);
    const auto &peer = reference->at("llama_cpp");
    std::cout << agreement.compared << " encodings compared with `" << reference->at("reference").get<std::string>()
              << "`, " << agreement.differences << " differences; llama.cpp agreed on " << peer.at("same")
              << " texts\n";
}

std::string test_name(const ::testing::TestParamInfo<const char *> &info) {
    std::string name = info.param;
    name = name.substr(name.find('/') + 1);
    std::ranges::replace_if(
        name, [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
    return name;
}

INSTANTIATE_TEST_SUITE_P(Agreement, Vocabularies, ::testing::ValuesIn(kVocabularies), test_name);

TEST(Agreement, EveryReferenceIsTested) {
    const auto references = testing::data("tokenizer_ids.json");
    EXPECT_EQ(references.at("vocabularies").size(), std::size(kVocabularies));
    for (const auto &r : references.at("vocabularies")) {
        const std::string file = r.at("file");
        EXPECT_NE(std::ranges::find(kVocabularies, file), std::end(kVocabularies)) << file;
        for (const auto &[reason, texts] : r.at("llama_cpp").at("differs").items()) {
            EXPECT_TRUE(references.at("reasons").contains(reason)) << file << ": " << reason;
        }
    }
}

TEST(Agreement, SmallVocabulary) {
    const auto tokenizer = Tokenizer::from(testing::small_vocabulary());
    const auto agreement = compare_corpus(*tokenizer, testing::data("tokenizer_small.json"), "small");
    EXPECT_EQ(agreement.differences, 0u);
    EXPECT_GE(agreement.compared, 800u);
    expect_bytes_come_back(*tokenizer);
}

TEST(Agreement, Conversations) {
    const auto references = testing::data("tokenizer_ids.json");
    const Json conversations = Json::parse(testing::read_data("tokenizer_chat.json")).at("conversations");
    size_t compared = 0;
    for (const auto &reference : references.at("vocabularies")) {
        if (!reference.contains("chat")) continue;
        const auto path = test::real_model(reference.at("file"));
        RIDGE_NEEDS_MODEL(path);
        const auto file = gguf::File::open(path);
        const auto tokenizer = Tokenizer::from(vocabulary_from_gguf(file));
        const ChatTemplate format(file.get_string("tokenizer.chat_template"), *tokenizer, path.string());
        ASSERT_EQ(reference.at("chat").size(), conversations.size());
        for (size_t i = 0; i < conversations.size(); ++i) {
            const auto &messages = conversations[i].at("messages");
            EXPECT_EQ(format.encode(*tokenizer, messages), reference.at("chat")[i].get<Ids>()) << path << ": " << i;
            ++compared;
        }
    }
    EXPECT_GE(compared, 2u * 17);
}

}  // namespace
}  // namespace ridge::text
