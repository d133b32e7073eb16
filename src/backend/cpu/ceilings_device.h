// The ceilings of a CPU backend in the form of every device.
#pragma once

#include "backend/backend.h"
#include "backend/device_ceilings.h"

namespace ridge::cpu {

// `device` is a CPU backend; takes about 1.5 s. Barrier and submit are those of its own pool and executor, as a step
// meets them.
CeilingFigures measure_device(Backend &device, double seconds = 0.15);

}  // namespace ridge::cpu
