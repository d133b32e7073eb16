// Formats that read one grid, of which alone a block keeps copies.
#define RIDGE_TABLE table_layout(iq3s_grid)
#include "backend/simt/kernels/contract_dot.cuh"

RIDGE_CONTRACT_DOT_FORMAT(IQ3_S, iq3_s)
RIDGE_CONTRACT_DOT_SIGN_TABLE(IQ3_S, iq3_s)
