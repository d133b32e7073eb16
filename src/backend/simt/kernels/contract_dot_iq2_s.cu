// Formats that read one grid, of which alone a block keeps copies.
#define RIDGE_TABLE table_layout(iq2s_grid, 2)
#include "backend/simt/kernels/contract_dot.cuh"

RIDGE_CONTRACT_DOT_FORMAT(IQ2_S, iq2_s)
RIDGE_CONTRACT_DOT_SIGN_TABLE(IQ2_S, iq2_s)
