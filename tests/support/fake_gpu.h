// GPUs that are the CPU backend under other names: with memory of a size that tests choose, and copies of weights.
#pragma once

#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "backend/backends.h"
#include "backend/cpu/cpu.h"
#include "core/error.h"
#include "support/forwarding.h"

namespace ridge::test {

// What the devices that are opened next are like.
struct FakeGpus {
    struct Gpu {
        uint64_t memory = uint64_t{1} << 40;
        std::string broken;  // opening it fails so; empty: it works
    };
    std::vector<Gpu> gpus{{}};
    std::string no_driver;    // counting them fails so
    uint64_t cpu_memory = 0;  // 0: what the machine has
    bool integrated = false;  // the GPUs' memory is the CPU's
    size_t opened = 0, weights_loaded = 0;
    uint64_t bytes_loaded = 0;
};
inline FakeGpus &fake_gpus() {
    static FakeGpus fake;
    return fake;
}

class FakeDevice final : public Forwarding {
  public:
    FakeDevice(std::unique_ptr<Backend> cpu, uint64_t memory, bool is_gpu)
        : Forwarding(std::move(cpu)), memory_(memory), is_gpu_(is_gpu) {}
    DeviceInfo info() const override {
        DeviceInfo i = Forwarding::info();
        if (memory_ > 0) i.memory_total = i.memory_free = memory_;
        i.shares_host_memory = is_gpu_ && fake_gpus().integrated;
        return i;
    }
    bool copies_weights() const override { return is_gpu_; }
    Buffer load(const Weight &w, Layout layout) override {
        if (!is_gpu_) return Forwarding::load(w, layout);
        fake_gpus().weights_loaded++, fake_gpus().bytes_loaded += w.bytes();
        Buffer b = allocate(w.bytes(), w.name);
        upload(b, 0, {w.data, w.bytes()});
        return b;
    }

  private:
    const uint64_t memory_;
    const bool is_gpu_;
};

// A table of backends with them: "cpu" and "gpu".
inline std::span<const BackendRow> fake_backends() {
    static const BackendRow rows[] = {
        {"cpu",
         [](const BackendOptions &o) -> std::unique_ptr<Backend> {
             return std::make_unique<FakeDevice>(make_cpu_backend({.threads = o.threads}), fake_gpus().cpu_memory,
                                                 false);
         },
         ""},
        {"gpu",
         [](const BackendOptions &o) -> std::unique_ptr<Backend> {
             const FakeGpus::Gpu &g = fake_gpus().gpus.at(o.index);
             if (!g.broken.empty()) fail(ErrorKind::unsupported, "{}", g.broken);
             fake_gpus().opened++;
             return std::make_unique<FakeDevice>(
                 make_cpu_backend({.name = "gpu:" + std::to_string(o.index), .threads = 1}), g.memory, true);
         },
         "", nullptr,
         [](const BackendOptions &) {
             if (!fake_gpus().no_driver.empty()) fail(ErrorKind::unsupported, "{}", fake_gpus().no_driver);
             return static_cast<unsigned>(fake_gpus().gpus.size());
         }},
    };
    return rows;
}

}  // namespace ridge::test
