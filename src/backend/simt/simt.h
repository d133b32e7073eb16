// The CUDA and HIP backends: one class over the driver's table.
#pragma once

#include <memory>
#include <string>

#include "backend/backend.h"
#include "backend/device_ceilings.h"

namespace ridge {

struct SimtOptions {
    bool cuda = true;    // or HIP
    unsigned index = 0;  // of the driver's devices
    std::string driver;  // library to open; empty: the system's
};

// Throws Error{unsupported} with a sentence: no driver, too old, no such device, no code for it.
std::unique_ptr<Backend> make_simt_backend(const SimtOptions &options);
// Precondition: made by the function above.
CeilingFigures measure_simt(Backend &device);
// Devices that the driver sees. Throws as above where there is no driver.
unsigned count_simt_devices(const SimtOptions &options);

}  // namespace ridge
