// What is kept of a measurement, and what is believed of a file that lies there.
#include "measure/ceilings_store.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <optional>
#include <thread>

#include "core/error.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

DeviceCeilings sample() {
    DeviceCeilings c;
    c.key = {"cpu", "A processor, \"quoted\"", "avx2 avx512vnni", "Linux 6.1", 2, kCeilingMethod};
    c.figures.instructions = "avx2";
    c.figures.list = {{"read", "B/s", 2.5e10, 0, 0},
                      {"read", "B/s", 1.25e10, 1, 0},
                      {"f32", "MAC/s", 1e11, 0, 0},
                      {"read", "B/s", 1e9, 0, 4096},
                      {"barrier", "s", 2.1e-7, 0, 0}};
    c.measured_at = 1'700'000'000;
    return c;
}

class Store : public testing::Test {
  protected:
    Store()
        : folder_(fs::temp_directory_path() / ("ridge_ceilings_" + std::to_string(getpid()) + "_" +
                                               testing::UnitTest::GetInstance()->current_test_info()->name())),
          store_(folder_ / "deeper") {
        fs::remove_all(folder_);
    }
    ~Store() override { fs::remove_all(folder_); }

    std::string text() const {
        std::ifstream in(store_.path_of(sample().key));
        return {std::istreambuf_iterator<char>(in), {}};
    }
    void overwrite(const std::string &text) const { std::ofstream(store_.path_of(sample().key)) << text; }

    fs::path folder_;
    CeilingStore store_;
};

TEST_F(Store, FindsWhatItKept) {
    EXPECT_FALSE(store_.find(sample().key));
    ASSERT_EQ(store_.keep(sample()), "");
    const std::optional<DeviceCeilings> c = store_.find(sample().key);
    ASSERT_TRUE(c);
    EXPECT_EQ(c->measured_at, 1'700'000'000);
    EXPECT_EQ(c->figures.instructions, "avx2");
    EXPECT_EQ(c->figures.get("read"), 2.5e10);
    EXPECT_EQ(c->figures.get("read", 1), 1.25e10);
    EXPECT_EQ(c->figures.get("barrier"), 2.1e-7);
    EXPECT_EQ(c->figures.get("int8"), 0);
    EXPECT_EQ(c->figures.list.size(), 5U);
}

TEST_F(Store, EveryPartOfTheKeyCounts) {
    ASSERT_EQ(store_.keep(sample()), "");
    for (int part = 0; part < 6; part++) {
        CeilingKey k = sample().key;
        (part == 0 ? k.backend : part == 1 ? k.device : part == 2 ? k.features : k.driver) += part < 4 ? "x" : "";
        if (part == 4) k.workers++;
        if (part == 5) k.method++;
        EXPECT_FALSE(store_.find(k)) << part;
        // Nor where another device's file lies under its name.
        fs::copy_file(store_.path_of(sample().key), store_.path_of(k), fs::copy_options::overwrite_existing);
        EXPECT_FALSE(store_.find(k)) << part;
    }
    EXPECT_TRUE(store_.find(sample().key));
}

TEST_F(Store, WhatIsNotWholeIsIgnoredAndReplaced) {
    ASSERT_EQ(store_.keep(sample()), "");
    const std::string good = text();
    ASSERT_GT(good.size(), 100U);
    for (size_t n = 0; n + 2 < good.size(); n += 7) {
        overwrite(good.substr(0, n));
        EXPECT_FALSE(store_.find(sample().key)) << n << " bytes of " << good.size();
    }
    const auto edited = [&](const std::string &from, const std::string &to) {
        std::string t = good;
        const size_t at = t.find(from);
        EXPECT_NE(at, std::string::npos) << from;
        return t.replace(at, from.size(), to);
    };
    for (const std::string &t :
         {std::string("[]"), std::string("null"), std::string(2 << 20, ' '), std::string("\xff\xfe\0x", 4),
          edited("ridge ceilings", "something"), edited("25000000000.0", "-1"), edited("25000000000.0", "0"),
          edited("25000000000.0", "1e999"), edited("25000000000.0", "\"fast\""), edited("\"f32\"", "\"f33\"")}) {
        overwrite(t);
        EXPECT_FALSE(store_.find(sample().key)) << t.substr(0, 200);
    }
    EXPECT_EQ(store_.keep(sample()), "");
    EXPECT_TRUE(store_.find(sample().key));
    EXPECT_EQ(text(), good);
}

// Readers see one whole file or another, never a part, and nothing is left behind.
TEST_F(Store, IsReplacedAtOnce) {
    ASSERT_EQ(store_.keep(sample()), "");
    size_t failures = 0;
    std::thread writer([&] {
        for (int i = 0; i < 200; i++) failures += store_.keep(sample()).empty() ? 0 : 1;
    });
    for (int i = 0; i < 200; i++) EXPECT_TRUE(store_.find(sample().key)) << i;
    writer.join();
    EXPECT_EQ(failures, 0U);
    EXPECT_EQ(std::distance(fs::directory_iterator(folder_ / "deeper"), {}), 1);
}

TEST_F(Store, WhereNothingCanBeKeptThatIsSaid) {
    EXPECT_NE(CeilingStore(fs::path()).keep(sample()), "");
    EXPECT_FALSE(CeilingStore(fs::path()).find(sample().key));
    fs::create_directories(folder_);
    std::ofstream(folder_ / "file") << "x";
    EXPECT_NE(CeilingStore(folder_ / "file").keep(sample()), "");
    DeviceCeilings busy = sample();
    busy.contended = "others";
    EXPECT_NE(store_.keep(busy), "");
    EXPECT_FALSE(store_.find(sample().key));
}

TEST(CeilingTime, InWords) {
    const int64_t t = 1'700'000'000;
    EXPECT_EQ(when(t, t + 5), "2023-11-14 22:13 UTC, just now");
    EXPECT_EQ(when(t, t + 61), "2023-11-14 22:13 UTC, 1 minute ago");
    EXPECT_EQ(when(t, t + 7300), "2023-11-14 22:13 UTC, 2 hours ago");
    EXPECT_EQ(when(t, t + 86400 * 45), "2023-11-14 22:13 UTC, 45 days ago");
    EXPECT_EQ(when(t, t - 1), "2023-11-14 22:13 UTC, in the future");
}

// Through the backend itself: every figure is there and none is absurd, whatever else the machine does.
TEST(MeasureCeilings, OfTheProcessor) {
    const BackendRow &row = backends()[0];
    const auto device = row.open({.threads = 2});
    const DeviceCeilings c = measure_ceilings(row, *device, WhenBusy::mark);
    EXPECT_EQ(c.key.workers, 2U);
    EXPECT_EQ(c.key.backend, "cpu");
    for (const char *name : {"read", "int8", "f32"}) {
        EXPECT_GT(c.figures.get(name, 1), 1e8) << name;
        EXPECT_GE(c.figures.get(name), c.figures.get(name, 1)) << name;
        EXPECT_LT(c.figures.get(name), 1e15) << name;
    }
    EXPECT_GT(c.figures.get("barrier"), 0);
    EXPECT_LT(c.figures.get("barrier"), 0.1);
    EXPECT_GT(c.figures.get("submit"), 0);
    EXPECT_LT(c.figures.get("submit"), 0.1);
    EXPECT_GT(c.figures.get("cache"), 1 << 16);
    EXPECT_LE(std::abs(c.measured_at - seconds_since_1970()), 60);
    BackendRow blind = row;
    blind.measure = nullptr;
    EXPECT_THROW(measure_ceilings(blind, *device, WhenBusy::mark), Error);
}

}  // namespace
}  // namespace ridge
