// From a program to launches: which row runs each operation, where each value lies.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "engine/program.h"

namespace ridge {

// Why a row was not taken.
struct Rejection {
    const Kernel *kernel;
    std::string why;
};

struct Choice {
    uint32_t node = 0;
    const Kernel *chosen = nullptr;  // nullptr for copies
    std::vector<Rejection> rejected;
};

// Consecutive launches of one device, or one copy.
struct Segment {
    DeviceId device = 0;
    std::vector<Launch> launches;
    bool is_copy() const { return launches.size() == 1 && launches[0].kernel == nullptr; }
};

// The launches of a step of `tokens` tokens.
struct Plan {
    uint32_t tokens = 1;
    std::vector<Choice> choices;  // one per node
    std::vector<Segment> segments;
};

// Rows of `device` that could run `op` on `tokens` tokens, best first; `rejected`, where given, gets the others.
std::vector<const Kernel *> legal_rows(const Program &p, const Op &op, const Backend &device, uint32_t tokens,
                                       std::vector<Rejection> *rejected = nullptr);

// Throws Error{unsupported} naming the operation, its formats, the device and each row's reason where no row is legal.
Plan make_plan(const Program &p, std::span<Backend *const> devices, uint32_t tokens);

// Token counts at which the plan may change: the first token count of every bucket, ascending, from 1 to at most
// `most`.
std::vector<uint32_t> token_buckets(std::span<Backend *const> devices, uint32_t most);

// Where each value lies in its device's arena. Values whose lifetimes do not meet share memory.
struct MemoryPlan {
    std::vector<size_t> offset;        // per value; kUnused for values nothing writes
    std::vector<size_t> device_bytes;  // per device
    size_t unshared_bytes = 0;         // what it would take without sharing
    static constexpr size_t kUnused = static_cast<size_t>(-1);
};
// `apart`: none share.
MemoryPlan plan_memory(const Program &p, const StepLimits &limits, size_t n_devices, bool apart = false);

// The plan in words: per node the chosen row, its bytes and flops, and why each other row was not taken.
std::string explain(const Program &p, const Plan &plan, std::span<Backend *const> devices);

}  // namespace ridge
