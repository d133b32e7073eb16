// Formats that read one grid, of which alone a block keeps a copy.
#define RIDGE_TABLE_ORIGIN 512
#include "backend/simt/kernels/contract_dot.cuh"

RIDGE_CONTRACT_DOT_FORMAT(IQ2_XS, iq2_xs)
