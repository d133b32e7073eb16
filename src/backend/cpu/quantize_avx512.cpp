// quantize with AVX-512: a block in two vectors of sixteen. The arithmetic is that of quantize.cpp.
#include <immintrin.h>

#include "backend/cpu/contract.h"
#include "backend/cpu/row.h"

namespace ridge::cpu {
namespace {

__m512i code(__m512 v, __m512 d) {
    const __m512 q = _mm512_div_ps(v, d);
    return _mm512_cvtps_epi32(_mm512_min_ps(_mm512_max_ps(q, _mm512_set1_ps(-127.0f)), _mm512_set1_ps(127.0f)));
}

void quantize_blocks(const float *x, int8_t *codes, float *scale, int16_t *sums, size_t blocks) {
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    for (size_t b = 0; b < blocks; b++, x += 32, codes += 32, sums += 2) {
        const __m512 v0 = _mm512_loadu_ps(x), v1 = _mm512_loadu_ps(x + 16);
        // As integers: NaN above infinity above all others.
        const int bits =
            _mm512_reduce_max_epi32(_mm512_max_epi32(_mm512_and_si512(_mm512_castps_si512(v0), magnitude),
                                                     _mm512_and_si512(_mm512_castps_si512(v1), magnitude)));
        const float d = bits < 0x7f800000 ? __builtin_bit_cast(float, bits) / 127.0f : __builtin_nanf("");
        scale[b] = d;
        __m512i c0 = _mm512_setzero_si512(), c1 = c0;
        if (d > 0) {
            const __m512 by = _mm512_set1_ps(d);
            c0 = code(v0, by), c1 = code(v1, by);
        }
        _mm_storeu_si128(reinterpret_cast<__m128i *>(codes), _mm512_cvtepi32_epi8(c0));
        _mm_storeu_si128(reinterpret_cast<__m128i *>(codes + 16), _mm512_cvtepi32_epi8(c1));
        sums[0] = static_cast<int16_t>(_mm512_reduce_add_epi32(c0));
        sums[1] = static_cast<int16_t>(_mm512_reduce_add_epi32(c1));
    }
}

void run(const LaunchView &view, uint32_t tile, std::byte *) { quantize_tile(view, tile, quantize_blocks); }
constexpr Kernel kTable[] = {row(RIDGE_ROW_NAME("quantize"), kind<Quantize>(), Order::exact, {quantize_tiles, run})};

}  // namespace

constinit const RowTable kQuantizeAvx512 = kTable;

}  // namespace ridge::cpu
