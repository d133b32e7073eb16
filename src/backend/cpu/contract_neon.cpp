// contract and gate_up with NEON alone: processors before ARMv8.2, and f32 activations everywhere.
#include "backend/cpu/contract_stream_neon.h"

namespace ridge::cpu {
namespace {

constexpr Kernel kTable[] = {
    f32_row(RIDGE_ROW_NAME("contract.f32"), kind<Contract>()),
    f32_row(RIDGE_ROW_NAME("gate_up.f32"), kind<GateUp>()),
    stream_row<NeonStream>(RIDGE_ROW_NAME("contract.int8"), kind<Contract>()),
    stream_row<NeonStream>(RIDGE_ROW_NAME("gate_up.int8"), kind<GateUp>()),
};

}  // namespace

constinit const RowTable kContractNeon = kTable;

}  // namespace ridge::cpu
