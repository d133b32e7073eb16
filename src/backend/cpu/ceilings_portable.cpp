// The loops that ceilings are measured with, for any processor.
#include "backend/cpu/ceilings_loops.h"

namespace ridge::cpu {

constinit const CeilingLoops kCeilingsPortable = kLoops;

}  // namespace ridge::cpu
