// Formats that read one grid, of which alone a block keeps copies.
#define RIDGE_TABLE table_layout(iq2xxs_grid, 2, 8)
#include "backend/simt/kernels/contract_dot.cuh"

RIDGE_CONTRACT_DOT_FORMAT(IQ2_XXS, iq2_xxs)
RIDGE_CONTRACT_DOT_SIGN_TABLE(IQ2_XXS, iq2_xxs)
