// What a GPU can do at most, see backend/device_ceilings.h.
#pragma once

#include "backend/device_ceilings.h"
#include "backend/simt/device_limits.h"
#include "backend/simt/simt_device.h"

namespace ridge::simt {

// `features`: of rows.h. Takes about a second.
CeilingFigures measure_ceilings(Device &device, const DeviceLimits &limits, Features features);

}  // namespace ridge::simt
