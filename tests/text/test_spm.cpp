// SentencePiece BPE against `sentencepiece`, against the definition, and the rules of the family.
#include "text/spm.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>

#include "text/sentencepiece_reference.h"

namespace ridge::text {
namespace {

using testing::add;
using testing::Ids;
using testing::kParsed;
using testing::kPlain;
using testing::names;
using testing::spm_vocabulary;
using Names = std::vector<std::string>;

TEST(Spm, AgreesWithSentencePiece) {
    EXPECT_GE(testing::compare_with_sentencepiece("bpe"), 180u);
    EXPECT_GE(testing::compare_with_sentencepiece("bpe_user"), 180u);
}

TEST(Spm, TextsComeBack) {
    for (const auto *name : {"bpe", "bpe_user"}) {
        const auto tokenizer = Tokenizer::from(testing::sentencepiece_vocabulary(name));
        for (const auto &json : testing::sentencepiece().at("texts")) {
            const std::string text = with_spaces(json.get<std::string>());  // U+2581 comes back as a space
            EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
            EXPECT_EQ(tokenizer->decode(tokenizer->encode(text, kParsed), true), text);
        }
        EXPECT_TRUE(rc::check("decode(encode(bytes)) == bytes", [&](const std::string &bytes) {
            size_t without_token = 1;
            RC_ASSERT(tokenizer->decode(tokenizer->encode(bytes, kPlain, &without_token)) == bytes);
            RC_ASSERT(without_token == 0u);
        }));
    }
}

// The definition, as slowly as it reads: of all neighbours whose texts together are a piece, the highest score merges,
// the leftmost of equals. A symbol that is no piece in the end becomes its bytes.
Ids naive(const Vocabulary &v, const std::string &text) {
    const auto piece = [&](const std::string &s) {
        for (size_t id = 0; id < v.tokens.size(); ++id) {
            if (v.tokens[id] == s && v.types[id] == TokenType::normal) return static_cast<int32_t>(id);
        }
        return -1;
    };
    std::vector<std::string> symbols;
    for (const char c : text) symbols.emplace_back(1, c);
    for (;;) {
        int32_t best = -1;
        size_t best_at = 0;
        for (size_t at = 0; at + 1 < symbols.size(); ++at) {
            const int32_t id = piece(symbols[at] + symbols[at + 1]);
            if (id < 0 || (best >= 0 && v.scores[id] <= v.scores[best])) continue;
            best = id;
            best_at = at;
        }
        if (best < 0) break;
        symbols[best_at] += symbols[best_at + 1];
        symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best_at) + 1);
    }
    Ids ids;
    for (const auto &symbol : symbols) {
        if (const int32_t id = piece(symbol); id >= 0) {
            ids.push_back(id);
        } else {
            for (const char c : symbol) ids.push_back(3 + static_cast<uint8_t>(c));
        }
    }
    return ids;
}

// Pieces over "abcd" with few scores, so many ties; some of their parts are no pieces, and some characters are none.
TEST(Spm, MergesAreThoseOfTheDefinition) {
    EXPECT_TRUE(rc::check("heap == naive", [] {
        const auto letters = rc::gen::elementOf(std::string("abcd"));
        Vocabulary v = spm_vocabulary({});
        v.add_space_prefix = false;
        const size_t count = *rc::gen::inRange<size_t>(1, 40);
        for (size_t i = 0; i < count; ++i) {
            const size_t length = *rc::gen::inRange<size_t>(1, 6);
            const auto piece = *rc::gen::container<std::string>(length, letters);
            if (std::ranges::find(v.tokens, piece) != v.tokens.end()) continue;
            add(v, piece, static_cast<float>(*rc::gen::inRange(-4, 0)));
        }
        const auto text = *rc::gen::container<std::string>(letters);
        RC_ASSERT(Tokenizer::from(v)->encode(text, kPlain) == naive(v, text));
    }));
}

