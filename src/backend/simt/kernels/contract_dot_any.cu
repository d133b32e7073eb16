// Banks of different formats in one launch: the format is looked up row by row.
#include "backend/simt/kernels/contract_dot.cuh"

RIDGE_CONTRACT_DOT(any, AnyFormat)
