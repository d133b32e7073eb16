// The loops that ceilings are measured with, compiled for dotprod.
#include "backend/cpu/ceilings_loops.h"

namespace ridge::cpu {

constinit const CeilingLoops kCeilingsDotprod = kLoops;

}  // namespace ridge::cpu
