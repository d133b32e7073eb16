#include "backend/simt/ceilings.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "backend/simt/event.h"
#include "backend/simt/kernels/ceilings.h"
#include "backend/simt/rows.h"

namespace ridge::simt {
namespace {

constexpr unsigned kRuns = 15;

double median(std::vector<double> v) {
    std::nth_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2), v.end());
    return v[v.size() / 2];
}

class Meter {
  public:
    explicit Meter(Device &device)
        : device_(device),
          driver_(device.driver()),
          out_(device.allocate(256, "a result")),
          first_(driver_),
          last_(driver_) {}

    void launch(const char *name, uint32_t blocks, uint32_t threads, CeilingArgs a, bool early = false) {
        a.out = reinterpret_cast<u32 *>(out_.address), a.blocks = blocks;
        const Handle f = device_.modules().function("ceilings", name);
        check(driver_, driver_.launch(f, {{blocks, 1, 1}, threads, 0, early}, device_.stream(), &a, sizeof a),
              "launching a ceiling's kernel");
    }
    // Median seconds on the device of what `work` submits, behind a kernel that waits until all of it is.
    template <class Work>
    double seconds(Work &&work, size_t launches = 1) {
        std::vector<double> all;
        for (unsigned i = 0; i < kRuns + 2; i++) {
            CeilingArgs wait{};
            wait.n = 50000 + 10000 * launches;
            launch("ceiling_wait", 1, 128, wait);
            first_.record(device_.stream());
            work();
            last_.record(device_.stream());
            device_.synchronize();
            const double s = std::max(seconds_between(first_, last_), 1e-9);
            if (i >= 2) all.push_back(s);  // after the first the clocks are up
        }
        return median(all);
    }

  private:
    Device &device_;
    const Driver &driver_;
    Buffer out_;
    Event first_, last_;
};

}  // namespace

CeilingFigures measure_ceilings(Device &device, const DeviceLimits &limits, Features features) {
    device.use();
    CeilingFigures f;
    Meter meter(device);
    const uint32_t processors = limits.processors;
    const auto rate = [&](const char *name, const char *unit, double work, double seconds, uint64_t launch_bytes = 0) {
        f.list.push_back({name, unit, work / seconds, 0, launch_bytes});
    };

    // Reads: far more than caches hold, half of what is free at most; and launches of the sizes that layers have.
    size_t free = 0, total = 0;
    check(device.driver(), device.driver().memory(&free, &total), "asking for free memory");
    const uint64_t most =
        std::min<uint64_t>({uint64_t{4} << 30, std::max<uint64_t>(16 * device.description().l2, 64 << 20), free / 2}) /
        256 * 256;
    const Buffer data = device.allocate(most, "a ceiling's reads", false);
    const auto read = [&](uint64_t bytes, uint64_t at) {
        CeilingArgs a{};
        a.from = reinterpret_cast<const u32x4 *>(data.address + at), a.n = bytes / 16;
        meter.launch("ceiling_read", static_cast<uint32_t>(std::min<uint64_t>(processors * 8, (a.n + 1023) / 1024)),
                     256, a);
    };
    rate("read", "B/s", static_cast<double>(most), meter.seconds([&] { read(most, 0); }));
    for (const uint64_t megabytes : {5, 20, 64}) {
        const uint64_t bytes = megabytes << 20;
        if (bytes > most / 4) continue;
        uint64_t at = 0;  // other bytes each time, so that they come from memory
        const double s = meter.seconds([&] {
            read(bytes, at);
            at = at + 2 * bytes <= most ? at + bytes : 0;
        });
        rate("read", "B/s", static_cast<double>(bytes), s, bytes);
    }

    // Arithmetic: multiply-adds of a launch of two or four blocks a processor.
    const auto arithmetic = [&](const char *name, const char *kernel, uint32_t blocks, uint64_t repeats, double each) {
        CeilingArgs a{};
        a.n = repeats;
        const double s = meter.seconds([&] { meter.launch(kernel, blocks * processors, 256, a); });
        rate(name, "MAC/s", each * static_cast<double>(repeats) * blocks * processors, s);
    };
    const bool matrix = (features & (kMma | kWmma | kMfma)) != 0;
    const double waves = 256.0 / limits.wave;
    if (matrix) arithmetic("int8", "ceiling_int8", 2, 200, waves * 64 * 16 * 16 * 32);
    if (matrix) arithmetic("bf16", "ceiling_bf16", 2, 200, waves * 64 * 16 * 16 * 16);
    arithmetic("f32", "ceiling_f32", 4, 20, 256.0 * 64 * 16);
    f.instructions = matrix ? (features & kMma) != 0 ? "mma" : (features & kWmma) != 0 ? "wmma" : "mfma" : "";

    // A launch between two others that has nothing to do, and what it takes to see the end of one.
    constexpr size_t kLaunches = 256;
    const bool early = (features & kPdl) != 0;
    const double many = meter.seconds(
        [&] {
            for (size_t i = 0; i < kLaunches; i++) meter.launch("ceiling_nothing", processors, 128, {}, early && i > 0);
        },
        kLaunches);
    f.list.push_back({"barrier", "s", many / kLaunches, 0, 0});
    std::vector<double> submits;
    for (unsigned i = 0; i < 50; i++) {
        const auto start = std::chrono::steady_clock::now();
        meter.launch("ceiling_nothing", 1, 128, {});
        device.synchronize();
        submits.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    f.list.push_back({"submit", "s", median(submits), 0, 0});
    f.list.push_back({"cache", "B", static_cast<double>(device.description().l2), 0, 0});
    return f;
}

}  // namespace ridge::simt
