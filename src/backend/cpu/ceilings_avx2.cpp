// The loops that ceilings are measured with, compiled for avx2.
#include "backend/cpu/ceilings_loops.h"

namespace ridge::cpu {

constinit const CeilingLoops kCeilingsAvx2 = kLoops;

}  // namespace ridge::cpu
