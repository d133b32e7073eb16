// When each launch of a step ran, as its device's executor saw it.
//
// Whoever wants a trace hands a StepTrace to Engine::run; without one no clock is read. Workers note their times in
// memory of their own, which is put together after the run: no line is shared that was not before.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "engine/kernel.h"
#include "engine/step.h"
#include "op/cost.h"

namespace ridge {

using TraceClock = std::chrono::steady_clock;

struct LaunchTrace {
    const Kernel *kernel = nullptr;  // nullptr: a copy
    uint32_t node = 0;               // of the program
    DeviceId device = 0;             // of a copy the one that it goes to
    double start = 0, end = 0;       // seconds since the step began: the first worker's start, the last worker's end
    double busy = 0;                 // sum over workers of the time in tiles
    uint32_t workers = 1;            // that could take tiles
    uint32_t tiles = 0;
    uint32_t experts = 0;  // that had tokens, counted from the ids on the device; 0: not counted, or none
    // Of rows that are cut into tiles expert by expert: how many, and how many those tiles hold. 0: not cut so.
    uint32_t routed_rows = 0, tile_rows = 0;
};

struct StepTrace {
    TraceClock::time_point began;
    // kv_* as without windows; expert_share: the mean over the launches that counted their experts, < 0: none did.
    StepCount count;
    bool prompt = false;    // part of a text that is read, in contrast to a token that was just drawn
    double wall = 0;        // of Engine::run
    double logits = 0;      // of that: to fetch the logits
    double apart = 0;       // not of that: a device that had to run its launches again to time them one by one
    uint32_t workers = 1;   // the most of any device
    uint32_t barriers = 0;  // that workers met at, the end of each segment among them; 0 where there is one worker
    double waiting = 0;     // sum over workers of the time at barriers, from a segment's first launch to its last
    double overhead = 0;    // estimate of what tracing itself added, seconds of the wall time
    std::vector<LaunchTrace> launches;  // in the order they ran; those without tiles are left out

    // Of attentions with a window: what the tokens see of it.
    struct Window {
        uint32_t window = 0;
        double kv_positions = 0, kv_rows = 0;
    };
    std::vector<Window> windows;

    // A new step: counts what it has, forgets the launches of the one before, and starts the clock.
    void begin(const Program &p, const StepView &step);
    void end(const Program &p);  // the wall time, the experts' share

    double since_began(TraceClock::time_point t) const { return std::chrono::duration<double>(t - began).count(); }
    // The same in the step's own time, of a `t` after all that is apart so far.
    double time_of(TraceClock::time_point t) const { return since_began(t) - apart; }
    // What cost() wants to know of a launch: the step's counts with its window and its experts.
    StepCount count_of(const Program &p, const LaunchTrace &launch) const;
};

// Experts among ids[0 .. n-1]. Those outside 0 .. experts-1 do not count.
uint32_t count_experts(const int32_t *ids, size_t n, uint32_t experts);

// The ids that choose the experts of `op`, kNone where it has none, and how many experts its matrices have.
ValueId expert_ids(const Op &op);
uint32_t expert_total(const Program &p, const Op &op);

// Seconds that it takes to read the clock, measured once.
double stamp_cost();

}  // namespace ridge
