// Formats without a grid: what tables they have (IQ4_NL's, MXFP4's values) are the last eight words.
#define RIDGE_TABLE kValueTables
#include "backend/simt/kernels/contract_dot.cuh"

RIDGE_CONTRACT_DOT_FORMAT(Q4_0, q4_0)
RIDGE_CONTRACT_DOT_FORMAT(Q4_1, q4_1)
RIDGE_CONTRACT_DOT_FORMAT(Q5_0, q5_0)
RIDGE_CONTRACT_DOT_FORMAT(Q5_1, q5_1)
RIDGE_CONTRACT_DOT_FORMAT(Q8_0, q8_0)
RIDGE_CONTRACT_DOT_FORMAT(IQ4_NL, iq4_nl)
RIDGE_CONTRACT_DOT_FORMAT(IQ4_XS, iq4_xs)
RIDGE_CONTRACT_DOT_FORMAT(MXFP4, mxfp4)
