// Speed, measured: kernel rows in isolation, and whole models.
//
// A kernel is measured with its operands in memory and its weights (or KV state) rotated through more than the caches
// hold, as decoding does; the rows that could do the same work take turns, so that what the machine does meanwhile hits
// all of them; the figure is the median of the rounds, with their spread. A whole model is measured as llama-bench
// does: a prompt of p tokens from an empty cache, n single-token steps, either at a depth.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "measure/bench_stats.h"
#include "measure/model_side.h"
#include "measure/quiet.h"
#include "measure/trace_summary.h"
#include "runtime/model.h"

namespace ridge::bench {

// What the device can do at most with the threads it has, per second; 0: not known.
struct Roof {
    double read = 0;                     // bytes
    double int8 = 0, f32 = 0, bf16 = 0;  // multiply-adds, of bf16 into f32
};

using ridge::WhenBusy;

// ---- kernels

struct KernelOptions {
    std::string op;               // contract, gate_up or attention
    std::vector<Format> formats;  // of the weights
    std::vector<uint32_t> tokens{1, 8, 512};
    uint32_t n = 4096, k = 4096;                        // of the matrix, or of each expert's
    uint32_t experts = 0, slots = 0;                    // > 0: of so many experts each token uses `slots`
    uint32_t heads = 32, kv_heads = 8, head_dim = 128;  // of attention
    std::vector<uint32_t> depths{512};                  // positions before the first token
    DType kv = DType::f16;
    std::string row;                         // pattern with *; without one, a part of the name; empty: every row
    bool planned_only = false;               // of those the one that a plan takes
    bool every_input = false;                // rows that read f32 beside those that read quantised activations
    bool small_pages = false;                // weights on pages of 4 KiB, as a mapped file may have them
    LeverSet levers = LeverSet::defaults();  // of the launches; rows whose lever is off are measured all the same
    bool own_time = false;                   // the calling thread's processor time instead of wall time
    double seconds = 0.3;                    // for each row and point
    size_t rotate_bytes = size_t{128} << 20;
    WhenBusy when_busy = WhenBusy::refuse;
};

struct KernelResult {
    std::string row;
    std::string point;  // "Q4_K", or "8192 deep" for attention
    std::string input;  // "q8"
    uint32_t tokens = 0;
    bool planned = false;  // the row that a plan takes by default
    enum class Products : uint8_t { int8, f32, bf16 } products = Products::f32;
    uint32_t copies = 0;       // of the weights, or states, in turn
    Samples seconds;           // of one launch, a sample per round
    double bytes = 0;          // of weights or state that a launch reads
    double multiply_adds = 0;  // of a launch
    double clock = 0;          // of the fastest processor when it had been measured, Hz; 0: not known
    std::string contended;     // by what; empty: by nothing

    double bytes_per_second() const { return bytes / seconds.median(); }
    double multiply_adds_per_second() const { return multiply_adds / seconds.median(); }
    // Of the roof; 0 where it is not known.
    double read_share(const Roof &r) const { return r.read > 0 ? bytes_per_second() / r.read : 0; }
    double compute_share(const Roof &r) const {
        const double most = products == Products::int8 ? r.int8 : products == Products::bf16 ? r.bf16 : r.f32;
        return most > 0 ? multiply_adds_per_second() / most : 0;
    }
};

// Calls `emit` for every row of every point, the best rank of a point first. Throws Error{usage} for an operation,
// shape or row that is not there, Error{limit} where memory is short or the machine stays busy.
void bench_kernels(Backend &device, const KernelOptions &options,
                   const std::function<void(const KernelResult &)> &emit);

// ---- whole models

// A lever set and the open file to measure it on; several may share one.
struct ModelSide {
    Model *model;
    LeverSet levers;
};

struct ModelResult;
struct ModelBenchOptions {
    std::vector<uint32_t> prompts{512};  // tokens of a prompt, evaluated at once; 0: none
    std::vector<uint32_t> answers{128};  // single-token steps; 0: none
    std::vector<uint32_t> depths{0};     // positions before either
    unsigned repeats = 5;
    uint32_t batch = 512;          // most tokens in one step
    std::vector<ModelSide> sides;  // each is measured, in turn with the others
    WhenBusy when_busy = WhenBusy::refuse;
    uint32_t context() const;  // positions that the tests take
    // Where it is set, each side runs each test once more after its measurement, traced.
    std::function<void(const ModelResult &, const Engine &, const TraceKeeper &)> trace;
};

struct ModelResult : ModelTest {
    LeverSet levers = LeverSet::none();
    Samples rate;  // tokens per second
    // Per token: bytes of weights and KV state that must be read, multiply-adds of int8 and of f32.
    double bytes = 0, int8 = 0, f32 = 0;
    double clock = 0;  // of the fastest processor when it had been measured, Hz; 0: not known
    std::string contended;

    // Of the time per token, the share that the roof's bandwidth, or its arithmetic, needs; 0 where it is not known.
    double read_share(const Roof &r) const { return r.read > 0 ? bytes * rate.median() / r.read : 0; }
    double compute_share(const Roof &r) const {
        return r.int8 > 0 && r.f32 > 0 ? (int8 / r.int8 + f32 / r.f32) * rate.median() : 0;
    }
};

// Depths are reached without computing them: the state holds what a prompt of up to one batch of random tokens has left
// there, page by page again and again. Throws as a Session does, and Error{limit} where the machine stays busy.
void bench_model(const ModelBenchOptions &options, const std::function<void(const ModelResult &)> &emit);

}  // namespace ridge::bench
