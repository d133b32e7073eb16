// What traces of steps add up to: times per token, and per class of kernels, what is read apart from what is answered.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/trace.h"

namespace ridge {

// A step that was kept. Whoever keeps steps does so between them, where the host's own work is measured too.
struct KeptStep {
    StepTrace trace;
    double keeping = 0;  // seconds between this step and the next that went into keeping it
};

// Takes a session's or a bench's steps. Those beyond what memory should hold are only counted.
class TraceKeeper {
  public:
    void add(const StepTrace &step);
    const std::vector<KeptStep> &steps() const { return steps_; }
    size_t left_out() const { return left_out_; }

  private:
    static constexpr size_t kMostLaunches = size_t{4} << 20;  // some 240 MB
    std::vector<KeptStep> steps_;
    size_t launches_ = 0, left_out_ = 0;
};

// All launches of one operation over weights of one format.
struct ClassTime {
    std::string name;  // "contract Q4_K", "gate_up Q4_K experts", "attention", "copy"
    OpKind op = 0;
    uint64_t launches = 0;
    double seconds = 0;                  // from the first worker's start to the last one's end
    double busy = 0;                     // sum over workers of the time in tiles
    double worker_seconds = 0;           // seconds times workers that could have taken tiles
    Cost cost;                           // what the launches must move and compute
    double memory = 0;                   // of the bytes those of weights and state, which come from memory
    double int8 = 0, bf16 = 0, f32 = 0;  // multiply-adds
    // Of rows that are cut into tiles expert by expert: how many, and how many those tiles hold.
    uint64_t routed_rows = 0, tile_rows = 0;
    std::set<std::string_view> rows;  // kernel rows that ran

    double bytes_per_second() const { return seconds > 0 ? cost.bytes() / seconds : 0; }
    double multiply_adds_per_second() const { return seconds > 0 ? cost.flops / 2 / seconds : 0; }
};

// The sums over all steps of a kind.
struct StepsTime {
    uint64_t steps = 0, tokens = 0, launches = 0, barriers = 0;
    double wall = 0;                                     // of the steps
    double device = 0;                                   // of that: some launch ran
    double logits = 0;                                   // of that: to fetch the logits
    double host = 0;                                     // between the steps, without what tracing did there
    double busy = 0;                                     // sum over workers of the time in tiles
    double waiting = 0;                                  // sum over workers of the time at barriers
    uint32_t workers = 1;                                // the most of any step
    double worker_seconds = 0;                           // wall times workers
    double overhead = 0;                                 // of tracing, seconds of wall and host time
    uint64_t experts_counted = 0, experts_expected = 0;  // launches whose experts were counted, or taken as expected
    std::vector<ClassTime> classes;                      // the most time first

    // Of the wall time what neither launches nor logits took: barriers, waking workers, the host's part of a launch.
    double gaps() const { return wall - device - logits; }
    const ClassTime *find(std::string_view name) const;
};

// Adds steps of one kind.
class StepsSum {
  public:
    explicit StepsSum(const Program &p) : p_(p) {}
    // `host`: between the step before and this one; `keeping`: of that what tracing took.
    void add(const StepTrace &step, double host = 0, double keeping = 0);
    StepsTime result() const;

  private:
    struct Known {
        size_t at;    // of its class
        DType input;  // of its activations
    };
    void add(const StepTrace &t, const LaunchTrace &l);
    const Known &known_of(uint32_t node);

    const Program &p_;
    StepsTime s_;
    std::unordered_map<uint32_t, Known> of_node_;
};

struct TraceSummary {
    StepsTime prompt, answer;
};

TraceSummary summarize(const Program &p, const std::vector<KeptStep> &steps);

// "contract Q4_K": operation, formats of its matrices, and whether ids choose among them.
std::string class_name(const Program &p, const Op &op);
// "3.ffn_gate": the first value that the node writes, else its layer and operation.
std::string launch_name(const Program &p, const Node &n);

// A table for people, with the times of a step, which is a token where each step has one. `title`: "answer".
std::string to_string(const StepsTime &t, std::string_view title);

}  // namespace ridge