TEST(Spm, ControlTokensAndBytesAreNotSpelledByText) {
    // Every way to spell the names by merges is there, and still only their type makes them found.
    Vocabulary v = spm_vocabulary({"<", "s", ">", "0", "x", "A", "/", "<s", "s>", "</", "/s", "<0", "<0x", "x0", "0A",
                                   "<0x0", "<0x0A", "▁", "▁<"});
    v.add_space_prefix = false;
    const auto tokenizer = Tokenizer::from(v);
    EXPECT_EQ(names(*tokenizer, tokenizer->encode("<s>", kPlain)), (Names{"<s", ">"}));
    EXPECT_EQ(names(*tokenizer, tokenizer->encode("</s>", kPlain)), (Names{"</", "s>"}));
    EXPECT_EQ(names(*tokenizer, tokenizer->encode("<0x0A>", kPlain)), (Names{"<0x0A", ">"}));
    EXPECT_EQ(tokenizer->encode("<s></s>", kParsed), (Ids{1, 2}));
    EXPECT_EQ(names(*tokenizer, tokenizer->encode("<0x0A>", kParsed)), (Names{"<0x0A", ">"}));
    EXPECT_EQ(tokenizer->encode("<unk>", kParsed), (Ids{0}));
    EXPECT_EQ(tokenizer->encode("\n", kPlain), (Ids{3 + '\n'}));
}

TEST(Spm, UnusedTokensAreNoTexts) {
    Vocabulary v = spm_vocabulary({"a", "b"});
    add(v, "ab", 0, TokenType::unused);
    v.add_space_prefix = false;
    EXPECT_EQ(Tokenizer::from(v)->encode("ab", kPlain), (Ids{259, 260}));
}

TEST(Spm, TheSpacePrefixStandsBeforeEveryStretchOfText) {
    Vocabulary v = spm_vocabulary({"▁", "a", "b", "▁a", "▁b"});
    const int32_t user = add(v, "<u>", 0, TokenType::user_defined);
    const auto tokenizer = Tokenizer::from(v);  // add_space_prefix is absent: on
    const int32_t space = 259, a = 260, b = 261, space_a = 262, space_b = 263;
    EXPECT_EQ(tokenizer->encode("", kPlain), Ids{});
    EXPECT_EQ(tokenizer->encode("a", kPlain), (Ids{space_a}));
    EXPECT_EQ(tokenizer->encode(" a", kPlain), (Ids{space, space_a}));
    EXPECT_EQ(tokenizer->encode("<s>ab</s>b", kParsed), (Ids{1, space_a, b, 2, space_b}));
    EXPECT_EQ(tokenizer->encode("a<u>b<u><u>", kPlain), (Ids{space_a, user, space_b, user, user}));
    const std::vector<Segment> segments{{"<s>", true}, {"a", false}, {"b</s>", true}, {"</s>a", false}};
    const Ids ids = tokenizer->encode(segments);
    EXPECT_EQ((Ids{ids.begin(), ids.begin() + 4}), (Ids{1, space_a, b, 2}));
    EXPECT_EQ(tokenizer->decode(ids, true), "<s>ab</s></s>a");

    EXPECT_EQ(tokenizer->decode(Ids{space_a, space_b}), "a b");
    EXPECT_EQ(tokenizer->decode(Ids{space, space_a}), " a");
    EXPECT_EQ(tokenizer->decode(Ids{1, space_a, user, space_b}), "a<u>b");
    EXPECT_EQ(tokenizer->decode(Ids{a, space_b}), "a b");  // there is no space to drop
    EXPECT_EQ(tokenizer->piece(space_a), " a");

    v.add_space_prefix = false;
    const auto without = Tokenizer::from(v);
    EXPECT_EQ(without->encode("a<u>b", kPlain), (Ids{a, user, b}));
    EXPECT_EQ(without->decode(Ids{space_a}), " a");
}

TEST(Spm, ExtraSpacesAreRemovedWhereTheFileSaysSo) {
    Vocabulary v = spm_vocabulary({"▁", "a", "b", "▁a", "▁b"});
    v.remove_extra_spaces = true;
    const auto tokenizer = Tokenizer::from(v);
    EXPECT_EQ(tokenizer->encode("  a   b  ", kPlain), (Ids{262, 263}));
    EXPECT_EQ(tokenizer->encode("    ", kPlain), Ids{});
    EXPECT_EQ(tokenizer->decode(tokenizer->encode("  a   b  ", kPlain)), "a b");
}

