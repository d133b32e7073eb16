// The loader on the stand-in driver: every byte arrives, also where copies happen late, it can be stopped, a file that
// was cut short is a sentence, and nothing is left behind.
#include "backend/simt/loader.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <numeric>
#include <vector>

#include "core/error.h"
#include "simt/standin_library.h"

namespace ridge::simt {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

class LoaderTest : public testing::Test {
  protected:
    LoaderTest() : library_("standin_test_32") {
        library_.configure("reset", 0);
        driver_ = &open_cuda_driver(std::string(RIDGE_STANDIN_DIR "/") + "standin_test_32.so");
        EXPECT_EQ(driver_->use(0), 0);
        EXPECT_EQ(driver_->allocate(&device_, kBytes), 0);
        EXPECT_EQ(driver_->fill(device_, 0xee, kBytes, nullptr), 0);
        for (size_t i = 0; i < host_.size(); i++) host_[i] = static_cast<std::byte>(i * 2654435761U >> 13);
    }
    ~LoaderTest() override { library_.configure("reset", 0); }

    // Spans of many sizes, each at a place of its own on the device.
    std::vector<Transfer> transfers() const {
        std::vector<Transfer> t;
        size_t at = 0;
        for (size_t n = 1; at + n <= kBytes - kMiB; n = n * 3 + 7) {
            t.push_back({device_ + at, std::span(host_).subspan(at, n)});
            at += (n + 255) / 256 * 256;
        }
        return t;
    }
    void expect_there(const std::vector<Transfer> &all) const {
        for (const Transfer &t : all) {
            std::vector<std::byte> got(t.from.size());
            ASSERT_EQ(driver_->to_host(got.data(), t.to, got.size(), nullptr), 0);
            ASSERT_EQ(driver_->synchronize(nullptr), 0);
            EXPECT_EQ(std::memcmp(got.data(), t.from.data(), got.size()), 0) << got.size() << " bytes";
        }
    }

    static constexpr size_t kBytes = 48 * kMiB;
    StandinLibrary library_;
    const Driver *driver_ = nullptr;
    Address device_ = 0;
    std::vector<std::byte> host_ = std::vector<std::byte>(kBytes);
};

TEST_F(LoaderTest, EveryByteArrives) {
    const std::vector<Transfer> all = transfers();
    size_t bytes = 0;
    for (const Transfer &t : all) bytes += t.from.size();
    ASSERT_GT(bytes, 20 * kMiB) << "several pieces for each buffer";
    for (const unsigned threads : {1U, 2U, 5U}) {
        for (const uint64_t deferred : {0, 1}) {
            library_.configure("deferred", deferred);
            ASSERT_EQ(driver_->fill(device_, 0xee, kBytes, nullptr), 0);
            ASSERT_EQ(driver_->synchronize(nullptr), 0);
            uint64_t told = 0;
            EXPECT_TRUE(load_to_device(
                *driver_, 0, all, [&](uint64_t n) { return told += n, true; }, threads));
            EXPECT_EQ(told, bytes);
            expect_there(all);
        }
    }
}

TEST_F(LoaderTest, NothingIsLeftBehind) {
    const auto alive = [&] {
        return std::vector<uint64_t>{library_.state("host_allocations"), library_.state("streams"),
                                     library_.state("events"), library_.state("allocations")};
    };
    const std::vector<uint64_t> before = alive();
    load_to_device(
        *driver_, 0, transfers(), [](uint64_t) { return true; }, 3);
    EXPECT_EQ(alive(), before);
    EXPECT_FALSE(load_to_device(
        *driver_, 0, transfers(), [](uint64_t) { return false; }, 3));
    EXPECT_EQ(alive(), before);
    EXPECT_TRUE(load_to_device(*driver_, 0, {}, [](uint64_t) { return true; }));
    EXPECT_EQ(alive(), before);
}

TEST_F(LoaderTest, StopsWhereItIsTold) {
    uint64_t told = 0;
    EXPECT_FALSE(load_to_device(
        *driver_, 0, transfers(), [&](uint64_t n) { return told += n, told < 8 * kMiB; }, 1));
    EXPECT_GE(told, 8 * kMiB);
    EXPECT_LT(told, 16 * kMiB);
}

TEST_F(LoaderTest, AFileThatWasCutShortIsASentence) {
    std::string name = "/tmp/ridge-loader-XXXXXX";
    const int fd = mkstemp(name.data());
    ASSERT_GE(fd, 0);
    ASSERT_EQ(ftruncate(fd, 8 * kMiB), 0);
    void *at = mmap(nullptr, 8 * kMiB, PROT_READ, MAP_PRIVATE, fd, 0);
    ASSERT_NE(at, MAP_FAILED);
    ASSERT_EQ(ftruncate(fd, 5 * kMiB), 0);
    const Transfer t{device_, {static_cast<const std::byte *>(at), 8 * kMiB}};
    try {
        load_to_device(
            *driver_, 0, {&t, 1}, [](uint64_t) { return true; }, 2);
        ADD_FAILURE() << "nothing was thrown";
    } catch (const Error &e) {
        EXPECT_EQ(e.kind(), ErrorKind::file);
        EXPECT_NE(std::string(e.what()).find("became shorter"), std::string::npos);
    }
    munmap(at, 8 * kMiB);
    close(fd);
    unlink(name.c_str());
}

TEST_F(LoaderTest, ADeviceThatFailsIsAnError) {
    const Transfer t{device_ + kBytes, std::span(host_).first(kMiB)};  // behind its memory
    EXPECT_THROW(load_to_device(*driver_, 0, {&t, 1}, [](uint64_t) { return true; }), Error);
}

}  // namespace
}  // namespace ridge::simt
