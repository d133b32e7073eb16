// contract and gate_up without vector instructions: the baseline of every machine, and the plainest statement of the
// two reduction orders.
#include "backend/cpu/contract_loops.h"
#include "backend/cpu/rows.h"

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

}  // namespace

void add_contract_portable(std::vector<Kernel> &rows) {
    static constexpr ContractRow kF32 = {.contract = "cpu.contract.f32.portable",
                                         .gate_up = "cpu.gate_up.f32.portable",
                                         .input = DType::f32,
                                         .first_token = 1,
                                         .needs = 0,
                                         .lever = Lever::none,
                                         .rank = 0,
                                         .run = run_f32,
                                         .scratch_bytes = sizeof(F32Scratch)};
    static constexpr ContractRow kInt8 = {.contract = "cpu.contract.int8.portable",
                                          .gate_up = "cpu.gate_up.int8.portable",
                                          .input = DType::q8,
                                          .first_token = 1,
                                          .needs = 0,
                                          .lever = Lever::none,
                                          .rank = 0,
                                          .run = run_int8<Int8>,
                                          .scratch_bytes = sizeof(Int8Scratch<Int8>)};
    add_contract_row(rows, kF32);
    add_contract_row(rows, kInt8);
    add_quantize_portable(rows);
}

#if !defined(__x86_64__)
void add_contract_avx2(std::vector<Kernel> &) {}
void add_contract_avx512(std::vector<Kernel> &) {}
#endif

}  // namespace ridge::cpu
