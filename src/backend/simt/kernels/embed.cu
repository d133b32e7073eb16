// embed: rows of a table in any format, by the tokens of the step.
#include "backend/simt/formats.h"
#include "backend/simt/kernels/elementwise.h"
#include "backend/simt/kernels/sums.cuh"

namespace ridge::simt {

// Weights e .. e + 3 of a row; e is a multiple of 4. Of a float format those from n on are not there.
template <FormatId F>
DEVICE f32x4 decoded(const std::byte *row, u32 e, u32 n) {
    using D = Fmt<F>;
    if constexpr (D::group == 0) {
        f32x4 v = {D::value(row, e), 0, 0, 0};
        if (e + 1 < n) v.y = D::value(row, e + 1);
        if (e + 2 < n) v.z = D::value(row, e + 2);
        if (e + 3 < n) v.w = D::value(row, e + 3);
        return v;
    } else {
        const std::byte *block = row + u64{e / D::block} * D::bytes;
        const u32 i = e % D::block;
        const f32 scale = D::scale(block, i / D::group), bias = D::bias(block, i / D::group);
        const u32 codes = D::codes4(block, i / 32, i % 32 / 4);
        const auto value = [&](u32 k) {
            const f32 product = scale * static_cast<f32>(static_cast<i8>(codes >> (8 * k)));
            return D::has_bias ? product + bias : product;  // a bias of 0 would lose -0
        };
        return {value(0), value(1), value(2), value(3)};
    }
}

KERNEL(embed, EmbedArgs, kRowThreads, 1) {
    let_next_start();
    wait_for_previous();
    const u32 q = block_y() * kRowThreads + thread();
    if (4 * q >= a.n) return;
    const std::byte *row = a.table + u64{token_of(a.step, block_x())} * a.row_bytes;
    f32x4 v = {};
    switch (static_cast<FormatId>(a.format)) {
#define FORMAT(NAME, ...)                              \
    case FormatId::NAME:                               \
        v = decoded<FormatId::NAME>(row, 4 * q, a.n); \
        break;
#define FORMAT_FLOAT FORMAT
#include "format/formats.def"
    }
    if (a.scale != 1) v = each(v, [&](f32 x) { return x * a.scale; });
    store_quad(a.out + u64{block_x()} * a.n, q, a.n, a.n % 4 == 0, v);
}

}  // namespace ridge::simt
