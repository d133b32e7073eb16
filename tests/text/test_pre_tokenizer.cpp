// The pre-tokenizers against `tokenizers` (Oniguruma) over the corpus, and on text that is not UTF-8 or very long.
#include "text/pre_tokenizer.h"

#include <gtest/gtest.h>

#include <chrono>

#include "core/error.h"
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

TEST(PreTokenizer, AgreesWithTheReference) {
    const auto reference = testing::data("tokenizer_pieces.json");
    size_t compared = 0;
    for (const auto &[name, lengths_by_case] : reference.items()) {
        const PreTokenizer pre(name, "test");
        for (const auto &c : testing::corpus()) {
            if (!c.has_reference) continue;
            std::vector<size_t> lengths;
            for (const auto piece : split(pre, c.bytes)) lengths.push_back(piece.size());
            EXPECT_EQ(lengths, lengths_by_case.at(c.name).get<std::vector<size_t>>()) << name << ": " << c.name;
            ++compared;
        }
    }
    EXPECT_GE(compared, 4u * 75);
}

TEST(PreTokenizer, EveryRowHasAReferenceAndKeepsEveryByte) {
    const auto cases = testing::corpus();
    ASSERT_GE(cases.size(), 80u);
    const auto reference = testing::data("tokenizer_pieces.json");
    for (const auto &row : pre_tokenizer_rows()) {
        EXPECT_TRUE(reference.contains(row.names.front())) << row.names.front();
        for (const auto name : row.names) {
            const PreTokenizer pre(name, "test");
            EXPECT_EQ(&pre.row(), &row);
            for (const auto &c : cases) EXPECT_EQ(joined(split(pre, c.bytes)), c.bytes) << c.name;
        }
    }
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

// Quadratic time on a megabyte would take minutes, whatever the machine.
TEST(PreTokenizer, LongRunsTakeLinearTime) {
    const size_t n = 1 << 20;
    std::string mixed;
    while (mixed.size() < n) mixed += "word 12 \n\t x'll  =+=\r\n";
    for (const auto &row : pre_tokenizer_rows()) {
        const PreTokenizer pre(row.names.front(), "test");
        for (const std::string &text :
             {std::string(n, 'a'), std::string(n, ' '), std::string(n, '\n'), std::string(n, '='), std::string(n, '7'),
              std::string(n, ' ') + "x", std::string(n, '\xFF'), mixed}) {
            const auto start = std::chrono::steady_clock::now();
            size_t bytes = 0;
            for (const auto piece : split(pre, text)) bytes += piece.size();
            EXPECT_EQ(bytes, text.size());
            EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10))
                << row.names.front() << text[0];
        }
    }
}

}  // namespace
}  // namespace ridge::text
