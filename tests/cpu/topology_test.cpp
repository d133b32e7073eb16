// Fake machines: trees of files as the kernel would show them.
#include "backend/cpu/topology.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "backend/cpu/cpu.h"
#include "backend/cpu/rows.h"

namespace ridge::cpu {
namespace {

class FakeMachine : public testing::Test {
  protected:
    FakeMachine()
        : root_(std::filesystem::temp_directory_path() /
                ("ridge_topology_" + std::to_string(getpid()) + "_" +
                 testing::UnitTest::GetInstance()->current_test_info()->name())) {
        std::filesystem::remove_all(root_);
        std::filesystem::create_directories(root_);
    }
    ~FakeMachine() override { std::filesystem::remove_all(root_); }

    void file(const std::string &path, const std::string &text) {
        const std::filesystem::path full = root_.string() + path;
        std::filesystem::create_directories(full.parent_path());
        std::ofstream(full) << text;
    }
    void siblings(int cpu, const std::string &list) {
        file("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list", list + "\n");
    }
    Topology read(std::vector<int> processors) { return read_topology(root_.string(), std::move(processors)); }
    Memory memory() { return read_memory(root_.string()); }

    std::filesystem::path root_;
};

TEST(CpuList, Forms) {
    EXPECT_EQ(parse_cpu_list("0-3,8\n"), (std::vector<int>{0, 1, 2, 3, 8}));
    EXPECT_EQ(parse_cpu_list("5"), (std::vector<int>{5}));
    EXPECT_EQ(parse_cpu_list("0,64"), (std::vector<int>{0, 64}));
    EXPECT_EQ(parse_cpu_list(""), std::vector<int>{});
    EXPECT_EQ(parse_cpu_list("x"), std::vector<int>{});
    EXPECT_EQ(parse_cpu_list("1,3-2,7"), (std::vector<int>{1}));
    EXPECT_EQ(parse_cpu_list("0-999999999"), std::vector<int>{});
    EXPECT_EQ(parse_cpu_list("-4"), std::vector<int>{});
}

TEST_F(FakeMachine, NothingKnownMeansEachProcessorIsACore) {
    const Topology t = read({0, 1, 2});
    EXPECT_EQ(t.cores, 3u);
    EXPECT_EQ(t.quota, 0);
    EXPECT_EQ(t.default_threads(), 3u);
    EXPECT_FALSE(t.model.empty());
    EXPECT_EQ(read({}).default_threads(), 1u);
}

TEST_F(FakeMachine, SiblingsCountOnce) {
    for (int c = 0; c < 8; c++) siblings(c, std::to_string(c % 4) + "," + std::to_string(c % 4 + 4));
    EXPECT_EQ(read({0, 1, 2, 3, 4, 5, 6, 7}).default_threads(), 4u);
    EXPECT_EQ(read({0, 4}).default_threads(), 1u);
    // The lower sibling is out of reach: the upper one is a core of its own.
    EXPECT_EQ(read({4, 5, 1}).default_threads(), 2u);
    EXPECT_EQ(read({7, 3, 6, 2}).processors, (std::vector<int>{2, 3, 6, 7}));
}

TEST_F(FakeMachine, OneOfEachCoreIsPreferred) {
    for (int c = 0; c < 8; c++) siblings(c, std::to_string(c / 2 * 2) + "-" + std::to_string(c / 2 * 2 + 1));
    EXPECT_EQ(read({0, 1, 2, 3, 4, 5, 6, 7}).preferred, (std::vector<int>{0, 2, 4, 6, 1, 3, 5, 7}));
    EXPECT_EQ(read({1, 2, 3, 7}).preferred, (std::vector<int>{1, 2, 7, 3}));
    EXPECT_EQ(read({}).preferred, std::vector<int>{0});
}

// Four fast cores of two threads (0 to 7) and four slow ones (8 to 11), each told by one kind of file.
TEST_F(FakeMachine, FastCoresArePreferred) {
    for (int c = 0; c < 8; c++) siblings(c, std::to_string(c / 2 * 2) + "-" + std::to_string(c / 2 * 2 + 1));
    for (int c = 8; c < 12; c++) siblings(c, std::to_string(c));
    const std::vector<int> all = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    const std::vector<int> fast_first = {0, 2, 4, 6, 8, 9, 10, 11, 1, 3, 5, 7};
    file("/sys/devices/cpu_core/cpus", "0-7\n");
    EXPECT_EQ(read(all).preferred, fast_first);
    EXPECT_EQ(read(all).default_threads(), 8u);
    file("/sys/devices/cpu_core/cpus", "4-11\n");
    EXPECT_EQ(read(all).preferred, (std::vector<int>{4, 6, 8, 9, 10, 11, 0, 2, 5, 7, 1, 3}));
    // What the kernel says of the capacity counts more.
    const auto cpu = [](int c) { return "/sys/devices/system/cpu/cpu" + std::to_string(c); };
    for (int c : all) file(cpu(c) + "/cpu_capacity", c < 8 ? "1024\n" : "400\n");
    EXPECT_EQ(read(all).preferred, fast_first);
}

TEST_F(FakeMachine, FastClocksArePreferred) {
    for (int c = 0; c < 4; c++)
        file("/sys/devices/system/cpu/cpu" + std::to_string(c) + "/cpufreq/cpuinfo_max_freq",
             c == 2 ? "5200000\n" : "4000000\n");
    EXPECT_EQ(read({0, 1, 2, 3}).preferred, (std::vector<int>{2, 0, 1, 3}));
}

TEST_F(FakeMachine, QuotaV2RoundsUp) {
    file("/proc/self/cgroup", "0::/\n");
    file("/sys/fs/cgroup/cpu.max", "150000 100000\n");
    const Topology t = read({0, 1, 2, 3});
    EXPECT_DOUBLE_EQ(t.quota, 1.5);
    EXPECT_EQ(t.default_threads(), 2u);
    EXPECT_EQ(t.at_once(), 2u);
    EXPECT_EQ(read({3}).default_threads(), 1u);
}

TEST_F(FakeMachine, QuotaBelowOneProcessorIsOneThread) {
    file("/proc/self/cgroup", "0::/\n");
    file("/sys/fs/cgroup/cpu.max", "5000 100000\n");
    EXPECT_EQ(read({0, 1}).default_threads(), 1u);
}

TEST_F(FakeMachine, NoQuota) {
    file("/proc/self/cgroup", "0::/a\n");
    file("/sys/fs/cgroup/a/cpu.max", "max 100000\n");
    EXPECT_EQ(read({0, 1, 2}).quota, 0);
    EXPECT_EQ(read({0, 1, 2}).default_threads(), 3u);
}

TEST_F(FakeMachine, TheTightestAncestorBinds) {
    file("/proc/self/cgroup", "0::/pods/one/box\n");
    file("/sys/fs/cgroup/pods/one/box/cpu.max", "max 100000\n");
    file("/sys/fs/cgroup/pods/one/cpu.max", "300000 100000\n");
    file("/sys/fs/cgroup/pods/cpu.max", "800000 100000\n");
    EXPECT_DOUBLE_EQ(read({0, 1, 2, 3, 4, 5}).quota, 3);
    // A container sees a path of its host that does not exist below its own mount.
    file("/proc/self/cgroup", "0::/elsewhere/not/here\n");
    file("/sys/fs/cgroup/cpu.max", "200000 100000\n");
    EXPECT_DOUBLE_EQ(read({0, 1, 2, 3}).quota, 2);
}

TEST_F(FakeMachine, QuotaV1) {
    file("/proc/self/cgroup", "4:memory:/box\n3:cpu,cpuacct:/box\n");
    file("/sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us", "250000\n");
    file("/sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_period_us", "100000\n");
    EXPECT_DOUBLE_EQ(read({0, 1, 2, 3}).quota, 2.5);
    EXPECT_EQ(read({0, 1, 2, 3}).default_threads(), 3u);
    file("/sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us", "-1\n");
    EXPECT_EQ(read({0, 1, 2, 3}).quota, 0);
}

TEST_F(FakeMachine, Model) {
    file("/proc/cpuinfo", "processor\t: 0\nmodel\t\t: 2\nmodel name\t: Fast Chip 9000\nstepping\t: 1\n");
    EXPECT_EQ(read({0}).model, "Fast Chip 9000");
}

TEST_F(FakeMachine, MemoryOfTheMachine) {
    file("/proc/meminfo", "MemTotal:       1000 kB\nMemFree:  100 kB\nMemAvailable:    600 kB\n");
    EXPECT_EQ(memory().total, 1000u * 1024);
    EXPECT_EQ(memory().free, 600u * 1024);
    EXPECT_EQ(memory().present, 0u);
    file("/proc/self/status", "VmRSS:\t  90 kB\nRssAnon:\t      70 kB\nRssFile:\t 20 kB\n");
    EXPECT_EQ(memory().present, 70u * 1024);
}

TEST_F(FakeMachine, MemoryOfTheCgroup) {
    file("/proc/meminfo", "MemTotal:       1000 kB\nMemAvailable:    900 kB\n");
    file("/proc/self/cgroup", "0::/box\n");
    file("/sys/fs/cgroup/box/memory.max", "512000\n");
    file("/sys/fs/cgroup/box/memory.current", "300000\n");
    EXPECT_EQ(memory().total, 512000u);
    EXPECT_EQ(memory().free, 212000u);
    // Cached file pages are free.
    file("/sys/fs/cgroup/box/memory.stat", "anon 5\ninactive_file 80000\nactive_file 20000\n");
    EXPECT_EQ(memory().free, 312000u);
    file("/sys/fs/cgroup/box/memory.max", "max\n");
    EXPECT_EQ(memory().total, 1000u * 1024);
}

TEST_F(FakeMachine, MemoryOfTheCgroupV1) {
    file("/proc/meminfo", "MemTotal:       1000 kB\nMemAvailable:    900 kB\n");
    file("/proc/self/cgroup", "4:memory:/box\n");
    file("/sys/fs/cgroup/memory/box/memory.limit_in_bytes", "400000\n");
    file("/sys/fs/cgroup/memory/box/memory.usage_in_bytes", "500000\n");
    EXPECT_EQ(memory().total, 400000u);
    EXPECT_EQ(memory().free, 0u);
}

TEST(Machine, ThisOne) {
    const Topology t = read_topology();
    EXPECT_GE(t.processors.size(), 1u);
    EXPECT_GE(t.default_threads(), 1u);
    EXPECT_LE(t.default_threads(), t.processors.size());
    const Memory m = read_memory();
    EXPECT_GT(m.total, 0u);
    EXPECT_LE(m.free, m.total);
    EXPECT_TRUE((cpu_features() & kAvx512) == 0 || (cpu_features() & kAvx2) != 0);
}

}  // namespace
}  // namespace ridge::cpu
