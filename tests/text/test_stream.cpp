// UTF-8 streaming against decoding at once, stop strings against a search of the whole text.
#include "text/stream.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>

#include "core/error.h"
#include "text/reference.h"
#include "text/tokenizer.h"
#include "core/utf8.h"

namespace ridge::text {
namespace {

#define FFFD "\xEF\xBF\xBD"

std::string decode_at_once(std::string_view bytes) {
    Utf8Stream stream;
    std::string text = stream.feed(bytes);
    return text + stream.finish();
}

// Cuts `bytes` at random places and feeds the parts, empty ones among them.
template <class Stream>
std::string feed_in_parts(Stream &stream, std::string_view bytes) {
    std::string text;
    for (const size_t length : *rc::gen::container<std::vector<size_t>>(rc::gen::element<size_t>(0, 1, 1, 2, 3, 5))) {
        const size_t n = std::min(length, bytes.size());
        text += stream.feed(bytes.substr(0, n));
        bytes.remove_prefix(n);
    }
    return text + stream.feed(bytes);
}

// Bytes that often make up UTF-8, whole and broken.
std::string random_bytes() {
    const auto parts = *rc::gen::container<std::vector<std::string>>(rc::gen::element<std::string>(
        "a", " ", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x99\x82", "\xC3", "\xE2\x82", "\xF0\x9F", "\x80", "\xBF",
        "\xFF", "\xC0", "\xED\xA0", "\xF4\x90", "\xE0\x9F", "\xF5"));
    std::string bytes;
    for (const auto &part : parts) bytes += part;
    return bytes;
}

// What Python's bytes.decode("utf-8", "replace") gives.
TEST(Utf8Stream, ReplacesIllFormedUnits) {
    const std::vector<std::pair<std::string, std::string>> table{
        {"", ""},
        {"plain", "plain"},
        {"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x99\x82", "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x99\x82"},
        {"\x80", FFFD},
        {"a\xFF\xFEz", "a" FFFD FFFD "z"},
        {"\xC3", FFFD},
        {"\xC3(", FFFD "("},
        {"\xE2\x82", FFFD},
        {"\xE2\x82x", FFFD "x"},
        {"\xF0\x9F\x99", FFFD},
        {"\xF0\x9F\x99\xF0\x9F\x99\x82", FFFD "\xF0\x9F\x99\x82"},
        {"\xC0\xAF", FFFD FFFD},
        {"\xE0\x80\xAF", FFFD FFFD FFFD},
        {"\xED\xA0\x80", FFFD FFFD FFFD},
        {"\xED\x9F\xBF", "\xED\x9F\xBF"},
        {"\xF4\x8F\xBF\xBF", "\xF4\x8F\xBF\xBF"},
        {"\xF4\x90\x80\x80", FFFD FFFD FFFD FFFD},
        {"\xF0\x80\x80\x41", FFFD FFFD FFFD "A"},
        // Unicode 15, table 3-8
        {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", FFFD FFFD FFFD FFFD "A"},
    };
    for (const auto &[bytes, text] : table) EXPECT_EQ(decode_at_once(bytes), text) << bytes;
}

TEST(Utf8Stream, HoldsBackOnlyWhatIsUnfinished) {
    Utf8Stream stream;
    EXPECT_EQ(stream.feed("a\xF0\x9F"), "a");
    EXPECT_EQ(stream.feed("\x99"), "");
    EXPECT_EQ(stream.feed("\x82"
                          "b\xC3"),
              "\xF0\x9F\x99\x82"
              "b");
    EXPECT_EQ(stream.feed(""), "");
    EXPECT_EQ(stream.feed("c"), FFFD "c");
    EXPECT_EQ(stream.feed("\xE2\x82"), "");
    EXPECT_EQ(stream.finish(), FFFD);
    EXPECT_EQ(stream.finish(), "");
}

TEST(Utf8Stream, DoesNotDependOnTheCuts) {
    EXPECT_TRUE(rc::check("streamed == at once, and always whole characters", [] {
        const std::string bytes = random_bytes();
        Utf8Stream stream;
        const std::string so_far = feed_in_parts(stream, bytes);
        RC_ASSERT(utf8_valid_prefix(so_far) == so_far.size());
        const std::string text = so_far + stream.finish();
        RC_ASSERT(text == decode_at_once(bytes));
        RC_ASSERT(utf8_valid_prefix(text) == text.size());
        if (utf8_valid_prefix(bytes) == bytes.size()) RC_ASSERT(text == bytes);
    }));
}

TEST(Utf8Stream, TokensOfTheCorpusStreamToItsText) {
    const auto tokenizer = Tokenizer::from(testing::small_vocabulary());
    size_t split_characters = 0;
    for (const auto &c : testing::corpus()) {
        Utf8Stream stream;
        std::string text;
        for (const int32_t id : tokenizer->encode(c.bytes)) {
            const std::string part = stream.feed(tokenizer->piece(id));
            EXPECT_EQ(utf8_valid_prefix(part), part.size()) << c.name;
            split_characters += part.empty();
            text += part;
        }
        text += stream.finish();
        EXPECT_EQ(text, c.has_reference ? c.bytes : decode_at_once(c.bytes)) << c.name;
    }
    EXPECT_GT(split_characters, 100u);
}

// The stop string that is complete first, of several the longest; searched for in the whole text.
std::pair<std::string, bool> stop_at_once(const std::vector<std::string> &stops, const std::string &text) {
    size_t first_end = std::string::npos;
    size_t start = text.size();
    for (const std::string &stop : stops) {
        const size_t at = text.find(stop);
        if (at == std::string::npos) continue;
        const size_t end = at + stop.size();
        if (end < first_end || (end == first_end && at < start)) {
            first_end = end;
            start = at;
        }
    }
    return {text.substr(0, start), first_end != std::string::npos};
}

TEST(StopMatcher, IsASearchOfTheWholeText) {
    EXPECT_TRUE(rc::check("streamed == whole", [] {
        const auto word = rc::gen::container<std::string>(rc::gen::elementOf(std::string("aab")));
        const auto stops = *rc::gen::container<std::vector<std::string>>(rc::gen::nonEmpty(word));
        const std::string text = *rc::gen::container<std::string>(rc::gen::elementOf(std::string("aaab.")));
        StopMatcher matcher(stops);
        std::string streamed = feed_in_parts(matcher, text);
        const auto [expected, stopped] = stop_at_once(stops, text);
        RC_ASSERT(expected.starts_with(streamed));
        RC_ASSERT(matcher.stopped() == stopped);
        streamed += matcher.finish();
        RC_ASSERT(streamed == expected);
    }));
}

TEST(StopMatcher, HoldsBackNoMoreThanItMust) {
    StopMatcher matcher({"<|end|>", "\n\nUser:"});
    EXPECT_EQ(matcher.feed("Hi <"), "Hi ");
    EXPECT_EQ(matcher.feed("b> and <|en"), "<b> and ");
    EXPECT_EQ(matcher.feed("ter|>\n"), "<|enter|>");
    EXPECT_EQ(matcher.feed("\n"), "");
    EXPECT_EQ(matcher.feed("\nUser"), "\n");
    EXPECT_FALSE(matcher.stopped());
    EXPECT_EQ(matcher.feed(": more"), "");
    EXPECT_TRUE(matcher.stopped());
    EXPECT_EQ(matcher.feed("nothing"), "");
    EXPECT_EQ(matcher.finish(), "");
}

TEST(StopMatcher, TheLongestOfThoseThatEndTogetherCounts) {
    for (const auto &stops : std::vector<std::vector<std::string>>{{"b", "ab"}, {"ab", "b"}}) {
        StopMatcher matcher(stops);
        EXPECT_EQ(matcher.feed("xabab"), "x");
        EXPECT_TRUE(matcher.stopped());
    }
}

TEST(StopMatcher, GivesBackTheTailOfATextThatEnds) {
    StopMatcher matcher({"STOP"});
    EXPECT_EQ(matcher.feed("go ST"), "go ");
    EXPECT_EQ(matcher.finish(), "ST");
    EXPECT_FALSE(matcher.stopped());
    StopMatcher none({});
    EXPECT_EQ(none.feed("anything"), "anything");
    EXPECT_EQ(none.finish(), "");
}

TEST(StopMatcher, RefusesAnEmptyStop) {
    try {
        StopMatcher matcher({"a", ""});
        FAIL();
    } catch (const Error &e) {
        EXPECT_EQ(e.kind(), ErrorKind::usage);
    }
}

}  // namespace
}  // namespace ridge::text
