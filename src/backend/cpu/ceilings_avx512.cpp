// The loops that ceilings are measured with, compiled for avx512.
#include "backend/cpu/ceilings_loops.h"

namespace ridge::cpu {

constinit const CeilingLoops kCeilingsAvx512 = kLoops;

}  // namespace ridge::cpu
