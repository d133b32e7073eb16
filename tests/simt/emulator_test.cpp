// The emulator: what kernels may do works, for both widths of a wave and in any order of threads, and what they may not
// do is found and said.
#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "simt/emulator_support.h"

namespace ridge::simt {
namespace {

struct Shape {
    uint32_t wave;
    uint64_t seed;
};

class EmulatorKernels : public testing::TestWithParam<Shape> {
  protected:
    EmulatorKernels() : e(GetParam().wave) { e.library.configure("order_seed", GetParam().seed); }
    Emulator e;
};

TEST_P(EmulatorKernels, BarrierOfABlock) {
    const Words in = counted(10 * 256);
    const uint64_t a = e.upload(in), b = e.allocate(in.size() * 4);
    ASSERT_EQ(e.launch("emulator_reverse", 10, 256, 1024, e.args(a, b)), 0);
    const Words out = e.download(b, in.size());
    for (size_t i = 0; i < in.size(); ++i) ASSERT_EQ(out[i], in[i / 256 * 256 + 255 - i % 256]) << i;
}

TEST_P(EmulatorKernels, ShufflesAndBarriersOfAWave) {
    const Words in = counted(7 * 192);
    const uint64_t a = e.upload(in), b = e.allocate(in.size() * 4);
    ASSERT_EQ(e.launch("emulator_rotate", 7, 192, 192 * 4, e.args(a, b)), 0);
    const Words out = e.download(b, in.size());
    for (size_t i = 0; i < in.size(); ++i) ASSERT_EQ(out[i], in[i / e.wave * e.wave + (i % e.wave + 3) % e.wave]) << i;
}

TEST_P(EmulatorKernels, ManyShufflesAndBarriers) {
    const uint64_t b = e.allocate(1024);
    ASSERT_EQ(e.launch("emulator_shuffles", 3, 256, 0, e.args(0, b, 1001)), 0);
    Words out = e.download(b, 256);
    for (uint32_t i = 0; i < 256; ++i) ASSERT_EQ(out[i], i / e.wave * e.wave + (i + 1001) % e.wave) << i;
    ASSERT_EQ(e.launch("emulator_barriers", 3, 256, 2048, e.args(0, b, 1001)), 0);
    out = e.download(b, 256);
    for (uint32_t i = 0; i < 256; ++i) ASSERT_EQ(out[i], (i + 1001) % 256) << i;
}

TEST_P(EmulatorKernels, LastBlockSumsWhatAllStored) {
    const Words in = counted(33 * 256);
    const uint64_t a = e.upload(in), b = e.upload(Words(35, 0));
    for (int again = 0; again < 2; ++again) {
        ASSERT_EQ(e.launch("emulator_sum", 33, 256, 1028, e.args(a, b, 33)), 0);
        const Words out = e.download(b, 35);
        EXPECT_EQ(out[0], 0u);
        EXPECT_EQ(out[1], std::accumulate(in.begin(), in.end(), 0u));
        EXPECT_EQ(out[2], std::accumulate(in.begin(), in.begin() + 256, 0u));
    }
}

TEST_P(EmulatorKernels, BlocksWaitForEachOther) {
    constexpr uint32_t blocks = 8, rounds = 20;
    e.library.configure("processors", blocks);
    Words words(3 * blocks, 0), expected(blocks);
    for (uint32_t i = 0; i < blocks; ++i) words[blocks + i] = expected[i] = i + 1;
    for (uint32_t r = 0; r < rounds; ++r) {
        const Words before = expected;
        for (uint32_t i = 0; i < blocks; ++i) expected[i] = before[i] + before[(i + 1) % blocks];
    }
    const uint64_t a = e.upload({blocks}), b = e.upload(words);
    ASSERT_EQ(e.launch("emulator_rounds", blocks, 64, 0, e.args(a, b, rounds)), 0);
    const Words out = e.download(b, 3 * blocks);
    for (uint32_t i = 0; i < blocks; ++i) EXPECT_EQ(out[blocks + i], expected[i]);
}

TEST_P(EmulatorKernels, CopiesArriveWhenTheyAreWaitedFor) {
    constexpr uint32_t n = 5;
    const Words in = counted(n * 256);
    const uint64_t a = e.upload(in), b = e.allocate(256);
    Words expected(64, 0);
    for (uint32_t i = 0; i < n * 256; ++i) expected[(i / 4 + 63) % 64] += in[i];
    ASSERT_EQ(e.launch("emulator_pieces", 2, 64, 2048, e.args(a, b, n)), 0);
    EXPECT_EQ(e.download(b, 64), expected);
    ASSERT_EQ(e.launch("emulator_pieces_too_soon", 1, 64, 2048, e.args(a, b, n)), 0);
    EXPECT_NE(e.download(b, 64), expected);
}

TEST_P(EmulatorKernels, BulkCopiesArriveAtBarriers) {
    constexpr uint32_t n = 7;
    const Words in = counted(n * 256);
    const uint64_t a = e.upload(in), b = e.allocate(4 * 192);
    Words expected(192, 0);
    for (uint32_t i = 0; i < n * 256; ++i)
        for (uint32_t t = 0; t < 192; ++t)
            if (i % 256 == t || i % 256 == t + 64) expected[t] += in[i];
    ASSERT_EQ(e.launch("emulator_bulk", 2, 256, 2080, e.args(a, b, n)), 0);
    EXPECT_EQ(e.download(b, 192), expected);
}

INSTANTIATE_TEST_SUITE_P(Shapes, EmulatorKernels,
                         testing::Values(Shape{32, 0}, Shape{32, 7}, Shape{64, 0}, Shape{64, 11}),
                         [](const testing::TestParamInfo<Shape> &p) {
                             return "Wave" + std::to_string(p.param.wave) + "Seed" + std::to_string(p.param.seed);
                         });

// What goes wrong: the code that the stream answers with from then on, and the sentence.
class EmulatorFinds : public testing::TestWithParam<uint32_t> {
  protected:
    EmulatorFinds() : e(GetParam()) {}

