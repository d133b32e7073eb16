// An emulated GPU as `--device` opens it, over a stand-in driver library whose settings a test chooses first.
//
// A process opens each of the two drivers once (open_cuda_driver, open_hip_driver), and ctest runs every test in a
// process of its own. Where all run in one, those that would need a second driver are skipped.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/backends.h"
#include "runtime/devices.h"
#include "simt/standin_library.h"

namespace ridge::simt {

struct GpuKind {
    const char *library;  // of cmake/standin.cmake
    const char *backend;
};
inline constexpr GpuKind kNvidia{"standin_mma", "cuda"};  // waves of 32, mma
inline constexpr GpuKind kGfx11{"standin_wmma", "hip"};   // waves of 32, wmma
inline constexpr GpuKind kGfx942{"standin_mfma", "hip"};  // waves of 64, mfma

// For names of tests.
inline std::string kind_name(const testing::TestParamInfo<GpuKind> &p) { return p.param.library; }
inline void PrintTo(const GpuKind &k, std::ostream *os) { *os << k.library; }

class Gpu {
  public:
    explicit Gpu(GpuKind kind, unsigned devices = 1) : kind_(kind), library_(kind.library) {
        static std::map<std::string, std::pair<std::string, unsigned>> opened;
        const std::pair is{std::string(kind.library), devices};
        const auto [at, first] = opened.emplace(kind.backend, is);
        alone_ = first || at->second == is;
        if (!alone_) return;
        set("reset", 0);
        if (devices != 1) set("devices", devices);
    }
    Gpu(const Gpu &) = delete;
    Gpu &operator=(const Gpu &) = delete;

    // Whether the process has not opened another driver of this name.
    bool alone() const { return alone_; }
    void set(const char *setting, uint64_t value) const { library_.configure(setting, value); }
    const StandinLibrary &library() const { return library_; }
    std::string driver() const { return std::string(RIDGE_STANDIN_DIR "/") + kind_.library + ".so"; }
    std::string device(unsigned index = 0) const { return std::string(kind_.backend) + ":" + std::to_string(index); }
    std::unique_ptr<Backend> open(unsigned index = 0) const {
        return open_backend(device(index), {.driver = driver()});
    }
    // For a model on those of its devices, and "cpu", that are named.
    DeviceChoice choice(std::vector<std::string> names) const {
        DeviceChoice c{.names = std::move(names)};
        c.options.driver = driver();
        return c;
    }

  private:
    GpuKind kind_;
    StandinLibrary library_;
    bool alone_ = false;
};

}  // namespace ridge::simt

// Skips a test that would need a second driver in this process.
#define RIDGE_NEEDS_GPU(gpu) \
    if (!(gpu).alone()) GTEST_SKIP() << "another driver is open in this process; ctest runs each test in its own"
