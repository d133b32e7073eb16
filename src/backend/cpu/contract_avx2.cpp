// contract and gate_up with AVX2 and FMA.
//
// int8: a row's 32 codes times 32 activations is one vpmaddubsw on |w| and sign(w)*x: |w| <= 128 and |x| <= 127, so a
// pair sums to at most 32512 and cannot saturate. Eight rows' sums of eight lanes become one vector with a row per
// lane (first the sums of 16 codes each, for formats with groups of 16), then one multiply-add serves eight rows.
#include "backend/cpu/contract_loops.h"

namespace ridge::cpu {
inline namespace RIDGE_ISA {
namespace {

// Four sums of 8 codes each of eight rows, (row, 4 lanes of its first 16 codes | 4 of its last 16), added up to the sum
// of the first and of the last 16 codes with a row per lane.
struct Halves {
    __m256i first, last;
};
FN Halves add_up(const __m256i (&v)[8]) {
    // Within 128 bits: rows 0 1, 2 3 | ... then four rows, each half of the register one half of the codes.
    const __m256i a = _mm256_hadd_epi32(_mm256_hadd_epi32(v[0], v[1]), _mm256_hadd_epi32(v[2], v[3]));
    const __m256i b = _mm256_hadd_epi32(_mm256_hadd_epi32(v[4], v[5]), _mm256_hadd_epi32(v[6], v[7]));
    return {_mm256_permute2x128_si256(a, b, 0x20), _mm256_permute2x128_si256(a, b, 0x31)};
}

FN void store_8i32(int32_t *to, __m256i v) { _mm256_store_si256(reinterpret_cast<__m256i *>(to), v); }

FN __m256i dot8(__m256i w, __m256i x) {
    const __m256i pairs16 = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
    return _mm256_madd_epi16(pairs16, _mm256_set1_epi16(1));
}

struct Int8 {
    static constexpr uint32_t kTokens = 4;
    static constexpr FormatSet kFormats = FormatSet::quantized();
    template <Format>
    static constexpr int32_t offset() {
        return 0;
    }

    template <Format F>
    static void dots(const SpanCall &call, SpanDots<kTokens> &dots) {
        for (uint32_t r = 0; r < kLanes; r += 8) {
            for (uint32_t b = 0; b < call.blocks; b++) {
                __m256i w[8];
                for (uint32_t i = 0; i < 8; i++) {
                    u32 g32 = call.first * kChunkBlocks + b;
                    const std::byte *block = block_of<F>(call.rows.row[r + i], g32);
                    w[i] = Codes<F>::load(block, g32);
                }
                for (uint32_t t = 0; t < call.tokens; t++) {
                    const __m256i x = bytes32(reinterpret_cast<const std::byte *>(call.x[t] + 32 * b));
                    __m256i v[8];
                    for (uint32_t i = 0; i < 8; i++) v[i] = dot8(w[i], x);
                    const Halves h = add_up(v);
                    int32_t(*to)[kLanes] = dots.of[t][b / kChunkBlocks];
                    const uint32_t in_chunk = b % kChunkBlocks;
                    if constexpr (Decode<F>::group == 16) {
                        store_8i32(to[2 * in_chunk] + r, h.first);
                        store_8i32(to[2 * in_chunk + 1] + r, h.last);
                    } else {
                        store_8i32(to[in_chunk] + r, _mm256_add_epi32(h.first, h.last));
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
}  // namespace RIDGE_ISA

constinit const RowTable kContractAvx2 = kTable;

}  // namespace ridge::cpu
