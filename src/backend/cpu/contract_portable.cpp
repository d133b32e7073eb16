// contract and gate_up without vector instructions: the baseline of every machine, and the plainest statement of the
// two reduction orders.
#include "backend/cpu/contract_loops.h"

namespace ridge::cpu {
namespace {

struct Int8 {
    static constexpr uint32_t kGroups = 1;
    static constexpr size_t kRoom = 64;  // not used
    static constexpr u32 flip(bool) { return 0; }

    template <bool kHalves, bool kBias>
    static void multiply(const Int8Call &call) {
        constexpr uint32_t width = kHalves ? 16 : 32;
        const Work &w = call.work;
        for (uint32_t t = 0; t < call.listed.count; t++) {
            const size_t x_block = size_t{call.listed.x_row[t]} * (w.k / 32) + call.first;
            const int8_t *x = w.codes + 32 * x_block;
            const int16_t *x_sums = w.sums + 2 * x_block;
            for (uint32_t r = 0; r < kLanes; r++) {
                const auto *codes = reinterpret_cast<const int8_t *>(call.chunk->codes[r]);
                float sum = call.sums[0][t][r];
                for (uint32_t i = 0, g = 0; i < 32 * call.blocks; i += width, g++) {
                    const float x_scale = w.scale[x_block + i / 32];
                    int32_t dot = 0;
                    for (uint32_t j = i; j < i + width; j++) dot += codes[j] * x[j];
                    sum = __builtin_fmaf(call.chunk->scale[g][r] * x_scale, static_cast<float>(dot), sum);
                    if constexpr (kBias) {
                        const int32_t total = kHalves ? x_sums[g] : x_sums[2 * g] + x_sums[2 * g + 1];
                        sum = __builtin_fmaf(call.chunk->bias[g][r] * x_scale, static_cast<float>(total), sum);
                    }
                }
                call.sums[0][t][r] = sum;
            }
        }
    }
};

constexpr Kernel kTable[] = {
    f32_row(RIDGE_ROW_NAME("contract.f32"), kind<Contract>()),
    f32_row(RIDGE_ROW_NAME("gate_up.f32"), kind<GateUp>()),
    int8_row<Int8>(RIDGE_ROW_NAME("contract.int8"), kind<Contract>()),
    int8_row<Int8>(RIDGE_ROW_NAME("gate_up.int8"), kind<GateUp>()),
};

}  // namespace

constinit const RowTable kContractPortable = kTable;

}  // namespace ridge::cpu
