// The loops that ceilings are measured with, compiled for i8mm.
#include "backend/cpu/ceilings_loops.h"

namespace ridge::cpu {

constinit const CeilingLoops kCeilingsI8mm = kLoops;

}  // namespace ridge::cpu
