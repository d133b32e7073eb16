// contract and gate_up with AVX2 and its own 256-bit VNNI (Alder Lake and later client processors; Zen 5).
#include "backend/cpu/contract_int8_avx2.h"

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

constinit const RowTable kContractAvxVnni = kTable;

}  // namespace ridge::cpu
