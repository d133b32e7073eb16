// quantize: f32 -> q8, blocks of 32 with one scale and two sums of 16 codes. The portable row and what all rows share.
//
//   scale = max|x| / 127      code = round-half-even(x / scale), held to -127 .. 127      sums[h] = sum of 16 codes
// Both divisions are those of IEEE 754, so every row gives the same bits. A block of zeros, or of values so small that
// the scale rounds to 0, has scale 0 and codes 0; where the scale is subnormal and inexact, codes saturate at 127. A
// block that holds an infinity or a NaN has a NaN scale and codes 0, so that whatever it takes part in becomes NaN.
#include <algorithm>

#include "backend/cpu/contract.h"
#include "backend/cpu/row.h"

namespace ridge::cpu {
namespace {

constexpr uint32_t kInfinity = 0x7f800000u;

// Rounds |v| < 2^22 to the nearest integer, ties to even: 1.5 * 2^23 + v has no bits below 1.
int32_t round_half_even(float v) {
    constexpr float kMagic = 12582912.0f;
    return static_cast<int32_t>(v + kMagic - kMagic);
}

void quantize_blocks(const float *x, int8_t *codes, float *scale, int16_t *sums, size_t blocks) {
    for (size_t b = 0; b < blocks; b++, x += 32, codes += 32, sums += 2) {
        uint32_t most = 0;  // bits of max|x|; the order of the bits is that of the values, NaN above infinity
        for (int i = 0; i < 32; i++) most = std::max(most, __builtin_bit_cast(uint32_t, x[i]) & 0x7fffffffu);
        const float d = most < kInfinity ? __builtin_bit_cast(float, most) / 127.0f : __builtin_nanf("");
        scale[b] = d;
        sums[0] = sums[1] = 0;
        for (int i = 0; i < 32; i++) {
            // False for a NaN scale too.
            const float q = d > 0 ? std::min(std::max(x[i] / d, -127.0f), 127.0f) : 0.0f;
            codes[i] = static_cast<int8_t>(round_half_even(q));
            sums[i / 16] = static_cast<int16_t>(sums[i / 16] + codes[i]);
        }
    }
}

size_t blocks_of(const LaunchView &view, const Quantize &op) { return view.rows(op.x) * (view.cols(op.x) / 32); }

}  // namespace

uint32_t quantize_tiles(const LaunchView &view) {
    const size_t blocks = blocks_of(view, std::get<Quantize>(view.op));
    return static_cast<uint32_t>((blocks + kQuantizeTile - 1) / kQuantizeTile);
}

void quantize_tile(const LaunchView &view, uint32_t tile, QuantizeBlocks quantize) {
    const auto &op = std::get<Quantize>(view.op);
    const size_t first = size_t{tile} * kQuantizeTile;
    const size_t blocks = std::min<size_t>(kQuantizeTile, blocks_of(view, op) - first);
    const Q8View out = view.q8(op.out);
    quantize(view.ptr<const float>(op.x) + 32 * first, out.codes + 32 * first, out.scale + first, out.sums + 2 * first,
             blocks);
}

namespace {

void run(const LaunchView &view, uint32_t tile, std::byte *) { quantize_tile(view, tile, quantize_blocks); }
constexpr Kernel kTable[] = {row(RIDGE_ROW_NAME("quantize"), kind<Quantize>(), Order::exact, {quantize_tiles, run})};

}  // namespace

constinit const RowTable kQuantizePortable = kTable;

}  // namespace ridge::cpu
