// Formats that read one grid, of which alone a block keeps a copy.
#define RIDGE_TABLE_ORIGIN 4352
#include "backend/simt/kernels/contract_dot.cuh"

RIDGE_CONTRACT_DOT_FORMAT(IQ1_S, iq1_s)
RIDGE_CONTRACT_DOT_FORMAT(IQ1_M, iq1_m)
