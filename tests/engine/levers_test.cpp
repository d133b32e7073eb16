// Levers as text and as a value.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "engine/levers.h"
#include "engine/support.h"

namespace ridge::test {
namespace {

LeverSet edited(std::string_view text) { return LeverSet::defaults().edited(text, "--lever"); }

TEST(Levers, TableIsConsistent) {
    ASSERT_FALSE(all_levers().empty());
    for (const LeverInfo &l : all_levers()) {
        EXPECT_EQ(find_lever(l.name), l.id);
        EXPECT_EQ(name(l.id), l.name);
        EXPECT_FALSE(l.eliminates.empty()) << l.name;
        EXPECT_FALSE(l.surfaces_in.empty()) << l.name;
        EXPECT_EQ(LeverSet::defaults().has(l.id), l.on_by_default);
        EXPECT_TRUE(LeverSet::all().has(l.id));
        EXPECT_FALSE(LeverSet::none().has(l.id));
    }
    EXPECT_FALSE(find_lever("no_such"));
    EXPECT_FALSE(find_lever(""));
}

TEST(Levers, BaselineIsAlwaysLegal) {
    EXPECT_TRUE(LeverSet::none().has(Lever::none));
    EXPECT_EQ(LeverSet::none().with(Lever::none), LeverSet::none());
    EXPECT_EQ(LeverSet::all().without(Lever::none), LeverSet::all());
    EXPECT_TRUE(LeverSet::none().without(Lever::none).has(Lever::none));
    EXPECT_EQ(name(Lever::none), "none");
}

TEST(Levers, EditsFromLeftToRight) {
    const LeverSet d = LeverSet::defaults();
    EXPECT_EQ(edited(""), d);
    EXPECT_EQ(edited(" , ,\t\n"), d);
    EXPECT_EQ(edited("-gate_up"), d.without(Lever::gate_up));
    EXPECT_EQ(edited("-gate_up,+gate_up"), d);
    EXPECT_EQ(edited("+gate_up,-gate_up"), d.without(Lever::gate_up));
    EXPECT_EQ(edited("none,qkv"), LeverSet::none().with(Lever::qkv));
    EXPECT_EQ(edited("none +qkv\tavx2"), LeverSet::none().with(Lever::qkv).with(Lever::avx2));
    EXPECT_EQ(edited("qkv,none"), LeverSet::none());
    EXPECT_EQ(edited("all,-avx512"), LeverSet::all().without(Lever::avx512));
    EXPECT_EQ(edited("none,default"), d);
    EXPECT_EQ(edited(",,-gate_up,,-qkv,"), d.without(Lever::gate_up).without(Lever::qkv));
}

TEST(Levers, UnknownNamesAreErrorsThatListTheKnown) {
    for (const std::string bad : {"gate-up", "-gateup", "+", "-", "--qkv", "+none", "-all", "QKV", "qkv;avx2"}) {
        const std::string message = error_of(ErrorKind::usage, [&] { (void)edited(bad); });
        std::vector<std::string> words{"--lever", "none, all, default"};
        for (const LeverInfo &l : all_levers()) words.emplace_back(l.name);
        expect_words(message, words);
    }
    expect_words(error_of(ErrorKind::usage, [] { (void)edited("qkv,-fast"); }), {"'fast'"});
    // The message names where the text came from.
    expect_words(error_of(ErrorKind::usage, [] { (void)LeverSet::none().edited("x", "line 3"); }), {"line 3: "});
}

TEST(Levers, TextIsTheDifferenceToTheDefaults) {
    EXPECT_EQ(LeverSet::defaults().to_string(), "default");
    EXPECT_EQ(LeverSet::none().to_string(), "none");
    EXPECT_EQ(LeverSet::defaults().without(Lever::gate_up).to_string(), "-gate_up");
    EXPECT_EQ(LeverSet::defaults().without(Lever::avx2).without(Lever::int8_dot).to_string(), "-int8_dot,-avx2");
    EXPECT_TRUE(rc::check("to_string is read back as the same set", [] {
        LeverSet s = LeverSet::none();
        for (const LeverInfo &l : all_levers())
            if (*rc::gen::arbitrary<bool>()) s = s.with(l.id);
        RC_ASSERT(edited(s.to_string()) == s);
    }));
}

TEST(Levers, LastMentionWins) {
    EXPECT_TRUE(
        rc::check("a list of edits equals the edits one after another, and the last mention of a lever decides", [] {
            const size_t n = all_levers().size();
            const auto edits = *rc::gen::container<std::vector<std::pair<size_t, bool>>>(
                rc::gen::pair(rc::gen::inRange<size_t>(0, n), rc::gen::arbitrary<bool>()));
            std::string text;
            LeverSet expected = LeverSet::defaults(), one_by_one = LeverSet::defaults();
            for (const auto &[i, on] : edits) {
                const LeverInfo &l = all_levers()[i];
                const std::string word = (on ? "+" : "-") + std::string(l.name);
                text += (text.empty() ? "" : ",") + word;
                one_by_one = one_by_one.edited(word, "");
                expected = on ? expected.with(l.id) : expected.without(l.id);
            }
            RC_ASSERT(edited(text) == expected);
            RC_ASSERT(one_by_one == expected);
        }));
}

// Sets RIDGE_LEVERS while it lives.
class Environment {
  public:
    explicit Environment(const char *value) {
        if (const char *old = std::getenv("RIDGE_LEVERS")) old_ = old, had_ = true;
        value ? setenv("RIDGE_LEVERS", value, 1) : unsetenv("RIDGE_LEVERS");
    }
    ~Environment() { had_ ? setenv("RIDGE_LEVERS", old_.c_str(), 1) : unsetenv("RIDGE_LEVERS"); }
    Environment(const Environment &) = delete;
    Environment &operator=(const Environment &) = delete;

  private:
    std::string old_;
    bool had_ = false;
};

TEST(Levers, EnvironmentEditsTheDefaults) {
    {
        const Environment e(nullptr);
        EXPECT_EQ(LeverSet::from_environment(), LeverSet::defaults());
    }
    {
        const Environment e("");
        EXPECT_EQ(LeverSet::from_environment(), LeverSet::defaults());
    }
    {
        const Environment e("none,+qkv");
        EXPECT_EQ(LeverSet::from_environment(), LeverSet::none().with(Lever::qkv));
    }
    const Environment e("-nonsense");
    expect_words(error_of(ErrorKind::usage, [] { (void)LeverSet::from_environment(); }),
                 {"RIDGE_LEVERS", "'nonsense'"});
}

}  // namespace
}  // namespace ridge::test
