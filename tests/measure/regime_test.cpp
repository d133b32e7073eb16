// The rule that names a regime, on numbers made up for each.
#include "measure/regime.h"

#include <gtest/gtest.h>

#include <numeric>

namespace ridge {
namespace {

// 20 GB/s, 200 GMAC/s of int8, 50 of f32, barriers of 1 us, steps of 5 us, 32 MB of cache.
CeilingFigures machine() {
    return {"made up",
            {{"read", "B/s", 20e9, 0, 0},
             {"int8", "MAC/s", 200e9, 0, 0},
             {"f32", "MAC/s", 50e9, 0, 0},
             {"barrier", "s", 1e-6, 0, 0},
             {"submit", "s", 5e-6, 0, 0},
             {"cache", "B", 32e6, 0, 0}}};
}

// A class that takes `seconds`, reads `bytes` and multiplies `int8`, with both of two workers busy.
LaunchClass launches(double seconds, double bytes, double int8 = 0, double f32 = 0) {
    LaunchClass c;
    c.name = "contract Q8_0";
    c.launches = 100, c.seconds = seconds, c.busy = 2 * seconds;
    c.bytes = c.traffic = bytes, c.int8 = int8, c.f32 = f32;
    return c;
}

StepTimes step(double wall, std::vector<LaunchClass> classes, double barriers = 100) {
    StepTimes s;
    s.wall = wall, s.workers = 2, s.barriers = barriers;
    s.classes = std::move(classes);
    return s;
}

double sum(const RegimeVerdict &v) { return std::accumulate(v.time.begin(), v.time.end(), 0.0); }

TEST(Regime, LargeWeightsForOneTokenAreBandwidth) {
    // 1 GB in 60 ms is 83% of 20 GB/s; norms take another 4 ms, barriers 1 ms.
    const RegimeVerdict v = judge(step(65e-3, {launches(60e-3, 1e9, 1e9), launches(4e-3, 1e4)}), machine());
    EXPECT_EQ(v.regime, Regime::bandwidth);
    EXPECT_FALSE(v.close);
    EXPECT_NEAR(v.read_share, 50.0 / 65, 1e-3);
    EXPECT_NEAR(v.outside, 1.0 / 65, 1e-9);
    EXPECT_NEAR(v.barrier_share, 100e-6 / 65e-3, 1e-9);
    EXPECT_NEAR(sum(v), 1, 1e-9);
    EXPECT_EQ(v.classes[0].bound, Regime::bandwidth);
    EXPECT_NEAR(v.classes[0].share, 50.0 / 60, 1e-4);
    EXPECT_NEAR(v.classes[0].f, 60.0 / 65, 1e-9);
    EXPECT_NEAR(v.classes[0].most, 65.0 / 5, 1e-6);
    EXPECT_NEAR(v.classes[0].to_ceiling, 65.0 / 55, 1e-3) << "10 of 65 ms are above the ceiling";
    EXPECT_EQ(v.classes[1].bound, Regime::busy);
}

TEST(Regime, ManyTokensAreCompute) {
    // 1 GB shared by 512 tokens: 512 GMAC at 45% of the int8 rate.
    const RegimeVerdict v = judge(step(6, {launches(5.7, 1e9, 512e9), launches(0.25, 1e4)}), machine());
    EXPECT_EQ(v.regime, Regime::compute);
    EXPECT_NEAR(v.classes[0].share, 2.56 / 5.7, 1e-6);
    EXPECT_NEAR(v.compute_share, 2.56 / 6, 1e-6);
    EXPECT_LT(v.read_share, 0.02);
}

TEST(Regime, ArithmeticOfEveryKindCountsAtItsOwnRate) {
    LaunchClass both = launches(1, 1e6, 50e9, 12.5e9);
    const RegimeVerdict v = judge(step(1.01, {both}), machine());
    EXPECT_NEAR(v.classes[0].compute_share, 0.25 + 0.25, 1e-9);
    both.bf16 = 1e9;  // whose rate was not measured
    EXPECT_NEAR(judge(step(1.01, {both}), machine()).classes[0].compute_share, 0.5, 1e-9);
}

TEST(Regime, TimeBetweenLaunchesIsTheHosts) {
    // 100 launches of 1 us each, and 9 us between two.
    const RegimeVerdict v = judge(step(1e-3, {launches(1e-4, 1e6, 1e6)}, 100), machine());
    EXPECT_EQ(v.regime, Regime::host);
    EXPECT_NEAR(v.outside, 0.9, 1e-9);
    EXPECT_NEAR(v.barrier_share, 0.1, 1e-9);
    EXPECT_NEAR(v.submit_share, 0.005, 1e-9);
    EXPECT_NEAR(v.busy_share, 0.1, 1e-9);
}

TEST(Regime, LaunchesThatNoCeilingExplainsAreBusy) {
    // The same as LargeWeightsForOneToken, each launch twenty times as long.
    const RegimeVerdict v = judge(step(1.21, {launches(1.2, 1e9, 1e9)}), machine());
    EXPECT_EQ(v.regime, Regime::busy);
    EXPECT_NEAR(v.busy_share, 1.2 / 1.21, 1e-9);
    EXPECT_NEAR(v.classes[0].share, 0.05 / 1.2, 1e-6) << "of the nearer ceiling";
    EXPECT_GT(v.classes[0].to_ceiling, 15);
}

// What is read again and again from caches is not bound by memory, however fast or slow it is read.
TEST(Regime, WeightsInCachesAreNotBandwidth) {
    const StepTimes small = step(1e-3, {launches(0.9e-3, 10e6, 10e6)});
    const RegimeVerdict v = judge(small, machine());
    EXPECT_TRUE(v.cached);
    EXPECT_EQ(v.regime, Regime::busy);
    CeilingFigures unknown = machine();
    std::erase_if(unknown.list, [](const CeilingFigure &f) { return f.name == "cache"; });
    EXPECT_EQ(judge(small, unknown).regime, Regime::bandwidth) << "55% of the bandwidth, if it were memory's";
    // Twice as fast as memory can be.
    EXPECT_EQ(judge(step(1e-3, {launches(0.9e-3, 40e6, 10e6)}), unknown).regime, Regime::busy);
}

// A third of a rate is what some kernels come to; a third of the bandwidth means that something else is waited for.
TEST(Regime, HowNearACeilingHasToBe) {
    const auto bound = [](double read_share, double compute_share) {
        return judge(step(1.01, {launches(1, 20e9 * read_share, 200e9 * compute_share)}), machine()).classes[0].bound;
    };
    EXPECT_EQ(bound(0.5, 0), Regime::bandwidth);
    EXPECT_EQ(bound(0.33, 0), Regime::busy);
    EXPECT_EQ(bound(0, 0.33), Regime::compute);
    EXPECT_EQ(bound(0, 0.15), Regime::busy);
    EXPECT_EQ(bound(0.5, 0.6), Regime::compute);
    EXPECT_EQ(bound(0.4, 0.3), Regime::busy) << "nearer to the bandwidth, and not near enough";
}

TEST(Regime, TheSecondIsNamedWhereItIsNear) {
    const auto with_gaps = [](double outside) {
        return judge(step(60e-3 + outside, {launches(60e-3, 1e9)}), machine());
    };
    EXPECT_FALSE(with_gaps(20e-3).close);
    EXPECT_TRUE(with_gaps(40e-3).close);
    EXPECT_EQ(with_gaps(40e-3).regime, Regime::bandwidth);
    EXPECT_EQ(with_gaps(40e-3).second, Regime::host);
    EXPECT_EQ(with_gaps(80e-3).regime, Regime::host);
}

TEST(Regime, NothingMeasuredBindsNothing) {
    const RegimeVerdict v = judge(step(65e-3, {launches(60e-3, 1e9, 1e9)}), {});
    EXPECT_EQ(v.regime, Regime::busy);
    EXPECT_EQ(v.read_share, 0);
    EXPECT_EQ(judge(step(1, {}), machine()).regime, Regime::host);
}

TEST(Regime, DevicesThatRunAtTheSameTimeShareTheWall) {
    const RegimeVerdict v = judge(step(1, {launches(0.9, 18e9), launches(0.9, 1e6, 90e9)}), machine());
    EXPECT_NEAR(sum(v), 1, 1e-9);
    EXPECT_EQ(v.outside, 0);
}

TEST(Speedup, IsAmdahls) {
    EXPECT_DOUBLE_EQ(speedup(0.5, 0.5), 1 / 0.75);
    EXPECT_DOUBLE_EQ(speedup(0, 0), 1);
    EXPECT_DOUBLE_EQ(speedup(0.9, 1), 1);
    EXPECT_NEAR(speedup(0.38, 1 / 4.9), 1.434, 1e-3);
    EXPECT_LE(speedup(1, 0), 1e6 + 1);
}

}  // namespace
}  // namespace ridge
