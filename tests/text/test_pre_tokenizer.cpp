// The pre-tokenizers against the published ones over the corpus, and on text that is not UTF-8 or very long.
#include "text/pre_tokenizer.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <set>

#include "core/error.h"
#include "core/utf8.h"
#include "gguf/printable.h"
#include "text/reference.h"

namespace ridge::text {
namespace {

std::vector<std::string_view> split(const PreTokenizer &pre, std::string_view text) {
    std::vector<std::string_view> pieces;
    pre.split(text, pieces);
    return pieces;
}

std::string joined(const std::vector<std::string_view> &pieces) {
    std::string text;
    for (const auto piece : pieces) text += piece;
    return text;
}

std::string hash_of_pieces(const PreTokenizer &pre, std::string_view text) {
    std::vector<int32_t> lengths;
    for (const auto piece : split(pre, text)) lengths.push_back(static_cast<int32_t>(piece.size()));
    return testing::hash_of(lengths);
}

// One text with each of these characters beside letters, digits, spaces and itself.
std::string text_of_characters(const nlohmann::json &reference, const std::vector<uint32_t> &left_out) {
    const std::string around = reference.at("around");
    std::string text;
    for (const auto &range : reference.at("characters")) {
        for (uint32_t c = range.at(0); c <= range.at(1).get<uint32_t>(); ++c) {
            if (std::ranges::find(left_out, c) != left_out.end()) continue;
            for (size_t at = 0; at < around.size(); ++at) {
                if (around[at] == '%') {
                    append_utf8(text, c);
                    ++at;
                } else {
                    text += around[at];
                }
            }
        }
    }
    return text;
}

TEST(PreTokenizer, EveryRowAgreesWithTheReference) {
    const auto reference = testing::data("tokenizer_pieces.json");
    const auto corpus = testing::corpus();
    // Falcon and Chameleon take punctuation from a table of Unicode 8.
    const std::vector<uint32_t> newer = reference.at("punctuation_after_unicode_8");
    const std::string all = text_of_characters(reference, {});
    const std::string older = text_of_characters(reference, newer);
    EXPECT_GT(all.size(), 500'000u);
    size_t compared = 0;
    for (const auto &row : pre_tokenizer_rows()) {
        const std::string name(row.names.front());
        ASSERT_TRUE(reference.at("rows").contains(name)) << name;
        const auto hashes = testing::words(reference.at("rows").at(name));
        const PreTokenizer pre(name, "test");
        const bool old_table = name == "falcon" || name == "chameleon";
        EXPECT_EQ(hash_of_pieces(pre, old_table ? older : all), hashes.at(0)) << name << ": all characters";
        size_t at = 1;
        for (const auto &c : corpus) {
            if (!c.has_reference) continue;
            EXPECT_EQ(hash_of_pieces(pre, c.bytes), hashes.at(at++))
                << name << ": " << c.name << ": " << fmt::format("'{}'", fmt::join(split(pre, c.bytes), "' '"));
            ++compared;
        }
        EXPECT_EQ(at, hashes.size());
    }
    EXPECT_EQ(reference.at("rows").size(), pre_tokenizer_rows().size());
    EXPECT_GE(compared, 29u * 400);
    std::cout << compared << " texts cut as by the published pre-tokenizers, by " << pre_tokenizer_rows().size()
              << " of them\n";
}

TEST(PreTokenizer, EveryNameGivesItsRowAndEveryRowKeepsEveryByte) {
    const auto cases = testing::corpus();
    std::set<std::string_view> names;
    for (const auto &row : pre_tokenizer_rows()) {
        for (const auto name : row.names) {
            EXPECT_TRUE(names.insert(name).second) << name;
            EXPECT_EQ(&PreTokenizer(name, "test").row(), &row);
        }
        const PreTokenizer pre(row.names.front(), "test");
        for (const auto &c : cases) EXPECT_EQ(joined(split(pre, c.bytes)), c.bytes) << c.name;
    }
    EXPECT_GE(names.size(), 80u);
}

TEST(PreTokenizer, BytePatternsCutWithinACharacter) {
    // The second byte of U+043C is BC, which the byte alphabet writes as a number.
    const std::vector<std::string_view> expected{"\xD0", "\xBC", " \xD0", "\xBC", "123", "4"};
    EXPECT_EQ(split(PreTokenizer("falcon", "test"), "\u043c \u043c1234"), expected);
}

TEST(PreTokenizer, DigitsAreCutFromTheirEnd) {
    using Pieces = std::vector<std::string_view>;
    EXPECT_EQ(split(PreTokenizer("superbpe", "test"), "a1234567b12"), (Pieces{"a", "1", "234", "567", "b", "12"}));
    EXPECT_EQ(split(PreTokenizer("afmoe", "test"), "12345a"), (Pieces{"12", "345", "a"}));
    EXPECT_EQ(split(PreTokenizer("tiny_aya", "test"), "12345 12345a"), (Pieces{"12", "345", " ", "123", "45", "a"}));
}

TEST(PreTokenizer, InvalidBytesArePiecesOfTheirOwn) {
    const PreTokenizer pre("gpt-2", "test");
    const std::vector<std::string_view> expected{"ab", " cd", "\xFF\xC0", "ef", " ", "\xF0\x9F", "!"};
    EXPECT_EQ(split(pre,
                    "ab cd\xFF\xC0"
                    "ef \xF0\x9F!"),
              expected);
}

TEST(PreTokenizer, LaterStagesSeeOnlyTheirPiece) {
    // The digit ends a piece, so the spaces before it do not leave one to it.
    const std::vector<std::string_view> smollm{"a", "  ", "1", "2", "  ", " b"};
    EXPECT_EQ(split(PreTokenizer("smollm", "test"), "a  12   b"), smollm);
    const std::vector<std::string_view> gpt2{"a", " ", " 12", "  ", " b"};
    EXPECT_EQ(split(PreTokenizer("gpt-2", "test"), "a  12   b"), gpt2);
}

TEST(PreTokenizer, UnknownNamesAreErrorsThatListTheKnown) {
    for (const std::string_view name : {"default", "qwen", "Smollm", ""}) {
        try {
            PreTokenizer pre(name, "model.gguf");
            FAIL() << name;
        } catch (const Error &e) {
            EXPECT_EQ(e.kind(), ErrorKind::unsupported);
            const std::string what = e.what();
            EXPECT_TRUE(what.starts_with("model.gguf: ")) << what;
            for (const auto *part : {"smollm", "qwen2", "llama-bpe", "gpt-2", "--pre NAME", "tokenizer.ggml.pre"}) {
                EXPECT_NE(what.find(part), std::string::npos) << what;
            }
            if (name.empty()) continue;
            EXPECT_NE(what.find("'" + std::string(name) + "'"), std::string::npos) << what;
        }
    }
}

std::string repeated(std::string_view part, size_t size) {
    std::string text;
    while (text.size() < size) text += part;
    return text;
}

// In processor time, of which quadratic time would take a hundred times as much. An error (the pattern matcher's
// limits) fails the test.
TEST(PreTokenizer, LongRunsTakeLinearTime) {
    const size_t n = 100'000;
    std::vector<std::string> texts{
        repeated("The word 12 \u4e2d\u6587 \u0645\u0631\u062d\u0628\u0627 x'll =+=\r\n", 1 << 20)};
    for (const auto *part :
         {"a",           "A",       "7",      "=",      "/",      "<",        "'",       " ",
          "\t",          "\n",      "\r\n",   "\u00a0", "\u3000", "\u4e2d",   "\ud55c",  "\u0e01",
          "\u0301",      "\u0903",  "\u0663", "\u00bd", "\u2167", "\u01c5",   "\u02b0",  "\U0001f600",
          "\ue000",      "\xFF",    "aA",     "a ",     "  a",    "a\u0301 ", "A\u0301", "1a",
          "12 ",         "\u00b21", " \n",    " \n x",  "=\n",    "=\n ",     "a\xFF",   "word 12 \n\t x'll  =+=\r\n",
          "<sentinel:1", "IMGIMGA"}) {
        texts.push_back(repeated(part, n));
    }
    // Runs that do not end as the pattern wants them to, once and again and again.
    for (const size_t run : {n, size_t{1000}}) {
        for (const auto &[part, end] : {std::pair{" ", "x"}, {" ", "\u4e2d"}, {"7", "a"}, {"A", "1"}, {"\n", "x"}}) {
            texts.push_back(repeated(repeated(part, run) + end, n));
        }
    }
    std::string slowest;
    double seconds = 0;
    for (const auto &row : pre_tokenizer_rows()) {
        const PreTokenizer pre(row.names.front(), "test");
        for (const std::string &text : texts) {
            const testing::ProcessorTime time;
            size_t bytes = 0;
            for (const auto piece : split(pre, text)) bytes += piece.size();
            EXPECT_EQ(bytes, text.size());
            const double megabytes = static_cast<double>(text.size()) / (1 << 20);
            const double taken = time.seconds() / megabytes;
            EXPECT_LT(taken, 20) << row.names.front() << ": " << text.substr(0, 12);
            if (taken > seconds) {
                seconds = taken;
                slowest = fmt::format("{}: {:.2f} s for a megabyte of '{}'", row.names.front(), seconds,
                                      gguf::printable(text.substr(0, 12)));
            }
        }
    }
    std::cout << "the slowest: " << slowest << "\n";
}

}  // namespace
}  // namespace ridge::text
