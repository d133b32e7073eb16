// Byte-level BPE against a naive one, and the rules around control tokens, for any family.
#include "text/tokenizer.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <map>

#include "core/error.h"
#include "text/byte_level.h"
#include "text/reference.h"

namespace ridge::text {
namespace {

using testing::Ids;
using testing::kParsed;
using testing::kPlain;

void expect_round_trip(const Tokenizer &tokenizer, const std::string &bytes) {
    size_t without_token = 0;
    const Ids ids = tokenizer.encode(bytes, kPlain, &without_token);
    std::string kept;
    for (const char byte : bytes) {
        const bool missing = tokenizer.encode(std::string(1, byte), kPlain).empty();
        if (!missing) kept += byte;
    }
    EXPECT_EQ(tokenizer.decode(ids), kept);
    EXPECT_EQ(without_token, bytes.size() - kept.size());
}

TEST(Tokenizer, AnyBytesComeBack) {
    const auto tokenizer = Tokenizer::from(testing::small_vocabulary());
    for (const auto &c : testing::corpus()) expect_round_trip(*tokenizer, c.bytes);
    EXPECT_TRUE(rc::check("decode(encode(bytes)) == bytes", [&](const std::string &bytes) {
        size_t without_token = 1;
        RC_ASSERT(tokenizer->decode(tokenizer->encode(bytes, kPlain, &without_token)) == bytes);
        RC_ASSERT(without_token == 0u);
    }));
}

// The definition of BPE, as slowly as it reads.
Ids naive_bpe(const Vocabulary &v, std::string_view piece) {
    std::vector<std::string> symbols;
    for (const char byte : piece) symbols.push_back(byte_level_symbol(static_cast<uint8_t>(byte)));
    for (;;) {
        size_t best_rank = v.merges.size();
        size_t best_at = 0;
        for (size_t at = 0; at + 1 < symbols.size(); ++at) {
            const auto found = std::ranges::find(v.merges, symbols[at] + " " + symbols[at + 1]);
            const auto rank = static_cast<size_t>(found - v.merges.begin());
            if (rank < best_rank) {
                best_rank = rank;
                best_at = at;
            }
        }
        if (best_rank == v.merges.size()) break;
        symbols[best_at] += symbols[best_at + 1];
        symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best_at) + 1);
    }
    Ids ids;
    for (const auto &symbol : symbols) {
        ids.push_back(static_cast<int32_t>(std::ranges::find(v.tokens, symbol) - v.tokens.begin()));
    }
    return ids;
}

// 256 bytes and random merges of tokens over "abc": many overlaps, ties in position, and repeated pairs.
Vocabulary random_vocabulary() {
    Vocabulary v;
    v.origin = "random";
    v.model = "gpt2";
    v.pre = "gpt-2";
    for (int byte = 0; byte < 256; ++byte) v.tokens.push_back(byte_level_symbol(static_cast<uint8_t>(byte)));
    std::vector<std::string> letters{"a", "b", "c"};
    const size_t count = *rc::gen::inRange<size_t>(1, 25);
    while (v.merges.size() < count) {
        const std::string left = *rc::gen::elementOf(letters);
        const std::string right = *rc::gen::elementOf(letters);
        v.merges.push_back(left + " " + right);
        if (std::ranges::find(v.tokens, left + right) == v.tokens.end()) {
            v.tokens.push_back(left + right);
            letters.push_back(left + right);
        }
    }
    return v;
}

TEST(Tokenizer, MergesAreThoseOfTheDefinition) {
    EXPECT_TRUE(rc::check("heap == naive", [] {
        const Vocabulary v = random_vocabulary();
        const auto tokenizer = Tokenizer::from(v);
        const auto letters = *rc::gen::container<std::string>(rc::gen::elementOf(std::string("abc")));
        RC_ASSERT(tokenizer->encode(letters, kPlain) == naive_bpe(v, letters));
    }));
}

TEST(Tokenizer, TheFirstOfTwoEqualMergesCounts) {
    Vocabulary v;
    v.origin = "repeated";
    v.model = "gpt2";
    v.pre = "gpt-2";
    v.tokens = {"a", "b", "c", "ab", "bc"};
    v.merges = {"a b", "b c", "a b"};
    EXPECT_EQ(Tokenizer::from(v)->encode("abc", kPlain), (Ids{3, 2}));
}

