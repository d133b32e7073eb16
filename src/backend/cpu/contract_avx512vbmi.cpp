// contract and gate_up with AVX-512, VNNI, VBMI, VBMI2 and BITALG (Ice Lake, Zen 4 and later).
#include "backend/cpu/contract_int8_avx512.h"

namespace ridge::cpu {
inline namespace RIDGE_ISA {
namespace {

constexpr Kernel kTable[] = {
    stream_row<Int8>(RIDGE_ROW_NAME("contract.int8"), kind<Contract>()),
    stream_row<Int8>(RIDGE_ROW_NAME("gate_up.int8"), kind<GateUp>()),
    matrix_row<Int8>(RIDGE_ROW_NAME("contract.int8_gemm"), kind<Contract>()),
    matrix_row<Int8>(RIDGE_ROW_NAME("gate_up.int8_gemm"), kind<GateUp>()),
};

}  // namespace
}  // namespace RIDGE_ISA

constinit const RowTable kContractAvx512Vbmi = kTable;

}  // namespace ridge::cpu
