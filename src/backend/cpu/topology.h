// What this process may use of the machine: processors, cores, memory, instruction sets.
//
// Processors are those of the affinity mask (which a cpuset has already narrowed). A cgroup quota, v2 (cpu.max of the
// group and all its ancestors) or v1 (cpu.cfs_quota_us / cpu.cfs_period_us), bounds how many of them can run at once.
// All files are read below `root`, so that tests can show another machine; a file that is missing says nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/kernel.h"

namespace ridge::cpu {

struct Topology {
    std::vector<int> processors;  // logical ones this process may run on, ascending; never empty
    unsigned cores = 1;           // physical cores among them
    // The processors in the order in which threads should take them: one of every core, the fast cores of a hybrid
    // machine first, then the siblings in the same order.
    std::vector<int> preferred;
    double quota = 0;   // processors' worth of time per period; 0: unlimited
    std::string model;  // "AMD EPYC"

    // One thread for each core that can really run: SMT siblings share the units that kernels saturate.
    unsigned default_threads() const;
    // Threads that can run at the same time.
    unsigned at_once() const;
};

struct Memory {
    uint64_t total = 0, free = 0;  // bytes; the machine's or the cgroup's, whichever is less
    uint64_t present = 0;          // bytes of this process that lie in memory, files not counted
};

std::vector<int> affinity_mask();
Topology read_topology(const std::string &root = "", std::vector<int> processors = affinity_mask());
Memory read_memory(const std::string &root = "");

// The system and its release: "Linux 6.18.4"; empty where it does not say.
std::string system_release();

// "0-3,8" -> 0 1 2 3 8. What cannot be read ends the list.
std::vector<int> parse_cpu_list(const std::string &text);

}  // namespace ridge::cpu