TEST(Spm, WhatIsNoPieceBecomesBytesOrUnknown) {
    Vocabulary v = spm_vocabulary({"▁", "a"});
    v.add_space_prefix = false;
    size_t without_token = 1;
    const auto with_bytes = Tokenizer::from(v);
    EXPECT_EQ(with_bytes->encode("aé\xFF", kPlain, &without_token), (Ids{260, 3 + 0xC3, 3 + 0xA9, 3 + 0xFF}));
    EXPECT_EQ(without_token, 0u);

    for (auto &type : v.types) type = type == TokenType::byte ? TokenType::unused : type;
    const auto with_unknown = Tokenizer::from(v);
    EXPECT_EQ(with_unknown->encode("aéè\xFF"
                                   "a世 ",
                                   kPlain, &without_token),
              (Ids{260, 0, 260, 0, 259}));
    EXPECT_EQ(without_token, 8u);
    EXPECT_EQ(with_unknown->decode(Ids{260, 0, 260}), "aa");

    v.types[0] = TokenType::control;
    const auto with_neither = Tokenizer::from(v);
    EXPECT_EQ(with_neither->encode("aéa", kPlain, &without_token), (Ids{260, 260}));
    EXPECT_EQ(without_token, 2u);
    v.unknown = 0;  // no text becomes a control token
    EXPECT_EQ(Tokenizer::from(v)->encode("aéa", kPlain), (Ids{260, 260}));
    v.types[0] = TokenType::normal;
    EXPECT_EQ(Tokenizer::from(v)->encode("aéa", kPlain), (Ids{260, 0, 260}));
}

// A byte may lack its token, and may be written in small letters.
TEST(Spm, OddByteTokens) {
    Vocabulary v = spm_vocabulary({});
    v.tokens[3 + 0xC3] = "<0xc3>";
    v.types[3 + 0xA9] = TokenType::unused;
    size_t without_token = 0;
    const auto tokenizer = Tokenizer::from(v);
    EXPECT_EQ(tokenizer->encode("<s>é", kParsed, &without_token), (Ids{1, 3 + 0xE2, 3 + 0x96, 3 + 0x81, 3 + 0xC3, 0}));
    EXPECT_EQ(without_token, 1u);
    EXPECT_EQ(tokenizer->piece(3 + 0xC3), "\xC3");
}

TEST(Spm, UserDefinedTokensComeBeforeTheMerges) {
    Vocabulary v = spm_vocabulary({"▁", "a", "b", "ab", "▁a"});
    v.add_space_prefix = false;
    const int32_t newlines = add(v, "\n\n", -1000, TokenType::user_defined);
    const int32_t spaces = add(v, "▁▁", -1000, TokenType::user_defined);  // as its model spells it
    const int32_t three = add(v, "   ", -1000, TokenType::user_defined);  // as converters write it
    const int32_t tag = add(v, "a<b", -1000, TokenType::user_defined);
    const auto tokenizer = Tokenizer::from(v);
    EXPECT_EQ(tokenizer->encode("ab\n\n\nab", kPlain), (Ids{262, newlines, 3 + '\n', 262}));
    EXPECT_EQ(tokenizer->encode("  a", kPlain), (Ids{spaces, 260}));
    EXPECT_EQ(tokenizer->encode("     a", kPlain), (Ids{three, spaces, 260}));
    EXPECT_EQ(tokenizer->encode("aa<bb", kPlain), (Ids{260, tag, 261}));
    EXPECT_EQ(tokenizer->decode(Ids{spaces, three}), "     ");
}

