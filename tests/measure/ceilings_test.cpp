// Ceilings: what must hold on any machine that can run the tests, however busy it is.
#include "backend/cpu/ceilings.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "backend/cpu/cpu.h"
#include "backend/cpu/rows.h"
#include "core/error.h"

namespace ridge::cpu {
namespace {

Ceilings quick(std::string_view isa, unsigned threads = 1) {
    return measure_ceilings({.threads = threads, .seconds = 0.01, .bytes = size_t{64} << 20, .isa = isa});
}

TEST(Ceilings, AreThereAndSane) {
    const Ceilings c = quick("", 2);
    EXPECT_EQ(c.threads, 2U);
    EXPECT_EQ(c.bytes, size_t{64} << 20);
    for (const Ceiling &x : {c.read, c.int8, c.f32}) {
        EXPECT_GT(x.one, 1e8);
        EXPECT_LT(x.one, 1e14);
        EXPECT_GE(x.all, x.one * 0.5);
        EXPECT_LE(x.all, x.one * 4);
    }
}

#if defined(__x86_64__)
TEST(Ceilings, WiderInstructionsDoMore) {
    if ((cpu_features() & kAvx2) == 0) GTEST_SKIP() << "no AVX2 here";
    const Ceilings portable = quick("portable"), avx2 = quick("avx2");
    EXPECT_EQ(avx2.isa, "avx2");
    EXPECT_GT(avx2.int8.one, 2 * portable.int8.one);
    EXPECT_GT(avx2.f32.one, 1.2 * portable.f32.one);
    if ((cpu_features() & kAvx512) == 0) return;
    const Ceilings best = quick("");
    EXPECT_EQ(best.isa.substr(0, 6), "avx512");
    EXPECT_GT(best.int8.one, 1.2 * avx2.int8.one);
    // A multiply-add of int8 is a fourth of one of f32 where both are a register wide.
    EXPECT_NEAR(best.int8.one / best.f32.one, 4, 2);
}
#endif

// More threads than processors cannot do more arithmetic than the processors can.
TEST(Ceilings, ThreadsThatTakeTurnsDoNotAdd) {
    const unsigned here = static_cast<unsigned>(quick("").threads);
    const Ceilings c = measure_ceilings({.threads = 16 * here, .seconds = 0.01, .bytes = size_t{64} << 20});
    EXPECT_LE(c.int8.all, 1.5 * static_cast<double>(sysconf(_SC_NPROCESSORS_ONLN)) * c.int8.one);
}

TEST(Ceilings, AnUnknownInstructionSetIsAnError) {
    try {
        quick("sse9");
        FAIL();
    } catch (const Error &e) {
        EXPECT_EQ(e.kind(), ErrorKind::usage);
        EXPECT_NE(std::string(e.what()).find("portable"), std::string::npos) << e.what();
    }
}

TEST(LastLevelCache, IsTheLargest) {
    const std::filesystem::path root =
        std::filesystem::temp_directory_path() / ("ridge_cache_" + std::to_string(getpid()));
    EXPECT_EQ(last_level_cache(root.string()), size_t{32} << 20);
    const auto size = [&](int index, const char *text) {
        const auto folder = root / "sys/devices/system/cpu/cpu0/cache" / ("index" + std::to_string(index));
        std::filesystem::create_directories(folder);
        std::ofstream(folder / "size") << text << "\n";
    };
    size(0, "48K");
    size(2, "1024K");
    EXPECT_EQ(last_level_cache(root.string()), size_t{1} << 20);
    size(3, "32M");
    EXPECT_EQ(last_level_cache(root.string()), size_t{32} << 20);
    EXPECT_EQ(beyond_caches(root.string()), size_t{512} << 20);
    size(3, "384M");
    EXPECT_EQ(beyond_caches(root.string()), size_t{1536} << 20);
    std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace ridge::cpu
