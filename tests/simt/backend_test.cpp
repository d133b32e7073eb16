// The SIMT backend over stand-in drivers: what it says where there is no driver, no device, no code or no memory, and
// that the CPU computes on, whatever happened.
#include <gtest/gtest.h>

#include <cstring>

#include "engine/engine.h"
#include "measure/gate.h"
#include "runtime/model.h"
#include "runtime/tiny_model.h"
#include "simt/gpu.h"
#include "support/errors.h"
#include "support/forwarding.h"

namespace ridge::simt {
namespace {

using test::error_of;

void expect_says(const std::string &text, std::initializer_list<std::string> parts) {
    for (const std::string &part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
}

std::string refusal(const GpuKind &kind, const std::string &driver, unsigned index = 0) {
    return error_of(ErrorKind::unsupported, [&] { open_backend(kind.backend, {.index = index, .driver = driver}); });
}

// What is left to a user whose GPU cannot be used.
void expect_the_cpu_works() {
    const auto cpu = open_backend("cpu", {.threads = 1});
    GateOptions o;
    o.quick = true, o.op = "add";
    EXPECT_TRUE(gate_rows(*cpu, o).ok());
}

class Drivers : public testing::TestWithParam<GpuKind> {};
INSTANTIATE_TEST_SUITE_P(Of, Drivers, testing::Values(kNvidia, kGfx11, kGfx942), kind_name);

TEST_P(Drivers, MissingLibrary) {
    const bool cuda = GetParam().backend == std::string("cuda");
    expect_says(
        refusal(GetParam(), "/nowhere/libgpu.so"),
        {cuda ? "no NVIDIA driver is installed" : "no ROCm runtime is installed", "/nowhere/libgpu.so", "adds the"});
    expect_says(refusal(GetParam(), RIDGE_SOURCE_DIR "/README.md"), {"README.md"});
    expect_the_cpu_works();
}

TEST_P(Drivers, LibraryThatIsNoDriver) {
    const bool cuda = GetParam().backend == std::string("cuda");
    expect_says(refusal(GetParam(), "libm.so.6"), {cuda ? "libm.so.6 is no NVIDIA driver: it has no cuInit"
                                                        : "libm.so.6 is no ROCm runtime: it has no hipInit"});
    expect_the_cpu_works();
}

TEST_P(Drivers, TooOld) {
    const Gpu gpu(GetParam());
    RIDGE_NEEDS_GPU(gpu);
    const bool cuda = GetParam().backend == std::string("cuda");
    gpu.set("driver_version", cuda ? 11080 : 50700000);
    expect_says(refusal(GetParam(), gpu.driver()),
                {gpu.driver(), cuda ? "CUDA 11.8" : "HIP 5.7", cuda ? "12.0 or later" : "6.0 or later"});
    gpu.set("driver_version", cuda ? 12000 : 60000000);
    EXPECT_NO_THROW(gpu.open());
}

TEST_P(Drivers, NoDevice) {
    const Gpu gpu(GetParam());
    RIDGE_NEEDS_GPU(gpu);
    gpu.set("devices", 0);
    expect_says(refusal(GetParam(), gpu.driver()), {"sees no device"});
    expect_the_cpu_works();
    gpu.set("devices", 1);
    EXPECT_EQ(gpu.open()->info().name, gpu.device());
}

TEST_P(Drivers, IndexBeyondTheDevices) {
    const Gpu gpu(GetParam(), 3);
    RIDGE_NEEDS_GPU(gpu);
    const std::string name = GetParam().backend;
    expect_says(refusal(GetParam(), gpu.driver(), 3), {"no device " + name + ":3", name + ":0 to " + name + ":2"});
    EXPECT_EQ(gpu.open(2)->info().name, name + ":2");
}

TEST_P(Drivers, WhatADeviceSays) {
    const Gpu gpu(GetParam());
    RIDGE_NEEDS_GPU(gpu);
    gpu.set("memory", uint64_t{3} << 30);
    const auto device = gpu.open();
    const DeviceInfo i = device->info();
    EXPECT_EQ(i.memory_total, uint64_t{3} << 30);
    EXPECT_LE(i.memory_free, i.memory_total);
    EXPECT_FALSE(i.shares_host_memory);
    expect_says(i.description, {"4 processors"});
    const std::string units = std::string(GetParam().library).substr(std::strlen("standin_"));
    expect_says(device->feature_names(device->features()), {units});
    EXPECT_TRUE(device->captures());
    EXPECT_TRUE(device->copies_weights());
}

TEST_P(Drivers, UnifiedMemoryIsReported) {
    const Gpu gpu(GetParam());
    RIDGE_NEEDS_GPU(gpu);
    gpu.set("integrated", 1);
    EXPECT_TRUE(gpu.open()->info().shares_host_memory);
}

// HIP's code names its processor; none in this program is for what a CUDA GPU is, or for the other family alone.
TEST(Backend, NoCodeForTheDevice) {
    const Gpu gpu({kNvidia.library, "hip"});
    RIDGE_NEEDS_GPU(gpu);
    expect_says(error_of(ErrorKind::unsupported, [&] { gpu.open(); }),
                {"no code in this program runs on the device", "gfx", "a build for the device would add it"});
    expect_the_cpu_works();
}

TEST(Backend, AnOlderDeviceIsRefused) {
    const Gpu gpu(kNvidia);
    RIDGE_NEEDS_GPU(gpu);
    gpu.set("capability", 75);
    expect_says(error_of(ErrorKind::unsupported, [&] { gpu.open(); }),
                {gpu.device(), "compute capability 7.5", "8.0 or later"});
    expect_the_cpu_works();
}

// Launches may only overlap where the code of kernels waits for what is in front of it.
TEST(Backend, WhatTheCodeIsForDecidesOnEarlyLaunches) {
    const Gpu gpu(kNvidia);
    RIDGE_NEEDS_GPU(gpu);
    const auto names = [&] { return gpu.open()->feature_names(gpu.open()->features()); };
    EXPECT_EQ(names(), "mma pdl large-shared");
    gpu.set("compiled_for", 89);
    EXPECT_EQ(names(), "mma large-shared");
    gpu.set("compiled_for", 0);
    gpu.set("capability", 80);
    EXPECT_EQ(names(), "mma large-shared");
}

// Consumer GPUs have 99 KiB for a block, an A100 163: rows that need more are left out, others take smaller tiles.
class SharedMemory : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(KiB, SharedMemory, testing::Values(99, 163));

TEST_P(SharedMemory, IsEnoughForEveryFormat) {
    const Gpu gpu(kNvidia);
    RIDGE_NEEDS_GPU(gpu);
    gpu.set("shared", static_cast<uint64_t>(GetParam()) << 10);
    gpu.set("capability", GetParam() == 99 ? 89 : 80);
    const auto device = gpu.open();
    EXPECT_EQ(device->feature_names(device->features()), GetParam() == 99 ? "mma" : "mma large-shared");
    GateOptions o;
    o.quick = true, o.row = "mma";
    for (const char *op : {"contract", "gate_up", "attention"}) {
        o.op = op;
        const GateReport report = gate_rows(*device, o);
        EXPECT_TRUE(report.ok()) << to_string(report);
        for (const GateRow &r : report.rows) EXPECT_TRUE(!r.not_run.empty() || r.result.checked > 1000) << r.name;
    }
}

TEST_P(Drivers, MemoryIsShort) {
    const Gpu gpu(GetParam());
    RIDGE_NEEDS_GPU(gpu);
    gpu.set("memory", 8 << 20);
    const auto device = gpu.open();
    const std::string no_room = error_of(ErrorKind::limit, [&] { device->allocate(16 << 20, "keys and values"); });
    expect_says(no_room, {gpu.device(), "16.0 MiB for keys and values", "of 8.0 MiB are free", "would"});
    const std::vector<std::byte> data(9 << 20);
    const Weight w{"blk.0.ffn_up.weight", Format::F32, 9 << 10, 256, 1, data.data()};
    expect_says(error_of(ErrorKind::limit, [&] { device->load(w, Layout::file); }),
                {"9.0 MiB for blk.0.ffn_up.weight", "of 8.0 MiB are free"});
    EXPECT_EQ(gpu.library().state("allocations"), 0u) << "nothing is left behind";
    EXPECT_NO_THROW(device->allocate(1 << 20, "what fits"));
    expect_the_cpu_works();
}

// A whole model that does not fit is refused before anything of it is loaded.
TEST_P(Drivers, AModelThatDoesNotFit) {
    const Gpu gpu(GetParam());
    RIDGE_NEEDS_GPU(gpu);
    gpu.set("memory", 1 << 20);
    const auto path = test::tiny_file("tiny-qwen3");
    const auto open = [&](const std::string &name) {
        return Model::open(path, {.threads = 1, .devices = gpu.choice({name})});
    };
    expect_says(error_of(ErrorKind::limit, [&] { open(gpu.device())->session({.context = 64, .batch = 8}); }),
                {gpu.device(), "does not fit", "would place it", "free"});
    const auto session = open("cpu")->session({.context = 64, .batch = 8});
    EXPECT_EQ(gpu.library().state("allocations"), 0u);
}

// Gives its launches weights where there is no memory.
class Astray final : public test::Forwarding {
  public:
    using Forwarding::Forwarding;
    std::unique_ptr<Executable> compile(const Program &p, const Bindings &b, std::vector<Launch> launches) override {
        bindings_ = b;
        for (uint64_t &w : bindings_.weights) w = 0x1000;
        return Forwarding::compile(p, bindings_, std::move(launches));
    }

  private:
    Bindings bindings_;
};

TEST_P(Drivers, AKernelThatFailsIsAnError) {
    const Gpu gpu(GetParam());
    RIDGE_NEEDS_GPU(gpu);
    const test::TinyModel &model = test::tiny_model("tiny-qwen3");
    {
        Astray device(gpu.open());
        WeightStore weights;
        const auto session = test::session_of(model, {&device}, weights, {.context = 64, .batch = 8});
        testing::internal::CaptureStderr();
        const std::string what = error_of(ErrorKind::device, [&] { session->evaluate(test::some_tokens(4)); });
        testing::internal::GetCapturedStderr();
        expect_says(what, {"failed: ", "illegal"});
        expect_says(gpu.library().message(), {"reads", "which lie in no allocation"});
        // The device is lost to this process, as a GPU is; everything says so.
        EXPECT_THROW(session->evaluate(test::some_tokens(1)), Error);
    }
    expect_the_cpu_works();
}

TEST_P(Drivers, AGateThatADeviceBreaksOffSaysWhatRan) {
    const Gpu gpu(GetParam());
    RIDGE_NEEDS_GPU(gpu);
    Astray device(gpu.open());
    GateOptions o;
    o.quick = true, o.op = "contract", o.format = Format::Q4_K;
    testing::internal::CaptureStderr();
    const std::string what = error_of(ErrorKind::device, [&] { gate_rows(device, o); });
    testing::internal::GetCapturedStderr();
    expect_says(what, {"simt.contract.", "Q4_K", " tokens: ", "failed: ", "illegal"});
}

}  // namespace
}  // namespace ridge::simt