// As in Gemma, whose line breaks are user-defined tokens: what a template ends with and an answer begins with.
TEST(Spm, UserDefinedTokensSpanSegments) {
    Vocabulary v = spm_vocabulary({"▁", "a", "b", "<", "/"});
    v.add_space_prefix = false;
    const int32_t two = add(v, "\n\n", 0, TokenType::user_defined);
    const int32_t three = add(v, "\n\n\n", 0, TokenType::user_defined);
    const int32_t tag = add(v, "b<", 0, TokenType::user_defined);
    const auto tokenizer = Tokenizer::from(v);
    const int32_t a = 260, b = 261, end = 2;
    const auto encode = [&](std::vector<Segment> segments) { return tokenizer->encode(segments); };
    EXPECT_EQ(encode({{"</s>a\n", true}, {"\n\nb\n", false}, {"\n</s>", true}, {"\n", false}, {"\n\n\n", true}}),
              (Ids{end, a, three, b, two, end, three, 3 + '\n'}));
    EXPECT_EQ(encode({{"ab", false}, {"<a", true}}), (Ids{a, tag, a}));
    // Text of a user's takes no control token apart, nor does it become one.
    EXPECT_EQ(encode({{"ab", false}, {"</s>", true}}), (Ids{a, b, end}));
    EXPECT_EQ(encode({{"ab", false}, {"</s>", false}}), tokenizer->encode("ab</s>", kPlain));
    EXPECT_EQ(encode({{"a</", true}, {"s>", false}}), tokenizer->encode("a</s>", kPlain));

    const testing::ProcessorTime time;
    const std::vector<Segment> many(1 << 20, Segment{"\n", true});
    EXPECT_EQ(tokenizer->encode(many).size(), ((1u << 20) + 2) / 3);
    EXPECT_LT(time.seconds(), 20);
}

// U+2581 in a text is a space, in the name of a control token it is itself.
TEST(Spm, ControlTokensMayHaveTheSpaceSymbolInTheirName) {
    Vocabulary v = spm_vocabulary({"▁", "a", "▁a"});
    const int32_t end = add(v, "<｜end▁of▁sentence｜>", 0, TokenType::control);
    const auto tokenizer = Tokenizer::from(v);
    const std::string text = "a<｜end▁of▁sentence｜>a";
    EXPECT_EQ(tokenizer->encode(text, kParsed), (Ids{261, end, 261}));
    EXPECT_EQ(tokenizer->encode(std::vector<Segment>{{text, true}}), (Ids{261, end, 261}));
    EXPECT_EQ(std::ranges::count(tokenizer->encode(text, kPlain), end), 0);
    EXPECT_TRUE(tokenizer->is_end(end));
    EXPECT_EQ(tokenizer->encode("a▁a", kPlain), (Ids{261, 261}));
}

TEST(Spm, BosAndEosAreAddedOnce) {
    Vocabulary v = spm_vocabulary({"▁a"});
    EXPECT_EQ(Tokenizer::from(v)->encode("a"), (Ids{1, 259}));
    EXPECT_EQ(Tokenizer::from(v)->encode(""), (Ids{1}));
    EXPECT_EQ(Tokenizer::from(v)->encode("<s>a", {.add_special = true, .parse_special = true}), (Ids{1, 259}));
    v.add_eos = true;
    EXPECT_EQ(Tokenizer::from(v)->encode("a"), (Ids{1, 259, 2}));
    EXPECT_EQ(Tokenizer::from(v)->encode("a</s>", {.add_special = true, .parse_special = true}), (Ids{1, 259, 2}));
    v.add_bos = false;
    EXPECT_EQ(Tokenizer::from(v)->encode("a"), (Ids{259, 2}));
}

// The tokens of Phi-3 take white space along, those of other vocabularies do not.
TEST(Spm, TokensOfPhi3TakeWhiteSpaceAlong) {
    Vocabulary v = spm_vocabulary({"▁", "a", "▁a"});
    const int32_t assistant = add(v, "<|assistant|>", 0, TokenType::control);
    const auto other = Tokenizer::from(v);
    EXPECT_EQ(other->encode("<|assistant|>\n a", kParsed), (Ids{assistant, 259, 3 + '\n', 261}));
    add(v, "<|placeholder1|>", 0, TokenType::control);
    const auto phi3 = Tokenizer::from(v);
    EXPECT_EQ(phi3->encode("<|assistant|>\n \u3000a \n", kParsed), (Ids{assistant, 261, 259, 3 + '\n'}));
    EXPECT_EQ(phi3->encode("<|assistant|> \n", kParsed), (Ids{assistant}));
    EXPECT_EQ(phi3->encode("<s> a", kParsed), (Ids{1, 259, 261}));
    const std::vector<Segment> segments{{"<|assistant|>\n", true}, {" a", false}};
    EXPECT_EQ(phi3->encode(segments), (Ids{assistant, 261}));
}

