// The loops that ceilings are measured with, compiled for AVX-512 with BF16.
#include "backend/cpu/ceilings_loops.h"

namespace ridge::cpu {

constinit const CeilingLoops kCeilingsAvx512Bf16 = kLoops;

}  // namespace ridge::cpu
