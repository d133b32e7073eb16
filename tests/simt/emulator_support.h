// A stand-in library with the kernels of emulator_kernels.cu, its CUDA symbols ready for launches.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "simt/emulator_kernels.h"
#include "simt/standin_library.h"

namespace ridge::simt {

using Words = std::vector<uint32_t>;

struct LaunchAttribute {
    unsigned id = 6;  // programmatic stream serialization
    char pad[4] = {};
    int value = 1;
    char rest[60] = {};
};
struct LaunchConfig {
    unsigned grid[3] = {1, 1, 1}, block[3] = {1, 1, 1}, shared_bytes = 0;
    void *stream = nullptr;
    LaunchAttribute *attributes = nullptr;
    unsigned attribute_count = 0;
};

class Emulator {
  public:
    explicit Emulator(uint32_t wave) : wave(wave), library(wave == 64 ? "standin_test_64" : "standin_test_32") {
        library.configure("reset", 0);
        start();
    }
    ~Emulator() { library.configure("reset", 0); }

    // Again after a change of settings that holds from the start.
    void start() {
        EXPECT_EQ(library.call("cuInit", 0u), 0);
        use(0);
        EXPECT_EQ(library.call("cuStreamCreate", &stream, 1u), 0);
        EXPECT_EQ(library.call("cuModuleLoadData", &module, static_cast<const void *>("image")), 0);
    }
    void use(int device) {
        void *context = nullptr;
        EXPECT_EQ(library.call("cuDevicePrimaryCtxRetain", &context, device), 0);
        EXPECT_EQ(library.call("cuCtxSetCurrent", context), 0);
    }
    uint64_t allocate(size_t bytes) {
        uint64_t address = 0;
        EXPECT_EQ(library.call("cuMemAlloc_v2", &address, bytes), 0);
        return address;
    }
    uint64_t upload(const Words &words) {
        const uint64_t address = allocate(words.size() * 4);
        EXPECT_EQ(library.call("cuMemcpyHtoDAsync_v2", address, static_cast<const void *>(words.data()),
                               words.size() * 4, stream),
                  0);
        return address;
    }
    Words download(uint64_t address, size_t n) {
        Words words(n);
        EXPECT_EQ(library.call("cuMemcpyDtoHAsync_v2", static_cast<void *>(words.data()), address, n * 4, stream), 0);
        EXPECT_EQ(synchronize(), 0);
        return words;
    }
    int synchronize() { return library.call("cuStreamSynchronize", stream); }
    void *function(const char *kernel) {
        void *f = nullptr;
        EXPECT_EQ(library.call("cuModuleGetFunction", &f, module, kernel), 0) << kernel;
        return f;
    }
    int launch(const char *kernel, unsigned blocks, unsigned threads, unsigned shared_bytes, EmulatorArgs args,
               bool early = false) {
        LaunchAttribute attribute;
        LaunchConfig config;
        config.grid[0] = blocks;
        config.block[0] = threads;
        config.shared_bytes = shared_bytes;
        config.stream = stream;
        config.attributes = &attribute;
        config.attribute_count = early ? 1 : 0;
        void *params[] = {&args};
        void **extra = nullptr;
        return library.call("cuLaunchKernelEx", static_cast<const LaunchConfig *>(&config), function(kernel),
                            static_cast<void **>(params), extra);
    }
    // One of the driver's functions, which has to succeed.
    template <class... Args>
    void must(const char *name, Args... args) {
        EXPECT_EQ(library.call(name, args...), 0) << name;
    }
    static EmulatorArgs args(uint64_t a, uint64_t b, uint32_t n = 0) {
        return {reinterpret_cast<uint32_t *>(a), reinterpret_cast<uint32_t *>(b), n};
    }

    uint32_t wave;
    StandinLibrary library;
    void *stream = nullptr, *module = nullptr;
};

inline Words counted(size_t n) {
    Words words(n);
    for (size_t i = 0; i < n; ++i) words[i] = static_cast<uint32_t>(i * 2654435761u) >> 18;
    return words;
}

}  // namespace ridge::simt
