// quantize with AVX2: a block in four vectors of eight. The arithmetic is that of quantize.cpp.
#include <immintrin.h>

#include "backend/cpu/contract.h"
#include "backend/cpu/row.h"

namespace ridge::cpu {
namespace {

__m256 reduce(__m256 v, __m256 d) {
    const __m256 q = _mm256_div_ps(v, d);
    return _mm256_min_ps(_mm256_max_ps(q, _mm256_set1_ps(-127.0f)), _mm256_set1_ps(127.0f));
}

void quantize_blocks(const float *x, int8_t *codes, float *scale, int16_t *sums, size_t blocks) {
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
    for (size_t b = 0; b < blocks; b++, x += 32, codes += 32, sums += 2) {
        __m256 v[4];
        __m256i most = _mm256_setzero_si256();  // as integers: NaN above infinity above all others
        for (int i = 0; i < 4; i++) {
            v[i] = _mm256_loadu_ps(x + 8 * i);
            most = _mm256_max_epi32(most, _mm256_and_si256(_mm256_castps_si256(v[i]), magnitude));
        }
        __m128i m = _mm_max_epi32(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
        m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
        m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1));
        const int bits = _mm_cvtsi128_si32(m);
        const float d = bits < 0x7f800000 ? __builtin_bit_cast(float, bits) / 127.0f : __builtin_nanf("");
        scale[b] = d;
        __m256i q = _mm256_setzero_si256();
        if (d > 0) {
            const __m256 by = _mm256_set1_ps(d);
            __m256i c[4];
            for (int i = 0; i < 4; i++) c[i] = _mm256_cvtps_epi32(reduce(v[i], by));
            // Packing works within halves: the dwords come out as 0 2 4 6 1 3 5 7.
            q = _mm256_packs_epi16(_mm256_packs_epi32(c[0], c[1]), _mm256_packs_epi32(c[2], c[3]));
            q = _mm256_permutevar8x32_epi32(q, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
        }
        _mm256_storeu_si256(reinterpret_cast<__m256i *>(codes), q);
        // Sums of 8 bytes of code + 128.
        const __m256i s = _mm256_sad_epu8(_mm256_xor_si256(q, _mm256_set1_epi8(-128)), _mm256_setzero_si256());
        const __m256i s16 = _mm256_add_epi64(s, _mm256_unpackhi_epi64(s, s));
        sums[0] = static_cast<int16_t>(_mm_cvtsi128_si32(_mm256_castsi256_si128(s16)) - 16 * 128);
        sums[1] = static_cast<int16_t>(_mm_cvtsi128_si32(_mm256_extracti128_si256(s16, 1)) - 16 * 128);
    }
}

void run(const LaunchView &view, uint32_t tile, std::byte *) { quantize_tile(view, tile, quantize_blocks); }
constexpr Kernel kTable[] = {row(RIDGE_ROW_NAME("quantize"), kind<Quantize>(), Order::exact, {quantize_tiles, run})};

}  // namespace

constinit const RowTable kQuantizeAvx2 = kTable;

}  // namespace ridge::cpu