    void expect(const char *kernel, unsigned blocks, unsigned shared, EmulatorArgs args, int code,
                std::initializer_list<std::string> parts, bool early = false) {
        testing::internal::CaptureStderr();
        EXPECT_EQ(e.launch(kernel, blocks, 64, shared, args, early), 0) << "a launch fails when it runs";
        const std::string printed = testing::internal::GetCapturedStderr();
        EXPECT_EQ(e.synchronize(), code) << kernel;
        uint64_t more = 0;
        EXPECT_EQ(e.library.call("cuMemAlloc_v2", &more, size_t{16}), code) << "a failed device stays so";
        for (const std::string &part : parts)
            EXPECT_NE(e.library.message().find(part), std::string::npos)
                << "'" << part << "' is not in: " << e.library.message();
        EXPECT_NE(e.library.message().find(kernel), std::string::npos) << e.library.message();
        EXPECT_NE(printed.find(e.library.message()), std::string::npos) << printed;
    }
    Emulator e;
};

TEST_P(EmulatorFinds, ThreadThatNobodyWakes) {
    const uint64_t a = e.upload({0});
    expect("emulator_wait_for_ever", 3, 0, e.args(a, 0, 1), 719,
           {"block (0, 0, 0)", "nothing moves", "1 in a loop", "at sync()"});
}

TEST_P(EmulatorFinds, BlockThatIsNotResident) {
    e.library.configure("processors", 2);
    const uint64_t a = e.upload({3}), b = e.upload(Words(9, 1));
    expect("emulator_rounds", 3, 0, e.args(a, b, 5), 719, {"2 resident", "1 not begun"});
}

TEST_P(EmulatorFinds, HalfAWaveAtABarrier) {
    const uint64_t b = e.allocate(4);
    expect("emulator_diverged", 1, 0, e.args(0, b, 0), 719, {"a shuffle", "other lanes", "1 at sync()"});
}

TEST_P(EmulatorFinds, HalfAWaveAtAWaveBarrier) {
    const uint64_t b = e.allocate(4);
    expect("emulator_diverged", 1, 0, e.args(0, b, 1), 719, {"sync_wave()", "1 at sync()"});
}

TEST_P(EmulatorFinds, TwoMeetingsOfAWave) {
    const uint64_t b = e.allocate(4);
    expect("emulator_two_meetings", 1, 0, e.args(0, b), 719, {"a shuffle", "1 at sync_wave()"});
}

TEST_P(EmulatorFinds, ValueOfALaneThatEnded) {
    const uint64_t b = e.allocate(256);
    ASSERT_EQ(e.launch("emulator_ended_lanes", 1, 64, 0, e.args(0, b, 1)), 0);
    const Words out = e.download(b, 2);
    EXPECT_EQ(out[0], 1u);
    expect("emulator_ended_lanes", 1, 0, e.args(0, b, e.wave - 1), 719,
           {"lane " + std::to_string(e.wave - 1), "gave none"});
}

TEST_P(EmulatorFinds, ReadBehindAnAllocation) {
    const uint64_t a = e.upload(Words(10, 0)), b = e.allocate(4);
    expect("emulator_read", 2, 0, e.args(a, b, 10), 700,
           {"block (0, 0, 0)", "thread 3", "reads 4 bytes", "0 bytes behind the end of 40 bytes"});
}

TEST_P(EmulatorFinds, WriteBeforeAnAllocation) {
    const uint64_t b = e.allocate(4);
    expect("emulator_write", 1, 0, e.args(0, b - 8, 1), 700, {"writes 4 bytes", "before the start of 4 bytes"});
}

TEST_P(EmulatorFinds, AccessThroughNull) {
    const uint64_t b = e.allocate(4);
    expect("emulator_read", 1, 0, e.args(0, b, 0), 700, {"reads 4 bytes at 0x0"});
}

TEST_P(EmulatorFinds, ReleasedMemory) {
    const uint64_t a = e.allocate(64), b = e.allocate(4);
    ASSERT_EQ(e.library.call("cuMemFree_v2", a), 0);
    expect("emulator_read", 1, 0, e.args(a, b, 0), 700, {"lie in no allocation"});
}

TEST_P(EmulatorFinds, MisalignedAccess) {
    const uint64_t a = e.upload(Words(64, 0)), b = e.allocate(4);
    expect("emulator_wide", 1, 0, e.args(a, b, 1), 716, {"reads 16 bytes", "not aligned", "at byte 4 of 256"});
}

TEST_P(EmulatorFinds, WriteBehindSharedMemory) {
    expect("emulator_shared", 1, 64, e.args(0, 0, 16), 700, {"behind its 64 bytes of shared memory", "byte 64"});
}

TEST_P(EmulatorFinds, BarrierThatAwaitsBytesForEver) {
    const uint64_t a = e.upload(Words(64, 0));
    expect("emulator_bulk_lost", 1, 256, e.args(a, 0), 719, {"nothing moves", std::to_string(e.wave) + " in a loop"});
}

TEST_P(EmulatorFinds, WhatAnEarlyLaunchMayNotTouch) {
    const uint64_t weights = e.upload(Words(64, 5)), written = e.upload(Words(64, 0)), b = e.allocate(256);
    ASSERT_EQ(e.launch("emulator_write", 1, 64, 0, e.args(0, written, 0)), 0);
    ASSERT_EQ(e.launch("emulator_early", 2, 64, 0, e.args(weights, b, 1), true), 0);
    EXPECT_EQ(e.download(b, 1)[0], 5u) << "weights may be read before wait_for_previous()";
    ASSERT_EQ(e.launch("emulator_early", 2, 64, 0, e.args(written, b, 1), false), 0);
    EXPECT_EQ(e.download(b, 1)[0], 1u) << "a launch that is not early may read all";
    expect("emulator_early", 1, 0, e.args(written, b, 1), 719, {"reads 4 bytes", "before wait_for_previous()"}, true);
}

TEST_P(EmulatorFinds, WriteOfAnEarlyLaunch) {
    const uint64_t b = e.allocate(256);
    expect("emulator_early", 1, 0, e.args(0, b, 2), 719, {"writes 4 bytes", "before wait_for_previous()"}, true);
}

TEST_P(EmulatorFinds, EarlyLaunchThatDoesNotWait) {
    expect("emulator_early", 1, 0, e.args(0, 0, 3), 719, {"without a call of wait_for_previous()"}, true);
}

TEST_P(EmulatorFinds, SettledValueThatTheLaunchInFrontWrote) {
    const uint64_t written = e.upload(Words(64, 0)), b = e.allocate(256);
    ASSERT_EQ(e.launch("emulator_write", 1, 64, 0, e.args(0, written, 0)), 0);
    ASSERT_EQ(e.launch("emulator_early", 1, 64, 0, e.args(0, b, 0), true), 0);
    ASSERT_EQ(e.launch("emulator_early", 1, 64, 0, e.args(written, b, 4), true), 0);
    EXPECT_EQ(e.download(b, 1)[0], 1u) << "a launch between the two has waited for the one that wrote";
    ASSERT_EQ(e.launch("emulator_write", 1, 64, 0, e.args(0, written, 0)), 0);
    expect("emulator_early", 1, 0, e.args(written, b, 4), 719, {"as settled", "the launch in front wrote them"}, true);
}

TEST_P(EmulatorFinds, SettledValueBehindALaunchThatDidNotWait) {
    const uint64_t written = e.upload(Words(64, 0)), b = e.allocate(256);
    ASSERT_EQ(e.launch("emulator_write", 1, 64, 0, e.args(0, written, 0)), 0);
    ASSERT_EQ(e.launch("emulator_early", 1, 64, 0, e.args(0, b, 5), true), 0);
    expect("emulator_early", 1, 0, e.args(written, b, 4), 719, {"as settled", "before it had waited"}, true);
}

TEST_P(EmulatorFinds, OtherDevicesMemory) {
    e.library.configure("devices", 2);
    e.use(1);
    const uint64_t far = e.allocate(16);
    e.use(0);
    const uint64_t b = e.allocate(4);
    expect("emulator_read", 1, 0, e.args(far, b, 0), 700, {"belong to device 1", "peer access"});
}

INSTANTIATE_TEST_SUITE_P(Waves, EmulatorFinds, testing::Values(32u, 64u), testing::PrintToStringParamName());

TEST(Emulator, MemoryBeginsPoisoned) {
    Emulator e(32);
    const uint64_t b = e.upload(Words(64, 0)), fresh = e.allocate(8);
    ASSERT_EQ(e.launch("emulator_uninitialised", 1, 64, 256, e.args(0, b)), 0);
    EXPECT_EQ(e.download(b, 64), Words(64, ~0u)) << "shared memory";
    EXPECT_EQ(e.download(fresh, 2), Words(2, ~0u)) << "an allocation";
}

TEST(Emulator, SeedsChangeTheOrder) {
    Emulator e(32);
    const uint64_t b = e.allocate(4);
    for (const uint32_t of_blocks : {0u, 1u}) {
        std::set<uint32_t> last;
        for (uint64_t seed = 0; seed < 8; ++seed) {
            e.library.configure("order_seed", seed);
            ASSERT_EQ(e.launch("emulator_order", 9, 256, 0, e.args(0, b, of_blocks)), 0);
            last.insert(e.download(b, 1)[0]);
            if (seed == 0) {
                EXPECT_EQ(*last.begin(), of_blocks != 0 ? 8u : 255u);
            }
        }
        EXPECT_GT(last.size(), 3u);
    }
}

TEST(Emulator, CountsDistinctSectors) {
    Emulator e(32);
    const Words in = counted(4 * 256);
    const uint64_t a = e.upload(in), b = e.allocate(in.size() * 4);
    e.library.configure("count_bytes", 1);
    ASSERT_EQ(e.launch("emulator_reverse", 4, 256, 1024, e.args(a, b)), 0);
    ASSERT_EQ(e.launch("emulator_read", 1, 64, 0, e.args(a, b, 100)), 0);
    ASSERT_EQ(e.launch("emulator_loads", 2, 256, 0, e.args(a, b, 2)), 0);
    const std::vector<StandinLaunch> launches = e.library.launches();
    ASSERT_EQ(launches.size(), 3u);
    EXPECT_STREQ(launches[0].kernel, "emulator_reverse");
    EXPECT_EQ(launches[0].grid[0], 4u);
    EXPECT_EQ(launches[0].bytes_read, 4096u);
    EXPECT_EQ(launches[0].bytes_written, 4096u);
    EXPECT_EQ(launches[1].bytes_read, 32u) << "one word touches a sector";
    EXPECT_EQ(launches[1].bytes_written, 32u);
    EXPECT_EQ(launches[2].bytes_read, 2048u) << "what two blocks read counts once";
    EXPECT_TRUE(e.library.launches().empty()) << "asking empties the log";
}

using EmulatorDeathTest = testing::Test;

TEST(EmulatorDeathTest, KernelsDoNotDereferenceAddresses) {
    testing::GTEST_FLAG(death_test_style) = "threadsafe";
    Emulator e(32);
    const uint64_t a = e.upload({1}), b = e.allocate(4);
    EXPECT_DEATH(e.launch("emulator_dereference", 1, 64, 0, e.args(a, b)),
                 "kernel emulator_dereference, block .0, 0, 0., thread 0 faults .*global memory without load");
    EXPECT_DEATH(e.launch("emulator_shared", 1, 64, 128, e.args(0, 0, 32)),
                 "kernel emulator_shared, block .0, 0, 0., thread 3 faults .*behind the block's shared memory");
}

}  // namespace
}  // namespace ridge::simt
