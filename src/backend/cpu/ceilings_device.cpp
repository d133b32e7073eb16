#include "backend/cpu/ceilings_device.h"

#include <algorithm>
#include <chrono>

#include "backend/cpu/ceilings.h"

namespace ridge::cpu {
namespace {

// A launch in which every worker may take part and none has anything to do. With one worker there are two tiles too,
// so that it meets the barrier that a step of several launches has.
uint32_t empty_tiles(const LaunchView &view) { return std::max(2U, view.workers); }
void do_nothing(const LaunchView &, uint32_t, std::byte *) {}

Kernel empty_kernel() {
    Kernel k;
    k.name = "cpu.nothing";
    k.op = kind<Add>();
    k.tile.count = empty_tiles;
    k.tile.run = do_nothing;
    return k;
}

// Median seconds of a run: the one figure here that is no best case, because a step pays what is usual.
double seconds_of(Executable &e, double seconds, unsigned runs) {
    using Clock = std::chrono::steady_clock;
    const StepBuffer step{StepLimits{}};
    const auto since = [](Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); };
    const Clock::time_point start = Clock::now();
    std::vector<double> rounds;
    while (rounds.size() < 5 || (since(start) < seconds && rounds.size() < 10000)) {
        const Clock::time_point round = Clock::now();
        for (unsigned i = 0; i < runs; i++) e.run(step);
        rounds.push_back(since(round) / runs);
    }
    std::nth_element(rounds.begin(), rounds.begin() + static_cast<std::ptrdiff_t>(rounds.size() / 2), rounds.end());
    return rounds[rounds.size() / 2];
}

}  // namespace

CeilingFigures measure_device(Backend &device, double seconds) {
    const unsigned threads = device.info().workers;
    const Ceilings c = measure_ceilings({.threads = threads, .seconds = seconds});
    CeilingFigures f;
    f.instructions = c.isa;
    const auto add = [&](const char *name, const char *unit, const Ceiling &x) {
        if (x.all <= 0) return;
        f.list.push_back({name, unit, x.all, 0, 0});
        f.list.push_back({name, unit, x.one, 1, 0});
    };
    add("read", "B/s", c.read);
    add("int8", "MAC/s", c.int8);
    add("bf16", "MAC/s", c.bf16);
    add("f32", "MAC/s", c.f32);

    Program program;
    program.nodes.push_back({Add{}, 0, 0});
    program.levers = LeverSet::defaults();
    const Bindings nothing;
    const Kernel kernel = empty_kernel();
    constexpr unsigned kLaunches = 256;
    const auto none = device.compile(program, nothing, {});
    const auto many = device.compile(program, nothing, std::vector<Launch>(kLaunches, Launch{&kernel, 0}));
    const double submit = seconds_of(*none, seconds / 2, 100);
    const double barrier = (seconds_of(*many, seconds / 2, 1) - submit) / (kLaunches - 1);
    f.list.push_back({"barrier", "s", std::max(barrier, 1e-9), 0, 0});
    f.list.push_back({"submit", "s", submit, 0, 0});
    f.list.push_back({"cache", "B", static_cast<double>(last_level_cache()), 0, 0});
    return f;
}

}  // namespace ridge::cpu
