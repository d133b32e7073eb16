// Which resource binds a step, from measured times and measured ceilings. Pure functions: numbers in, verdict out.
//
// The four regimes of the paper, and what has to change for tokens per second to change:
//   bandwidth-roofline   bytes of weights and state                  fewer bytes
//   compute-bound        multiply-adds                               better kernels for them
//   host/launch-bound    time in which no launch runs                fewer launches, cheaper ones
//   device-busy-bound    launches that neither ceiling explains      work eliminated from them
//
// The rule: the wall time of a step is divided. What lies outside of launches is the host's. The time of a class of
// launches belongs to memory or to arithmetic, whichever of the two ceilings it is nearer to, where it comes near
// enough (kNearRead, kNearCompute); else to the device being busy with something that no ceiling describes (unpacking,
// small operations, chains of dependent steps). The regime is the one with the most time; a second one with over kClose
// of the first's is named beside it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "backend/device_ceilings.h"

namespace ridge {

enum class Regime : uint8_t { bandwidth, compute, host, busy };
inline constexpr size_t kRegimes = 4;
std::string_view name(Regime r);  // "bandwidth-roofline", as levers.def calls it

// A launch that comes to this share of a ceiling is bound by it. In answers on two Zen 5 cores (docs/results)
// contractions read at 53% to 85% of the bandwidth, but those whose unpacking takes longer than reading at 20% to 35%;
// in prompts they come to 50% to 63% of the int8 rate, some to a third. Norms, rotations and the like stay below 10% of
// both.
inline constexpr double kNearRead = 0.45, kNearCompute = 0.25;
// Above it, bytes do not come from memory: launches that read faster than memory can be read find them in caches.
inline constexpr double kBeyond = 1.15;
inline constexpr double kClose = 0.5;

// All launches of one operation over weights of one format in a step, or the mean over steps.
struct LaunchClass {
    std::string name;                    // "contract Q4_K"
    double launches = 0;                 // in a step
    double seconds = 0;                  // in which one of them runs
    double busy = 0;                     // sum over workers of the time in tiles
    double bytes = 0;                    // of weights and state, which come from memory
    double traffic = 0;                  // all bytes read and written, activations too
    double int8 = 0, bf16 = 0, f32 = 0;  // multiply-adds
    double tile_fill = 0;                // of tiles that hold routed rows expert by expert, the share that do; 0: none
    double multiply_adds() const { return int8 + bf16 + f32; }
};

struct StepTimes {
    double wall = 0;  // seconds of the step, without what tracing added
    unsigned workers = 1;
    double barriers = 0;  // in a step
    double waiting = 0;   // sum over workers of the time at barriers
    double logits = 0;    // to fetch the logits
    std::vector<LaunchClass> classes;
};

struct ClassVerdict {
    // Of the time of its launches, what the ceilings would need. Where bytes come from caches or a ceiling is not
    // known, read_share may be over 1 or 0.
    double read_share = 0, compute_share = 0;
    Regime bound = Regime::busy;  // never host
    double share = 0;             // of the ceiling that binds it, at most 1; of the nearer one where none does
    double f = 0;           // share of the step's wall time, which is all critical path: launches follow each other
    double most = 1;        // times as fast could the step be if the class took no time: 1 / (1 - f)
    double to_ceiling = 1;  // if it reached its ceiling: 1 / (1 - f (1 - share))
};

struct RegimeVerdict {
    Regime regime = Regime::busy;
    std::array<double, kRegimes> time{};  // shares of the wall time, by Regime; their sum is 1
    bool close = false;                   // the second is near
    Regime second = Regime::busy;
    // The evidence.
    double read_share = 0, compute_share = 0;  // of the wall time, what the ceilings would need for the whole step
    double outside = 0;                        // share of the wall time in which no launch ran
    double barrier_share = 0;                  // number of barriers times what one costs
    double submit_share = 0;                   // what a step without launches costs
    double busy_share = 0;                     // of the time of all workers, that in tiles
    bool cached = false;                       // all that is read fits into the largest cache
    std::vector<ClassVerdict> classes;         // as in StepTimes
};

// Precondition: wall > 0. Ceilings that were not measured bind nothing.
RegimeVerdict judge(const StepTimes &step, const CeilingFigures &ceilings);

// Times as fast when a share f of the wall time goes and 1/k of it comes back: 1 / (1 - f (1 - 1/k)). The part that
// stays is given as `left` = 1/k.
double speedup(double f, double left);

}  // namespace ridge
