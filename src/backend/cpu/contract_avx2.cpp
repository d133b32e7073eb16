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
Halves add_up(const __m256i (&v)[8]) {
    // Within 128 bits: rows 0 1, 2 3 | ... then four rows, each half of the register one half of the codes.
    const __m256i a = _mm256_hadd_epi32(_mm256_hadd_epi32(v[0], v[1]), _mm256_hadd_epi32(v[2], v[3]));
    const __m256i b = _mm256_hadd_epi32(_mm256_hadd_epi32(v[4], v[5]), _mm256_hadd_epi32(v[6], v[7]));
    return {_mm256_permute2x128_si256(a, b, 0x20), _mm256_permute2x128_si256(a, b, 0x31)};
}

__m256i dots(const uint8_t *codes, __m256i x) {
    const __m256i w = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(codes));
    const __m256i pairs16 = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
    return _mm256_madd_epi16(pairs16, _mm256_set1_epi16(1));
}

struct Int8 {
    static constexpr uint32_t kGroups = 1;
    static constexpr size_t kRoom = 64;  // not used
    static constexpr u32 flip(bool) { return 0; }

    template <bool kHalves, bool kBias>
    static void multiply(const Int8Call &call) {
        const Work &w = call.work;
        for (uint32_t t = 0; t < call.listed.count; t++) {
            const size_t x_block = size_t{call.listed.x_row[t]} * (w.k / 32) + call.first;
            for (uint32_t r = 0; r < kLanes; r += 8) {
                float *to = call.sums[0][t] + r;
                __m256 sum = _mm256_loadu_ps(to);
                for (uint32_t b = 0; b < call.blocks; b++) {
                    const __m256i x = bytes32(reinterpret_cast<const std::byte *>(w.codes + 32 * (x_block + b)));
                    __m256i v[8];
                    for (uint32_t i = 0; i < 8; i++) v[i] = dots(call.chunk->codes[r + i] + 32 * b, x);
                    const Halves h = add_up(v);
                    const __m256 x_scale = _mm256_set1_ps(w.scale[x_block + b]);
                    const int16_t *x_sums = w.sums + 2 * (x_block + b);
                    const auto add = [&](__m256i dot, uint32_t g, int32_t total) __attribute__((always_inline)) {
                        const __m256 scale = _mm256_mul_ps(_mm256_load_ps(call.chunk->scale[g] + r), x_scale);
                        sum = _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(dot), sum);
                        if constexpr (kBias) {
                            const __m256 bias = _mm256_mul_ps(_mm256_load_ps(call.chunk->bias[g] + r), x_scale);
                            sum = _mm256_fmadd_ps(bias, _mm256_set1_ps(static_cast<float>(total)), sum);
                        }
                    };
                    if constexpr (kHalves) {
                        add(h.first, 2 * b, x_sums[0]);
                        add(h.last, 2 * b + 1, x_sums[1]);
                    } else {
                        add(_mm256_add_epi32(h.first, h.last), b, x_sums[0] + x_sums[1]);
                    }
                }
                _mm256_storeu_ps(to, sum);
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
}  // namespace RIDGE_ISA

constinit const RowTable kContractAvx2 = kTable;

}  // namespace ridge::cpu