TEST(Tokenizer, WholePiecesComeFirstWhereTheRowSaysSo) {
    Vocabulary v = testing::small_vocabulary();
    v.tokens.push_back("zqzq");  // no merge leads to it
    v.types.push_back(TokenType::normal);
    const auto id = static_cast<int32_t>(v.tokens.size() - 1);
    v.bos = 0;
    EXPECT_NE(Tokenizer::from(v)->encode("zqzq", kPlain), Ids{id});
    v.pre = "llama-bpe";
    EXPECT_EQ(Tokenizer::from(v)->encode("zqzq", kPlain), Ids{id});
    EXPECT_TRUE(Tokenizer::from(v)->adds_bos());
}

TEST(Tokenizer, BytesWithoutATokenAreCountedAndLeftOut) {
    Vocabulary v = testing::small_vocabulary();
    for (const uint8_t byte : {0x04, 0xF1}) {
        const auto at = std::ranges::find(v.tokens, byte_level_symbol(byte));
        ASSERT_NE(at, v.tokens.end());
        *at = "not a byte " + std::to_string(byte);
    }
    const auto tokenizer = Tokenizer::from(v);
    size_t without_token = 0;
    const Ids ids = tokenizer->encode(
        "a\x04"
        "b\xF1!\x04",
        kPlain, &without_token);
    EXPECT_EQ(without_token, 3u);
    EXPECT_EQ(tokenizer->decode(ids), "ab!");
    EXPECT_TRUE(tokenizer->encode("\x04\x04", kPlain, &without_token).empty());
    EXPECT_EQ(without_token, 2u);
}

TEST(Tokenizer, ControlTokensStayOutOfPlainText) {
    const auto tokenizer = Tokenizer::from(testing::small_vocabulary());
    const int32_t start = tokenizer->named("<|im_start|>").value();
    const int32_t tool = tokenizer->named("<tool_call>").value();
    const std::string text = "<|im_start|>x<tool_call>";
    const Ids plain = tokenizer->encode(text, kPlain);
    EXPECT_EQ(std::ranges::count(plain, start), 0);
    EXPECT_EQ(plain.back(), tool);
    EXPECT_EQ(tokenizer->decode(plain), text);
    const Ids parsed = tokenizer->encode(text, kParsed);
    EXPECT_EQ(parsed.front(), start);
    EXPECT_EQ(parsed.back(), tool);
    EXPECT_EQ(tokenizer->decode(parsed), "x<tool_call>");
    EXPECT_EQ(tokenizer->decode(parsed, true), text);
}

TEST(Tokenizer, SegmentsAreOneTextButControlTokensDoNotSpanThem) {
    const auto tokenizer = Tokenizer::from(testing::small_vocabulary());
    const int32_t end = tokenizer->named("<|im_end|>").value();
    const auto encode = [&](std::vector<Segment> segments) { return tokenizer->encode(segments); };
    EXPECT_EQ(encode({{"user\n", true}, {"\nhello", false}, {" you", true}}),
              tokenizer->encode("user\n\nhello you", kPlain));
    EXPECT_EQ(encode({{"a", false}, {"<|im_end|>", true}}).back(), end);
    for (const auto &segments : std::vector<std::vector<Segment>>{
             {{"<|im_end|>", false}}, {{"<|im_", true}, {"end|>", false}}, {{"<|im_", false}, {"end|>", true}}}) {
        EXPECT_EQ(tokenizer->encode(segments), tokenizer->encode("<|im_end|>", kPlain));
    }
    EXPECT_TRUE(tokenizer->encode(std::vector<Segment>{}).empty());
}

TEST(Tokenizer, LongestSpecialTokenWins) {
    Vocabulary v = testing::small_vocabulary();
    for (const auto *name : {"<a>", "<a><b>", "<a><", "b>"}) {
        v.tokens.emplace_back(name);
        v.types.push_back(TokenType::user_defined);
    }
    const auto tokenizer = Tokenizer::from(v);
    const auto named = [&](const char *name) { return tokenizer->named(name).value(); };
    EXPECT_EQ(tokenizer->encode("<a><b><a><a>b>", kPlain),
              (Ids{named("<a><b>"), named("<a><"), tokenizer->encode("a", kPlain)[0], tokenizer->encode(">", kPlain)[0],
                   named("b>")}));
    EXPECT_EQ(tokenizer->encode("<a>", kPlain), Ids{named("<a>")});
}

