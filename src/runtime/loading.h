// Weights on their way to the devices that keep copies of them, each device in a thread of its own.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "backend/backend.h"
#include "engine/engine.h"
#include "engine/place.h"

namespace ridge {

class Loading {
  public:
    // Begins to load what the nodes of `plain` read under `map`, on those of `devices` that copy weights. `plain` and
    // the devices must outlive it. Ends early when destroyed.
    Loading(const Program &plain, const DeviceMap &map, std::span<Backend *const> devices);
    ~Loading();
    Loading(const Loading &) = delete;
    Loading &operator=(const Loading &) = delete;

    uint64_t bytes() const { return total_; }
    // Returns when all is there, in `store`. `progress(bytes that are there)` is called on this thread; where it
    // answers false, wait returns false and the rest is not loaded. Throws what Backend::load_all throws.
    bool wait(WeightStore &store, const std::function<bool(uint64_t done)> &progress);

  private:
    struct Part {
        Backend *device;
        std::vector<const Weight *> weights;
        std::vector<Buffer> buffers;
    };
    void load(Part &part);

    std::vector<Part> parts_;  // of each device that copies
    uint64_t total_ = 0;
    std::mutex mutex_;
    std::condition_variable changed_;
    uint64_t done_ = 0;
    size_t running_ = 0;
    bool stopped_ = false;
    std::exception_ptr error_;
    std::vector<std::thread> threads_;
};

}  // namespace ridge
