// Formats that read one grid, of which alone a block keeps copies.
#define RIDGE_TABLE table_layout(iq1s_grid)
#include "backend/simt/kernels/contract_dot.cuh"

RIDGE_CONTRACT_DOT_FORMAT(IQ1_S, iq1_s)
RIDGE_CONTRACT_DOT_FORMAT(IQ1_M, iq1_m)
