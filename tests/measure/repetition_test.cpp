#include "measure/repetition.h"

#include <gtest/gtest.h>

#include <vector>

namespace ridge {
namespace {

using Tokens = std::vector<int32_t>;

// n tokens of which none comes twice.
Tokens plain(int32_t n, int32_t first = 1000) {
    Tokens t;
    for (int32_t i = 0; i < n; i++) t.push_back(first + i);
    return t;
}
Tokens operator+(Tokens a, const Tokens &b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}
Tokens times(const Tokens &t, int n) {
    Tokens all;
    for (int i = 0; i < n; i++) all = std::move(all) + t;
    return all;
}

TEST(Repetition, OrdinaryTextIsNone) {
    const Repetition r = find_repetition(plain(64));
    EXPECT_EQ(r.kind, RepetitionKind::none);
    EXPECT_EQ(r.fresh, 1);
    EXPECT_EQ(to_string(r), "");
    EXPECT_FALSE(find_repetition({}).collapsed());
    EXPECT_FALSE(find_repetition(times({7}, 31)).collapsed()) << "too short to say";
}

TEST(Repetition, OneTokenOverAndOver) {
    const Repetition r = find_repetition(plain(32) + times({7}, 32));
    EXPECT_EQ(r.kind, RepetitionKind::period);
    EXPECT_EQ(r.period, 1u);
    EXPECT_EQ(r.covered, 32u);
    EXPECT_EQ(to_string(r), "repeats 1 token over the last 32");
    EXPECT_FALSE(find_repetition(plain(33) + times({7}, 31)).collapsed());
}

TEST(Repetition, TheShortestPeriodCounts) {
    for (int32_t p = 1; p <= 16; p++) {
        const Tokens t = plain(3, 5) + times(plain(p), 64 / p + 2);
        const Repetition r = find_repetition(t);
        EXPECT_EQ(r.kind, RepetitionKind::period) << p;
        EXPECT_EQ(r.period, static_cast<uint32_t>(p));
        EXPECT_EQ(r.covered, t.size() - 3);
    }
    // It may end within a period.
    EXPECT_EQ(find_repetition(plain(20) + times(plain(10, 1), 3) + plain(4, 1)).period, 10u);
}

TEST(Repetition, ThePeriodMustLastToTheEnd) {
    EXPECT_FALSE(find_repetition(plain(100) + times({7}, 40) + plain(10, 5000)).collapsed());
}

TEST(Repetition, LoopsOfUnevenLength) {
    // Three phrases in an order without a period.
    const Tokens a = plain(7, 100), b = plain(9, 200), c = plain(5, 300);
    const Repetition r = find_repetition(a + b + a + c + b + b + c + a + c + c + a + b);
    EXPECT_EQ(r.kind, RepetitionKind::loops);
    EXPECT_TRUE(r.collapsed());
    EXPECT_LT(r.fresh, 0.5);
}

TEST(Repetition, ACountIsAFrameAndNoCollapse) {
    Tokens t;
    for (int32_t i = 0; i < 32; i++) t.push_back(100 + i), t.push_back(7);
    const Repetition r = find_repetition(t);
    EXPECT_EQ(r.kind, RepetitionKind::frame);
    EXPECT_EQ(r.period, 2u);
    EXPECT_FALSE(r.collapsed());
    EXPECT_GE(r.covered, 32u);
    // The same token at every third place, the end in between.
    Tokens u;
    for (int32_t i = 0; i < 20; i++) u.push_back(7), u.push_back(200 + i), u.push_back(300 + i);
    EXPECT_EQ(find_repetition(u).period, 3u);
    EXPECT_EQ(find_repetition(u).kind, RepetitionKind::frame);
}

}  // namespace
}  // namespace ridge
