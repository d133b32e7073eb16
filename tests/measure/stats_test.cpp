#include "measure/bench_stats.h"

#include <gtest/gtest.h>

namespace ridge {
namespace {

TEST(Samples, OrderStatistics) {
    Samples s({5, 1, 3});
    EXPECT_EQ(s.median(), 3);
    EXPECT_EQ(s.least(), 1);
    EXPECT_EQ(s.most(), 5);
    s.add(2);
    EXPECT_EQ(s.median(), 2.5);
    EXPECT_EQ(s.count(), 4U);
    EXPECT_EQ(s.in_order(), (std::vector<double>{5, 1, 3, 2}));
}

TEST(Samples, Moments) {
    const Samples s({2, 4, 4, 4, 5, 5, 7, 9});
    EXPECT_DOUBLE_EQ(s.mean(), 5);
    EXPECT_NEAR(s.deviation(), 2.1380899, 1e-6);
    EXPECT_DOUBLE_EQ(s.spread(), (5.5 - 4) / 2 / 4.5);
}

TEST(Samples, NoneAndOne) {
    const Samples none;
    EXPECT_TRUE(none.empty());
    EXPECT_EQ(none.median() + none.mean() + none.deviation() + none.spread() + none.least() + none.most(), 0);
    const Samples one({7});
    EXPECT_EQ(one.median(), 7);
    EXPECT_EQ(one.deviation(), 0);
    EXPECT_EQ(one.spread(), 0);
}

TEST(Samples, Mapped) {
    const Samples rates = Samples({0.5, 0.25, 1}).map([](double s) { return 1 / s; });
    EXPECT_EQ(rates.median(), 2);
    EXPECT_EQ(rates.in_order(), (std::vector<double>{2, 4, 1}));
}

}  // namespace
}  // namespace ridge
