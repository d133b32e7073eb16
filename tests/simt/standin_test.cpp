// The stand-in driver: memory and its end, copies, captures and graphs, events, several devices, the symbols of HIP.
#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "simt/emulator_support.h"

namespace ridge::simt {
namespace {

constexpr int kOutOfMemory = 2, kInvalidHandle = 400, kNotReady = 600, kUnsupported = 900, kInvalidated = 901,
              kUnjoined = 904, kImplicit = 906;

class Standin : public testing::Test {
  protected:
    // Records a reversal of `in` into `out` and gives it back as a graph that is ready.
    void *capture_reversal(uint64_t in, uint64_t out, int mode = 1) {
        void *graph = nullptr, *ready = nullptr;
        e.must("cuStreamBeginCapture_v2", e.stream, mode);
        EXPECT_EQ(e.launch("emulator_reverse", 1, 256, 1024, e.args(in, out)), 0);
        e.must("cuStreamEndCapture", e.stream, &graph);
        e.must("cuGraphInstantiateWithFlags", &ready, graph, 0ull);
        e.must("cuGraphDestroy", graph);
        return ready;
    }
    void *create_stream() {
        void *s = nullptr;
        e.must("cuStreamCreate", &s, 1u);
        return s;
    }
    void *create_event() {
        void *event = nullptr;
        e.must("cuEventCreate", &event, 0u);
        return event;
    }
    Words reversed(const Words &w) { return Words(w.rbegin(), w.rend()); }
    Emulator e{32};
};

TEST_F(Standin, MemoryEnds) {
    e.library.configure("memory", 1 << 20);
    size_t free = 0, total = 0;
    e.must("cuMemGetInfo_v2", &free, &total);
    EXPECT_EQ(total, 1u << 20);
    EXPECT_EQ(free, total);
    const uint64_t most = e.allocate(1000000);
    uint64_t more = 0;
    EXPECT_EQ(e.library.call("cuMemAlloc_v2", &more, size_t{100000}), kOutOfMemory);
    e.must("cuMemGetInfo_v2", &free, &total);
    EXPECT_EQ(free, (1u << 20) - 1000000u);
    EXPECT_EQ(e.library.state("used"), 1000000u);
    e.must("cuMemFree_v2", most);
    EXPECT_NE(e.library.call("cuMemFree_v2", most), 0) << "twice";
    e.must("cuMemAlloc_v2", &more, size_t{100000});
    EXPECT_EQ(e.library.state("allocations"), 1u);
    EXPECT_EQ(most % 256, 0u);
}

TEST_F(Standin, HolesAreUsedAgain) {
    std::vector<uint64_t> all;
    for (int i = 0; i < 100; ++i) all.push_back(e.allocate(5000));
    for (size_t i = 0; i < all.size(); i += 2) e.must("cuMemFree_v2", all[i]);
    for (size_t i = 0; i < all.size(); i += 2) EXPECT_LE(e.allocate(4500), all.back());
    EXPECT_EQ(e.library.state("allocations"), 100u);
}

TEST_F(Standin, IntegratedMemoryIsTheHosts) {
    e.library.configure("integrated", 1);
    size_t free = 0, total = 0;
    e.must("cuMemGetInfo_v2", &free, &total);
    EXPECT_GT(total, size_t{256} << 20);
    EXPECT_LE(free, total);
    int integrated = 0;
    e.must("cuDeviceGetAttribute", &integrated, 18, 0);
    EXPECT_EQ(integrated, 1);
}

TEST_F(Standin, CopiesAndFills) {
    const Words in = counted(256);
    const uint64_t a = e.upload(in), b = e.allocate(1024);
    e.must("cuMemcpyDtoDAsync_v2", b, a, size_t{1024}, e.stream);
    e.must("cuMemsetD8Async", b + 4, static_cast<unsigned char>(7), size_t{8}, e.stream);
    Words expected = in;
    expected[1] = expected[2] = 0x07070707;
    EXPECT_EQ(e.download(b, 256), expected);
    EXPECT_NE(e.library.call("cuMemcpyDtoDAsync_v2", b, a + 4, size_t{1024}, e.stream), 0) << "past the end";
    EXPECT_NE(e.library.call("cuMemsetD8Async", b + 1024, static_cast<unsigned char>(0), size_t{1}, e.stream), 0);
    EXPECT_EQ(e.synchronize(), 0) << "a call that is refused does not fail the device";
}

TEST_F(Standin, LaunchesThatAreRefused) {
    const EmulatorArgs args = e.args(0, e.allocate(1024), 1);
    EXPECT_EQ(e.launch("emulator_shuffles", 0, 256, 0, args), 1) << "no block";
    EXPECT_EQ(e.launch("emulator_shuffles", 1, 128, 0, args), 1) << "not the kernel's threads";
    EXPECT_NE(e.library.message().find("128 threads, the kernel is written for 256"), std::string::npos);
    EXPECT_EQ(e.launch("emulator_shuffles", 1, 256, 64 << 10, args), 1) << "shared memory that was not allowed";
    e.must("cuFuncSetAttribute", e.function("emulator_shuffles"), 8, 64 << 10);
    EXPECT_EQ(e.launch("emulator_shuffles", 1, 256, 64 << 10, args), 0);
    EXPECT_EQ(e.library.call("cuFuncSetAttribute", e.function("emulator_shuffles"), 8, 256 << 10), 1)
        << "more than there is";
    void *f = nullptr;
    EXPECT_EQ(e.library.call("cuModuleGetFunction", &f, e.module, "no_such_kernel"), 500);
    void *m = nullptr;
    EXPECT_EQ(e.library.call("cuModuleLoadData", &m, static_cast<const void *>("other device's code")), 209);
    const char *name = nullptr;
    EXPECT_EQ(e.library.call("cuGetErrorName", 209, &name), 0);
    EXPECT_STREQ(name, "CUDA_ERROR_NO_BINARY_FOR_GPU");
}

TEST_F(Standin, GraphsReplay) {
    const Words in = counted(256);
    const uint64_t a = e.upload(Words(256, 0)), b = e.upload(Words(256, 1));
    void *ready = capture_reversal(a, b);
    EXPECT_EQ(e.download(b, 256), Words(256, 1)) << "what is captured does not run";
    for (uint32_t i = 0; i < 3; ++i) {
        Words now = in;
        now[0] = i;
        e.must("cuMemcpyHtoDAsync_v2", a, static_cast<const void *>(now.data()), size_t{1024}, e.stream);
        e.must("cuGraphLaunch", ready, e.stream);
        EXPECT_EQ(e.download(b, 256), reversed(now));
    }
    EXPECT_EQ(e.library.state("launches"), 3u);
    e.must("cuGraphExecDestroy", ready);
    EXPECT_EQ(e.library.call("cuGraphLaunch", ready, e.stream), kInvalidHandle);
    EXPECT_EQ(e.library.state("graphs") + e.library.state("ready_graphs"), 0u);
}

TEST_F(Standin, GraphsHoldCopiesFillsAndOtherStreams) {
    const Words in = counted(256);
    const uint64_t a = e.upload(in), b = e.allocate(1024), c = e.allocate(1024);
    void *side = create_stream(), *fork = create_event(), *join = create_event(), *graph = nullptr, *ready = nullptr;
    Words host(256, 0);
    e.must("cuStreamBeginCapture_v2", e.stream, 1);
    ASSERT_EQ(e.launch("emulator_reverse", 1, 256, 1024, e.args(a, b)), 0);
    e.must("cuEventRecord", fork, e.stream);
    e.must("cuStreamWaitEvent", side, fork, 0u);
    e.must("cuMemcpyDtoDAsync_v2", c, b, size_t{1024}, side);
    e.must("cuMemsetD8Async", c, static_cast<unsigned char>(1), size_t{4}, side);
    e.must("cuEventRecord", join, side);
    e.must("cuStreamWaitEvent", e.stream, join, 0u);
    e.must("cuMemcpyDtoHAsync_v2", static_cast<void *>(host.data()), c, size_t{1024}, e.stream);
    e.must("cuStreamEndCapture", e.stream, &graph);
    e.must("cuGraphInstantiateWithFlags", &ready, graph, 0ull);
    EXPECT_EQ(host, Words(256, 0));
    e.must("cuGraphLaunch", ready, e.stream);
    ASSERT_EQ(e.synchronize(), 0);
    Words expected = reversed(in);
    expected[0] = 0x01010101;
    EXPECT_EQ(host, expected);
}

TEST_F(Standin, WhatBreaksACapture) {
    const uint64_t a = e.upload(Words(256, 0)), b = e.allocate(1024);
    void *graph = nullptr;
    const auto breaks = [&](int code, auto call) {
        e.must("cuStreamBeginCapture_v2", e.stream, 0);
        EXPECT_EQ(call(), code);
        EXPECT_EQ(e.launch("emulator_reverse", 1, 256, 1024, e.args(a, b)), kInvalidated);
        EXPECT_EQ(e.library.call("cuStreamEndCapture", e.stream, &graph), kInvalidated);
        EXPECT_EQ(graph, nullptr);
    };
    uint64_t more = 0;
    breaks(kUnsupported, [&] { return e.library.call("cuMemAlloc_v2", &more, size_t{16}); });
    breaks(kUnsupported, [&] { return e.library.call("cuMemFree_v2", a); });
    breaks(kUnsupported, [&] { return e.synchronize(); });
    void *none = nullptr;
    breaks(kImplicit,
           [&] { return e.library.call("cuMemsetD8Async", b, static_cast<unsigned char>(0), size_t{4}, none); });

    // Work of another stream that the capture does not wait for.
    void *side = create_stream(), *fork = create_event();
    e.must("cuStreamBeginCapture_v2", e.stream, 1);
    e.must("cuEventRecord", fork, e.stream);
    e.must("cuStreamWaitEvent", side, fork, 0u);
    e.must("cuMemsetD8Async", b, static_cast<unsigned char>(0), size_t{4}, side);
    EXPECT_EQ(e.library.call("cuStreamEndCapture", e.stream, &graph), kUnjoined);

    // Calls of another thread break a capture only where it says so.
    for (const int mode : {0, 1}) {
        e.must("cuStreamBeginCapture_v2", e.stream, mode);
        std::thread([&] {
            e.use(0);
            EXPECT_EQ(e.library.call("cuMemAlloc_v2", &more, size_t{16}), mode == 0 ? kUnsupported : 0);
        }).join();
        EXPECT_EQ(e.library.call("cuStreamEndCapture", e.stream, &graph), mode == 0 ? kInvalidated : 0);
    }
    EXPECT_EQ(e.synchronize(), 0) << "the device goes on";
}

TEST_F(Standin, DeferredWorkRunsWhenSomethingWaits) {
    e.library.configure("deferred", 1);
    const Words in = counted(256);
    const uint64_t a = e.allocate(1024), b = e.allocate(1024);
    void *p = nullptr;
    e.must("cuMemAllocHost_v2", &p, size_t{1024});
    auto *pinned = static_cast<uint32_t *>(p);
    std::copy(in.begin(), in.end(), pinned);
    e.must("cuMemcpyHtoDAsync_v2", a, static_cast<const void *>(p), size_t{1024}, e.stream);
    ASSERT_EQ(e.launch("emulator_reverse", 1, 256, 1024, e.args(a, b)), 0);
    void *event = create_event(), *other = create_stream(), *later = create_event();
    e.must("cuEventRecord", event, e.stream);
    EXPECT_EQ(e.library.state("launches"), 0u);
    float milliseconds = 0;
    EXPECT_EQ(e.library.call("cuEventElapsedTime", &milliseconds, event, event), kNotReady);
    pinned[0] = 77;  // too soon: the copy has not run
    // Another stream that waits for the event, and whose copy to pinned memory is waited for.
    e.must("cuStreamWaitEvent", other, event, 0u);
    e.must("cuMemcpyDtoHAsync_v2", static_cast<void *>(p), b, size_t{1024}, other);
    e.must("cuEventRecord", later, other);
    EXPECT_EQ(pinned[1], in[1]);
    e.must("cuEventSynchronize", later);
    EXPECT_EQ(e.library.state("launches"), 1u);
    EXPECT_EQ(pinned[255], 77u);
    EXPECT_EQ(pinned[254], in[1]);
    e.must("cuMemFreeHost", p);
    EXPECT_EQ(e.library.state("host_allocations"), 0u);
}

TEST_F(Standin, EventsMeasure) {
    e.library.configure("latency", 2000);
    void *start = create_event(), *end = create_event();
    e.must("cuEventRecord", start, e.stream);
    ASSERT_EQ(e.launch("emulator_shuffles", 1, 256, 0, e.args(0, e.allocate(1024), 1)), 0);
    e.must("cuEventRecord", end, e.stream);
    e.must("cuEventSynchronize", end);
    float milliseconds = 0;
    e.must("cuEventElapsedTime", &milliseconds, start, end);
    EXPECT_GE(milliseconds, 2.0f);
}

TEST_F(Standin, DevicesHaveTheirOwnMemory) {
    e.library.configure("devices", 2);
    int count = 0;
    e.must("cuDeviceGetCount", &count);
    EXPECT_EQ(count, 2);
    const Words in = counted(64);
    const uint64_t near = e.upload(in), out = e.allocate(4);
    void *here = nullptr, *there = nullptr;
    e.must("cuDevicePrimaryCtxRetain", &here, 0);
    e.must("cuDevicePrimaryCtxRetain", &there, 1);
    e.use(1);
    const uint64_t far = e.allocate(256);
    EXPECT_EQ(e.launch("emulator_read", 1, 64, 0, e.args(far, far, 0)), kInvalidHandle)
        << "stream and function are of device 0";
    e.use(0);
    e.must("cuMemcpyPeerAsync", far, there, near, here, size_t{256}, e.stream);
    int can = 0;
    e.must("cuDeviceCanAccessPeer", &can, 0, 1);
    EXPECT_EQ(can, 1);
    e.must("cuCtxEnablePeerAccess", there, 0u);
    ASSERT_EQ(e.launch("emulator_read", 1, 64, 0, e.args(far, out, 5)), 0);
    EXPECT_EQ(e.download(out, 1)[0], in[5]);
    e.library.configure("devices", 0);
    EXPECT_EQ(e.library.call("cuInit", 0u), 100);
}

TEST(StandinHip, CodeOfAnotherProcessor) {
    Emulator e(64);  // of the shape of gfx9
    const auto load = [&](unsigned char processor) {
        std::vector<unsigned char> elf(64, 0);
        std::memcpy(elf.data(),
                    "\x7f"
                    "ELF",
                    4);
        elf[18] = 224;
        elf[48] = processor;
        void *module = nullptr;
        return e.library.call("hipModuleLoadData", &module, static_cast<const void *>(elf.data()));
    };
    EXPECT_EQ(load(0x4c), 0) << "gfx942";
    EXPECT_EQ(load(0x4a), 209) << "gfx1151";
}

TEST(StandinHip, SymbolsOfHip) {
    for (const uint32_t wave : {32u, 64u}) {
        Emulator e(wave);
        void *stream = nullptr, *module = nullptr, *function = nullptr, *a = nullptr, *b = nullptr;
        const Words in = counted(256);
        Words out(256, 0);
        e.must("hipInit", 0u);
        int value = 0;
        e.must("hipDeviceGetAttribute", &value, 87, 0);
        EXPECT_EQ(static_cast<uint32_t>(value), wave);
        e.must("hipStreamCreateWithFlags", &stream, 1u);
        e.must("hipModuleLoadData", &module, static_cast<const void *>("image"));
        e.must("hipModuleGetFunction", &function, module, "emulator_reverse");
        e.must("hipMalloc", &a, size_t{1024});
        e.must("hipMalloc", &b, size_t{1024});
        e.must("hipMemcpyHtoDAsync", a, static_cast<const void *>(in.data()), size_t{1024}, stream);
        EmulatorArgs args = {static_cast<uint32_t *>(a), static_cast<uint32_t *>(b), 0};
        void *params[] = {&args};
        size_t bytes = sizeof args;
        void *extra[] = {reinterpret_cast<void *>(1), &args, reinterpret_cast<void *>(2), &bytes,
                         reinterpret_cast<void *>(3)};
        void **none = nullptr;
        for (const bool by_params : {true, false}) {
            e.must("hipMemsetD8Async", b, static_cast<unsigned char>(0), size_t{1024}, stream);
            e.must("hipModuleLaunchKernel", function, 1u, 1u, 1u, 256u, 1u, 1u, 1024u, stream,
                   by_params ? static_cast<void **>(params) : none, by_params ? none : static_cast<void **>(extra));
            e.must("hipMemcpyDtoHAsync", static_cast<void *>(out.data()), b, size_t{1024}, stream);
            e.must("hipStreamSynchronize", stream);
            EXPECT_EQ(out, Words(in.rbegin(), in.rend()));
        }
        // HIP has no code of its own for an address that is not aligned.
        void *wide = nullptr;
        e.must("hipModuleGetFunction", &wide, module, "emulator_wide");
        args.n = 1;
        testing::internal::CaptureStderr();
        e.must("hipModuleLaunchKernel", wide, 1u, 1u, 1u, 64u, 1u, 1u, 0u, stream, static_cast<void **>(params), none);
        testing::internal::GetCapturedStderr();
        EXPECT_EQ(e.library.call("hipStreamSynchronize", stream), 719);
    }
}

}  // namespace
}  // namespace ridge::simt
