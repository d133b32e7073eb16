// Vocabularies from GGUF files: what is read, and what is refused.
#include "text/vocabulary.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>

#include "core/error.h"
#include "gguf/gguf.h"
#include "text/reference.h"
#include "text/tokenizer.h"

namespace ridge::text {
namespace {

class VocabularyFile : public ::testing::Test {
  protected:
    std::filesystem::path path_ =
        std::filesystem::temp_directory_path() / ("ridge_vocabulary_" + std::to_string(getpid()) + ".gguf");
    ~VocabularyFile() override { std::filesystem::remove(path_); }

    gguf::File write(const std::function<void(gguf::Writer &)> &fill) {
        gguf::Writer writer;
        fill(writer);
        writer.write(path_, [](size_t, uint64_t, std::span<std::byte>) {});
        return gguf::File::open(path_);
    }
    std::string error_of(const std::function<void(gguf::Writer &)> &fill) {
        const auto file = write(fill);
        try {
            Tokenizer::from(vocabulary_from_gguf(file));
        } catch (const Error &e) {
            EXPECT_EQ(e.kind(), ErrorKind::file);
            return e.what();
        }
        return "no error";
    }
};

const std::vector<std::string> kTokens{"a", "b", "ab", "<s>"};
const std::vector<std::string> kMerges{"a b"};
const std::vector<int32_t> kTypes{1, 1, 1, 3};

void add_all(gguf::Writer &w) {
    w.add_string("tokenizer.ggml.model", "gpt2");
    w.add_string("tokenizer.ggml.pre", "smollm");
    w.add_strings("tokenizer.ggml.tokens", kTokens);
    w.add_i32s("tokenizer.ggml.token_type", kTypes);
    w.add_strings("tokenizer.ggml.merges", kMerges);
}

TEST_F(VocabularyFile, IsReadWhole) {
    const auto file = write([](gguf::Writer &w) {
        add_all(w);
        w.add_u32("tokenizer.ggml.bos_token_id", 3);
        w.add_u32("tokenizer.ggml.eos_token_id", 2);
        w.add_u32("tokenizer.ggml.eot_token_id", 1);
        w.add_i32("tokenizer.ggml.eom_token_id", 0);
        w.add_bool("tokenizer.ggml.add_bos_token", true);
        w.add_bool("tokenizer.ggml.add_eos_token", false);
    });
    const Vocabulary v = vocabulary_from_gguf(file);
    EXPECT_EQ(v.origin, path_.string());
    EXPECT_EQ(v.model, "gpt2");
    EXPECT_EQ(v.pre, "smollm");
    EXPECT_EQ(v.tokens, kTokens);
    EXPECT_EQ(v.merges, kMerges);
    EXPECT_EQ(v.types.back(), TokenType::control);
    EXPECT_EQ(v.bos, 3);
    EXPECT_EQ(v.eos, 2);
    EXPECT_EQ(v.eot, 1);
    EXPECT_EQ(v.eom, 0);
    EXPECT_EQ(v.add_bos, true);
    EXPECT_EQ(v.add_eos, false);
    EXPECT_EQ(Tokenizer::from(v)->encode("ab"), (std::vector<int32_t>{3, 2}));
    EXPECT_EQ(vocabulary_from_gguf(file, "qwen2").pre, "qwen2");
}

TEST_F(VocabularyFile, WhatSentencePieceNeedsIsRead) {
    const std::vector<float> scores{0, -1, -2.5, 0};
    const auto file = write([&](gguf::Writer &w) {
        add_all(w);
        w.add_floats("tokenizer.ggml.scores", scores);
        w.add_u32("tokenizer.ggml.bos_token_id", 3);
        w.add_u32("tokenizer.ggml.unknown_token_id", 2);
        w.add_u32("tokenizer.ggml.fim_pad_token_id", 1);
        w.add_u32("tokenizer.ggml.fim_rep_token_id", 0);
        w.add_u32("tokenizer.ggml.fim_sep_token_id", 3);
        w.add_bool("tokenizer.ggml.add_space_prefix", false);
        w.add_bool("tokenizer.ggml.remove_extra_whitespaces", true);
        const std::byte bytes[] = {std::byte{'a'}, std::byte{0}, std::byte{255}};
        w.add_value("tokenizer.ggml.precompiled_charsmap",
                    {.type = gguf::Type::array, .element = gguf::Type::u8, .count = 3, .data = bytes, .bytes = 3});
    });
    Vocabulary v = vocabulary_from_gguf(file);
    EXPECT_EQ(v.scores, scores);
    EXPECT_EQ(v.unknown, 2);
    EXPECT_EQ(v.fim_pad, 1);
    EXPECT_EQ(v.fim_rep, 0);
    EXPECT_EQ(v.fim_sep, 3);
    EXPECT_EQ(v.add_space_prefix, false);
    EXPECT_EQ(v.remove_extra_spaces, true);
    EXPECT_EQ(v.charsmap, std::string("a\0\xFF", 3));

    // The family may be overridden: now the higher score decides, and not the list of merges.
    v = vocabulary_from_gguf(file, {}, "llama");
    EXPECT_EQ(v.model, "llama");
    v.charsmap.clear();
    EXPECT_EQ(Tokenizer::from(v)->encode("ab"), (std::vector<int32_t>{3, 2}));
    v = vocabulary_from_gguf(file, {}, "wordpiece");
    EXPECT_THROW(Tokenizer::from(v), Error);
}

TEST_F(VocabularyFile, OptionalKeysMayBeAbsent) {
    const auto file = write([](gguf::Writer &w) {
        w.add_string("tokenizer.ggml.model", "gpt2");
        w.add_strings("tokenizer.ggml.tokens", kTokens);
        w.add_strings("tokenizer.ggml.merges", kMerges);
    });
    const Vocabulary v = vocabulary_from_gguf(file, "gpt-2");
    EXPECT_TRUE(v.types.empty());
    EXPECT_TRUE(v.scores.empty() && v.charsmap.empty());
    EXPECT_FALSE(v.bos || v.eos || v.eot || v.eom || v.unknown || v.fim_pad || v.fim_rep || v.fim_sep);
    EXPECT_FALSE(v.add_bos || v.add_eos || v.add_space_prefix || v.remove_extra_spaces);
    EXPECT_EQ(Tokenizer::from(v)->encode("aab"), (std::vector<int32_t>{0, 2}));
}

TEST_F(VocabularyFile, ErrorsNameFileAndKey) {
    const auto expect = [&](const std::string &what, const std::vector<std::string> &parts) {
        EXPECT_NE(what.find(path_.string()), std::string::npos) << what;
        for (const auto &part : parts) EXPECT_NE(what.find(part), std::string::npos) << what;
    };
    expect(error_of([](auto &) {}), {"tokenizer.ggml.model"});
    expect(error_of([](auto &w) { w.add_u32("tokenizer.ggml.model", 1); }), {"tokenizer.ggml.model", "string"});
    expect(error_of([](auto &w) { w.add_string("tokenizer.ggml.model", "gpt2"); }), {"tokenizer.ggml.tokens"});
    expect(error_of([](auto &w) {
               w.add_string("tokenizer.ggml.model", "gpt2");
               w.add_i32s("tokenizer.ggml.tokens", kTypes);
           }),
           {"tokenizer.ggml.tokens", "array of strings"});
    expect(error_of([](auto &w) {
               w.add_string("tokenizer.ggml.model", "gpt2");
               w.add_strings("tokenizer.ggml.tokens", kTokens);
               w.add_strings("tokenizer.ggml.token_type", kTokens);
           }),
           {"tokenizer.ggml.token_type", "array of integers"});
    expect(error_of([](auto &w) {
               add_all(w);
               w.add_i32s("tokenizer.ggml.scores", kTypes);
           }),
           {"tokenizer.ggml.scores", "array of numbers"});
    expect(error_of([](auto &w) {
               add_all(w);
               w.add_strings("tokenizer.ggml.precompiled_charsmap", kTokens);
           }),
           {"tokenizer.ggml.precompiled_charsmap", "array of bytes"});
    for (const int32_t bad : {0, 7, -1}) {
        expect(error_of([&](auto &w) {
                   w.add_string("tokenizer.ggml.model", "gpt2");
                   w.add_i32s("tokenizer.ggml.token_type", std::vector<int32_t>{1, bad});
               }),
               {"tokenizer.ggml.token_type[1] is " + std::to_string(bad), "1 to 6"});
    }
    expect(error_of([](auto &w) {
               add_all(w);
               w.add_u32("tokenizer.ggml.eos_token_id", 4);
           }),
           {"tokenizer.ggml.eos_token_id is 4", "4 entries"});
    expect(error_of([](auto &w) {
               add_all(w);
               w.add_u64("tokenizer.ggml.bos_token_id", uint64_t{1} << 32);  // not 0
           }),
           {"tokenizer.ggml.bos_token_id is 4294967296", "31 bits"});
    expect(error_of([](auto &w) {
               add_all(w);
               w.add_i32("tokenizer.ggml.bos_token_id", -1);
           }),
           {"tokenizer.ggml.bos_token_id"});
    expect(error_of([](auto &w) {
               add_all(w);
               w.add_string("tokenizer.ggml.add_bos_token", "yes");
           }),
           {"tokenizer.ggml.add_bos_token"});
}

}  // namespace
}  // namespace ridge::text
