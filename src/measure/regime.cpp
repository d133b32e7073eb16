#include "measure/regime.h"

#include <algorithm>

namespace ridge {
namespace {

constexpr size_t at(Regime r) { return static_cast<size_t>(r); }

double over(double amount, double rate) { return rate > 0 ? amount / rate : 0; }

struct Rates {
    double read, int8, bf16, f32;
    double seconds_of(const LaunchClass &c) const { return over(c.int8, int8) + over(c.bf16, bf16) + over(c.f32, f32); }
};

ClassVerdict judge_class(const LaunchClass &c, const Rates &rates, double wall, bool cached) {
    ClassVerdict v;
    v.f = std::clamp(c.seconds / wall, 0.0, 1.0);
    v.read_share = over(over(c.bytes, rates.read), c.seconds);
    v.compute_share = over(rates.seconds_of(c), c.seconds);
    // What lies in caches does not wait for memory, so there only arithmetic can be a ceiling.
    const double read = cached || v.read_share > kBeyond ? 0 : v.read_share;
    v.share = std::min(std::max(read, v.compute_share), 1.0);
    if (read >= v.compute_share && read >= kNearRead) v.bound = Regime::bandwidth;
    if (v.compute_share > read && v.compute_share >= kNearCompute) v.bound = Regime::compute;
    v.most = speedup(v.f, 0);
    v.to_ceiling = speedup(v.f, v.share);
    return v;
}

}  // namespace

std::string_view name(Regime r) {
    switch (r) {
        case Regime::bandwidth:
            return "bandwidth-roofline";
        case Regime::compute:
            return "compute-bound";
        case Regime::host:
            return "host/launch-bound";
        case Regime::busy:
            break;
    }
    return "device-busy-bound";
}

double speedup(double f, double left) {
    // A share of 1 that leaves nothing would be infinitely fast; a million times as fast says the same.
    return 1 / std::max(1 - f * (1 - left), 1e-6);
}

RegimeVerdict judge(const StepTimes &step, const CeilingFigures &ceilings) {
    const Rates rates{ceilings.get("read"), ceilings.get("int8"), ceilings.get("bf16"), ceilings.get("f32")};
    RegimeVerdict v;
    double bytes = 0, compute = 0, inside = 0, busy = 0;
    for (const LaunchClass &c : step.classes) {
        bytes += c.bytes, compute += rates.seconds_of(c);
        inside += c.seconds, busy += c.busy;
    }
    v.cached = bytes > 0 && bytes <= ceilings.get("cache");
    v.read_share = over(bytes, rates.read) / step.wall;
    v.compute_share = compute / step.wall;
    v.outside = std::clamp(1 - inside / step.wall, 0.0, 1.0);
    v.barrier_share = step.barriers * ceilings.get("barrier") / step.wall;
    v.submit_share = ceilings.get("submit") / step.wall;
    v.busy_share = busy / (step.wall * std::max(step.workers, 1U));

    // Launches on several devices may run at the same time; then their shares are of their sum.
    const double scale = std::max(1.0, inside / step.wall);
    v.time[at(Regime::host)] = v.outside;
    for (const LaunchClass &c : step.classes) {
        v.classes.push_back(judge_class(c, rates, step.wall, v.cached));
        v.time[at(v.classes.back().bound)] += c.seconds / step.wall / scale;
    }
    std::array<Regime, kRegimes> order{Regime::bandwidth, Regime::compute, Regime::host, Regime::busy};
    std::stable_sort(order.begin(), order.end(), [&](Regime a, Regime b) { return v.time[at(a)] > v.time[at(b)]; });
    v.regime = order[0], v.second = order[1];
    v.close = v.time[at(v.second)] > kClose * v.time[at(v.regime)];
    return v;
}

}  // namespace ridge
