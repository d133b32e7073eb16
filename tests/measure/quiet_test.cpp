// What counts as a quiet machine, on machines made of files.
#include "measure/quiet.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace ridge {
namespace {

class FakeLoad : public testing::Test {
  protected:
    FakeLoad()
        : root_(std::filesystem::temp_directory_path() /
                ("ridge_quiet_" + std::to_string(getpid()) + "_" +
                 testing::UnitTest::GetInstance()->current_test_info()->name())) {
        std::filesystem::remove_all(root_);
    }
    ~FakeLoad() override { std::filesystem::remove_all(root_); }

    void file(const std::string &path, const std::string &text) {
        const std::filesystem::path full = root_.string() + path;
        std::filesystem::create_directories(full.parent_path());
        std::ofstream(full) << text;
    }
    Load read() { return read_load(root_.string()); }

    std::filesystem::path root_;
};

constexpr double kTick = 0.01;  // USER_HZ is 100 on every Linux that there is

TEST_F(FakeLoad, CountsWhatIsBusyAndNotWhatWaits) {
    //                          user nice system idle iowait irq softirq steal guest guest_nice
    file("/proc/stat", "cpu  1000 200 300 50000 7000 40 5 600 900 0\ncpu0 1 1 1 1\ncpu1 1 1 1 1\nintr 5\n");
    file("/proc/loadavg", "3.07 3.08 1.55 3/104 11310\n");
    const Load l = read();
    EXPECT_DOUBLE_EQ(l.busy, (1000 + 200 + 300 + 40 + 5) * kTick);
    EXPECT_DOUBLE_EQ(l.stolen, 600 * kTick);
    EXPECT_EQ(l.processors, 2U);
    EXPECT_DOUBLE_EQ(l.load_average, 3.07);
    EXPECT_GT(l.own, 0);
    EXPECT_EQ(l.throttled, 0);
}

TEST_F(FakeLoad, ThrottlingOfBothKindsOfCgroups) {
    file("/proc/self/cgroup", "0::/box\n");
    file("/sys/fs/cgroup/box/cpu.stat", "usage_usec 5\nnr_throttled 3\nthrottled_usec 250000\n");
    EXPECT_DOUBLE_EQ(read().throttled, 0.25);
    file("/proc/self/cgroup", "4:memory:/box\n3:cpu,cpuacct:/box\n0::/\n");
    file("/sys/fs/cgroup/cpu,cpuacct/box/cpu.stat", "nr_periods 9\nnr_throttled 3\nthrottled_time 750000000\n");
    EXPECT_DOUBLE_EQ(read().throttled, 0.75);
}

TEST_F(FakeLoad, TheClockIsThatOfTheFastestProcessor) {
    file("/proc/cpuinfo", "processor\t: 0\ncpu MHz\t\t: 2596.122\n\nprocessor\t: 1\ncpu MHz\t\t: 3100.5\nmodel\t: 2\n");
    EXPECT_NEAR(read().clock, 3100.5e6, 1);
    file("/sys/devices/system/cpu/cpufreq/policy0/scaling_cur_freq", "800000\n");
    file("/sys/devices/system/cpu/cpufreq/policy1/scaling_cur_freq", "4200000\n");
    file("/sys/devices/system/cpu/cpufreq/boost", "1\n");
    EXPECT_NEAR(read().clock, 4.2e9, 1);
    Load before = read(), after = read();
    after.wall += 1, after.clock = 3e9;
    EXPECT_EQ(between(before, after).clock_before, before.clock);
    EXPECT_EQ(between(before, after).clock_after, 3e9);
}

TEST_F(FakeLoad, FilesThatAreMissingSayNothing) {
    const Load l = read();
    EXPECT_EQ(l.clock, 0);
    EXPECT_EQ(l.busy, 0);
    EXPECT_EQ(l.processors, 1U);
    EXPECT_EQ(l.throttled, 0);
}

// `seconds` on two processors, of which others had `others`, the hypervisor `stolen`; quota held back for `throttled`.
Contention span(double seconds, double others, double stolen = 0, double throttled = 0, double own = 1) {
    Load a, b;
    a.processors = b.processors = 2;
    a.wall = 100, b.wall = 100 + seconds;
    a.busy = 50, b.busy = 50 + (others + own) * seconds;
    a.own = 7, b.own = 7 + own * seconds;
    b.stolen = stolen * seconds, b.throttled = throttled * seconds;
    b.load_average = 4.5;
    return between(a, b);
}

TEST(Contention, OthersCountAndThisProcessDoesNot) {
    EXPECT_TRUE(span(1, 0, 0, 0, 2).quiet()) << span(1, 0, 0, 0, 2).reason();
    EXPECT_TRUE(span(1, 0.08).quiet());
    EXPECT_FALSE(span(1, 0.25).quiet());
    EXPECT_NEAR(span(2, 1.3).others, 1.3, 1e-9);
    EXPECT_EQ(span(2, 1.3).reason(), "other processes used 1.30 processors (load average 4.5)");
}

TEST(Contention, TheHypervisorAndTheQuotaCount) {
    EXPECT_EQ(span(1, 0, 0.5).reason(), "the hypervisor gave 0.50 processors to other guests");
    EXPECT_EQ(span(1, 0, 0, 0.2).reason(), "the cgroup's processor quota held this process back for 20% of the time");
    EXPECT_TRUE(span(1, 0, 0.05, 0.005).quiet());
}

// A tick that falls into a span of 20 ms is half of it, and nobody's fault.
TEST(Contention, ShortSpansAreCountedInTicks) {
    EXPECT_TRUE(span(0.02, 1).quiet());
    EXPECT_FALSE(span(0.2, 1).quiet());
}

TEST(Contention, TimeOfThisProcessIsReadWhereItIsSpent) {
    QuietWatch watch;
    const auto start = read_load();
    double x = 1;
    while (read_load().own - start.own < 0.2) x = x * 1.0000001;
    const Contention c = watch.lap();
    EXPECT_GT(x, 0);
    EXPECT_GT(c.seconds, 0.15);
    EXPECT_LT(c.others, 1.0 * read_load().processors);
}

}  // namespace
}  // namespace ridge