TEST(Tokenizer, BosAndEosAreAddedOnceWhereTheModelWantsThem) {
    Vocabulary v = testing::small_vocabulary();
    const auto id = [&](const char *text) {
        return static_cast<int32_t>(std::ranges::find(v.tokens, text) - v.tokens.begin());
    };
    v.bos = id("<|im_start|>");
    v.eos = id("<|im_end|>");
    EXPECT_EQ(Tokenizer::from(v)->encode("", {}), Ids{});
    v.add_bos = v.add_eos = true;
    const auto tokenizer = Tokenizer::from(v);
    const Ids a = tokenizer->encode("a", kPlain);
    EXPECT_EQ(tokenizer->encode("a"), (Ids{*v.bos, a[0], *v.eos}));
    EXPECT_EQ(tokenizer->encode(""), (Ids{*v.bos, *v.eos}));
    EXPECT_EQ(tokenizer->encode("<|im_start|>a<|im_end|>", {.add_special = true, .parse_special = true}),
              (Ids{*v.bos, a[0], *v.eos}));
    EXPECT_EQ(tokenizer->encode("<|im_start|>").front(), *v.bos);
    EXPECT_GT(tokenizer->encode("<|im_start|>").size(), 3u);
    v.add_bos = false;
    EXPECT_EQ(Tokenizer::from(v)->encode(""), Ids{*v.eos});
}

TEST(Tokenizer, PiecesAndEnds) {
    Vocabulary v = testing::small_vocabulary();
    v.tokens.insert(v.tokens.end(), {"[PAD]", "<|eot_id|>", "stop", "語"});
    v.types.insert(v.types.end(), {TokenType::unused, TokenType::user_defined, TokenType::normal, TokenType::normal});
    v.eot = static_cast<int32_t>(v.tokens.size() - 2);
    const auto tokenizer = Tokenizer::from(v);
    const int32_t n = tokenizer->size();
    EXPECT_EQ(tokenizer->piece(n - 4), "");
    EXPECT_EQ(tokenizer->piece(n - 4, true), "[PAD]");
    EXPECT_EQ(tokenizer->piece(n - 1), "語");  // not of the byte alphabet: stands for itself
    EXPECT_EQ(tokenizer->piece(*tokenizer->named("<|im_end|>")), "");
    EXPECT_EQ(tokenizer->piece(*tokenizer->named("<|im_end|>"), true), "<|im_end|>");
    EXPECT_TRUE(tokenizer->is_end(*v.eot));
    EXPECT_TRUE(tokenizer->is_end(*tokenizer->named("<|im_end|>")));
    EXPECT_TRUE(tokenizer->is_end(*tokenizer->named("<|endoftext|>")));
    EXPECT_TRUE(tokenizer->is_end(*tokenizer->named("<|eot_id|>")));
    EXPECT_FALSE(tokenizer->is_end(*tokenizer->named("<|im_start|>")));
    EXPECT_FALSE(tokenizer->is_end(0));
    for (const int32_t bad : {-1, n, INT32_MAX, INT32_MIN}) EXPECT_THROW(tokenizer->piece(bad), Error) << bad;
}

// Small vocabularies with these control and user-defined tokens; the names of those that end an answer.
std::vector<std::string> ends(const std::vector<std::string> &control, const std::vector<std::string> &user_defined,
                              const std::string &eos = "") {
    Vocabulary v = testing::small_vocabulary();
    for (auto &type : v.types) type = TokenType::normal;
    for (const auto &[names, type] :
         {std::pair(control, TokenType::control), {user_defined, TokenType::user_defined}}) {
        for (const std::string &name : names) {
            const auto found = std::ranges::find(v.tokens, name);
            if (found != v.tokens.end()) v.tokens.erase(found);
            v.tokens.push_back(name);
            v.types.resize(v.tokens.size(), type);
            v.types.back() = type;
            if (name == eos) v.eos = static_cast<int32_t>(v.tokens.size()) - 1;
        }
    }
    const auto tokenizer = Tokenizer::from(v);
    std::vector<std::string> found;
    for (int32_t id = 0; id < tokenizer->size(); ++id) {
        if (tokenizer->is_end(id)) found.emplace_back(tokenizer->piece(id, true));
    }
    return found;
}

