// The normalizer of SentencePiece vocabularies: spaces, replacements, and tables of replacements that lie.
#include "text/normalizer.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "core/error.h"
#include "text/sentencepiece_reference.h"

namespace ridge::text {
namespace {

std::string normalized(std::string_view text, Spaces spaces, const std::string &charsmap = "") {
    Vocabulary v;
    v.origin = "test";
    v.charsmap = charsmap;
    return with_spaces(Normalizer(v, spaces).apply(text));
}

TEST(Normalizer, Spaces) {
    const Spaces none{.add_prefix = false, .remove_extra = false};
    const Spaces prefix{.add_prefix = true, .remove_extra = false};
    const Spaces both{.add_prefix = true, .remove_extra = true};
    EXPECT_EQ(normalized("  a  b ", none), "  a  b ");
    EXPECT_EQ(normalized("  a  b ", prefix), "   a  b ");
    EXPECT_EQ(normalized("  a  b ", both), " a b");
    for (const Spaces spaces : {none, prefix, both}) EXPECT_EQ(normalized("", spaces), "");
    EXPECT_EQ(normalized("  ", prefix), "   ");
    EXPECT_EQ(normalized("  ", both), "");
    EXPECT_EQ(normalized("\n", both), " \n");  // only the space is one
    EXPECT_EQ(normalized("\xFF a", both), " \xFF a");
    Vocabulary v;
    v.add_space_prefix = false;
    EXPECT_FALSE(Normalizer(v, both).adds_prefix());
    EXPECT_EQ(Normalizer(v, both).apply("a b"),
              "a\xE2\x96\x81"
              "b");
}

TEST(Normalizer, Replacements) {
    const std::string charsmap = testing::sentencepiece_vocabulary("unigram").charsmap;
    const Spaces none{.add_prefix = false, .remove_extra = false};
    const Spaces both{.add_prefix = true, .remove_extra = true};
    EXPECT_EQ(normalized("ﬁne ＡＢ ½", none, charsmap), "fine AB 1⁄2");
    EXPECT_EQ(normalized("a\u0308a", none, charsmap), "äa");  // the longest entry
    EXPECT_EQ(normalized("x\u200b\u200by", none, charsmap), "xy");
    EXPECT_EQ(normalized("\u3000\t a\u00a0\u3000b\n", both, charsmap), " a b");
    EXPECT_EQ(normalized("\u200b", both, charsmap), "");
    EXPECT_EQ(normalized(std::string("a\0b", 3), none, charsmap), std::string("a\0b", 3));
}

std::string u32(uint32_t value) {
    std::string bytes;
    for (int i = 0; i < 4; ++i) bytes += static_cast<char>(value >> (8 * i) & 0xFF);
    return bytes;
}

std::string table(const std::vector<uint32_t> &units, const std::string &replacements) {
    std::string blob = u32(static_cast<uint32_t>(4 * units.size()));
    for (const uint32_t unit : units) blob += u32(unit);
    return blob + replacements;
}

// A root at offset 256 whose child 'a' is the unit `a`.
std::vector<uint32_t> units_with(uint32_t a) {
    std::vector<uint32_t> units(1024, 0);
    units[0] = 256 << 10;
    units[256 ^ 'a'] = 'a' | a;
    return units;
}
constexpr uint32_t kHasValue = 1 << 8;
// An offset that leads from the unit of 'a' to unit `to`.
uint32_t leads_to(uint32_t to) { return (256 ^ 'a' ^ to) << 10; }

TEST(CharsMap, ReadsATableMadeByHand) {
    auto units = units_with(kHasValue | leads_to(512));
    units[512] = 1u << 31 | 3;
    const CharsMap map(table(units, std::string("no\0yes\0", 7)), "test");
    EXPECT_EQ(map.longest("abc").length, 1u);
    EXPECT_EQ(map.longest("abc").replacement, "yes");
    EXPECT_EQ(map.longest("b").length, 0u);
    EXPECT_EQ(map.longest("").length, 0u);
}

TEST(CharsMap, BadTablesAreRefused) {
    auto past_end = units_with(kHasValue | leads_to(512));
    past_end[512] = 1u << 31 | 3;
    const struct {
        const char *name;
        std::string blob;
        ErrorKind kind;
        const char *says;
    } bad[] = {
        {"three bytes", "abc", ErrorKind::file, "has 3 bytes"},
        {"no trie", u32(0) + "x", ErrorKind::file, "trie of 0 bytes"},
        {"trie longer than the table", u32(8) + "abcd", ErrorKind::file, "trie of 8 bytes"},
        {"trie of 2^32 - 4 bytes", u32(0xFFFFFFFC) + "abcd", ErrorKind::file, "trie of 4294967292 bytes"},
        {"part of a unit", u32(3) + "abcd", ErrorKind::file, "trie of 3 bytes"},
        {"replacement without an end", table(units_with(0), "abc"), ErrorKind::file, "does not end"},
        {"replacement past the end", table(past_end, std::string("no\0", 3)), ErrorKind::file, "past the end"},
        {"no replacements", table(past_end, ""), ErrorKind::file, "past the end"},
        {"value outside", table(units_with(kHasValue | leads_to(2000)), std::string(1, '\0')), ErrorKind::file,
         "past the end"},
        {"long replacement", table(units_with(0), std::string(257, 'x') + '\0'), ErrorKind::limit, "257 bytes"},
        {"too large", std::string((4 << 20) + 1, '\0'), ErrorKind::limit, "4194305 bytes"},
    };
    for (const auto &b : bad) {
        try {
            CharsMap map(b.blob, "model.gguf");
            ADD_FAILURE() << b.name << " was accepted";
        } catch (const Error &e) {
            const std::string what = e.what();
            EXPECT_EQ(e.kind(), b.kind) << what;
            EXPECT_TRUE(what.starts_with("model.gguf: ")) << what;
            EXPECT_NE(what.find("tokenizer.ggml.precompiled_charsmap"), std::string::npos) << what;
            EXPECT_NE(what.find(b.says), std::string::npos) << b.name << ": " << what;
        }
    }
}

// The child of 'a' is 'a' again: any run of them would be walked to its end from each of its places.
TEST(CharsMap, RingsEndALookUp) {
    const CharsMap map(table(units_with(leads_to(256)), std::string(1, '\0')), "test");
    const std::string text(1 << 20, 'a');
    const testing::ProcessorTime time;
    for (size_t at = 0; at < text.size(); ++at) EXPECT_EQ(map.longest(std::string_view(text).substr(at)).length, 0u);
    EXPECT_LT(time.seconds(), 20);
}

TEST(CharsMap, DamagedTablesAreRefusedOrWork) {
    const std::string good = testing::sentencepiece_vocabulary("unigram").charsmap;
    const auto texts = testing::sentencepiece().at("texts").get<std::vector<std::string>>();
    EXPECT_TRUE(rc::check("no damage reaches outside", [&] {
        std::string blob = good;
        const size_t changes = *rc::gen::inRange<size_t>(0, 20);
        for (size_t i = 0; i < changes; ++i)
            blob[*rc::gen::inRange<size_t>(0, blob.size())] = *rc::gen::arbitrary<char>();
        if (*rc::gen::arbitrary<bool>()) blob.resize(*rc::gen::inRange<size_t>(1, blob.size()));
        try {
            const CharsMap map(blob, "test");
            for (const std::string &text : texts) {
                for (size_t at = 0; at < text.size(); ++at) {
                    const auto match = map.longest(std::string_view(text).substr(at));
                    RC_ASSERT(match.length <= text.size() - at);
                    RC_ASSERT(match.replacement.size() < blob.size());
                }
            }
        } catch (const Error &) {
        }
    }));
}

}  // namespace
}  // namespace ridge::text
