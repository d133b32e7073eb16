// The formats for SIMT kernels: Fmt<F> derives from formats.def what a kernel wants at compile time, and FormatId names
// a format at run time.
#pragma once

#include "backend/simt/device.h"

namespace ridge::simt {

// As in the file and in engine code (Format).
enum class FormatId : u32 {
#define FORMAT(NAME, prefix, id, block, bytes, group, bias) NAME = id,
#define FORMAT_FLOAT(NAME, prefix, id, bytes) NAME = id,
#include "format/formats.def"
};

// A block of weights in file order, in global memory. It is never written while kernels run.
struct Src {
    const std::byte *p;
};
DEVICE u32 load8(Src b, u32 offset, u32, u32, u32 i) {
#if defined(RIDGE_CUDA)
    return __ldg(reinterpret_cast<const u8 *>(b.p) + offset + i);
#else
    return load(reinterpret_cast<const u8 *>(b.p) + offset + i);
#endif
}
DEVICE u32 load16(Src b, u32 offset, u32 bytes, u32 align, u32 i) {
    if (align < 2u) return load8(b, offset, bytes, align, i) | load8(b, offset, bytes, align, i + 1u) << 8u;
#if defined(RIDGE_CUDA)
    return __ldg(reinterpret_cast<const u16 *>(b.p + offset + i));
#else
    return load(reinterpret_cast<const u16 *>(b.p + offset + i));
#endif
}
DEVICE u32 load32(Src b, u32 offset, u32 bytes, u32 align, u32 i) {
    if (align < 4u) return load16(b, offset, bytes, align, i) | load16(b, offset, bytes, align, i + 2u) << 16u;
#if defined(RIDGE_CUDA)
    return __ldg(reinterpret_cast<const u32 *>(b.p + offset + i));
#else
    return load(reinterpret_cast<const u32 *>(b.p + offset + i));
#endif
}

namespace decode {
using namespace dialect;
using simt::load16;
using simt::load32;
using simt::load8;
using simt::Src;
#include "format/all.h"
}  // namespace decode

// The same of a block that was copied into shared memory, `at` bytes from its beginning, with the alignment that it has
// in the file.
struct SharedSrc {
    u32 at;
};
template <class T>
DEVICE T shared_at(u32 at) {
    return *reinterpret_cast<const T *>(shared() + at);
}
DEVICE u32 load8(SharedSrc b, u32 offset, u32, u32, u32 i) { return shared_at<u8>(b.at + offset + i); }
DEVICE u32 load16(SharedSrc b, u32 offset, u32 bytes, u32 align, u32 i) {
    if (align < 2u) return load8(b, offset, bytes, align, i) | load8(b, offset, bytes, align, i + 1u) << 8u;
    return shared_at<u16>(b.at + offset + i);
}
DEVICE u32 load32(SharedSrc b, u32 offset, u32 bytes, u32 align, u32 i) {
    if (align < 4u) return load16(b, offset, bytes, align, i) | load16(b, offset, bytes, align, i + 2u) << 16u;
    return shared_at<u32>(b.at + offset + i);
}
namespace decode_shared {
using namespace dialect;
using simt::load16;
using simt::load32;
using simt::load8;
using Src = SharedSrc;
#include "format/all.h"
}  // namespace decode_shared

// As Decode<F> in format/decode.h; the functions with a u32 read blocks in shared memory.
template <FormatId F>
struct Fmt;

#define RIDGE_BIAS_0(prefix)                                     \
    static DEVICE f32 bias(const std::byte *, u32) { return 0; } \
    static DEVICE f32 bias(u32, u32) { return 0; }
#define RIDGE_BIAS_1(prefix)                                                                    \
    static DEVICE f32 bias(const std::byte *b, u32 g) { return decode::prefix##_bias({b}, g); } \
    static DEVICE f32 bias(u32 b, u32 g) { return decode_shared::prefix##_bias({b}, g); }
#define FORMAT(NAME, prefix, id, block_, bytes_, group_, bias_)                                                 \
    template <>                                                                                                 \
    struct Fmt<FormatId::NAME> {                                                                                \
        static constexpr u32 block = block_, bytes = bytes_, group = group_;                                    \
        static constexpr bool has_bias = bias_ != 0;                                                            \
        static DEVICE f32 scale(const std::byte *b, u32 g) { return decode::prefix##_scale({b}, g); }           \
        RIDGE_BIAS_##bias_(prefix) static DEVICE u32 codes4(const std::byte *b, u32 g32, u32 j) {               \
            return decode::prefix##_codes4({b}, g32, j);                                                        \
        }                                                                                                       \
        static DEVICE f32 scale(u32 b, u32 g) { return decode_shared::prefix##_scale({b}, g); }                 \
        static DEVICE u32 codes4(u32 b, u32 g32, u32 j) { return decode_shared::prefix##_codes4({b}, g32, j); } \
    };
#define FORMAT_FLOAT(NAME, prefix, id, bytes_)                                                        \
    template <>                                                                                       \
    struct Fmt<FormatId::NAME> {                                                                      \
        static constexpr u32 block = 1, bytes = bytes_, group = 0;                                    \
        static constexpr bool has_bias = false;                                                       \
        static DEVICE f32 value(const std::byte *b, u32 i) { return decode::prefix##_value({b}, i); } \
    };
#include "format/formats.def"
#undef RIDGE_BIAS_0
#undef RIDGE_BIAS_1

// Scales and biases of group `g32` of 32 weights of a block, which is a pointer or a place in shared memory: those of
// its two halves, which are the same where a format's groups are not of 16.
template <FormatId F, class At>
DEVICE void scales_of(At block, u32 g32, f32 (&scale)[2], f32 (&bias)[2]) {
    using D = Fmt<F>;
    constexpr bool kHalves = D::group == 16;
    scale[0] = D::scale(block, kHalves ? 2 * g32 : D::group == 32 ? g32 : 0);
    scale[1] = kHalves ? D::scale(block, 2 * g32 + 1) : scale[0];
    bias[0] = D::has_bias ? D::bias(block, kHalves ? 2 * g32 : g32) : 0;
    bias[1] = D::has_bias && kHalves ? D::bias(block, 2 * g32 + 1) : bias[0];
}

}  // namespace ridge::simt