TEST(Tokenizer, EndsOfAnswersAreKnownByName) {
    using Names = std::vector<std::string>;
    EXPECT_EQ(ends({"<|endoftext|>", "<|system|>", "<|end|>", "<|user|>"}, {"</s>"}),
              (Names{"<|endoftext|>", "<|end|>"}));
    EXPECT_EQ(ends({"<eos>", "<end_of_turn>", "<start_of_turn>"}, {"<s>", "</s>"}), (Names{"<eos>", "<end_of_turn>"}));
    EXPECT_EQ(ends({"<turn|>"}, {"<|tool_call>", "<|tool_response>"}), (Names{"<turn|>", "<|tool_response>"}));
    EXPECT_EQ(ends({"<s>", "</s>", "[INST]"}, {}), (Names{"</s>"}));
    EXPECT_EQ(ends({"[STOP]"}, {}, "[STOP]"), (Names{"[STOP]"}));
    EXPECT_EQ(ends({"<|fim_pad|>", "<|fim_prefix|>", "<|file_sep|>"}, {}), (Names{"<|fim_pad|>", "<|file_sep|>"}));
    // In this format <|end|> ends one message of an answer.
    EXPECT_EQ(ends({"<|start|>", "<|end|>", "<|return|>", "<|call|>"}, {}), (Names{"<|return|>", "<|call|>"}));
}

TEST(Tokenizer, EndsOfTurnsAreControlTokensWhateverTheFileSays) {
    Vocabulary v = testing::small_vocabulary();
    v.types[std::ranges::find(v.tokens, "<|im_end|>") - v.tokens.begin()] = TokenType::user_defined;
    const auto tokenizer = Tokenizer::from(v);
    const int32_t end = *tokenizer->named("<|im_end|>");
    EXPECT_EQ(tokenizer->type(end), TokenType::control);
    EXPECT_EQ(tokenizer->piece(end), "");
    EXPECT_EQ(std::ranges::count(tokenizer->encode("<|im_end|>", kPlain), end), 0);
    EXPECT_EQ(tokenizer->encode("<|im_end|>", kParsed), (Ids{end}));
}

TEST(Tokenizer, LongTextsTakeLinearTime) {
    const auto tokenizer = Tokenizer::from(testing::small_vocabulary());
    std::string prose;
    for (int i = 0; prose.size() < 1 << 20; ++i) prose += "The quick brown fox No. " + std::to_string(i) + " jumps.\n";
    for (const std::string &text : {std::string(1 << 20, 'a'), std::string(1 << 20, ' '), std::string(1 << 20, '\xFF'),
                                    std::string(1 << 20, '<'), prose}) {
        const testing::ProcessorTime time;
        EXPECT_EQ(tokenizer->decode(tokenizer->encode(text, kParsed)), text);
        EXPECT_LT(time.seconds(), 20) << text.substr(0, 10);
    }
}

