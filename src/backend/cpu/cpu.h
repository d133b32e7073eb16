// The CPU backend: kernel rows by instruction set, a pool of threads, an executor that wakes the pool once per segment.
#pragma once

#include <memory>

#include "backend/backend.h"

namespace ridge {

struct CpuOptions {
    std::string name = "cpu";
    unsigned threads = 0;  // 0: as many as the affinity mask and the cgroup quota allow
};

// Throws Error{usage} where more threads are asked for than can be sane (4 x the logical CPUs).
std::unique_ptr<Backend> make_cpu_backend(const CpuOptions &options = {});

// All rows this build has, whether or not the machine can run them.
std::span<const Kernel> cpu_kernels();
// What this machine can run.
Features cpu_features();

}  // namespace ridge
