// contract and gate_up with AVX2 and its own 256-bit VNNI (client processors from
// Alder Lake on, Zen 5), see contract_int8_avx2.h.
#include "backend/cpu/contract_int8_avx2.h"

namespace ridge::cpu {
inline namespace RIDGE_ISA {
namespace {

constexpr Kernel kTable[] = {
    stream_row<Stream>(RIDGE_ROW_NAME("contract.int8"), kind<Contract>()),
    stream_row<Stream>(RIDGE_ROW_NAME("gate_up.int8"), kind<GateUp>()),
    matrix_row<Matrix8>(RIDGE_ROW_NAME("contract.int8_gemm"), kind<Contract>()),
    matrix_row<Matrix8>(RIDGE_ROW_NAME("gate_up.int8_gemm"), kind<GateUp>()),
};

}  // namespace
}  // namespace RIDGE_ISA

constinit const RowTable kContractAvxVnni = kTable;

}  // namespace ridge::cpu
