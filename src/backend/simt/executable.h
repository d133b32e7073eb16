// Launches of one device made ready: run one by one, or captured into a graph and replayed.
#pragma once

#include <memory>
#include <vector>

#include "backend/backend.h"
#include "backend/simt/device_limits.h"
#include "backend/simt/rows.h"
#include "backend/simt/simt_device.h"

namespace ridge::simt {

// A launch and the row that it takes.
struct RowLaunch {
    Launch launch;
    const Row *row = nullptr;
};

// `program`, `bindings` and `device` must outlive it. `early`: the device can start a launch before the one in front of
// it has ended (lever pdl).
std::unique_ptr<Executable> make_executable(Device &device, const DeviceLimits &limits, bool early,
                                            const Program &program, const Bindings &bindings,
                                            std::vector<RowLaunch> launches);

}  // namespace ridge::simt
