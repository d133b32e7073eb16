// Calls every function of every format header once: as CUDA, as HIP and as C++ (test_compile.cpp runs the compilers).
//
// A header that leaves the dialect, or lacks a function that formats.def promises, does not compile here. With PLANT a
// function is called that no header has: the compilers must refuse it, which shows that they see the calls at all.
#include "format/decode.h"

using ridge::Decode;
using ridge::Format;
using ridge::u32;

#if defined(__CUDACC__) || defined(__HIP__)
extern "C"
    __attribute__((global))
#else
void cover(u32 *out, const std::byte *weights, u32 i);
#endif
    void
    cover(u32 *out, const std::byte *weights, u32 i) {
    u32 sum = 0;
#define BIAS_0(D, b, g)
#define BIAS_1(D, b, g) sum += ridge::dialect::f32_bits(D::bias(b, g));
#define FORMAT(NAME, prefix, id, block_, bytes_, group_, bias_)                 \
    {                                                                           \
        using D = Decode<Format::NAME>;                                         \
        const std::byte *b = weights + i * D::bytes;                            \
        const u32 g = i % (D::block / D::group);                                \
        sum += ridge::dialect::f32_bits(D::scale(b, g));                        \
        BIAS_##bias_(D, b, g) sum += D::codes4(b, i % (D::block / 32), i & 7u); \
    }
#define FORMAT_FLOAT(NAME, prefix, id, bytes_) sum += ridge::dialect::f32_bits(Decode<Format::NAME>::value(weights, i));
#include "format/formats.def"
#ifdef PLANT
    sum += ridge::file_order::q4_K_no_such_function({weights}, i);
#endif
    out[0] = sum;
}
