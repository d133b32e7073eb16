// contract and gate_up with AVX2 and FMA, see contract_int8_avx2.h.
#include "backend/cpu/contract_int8_avx2.h"

namespace ridge::cpu {
inline namespace RIDGE_ISA {
namespace {

constexpr Kernel kTable[] = {
    f32_row(RIDGE_ROW_NAME("contract.f32"), kind<Contract>()),
    f32_row(RIDGE_ROW_NAME("gate_up.f32"), kind<GateUp>()),
    stream_row<Stream>(RIDGE_ROW_NAME("contract.int8"), kind<Contract>()),
    stream_row<Stream>(RIDGE_ROW_NAME("gate_up.int8"), kind<GateUp>()),
    matrix_row<Matrix8>(RIDGE_ROW_NAME("contract.int8_gemm"), kind<Contract>()),
    matrix_row<Matrix8>(RIDGE_ROW_NAME("gate_up.int8_gemm"), kind<GateUp>()),
};

}  // namespace
}  // namespace RIDGE_ISA

constinit const RowTable kContractAvx2 = kTable;

}  // namespace ridge::cpu
