// contract and gate_up without vector instructions: the baseline of every machine, and the plainest statement of the
// two reduction orders.
#include "backend/cpu/contract_loops.h"

namespace ridge::cpu {
namespace {

struct Int8 {
    static constexpr uint32_t kTokens = 8;
    static constexpr FormatSet kFormats = FormatSet::quantized();
    template <Format>
    static constexpr int32_t offset() {
        return 0;
    }

    template <Format F>
    static void dots(const SpanCall &call, SpanDots<kTokens> &dots) {
        constexpr uint32_t width = Decode<F>::group == 16 ? 16 : 32;
        for (uint32_t r = 0; r < kLanes; r++) {
            for (uint32_t b = 0; b < call.blocks; b++) {
                u32 g32 = call.first * kChunkBlocks + b;
                const std::byte *block = block_of<F>(call.rows.row[r], g32);
                int8_t codes[32];
                Codes<F>::store(block, g32, codes);
                for (uint32_t t = 0; t < call.tokens; t++) {
                    const int8_t *x = call.x[t] + 32 * b;
                    for (uint32_t i = 0; i < 32; i += width) {
                        int32_t dot = 0;
                        for (uint32_t j = i; j < i + width; j++) dot += codes[j] * x[j];
                        dots.of[t][b / kChunkBlocks][(b % kChunkBlocks * 32 + i) / width][r] = dot;
                    }
                }
            }
        }
    }
};

constexpr Kernel kTable[] = {
    f32_row(RIDGE_ROW_NAME("contract.f32"), kind<Contract>()),
    f32_row(RIDGE_ROW_NAME("gate_up.f32"), kind<GateUp>()),
    stream_row<Int8>(RIDGE_ROW_NAME("contract.int8"), kind<Contract>()),
    stream_row<Int8>(RIDGE_ROW_NAME("gate_up.int8"), kind<GateUp>()),
};

}  // namespace

constinit const RowTable kContractPortable = kTable;

}  // namespace ridge::cpu
