// SentencePiece unigram against `sentencepiece`, against all ways to cut a text, and its normalizer.
#include "text/unigram.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>

#include "text/sentencepiece_reference.h"

namespace ridge::text {
namespace {

using testing::add;
using testing::Ids;
using testing::kParsed;
using testing::kPlain;
using testing::spm_vocabulary;

TEST(Unigram, AgreesWithSentencePiece) {
    EXPECT_GE(testing::compare_with_sentencepiece("unigram"), 180u);
    EXPECT_GE(testing::compare_with_sentencepiece("unigram_bytes"), 180u);
}

TEST(Unigram, TextsComeBackWhereNothingIsRewritten) {
    const auto tokenizer = Tokenizer::from(testing::sentencepiece_vocabulary("unigram_bytes"));
    for (const auto &json : testing::sentencepiece().at("texts")) {
        const std::string text = with_spaces(json.get<std::string>());
        EXPECT_EQ(tokenizer->decode(tokenizer->encode(text, kPlain)), text);
    }
    EXPECT_TRUE(rc::check("decode(encode(bytes)) == bytes", [&](const std::string &bytes) {
        RC_ASSERT(tokenizer->decode(tokenizer->encode(bytes, kPlain)) == bytes);
    }));
}

// The highest sum over every way to cut `text` into pieces, a character that is none counting as unknown.
double best_sum(const Vocabulary &v, std::string_view text, double unknown) {
    if (text.empty()) return 0;
    double best = -INFINITY;
    bool single = false;
    for (size_t length = 1; length <= text.size(); ++length) {
        for (size_t id = 0; id < v.tokens.size(); ++id) {
            if (v.types[id] != TokenType::normal || v.tokens[id] != text.substr(0, length)) continue;
            single = single || length == 1;
            best = std::max(best, v.scores[id] + best_sum(v, text.substr(length), unknown));
        }
    }
    if (!single) best = std::max(best, unknown + best_sum(v, text.substr(1), unknown));
    return best;
}

TEST(Unigram, ThePathIsTheBest) {
    EXPECT_TRUE(rc::check("the sum of the scores is the highest there is", [] {
        const auto letters = rc::gen::elementOf(std::string("abc"));
        Vocabulary v = spm_vocabulary({}, "t5");
        v.add_space_prefix = false;
        double lowest = 0;
        const size_t count = *rc::gen::inRange<size_t>(1, 15);
        for (size_t i = 0; i < count; ++i) {
            const size_t length = *rc::gen::inRange<size_t>(1, 5);
            const auto piece = *rc::gen::container<std::string>(length, letters);
            if (std::ranges::find(v.tokens, piece) != v.tokens.end()) continue;
            const int32_t id = add(v, piece, static_cast<float>(*rc::gen::inRange(-12, 0)));
            lowest = std::min(lowest, static_cast<double>(v.scores[id]));
        }
        const size_t length = *rc::gen::inRange<size_t>(0, 9);
        const auto text = *rc::gen::container<std::string>(length, letters);
        const double unknown = lowest - 10;
        double sum = 0;
        for (const int32_t id : Tokenizer::from(v)->encode(text, kPlain)) {
            sum += v.types[id] == TokenType::byte ? unknown : v.scores[id];
        }
        RC_ASSERT(sum == best_sum(v, text, unknown));
    }));
}

TEST(Unigram, EosIsAddedOnceAndBosIsNot) {
    const auto tokenizer = Tokenizer::from(testing::sentencepiece_vocabulary("unigram"));
    const EncodeOptions both{.add_special = true, .parse_special = true};
    EXPECT_FALSE(tokenizer->adds_bos());
    EXPECT_EQ(tokenizer->encode(""), (Ids{2}));
    EXPECT_EQ(tokenizer->encode("the</s>", both), tokenizer->encode("the"));
    EXPECT_EQ(tokenizer->encode("the").back(), 2);
}

TEST(Unigram, UnknownTextBecomesOneTokenPerRunAndIsCounted) {
    Vocabulary v = spm_vocabulary({"▁", "a"}, "t5");
    for (auto &type : v.types) type = type == TokenType::byte ? TokenType::unused : type;
    const auto tokenizer = Tokenizer::from(v);
    size_t without_token = 0;
    EXPECT_EQ(tokenizer->encode("aéè世 a\xFF", kPlain, &without_token), (Ids{259, 260, 0, 259, 260, 0}));
    EXPECT_EQ(without_token, 8u);
    EXPECT_EQ(tokenizer->decode(Ids{259, 260, 0, 259, 260}), "a a");
}

TEST(Unigram, NamesOfControlTokensAndBytesAreText) {
    const auto tokenizer = Tokenizer::from(testing::sentencepiece_vocabulary("unigram_bytes"));
    EXPECT_EQ(tokenizer->encode("<s></s>", kParsed), (Ids{1, 2}));
    for (const int32_t id : tokenizer->encode("<s></s><unk><0x0A>", kPlain)) {
        EXPECT_NE(tokenizer->type(id), TokenType::control);
        EXPECT_NE(id, 0);
        EXPECT_NE(tokenizer->piece(id), "\n");
    }
}

TEST(Unigram, UserDefinedPiecesWin) {
    Vocabulary v = spm_vocabulary({"▁", "a", "b", "ab"}, "t5");
    const int32_t user = add(v, "ba", -1000, TokenType::user_defined);
    v.add_space_prefix = false;
    EXPECT_EQ(Tokenizer::from(v)->encode("abab", kPlain), (Ids{260, user, 261}));
}

TEST(Unigram, LongTextsTakeLinearTime) {
    for (const auto *name : {"unigram", "unigram_bytes"}) {
        const auto tokenizer = Tokenizer::from(testing::sentencepiece_vocabulary(name));
        std::string prose;
        for (int i = 0; prose.size() < 1 << 20; ++i) prose += "The quick fox No. " + std::to_string(i) + " jumps. ";
        for (const std::string &text : {std::string(1 << 20, 'a'), std::string(1 << 20, ' '),
                                        std::string(1 << 20, '\xFF'), std::string(1 << 20, '\n'), prose}) {
            const testing::ProcessorTime time;
            tokenizer->encode(text, kPlain);
            EXPECT_LT(time.seconds(), 20) << text.substr(0, 10);
        }
    }
}

TEST(Unigram, HostileVocabulariesAreRefused) {
    const std::vector<testing::BadVocabulary> table{
        {"no types", [](auto &v) { v.types.clear(); }, ErrorKind::file, {"token_type is missing", "'t5'"}},
        {"no scores", [](auto &v) { v.scores.clear(); }, ErrorKind::file, {"scores is missing", "'t5'"}},
        {"NaN score", [](auto &v) { v.scores[0] = NAN; }, ErrorKind::file, {"scores[0] is nan"}},
        {"no EOS", [](auto &v) { v.eos.reset(); }, ErrorKind::file, {"eos_token_id is absent"}},
        {"a byte that is none", [](auto &v) { v.types[0] = TokenType::byte; }, ErrorKind::file, {"[0] is '<unk>'"}},
        {"charsmap of one byte",
         [](auto &v) { v.charsmap = "x"; },
         ErrorKind::file,
         {"precompiled_charsmap", "1 bytes"}},
        {"a piece of 1 MB",
         [](auto &v) { v.tokens[5] = std::string(1 << 20, 'a'); },
         ErrorKind::limit,
         {"tokens[5] has 1048576 bytes"}},
    };
    testing::expect_refused(testing::sentencepiece_vocabulary("unigram"), table);
}

}  // namespace
}  // namespace ridge::text
