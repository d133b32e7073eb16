// Arguments of sampling.
#pragma once

#include "backend/simt/args.h"
#include "op/sampling.h"

namespace ridge::simt {

constexpr u32 kMostPlaces = sampling::kMostCandidates;
constexpr u32 kWordsOfDraw = 6;  // kDrawWords of engine/step.h
constexpr u32 kSampleHeld = 16;  // logits of a thread at a time
constexpr u32 kSampleThreads = 256;

// sample: `blocks` blocks of 256 threads (y) for each row (x), which take its logits in `rounds` rounds.
struct SampleArgs {
    const f32 *x;   // (outputs, n)
    i32 *out;       // (outputs, 1)
    u32 *counters;  // one for each row of the grid, zero before and after
    u64 *parts;     // (outputs, blocks, kMostPlaces)
    Step step;
    u32 n, blocks, rounds;
    u32 first;  // row of the grid
};

struct SampleShared {
    u64 best[kMostPlaces], sorted[kMostPlaces];
    double cut[kMostPlaces], weight[kMostPlaces], cut_sum[kMostPlaces], weight_sum[kMostPlaces];
    u32x2 counts[2][kSampleThreads / 32];
    u32 starts[kSampleThreads / 32];
    u32 is_last;
};

}  // namespace ridge::simt
