// What launches are shaped by.
#pragma once

#include <cstdint>

namespace ridge::simt {

struct DeviceLimits {
    uint32_t processors = 1;        // SMs, compute units
    uint32_t wave = 32;             // lanes
    uint32_t shared_per_block = 0;  // bytes, opted in
    uint32_t threads_per_processor = 2048;
};

}  // namespace ridge::simt