// The family "gemma4": the same characters and bytes, merges from a list, no prefix.
TEST(Spm, MergesMayBeListed) {
    Vocabulary v = spm_vocabulary({"▁", "a", "b", "\n", "\n\n", "ab", "▁a", "▁ab"}, "gemma4");
    v.scores.clear();
    v.merges = {"\n \n", "▁ a", "a b", "▁ ab", "▁a b"};
    const auto tokenizer = Tokenizer::from(v);
    EXPECT_TRUE(tokenizer->adds_bos());
    EXPECT_EQ(names(*tokenizer, tokenizer->encode("ab ab\n\n\né", kPlain)),
              (Names{"ab", " ab", "\n\n", "\n", "\xC3", "\xA9"}));
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(" ab", kPlain)), " ab");
    const std::vector<testing::BadVocabulary> table{
        {"no merges", [](auto &bad) { bad.merges.clear(); }, ErrorKind::file, {"merges is missing", "'gemma4'"}},
        {"merge to a byte",
         [](auto &bad) {
             bad.tokens[259] = "<0x0";
             bad.tokens[260] = "A>";
             bad.merges = {"<0x0 A>"};
         },
         ErrorKind::file,
         {"merges[0] makes the byte token '<0x0A>'"}},
        {"merge to a control token",
         [](auto &bad) {
             bad.tokens[259] = "<";
             bad.tokens[260] = "s>";
             bad.merges = {"< s>"};
         },
         ErrorKind::file,
         {"merges[0] makes the control token '<s>'"}},
        {"no types", [](auto &bad) { bad.types.clear(); }, ErrorKind::file, {"token_type is missing", "'gemma4'"}},
    };
    testing::expect_refused(v, table);
}

// Quadratic time on a megabyte would take minutes, whatever the machine.
TEST(Spm, LongTextsTakeLinearTime) {
    for (const auto *name : {"bpe", "bpe_user"}) {
        Vocabulary v = testing::sentencepiece_vocabulary(name);
        for (size_t length = 2; length <= 64; length *= 2)
            add(v, std::string(length, '~'), -static_cast<float>(length));
        const auto tokenizer = Tokenizer::from(v);
        std::string prose;
        for (int i = 0; prose.size() < 1 << 20; ++i) prose += "The quick fox No. " + std::to_string(i) + " jumps.\n";
        for (const std::string &text :
             {std::string(1 << 20, 'a'), std::string(1 << 20, ' '), std::string(1 << 20, '\xFF'), prose,
              std::string(1 << 20, '~'), std::string(1 << 20, '<'), std::string(100000, '\n')}) {
            const testing::ProcessorTime time;
            EXPECT_EQ(tokenizer->decode(tokenizer->encode(text, kParsed)), text);
            EXPECT_LT(time.seconds(), 20) << text.substr(0, 10);
        }
    }
}