TEST(Tokenizer, VocabulariesThatContradictThemselvesAreRefused) {
    const std::vector<testing::BadVocabulary> table{
        {"unknown family",
         [](auto &v) { v.model = "word\x1bpiece"; },
         ErrorKind::unsupported,
         {"tokenizer.ggml.model", "'word\\u001bpiece'", "gpt2, llama, gemma4, t5", "--tokenizer FAMILY"}},
        {"unknown pre-tokenizer",
         [](auto &v) { v.pre = "default"; },
         ErrorKind::unsupported,
         {"'default'", "--pre NAME"}},
        {"no tokens",
         [](auto &v) { v.tokens.clear(); },
         ErrorKind::file,
         {"tokenizer.ggml.tokens is missing or empty"}},
        {"too few types", [](auto &v) { v.types.pop_back(); }, ErrorKind::file, {"token_type has 699", "has 700"}},
        {"too many types", [](auto &v) { v.types.push_back(TokenType::normal); }, ErrorKind::file, {"has 701"}},
        {"same token twice", [](auto &v) { v.tokens[9] = v.tokens[3]; }, ErrorKind::file, {"[3] and [9] are the same"}},
        {"BOS past the end", [](auto &v) { v.bos = 700; }, ErrorKind::file, {"bos_token_id is 700", "700 entries"}},
        {"EOS negative", [](auto &v) { v.eos = -1; }, ErrorKind::file, {"eos_token_id is -1"}},
        {"EOT past the end", [](auto &v) { v.eot = INT32_MAX; }, ErrorKind::file, {"eot_token_id is 2147483647"}},
        {"EOM past the end", [](auto &v) { v.eom = 701; }, ErrorKind::file, {"eom_token_id is 701"}},
        {"BOS wanted, not named", [](auto &v) { v.add_bos = true; }, ErrorKind::file, {"bos_token_id is absent"}},
        {"EOS wanted, not named", [](auto &v) { v.add_eos = true; }, ErrorKind::file, {"eos_token_id is absent"}},
        {"no merges",
         [](auto &v) { v.merges.clear(); },
         ErrorKind::file,
         {"tokenizer.ggml.merges is missing or empty"}},
        {"merge of one", [](auto &v) { v.merges[5] = "ab"; }, ErrorKind::file, {"merges[5]", "'ab'"}},
        {"merge of three", [](auto &v) { v.merges[5] = "a b c"; }, ErrorKind::file, {"merges[5]"}},
        {"merge with no left", [](auto &v) { v.merges[5] = " b"; }, ErrorKind::file, {"merges[5]"}},
        {"merge with no right", [](auto &v) { v.merges[5] = "b "; }, ErrorKind::file, {"merges[5]"}},
        {"empty merge", [](auto &v) { v.merges[5] = ""; }, ErrorKind::file, {"merges[5]"}},
        {"merge of no token",
         [](auto &v) { v.merges[5] = "\n b"; },
         ErrorKind::file,
         {"merges[5]", "tokenizer.ggml.tokens"}},
        {"merge to no token", [](auto &v) { v.merges[5] = "Q Z"; }, ErrorKind::file, {"'QZ'", "tokenizer.ggml.tokens"}},
        {"merge to a control token",
         [](auto &v) {
             v.tokens.push_back("QZ");
             v.types.push_back(TokenType::control);
             v.merges.push_back("Q Z");
         },
         ErrorKind::file,
         {"control token 'QZ'"}},
        {"merge to an unused token",  // whose bytes would not come back
         [](auto &v) {
             v.tokens.push_back("QZ");
             v.types.push_back(TokenType::unused);
             v.merges.push_back("Q Z");
         },
         ErrorKind::file,
         {"unused token 'QZ'"}},
    };
    testing::expect_refused(testing::small_vocabulary(), table);
}

// Bytes that are control tokens, empty names, types missing: odd, but they contradict nothing.
TEST(Tokenizer, OddVocabulariesWork) {
    Vocabulary v = testing::small_vocabulary();
    v.types[static_cast<size_t>(std::ranges::find(v.tokens, "a") - v.tokens.begin())] = TokenType::control;
    v.tokens.emplace_back("");
    v.types.push_back(TokenType::control);
    v.tokens.emplace_back("\xFF\xFE");
    v.types.push_back(TokenType::user_defined);
    const auto odd = Tokenizer::from(v);
    size_t without_token = 0;
    EXPECT_EQ(odd->decode(odd->encode("ba\xFF\xFE", kPlain, &without_token)), "b\xFF\xFE");
    EXPECT_EQ(without_token, 1u);

    v = testing::small_vocabulary();
    v.types.clear();
    const auto typeless = Tokenizer::from(v);
    EXPECT_TRUE(odd->has_control_tokens());
    EXPECT_FALSE(typeless->has_control_tokens());
    EXPECT_FALSE(typeless->named("<|im_end|>"));
    EXPECT_EQ(typeless->decode(typeless->encode("<|im_end|>", kParsed)), "<|im_end|>");
}

}  // namespace
}  // namespace ridge::text
