// Formats that read one grid, of which alone a block keeps a copy.
#define RIDGE_TABLE_ORIGIN 3584
#include "backend/simt/kernels/contract_dot.cuh"

RIDGE_CONTRACT_DOT_FORMAT(IQ3_XXS, iq3_xxs)