// Names of byte tokens, arrays of other lengths, scores that are no numbers: all refused, saying where.
TEST(Spm, HostileVocabulariesAreRefused) {
    const auto byte_named = [](const char *name) { return [=](Vocabulary &v) { v.tokens[13] = name; }; };
    std::vector<testing::BadVocabulary> table{
        {"no types", [](auto &v) { v.types.clear(); }, ErrorKind::file, {"token_type is missing", "'llama'"}},
        {"too few types", [](auto &v) { v.types.pop_back(); }, ErrorKind::file, {"token_type has 260", "has 261"}},
        {"no scores", [](auto &v) { v.scores.clear(); }, ErrorKind::file, {"tokenizer.ggml.scores is missing"}},
        {"too few scores", [](auto &v) { v.scores.pop_back(); }, ErrorKind::file, {"scores has 260", "has 261"}},
        {"too many scores", [](auto &v) { v.scores.push_back(0); }, ErrorKind::file, {"scores has 262", "has 261"}},
        {"NaN score", [](auto &v) { v.scores[7] = NAN; }, ErrorKind::file, {"scores[7] is nan", "finite"}},
        {"infinite score", [](auto &v) { v.scores[8] = INFINITY; }, ErrorKind::file, {"scores[8] is inf"}},
        {"score of minus infinity", [](auto &v) { v.scores[9] = -INFINITY; }, ErrorKind::file, {"scores[9] is -inf"}},
        {"byte twice",
         [](auto &v) { v.tokens[3 + 0xBB] = "<0xaa>"; },
         ErrorKind::file,
         {"[173] and [190] are the same byte, '<0xaa>'"}},
        {"same token twice", [](auto &v) { v.tokens[260] = "a"; }, ErrorKind::file, {"[259] and [260] are the same"}},
        {"no BOS", [](auto &v) { v.bos.reset(); }, ErrorKind::file, {"bos_token_id is absent"}},
        {"unknown past the end",
         [](auto &v) { v.unknown = 261; },
         ErrorKind::file,
         {"unknown_token_id is 261", "261 entries"}},
        {"unknown negative", [](auto &v) { v.unknown = -1; }, ErrorKind::file, {"unknown_token_id is -1"}},
        {"end of padding", [](auto &v) { v.fim_pad = 999; }, ErrorKind::file, {"fim_pad_token_id is 999"}},
        {"a token of 1 MB",
         [](auto &v) { v.tokens[260] = std::string(1 << 20, 'a'); },
         ErrorKind::limit,
         {"tokens[260] has 1048576 bytes", "2048 at most"}},
        {"a user-defined token of 1 MB",
         [](auto &v) {
             v.tokens[260] = std::string(1 << 20, 'a');
             v.types[260] = TokenType::user_defined;
         },
         ErrorKind::limit,
         {"tokens[260] has 1048576 bytes"}},
    };
    for (const auto *name :
         {"<0x-1>", "<0xZZ>", "<0x100>", "<0x1>", "<0x>", "<0x0A", "0x0A", "<0X0A>", "zz", "<0x 1>", "<0x+1>"}) {
        table.push_back({name, byte_named(name), ErrorKind::file, {"tokens[13] is '", name, "bytes are named <0x00>"}});
    }
    table.push_back({"empty byte", byte_named(""), ErrorKind::file, {"tokens[13] is ''", "bytes are named"}});
    testing::expect_refused(spm_vocabulary({"a", "b"}), table);
}

TEST(Spm, OddVocabulariesWork) {
    // Empty tokens fill up some tables; there may be many.
    Vocabulary v = spm_vocabulary({"▁a", "", "", "a"});
    EXPECT_EQ(Tokenizer::from(v)->encode("aa", kPlain), (Ids{259, 262}));
    // Pieces that are not UTF-8 are no text's, and can be decoded.
    v.tokens[260] = "\xC3";
    EXPECT_EQ(Tokenizer::from(v)->piece(260), "\xC3");
    EXPECT_EQ(Tokenizer::from(v)->encode("a\xC3", kPlain), (Ids{259, 3 + 0xC3}));
    // A user-defined token that is empty is found nowhere.
    v.types[261] = TokenType::user_defined;
    EXPECT_EQ(Tokenizer::from(v)->encode("aa", kPlain), (Ids{259, 262}));
    // No pieces at all.
    EXPECT_EQ(Tokenizer::from(spm_vocabulary({}))->decode(Ids{3 + 'x'}), "x");
}

TEST(Spm, ManyUserDefinedTokensAreSearchedFast) {
    Vocabulary v = spm_vocabulary({"▁", "a", "b"});
    for (int i = 0; i < 200000; ++i) add(v, "a" + std::to_string(i) + "!", 0, TokenType::user_defined);
    std::string longest(2000, 'a');
    for (; longest.size() > 1000; longest.pop_back()) add(v, longest + "!", 0, TokenType::user_defined);
    const auto tokenizer = Tokenizer::from(v);
    const testing::ProcessorTime time;
    const std::string text(1 << 16, 'a');
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text, kPlain)), text);
    EXPECT_EQ(tokenizer->encode("a77!a199999!", kPlain), (Ids{262 + 77, 262 + 199999}));
    EXPECT_LT(time.seconds(), 20);
}

}  // namespace
}  // namespace ridge::text
