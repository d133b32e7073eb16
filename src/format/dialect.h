// The common subset of C++, CUDA, HIP and GLSL (and of MSL, through SPIR-V) in which the formats are written.
//
// A format header (format/<prefix>.h) is text made of free functions on values. It dereferences nothing, has no
// templates, overloads or arrays, and uses only what this file gives it:
//
//   FN                     in front of every function
//   u32 i32 f32            as_f32(bits), f32_bits(x), f16_f32(bits), parity32(x), and the helpers on packed bytes below
//   Src                    a handle that names one block
//   LD8 LD16 LD32(b, field, i)    a little-endian load at byte i of a field of block b, zero-extended
//   TAB(table, i)          word i of a table of format/tables.h
//
// A field is a macro of three numbers, `#define q4_K_qs 16u, 128u, 4u`: its offset in the block, its bytes, and the
// alignment that holds in file order (blocks end to end) and in field planes (all d, then all qs, ...) alike: the
// largest of 1, 2, 4 that divides offset, bytes and block size. So LD8(b, q4_K_qs, i) becomes
// load8(b, offset, bytes, align, i), and one decoder serves every layout for which a Src and its three loads exist.
// i is a multiple of the smaller of `align` and the width of the load; a load never leaves its field.
//
// What a format header provides (g counts groups of `group` weights as formats.def says, g32 groups of 32):
//   FN f32 <prefix>_scale(Src b, u32 g)
//   FN f32 <prefix>_bias(Src b, u32 g)               only where formats.def says so
//   FN u32 <prefix>_codes4(Src b, u32 g32, u32 j)    weights 32*g32 + 4*j .. +3, signed bytes, lowest lane first
//   FN f32 <prefix>_value(Src b, u32 i)              the float formats instead: value i counted from b
//   <prefix>_fields(F)                               F(field) for each field, in the order of their offsets
// value = scale*code (+ bias). scale*code is exact in f32 (MXFP4's largest overflow to infinity), and so is all
// arithmetic here: whether a compiler fuses a multiply and an add cannot change a bit.
//
// Binding. C++, CUDA, HIP: include this file, then a format header (or format/all.h) inside a namespace that
// sees ridge::dialect and in which Src and load8, load16, load32 are found; dialect::Bytes is the Src of blocks in
// file order behind a pointer. The headers have no guard: each namespace gets its own functions for its own Src.
// GLSL: define RIDGE_GLSL first; see there. A backend that keeps tables elsewhere (shared memory) defines
// RIDGE_TAB(first, words, i) first.

#define LD8(b, field, i) load8(b, field, i)
#define LD16(b, field, i) load16(b, field, i)
#define LD32(b, field, i) load32(b, field, i)
#define TAB(table, i) RIDGE_TAB(table, i)

#ifndef RIDGE_DIALECT_H
#define RIDGE_DIALECT_H

#include "format/tables.h"

#ifndef RIDGE_TAB
#define RIDGE_TAB(first, words, i) table_words[(first) + (i)]
#define RIDGE_TAB_DEFAULT
#endif

#if defined(RIDGE_GLSL)

#define FN
#define u32 uint
#define i32 int
#define f32 float
FN f32 as_f32(u32 bits) { return uintBitsToFloat(bits); }
FN u32 f32_bits(f32 x) { return floatBitsToUint(x); }
FN u32 parity32(u32 x) { return u32(bitCount(x)) & 1u; }

// table_words (host: ridge::dialect::table_words) as one storage buffer.
#ifdef RIDGE_TAB_DEFAULT
#ifndef RIDGE_TABLES_BINDING
#define RIDGE_TABLES_BINDING 1
#endif
layout(std430, set = 0, binding = RIDGE_TABLES_BINDING) readonly buffer RidgeTables { u32 table_words[]; };
#endif

// The default Src: byte `at` of one of RIDGE_WEIGHT_SLOTS buffers (so that q, k and v may come from three), read by
// words: no device needs 8- or 16-bit storage for it. A buffer binding is below 4 GiB, so 32 bits reach all of it,
// and its size is a multiple of 4. A slot that is no constant needs shaderStorageBufferArrayDynamicIndexing.
// With RIDGE_OWN_SRC the shader defines Src and the loads itself, before or after this file.
#ifndef RIDGE_OWN_SRC
#ifndef RIDGE_WEIGHTS_BINDING
#define RIDGE_WEIGHTS_BINDING 0
#endif
#ifndef RIDGE_WEIGHT_SLOTS
#define RIDGE_WEIGHT_SLOTS 1
#endif
struct Src {
    u32 slot;
    u32 at;
};
layout(std430, set = 0, binding = RIDGE_WEIGHTS_BINDING) readonly buffer RidgeWeights { u32 words[]; }
ridge_weights[RIDGE_WEIGHT_SLOTS];

FN u32 load8(Src b, u32 offset, u32 bytes, u32 align, u32 i) {
    u32 a = b.at + offset + i;
    return (ridge_weights[b.slot].words[a >> 2u] >> (8u * (a & 3u))) & 255u;
}
// Across a word boundary the second word is read only if bytes of the field lie in it.
FN u32 load32(Src b, u32 offset, u32 bytes, u32 align, u32 i) {
    u32 a = b.at + offset + i;
    u32 w = ridge_weights[b.slot].words[a >> 2u];
    if (align < 4u) {
        u32 shift = 8u * (a & 3u);
        if (shift != 0u) w = (w >> shift) | (ridge_weights[b.slot].words[(a >> 2u) + 1u] << (32u - shift));
    }
    return w;
}
FN u32 load16(Src b, u32 offset, u32 bytes, u32 align, u32 i) {
    u32 a = b.at + offset + i;
    if (align < 2u) return load8(b, offset, bytes, align, i) | (load8(b, offset, bytes, align, i + 1u) << 8u);
    return (ridge_weights[b.slot].words[a >> 2u] >> (8u * (a & 2u))) & 0xffffu;
}
#endif

#else  // C++, CUDA, HIP

#include <stdint.h>

#include <cstddef>
#if defined(__F16C__) && !defined(__CUDACC__) && !defined(__HIP__)
#include <immintrin.h>
#endif

// Always inlined: files compiled for wider instruction sets call these too, and a copy left by one of them must never
// be the one that the linker keeps for all.
#if defined(__CUDACC__) || defined(__HIP__)
#define FN inline __attribute__((device, always_inline))
#else
#define FN inline __attribute__((always_inline))
#endif

namespace ridge::dialect {

using u32 = uint32_t;
using i32 = int32_t;
using f32 = float;

#if defined(__CUDACC__) || defined(__HIP__)
#ifdef RIDGE_TAB_DEFAULT
static __attribute__((device)) const u32 table_words[TABLE_WORDS] = {
#include "format/tables.def"
};
#endif
#else
extern const u32 table_words[TABLE_WORDS];  // decode.cpp
#endif

FN f32 as_f32(u32 bits) { return __builtin_bit_cast(f32, bits); }
FN u32 f32_bits(f32 x) { return __builtin_bit_cast(u32, x); }

FN u32 parity32(u32 x) {
#if defined(__CUDA_ARCH__)
    return __popc(x) & 1u;
#else
    return static_cast<u32>(__builtin_parity(x));
#endif
}

// Blocks in file order: p is the first byte of one.
struct Bytes {
    const std::byte *p;
};

#if defined(__CUDACC__) || defined(__HIP__)
// A device faults on a load that is not aligned to its width.
FN u32 load8(Bytes b, u32 offset, u32, u32, u32 i) { return static_cast<u32>(b.p[offset + i]); }
FN u32 load16(Bytes b, u32 offset, u32 bytes, u32 align, u32 i) {
    if (align >= 2u) return *reinterpret_cast<const uint16_t *>(b.p + offset + i);
    return load8(b, offset, bytes, align, i) | load8(b, offset, bytes, align, i + 1u) << 8u;
}
FN u32 load32(Bytes b, u32 offset, u32 bytes, u32 align, u32 i) {
    if (align >= 4u) return *reinterpret_cast<const u32 *>(b.p + offset + i);
    return load16(b, offset, bytes, align, i) | load16(b, offset, bytes, align, i + 2u) << 16u;
}
#else
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "weights are little-endian and are read in place");
FN u32 load8(Bytes b, u32 offset, u32, u32, u32 i) { return static_cast<u32>(b.p[offset + i]); }
FN u32 load16(Bytes b, u32 offset, u32, u32, u32 i) {
    uint16_t v;
    __builtin_memcpy(&v, b.p + offset + i, sizeof v);
    return v;
}
FN u32 load32(Bytes b, u32 offset, u32, u32, u32 i) {
    u32 v;
    __builtin_memcpy(&v, b.p + offset + i, sizeof v);
    return v;
}
#endif

#endif  // language; what follows is the dialect itself

// f16 to f32: exact for every finite value, infinities and NaN included.
FN f32 f16_f32(u32 h) {
#if defined(__CUDA_ARCH__)
    f32 r;
    asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(static_cast<uint16_t>(h)));
    return r;
#elif defined(__HIP_DEVICE_COMPILE__)
    return static_cast<f32>(__builtin_bit_cast(_Float16, static_cast<uint16_t>(h)));
#elif defined(__F16C__) && !defined(__CUDACC__) && !defined(__HIP__)
    return _cvtsh_ss(static_cast<uint16_t>(h));
#else
    // In integers, since a shader's own conversion may flush subnormals. Exponent and mantissa move to where f32 has
    // them and the bias grows by 112. A subnormal gets the exponent of 2^-14 and then loses that 2^-14 again.
    u32 em = (h & 0x7fffu) << 13u;
    u32 bits = em + 0x38000000u;
    if (em >= 0x0f800000u) bits = em + 0x70000000u;
    if (em < 0x00800000u) bits = f32_bits(as_f32(em + 0x38800000u) - as_f32(0x38800000u));
    return as_f32(bits | (h & 0x8000u) << 16u);
#endif
}

// A byte as a signed number.
FN i32 signed8(u32 x) { return i32(x ^ 128u) - 128; }

// Nibble k (k = 0..7) of the little-endian nibbles in w.
FN u32 nibble(u32 w, u32 k) { return (w >> (4u * k)) & 15u; }

// Four bytes minus four bytes. All of `a` below 128, all of `k` up to 128: no borrow crosses a lane.
FN u32 minus4(u32 a, u32 k) { return ((a | 0x80808080u) - k) ^ 0x80808080u; }

// Bits 0..3 of x as the lowest bits of four bytes.
FN u32 spread4(u32 x) { return ((x & 15u) * 0x00204081u) & 0x01010101u; }

// Negates byte k of w where bit k of `signs` is set (k = 0..3). No byte of w is 0, else a carry crosses its lane.
FN u32 negate4(u32 w, u32 signs) {
    u32 s = spread4(signs);
    return (w ^ (s * 255u)) + s;
}

// Seven stored signs and an eighth that makes the number of minus signs even.
FN u32 signs8(u32 v) { return v ^ (parity32(v) << 7u); }

// Scale or minimum g (0..7) of Q4_K and Q5_K, 6 bits. Of the 12 bytes that hold eight of each, `lo` is byte g % 4 of
// the scales (0..3) or the minima (4..7), and `hi` is the nibble of byte 8 + g % 4, low for scales, high for minima.
FN u32 packed6(u32 lo, u32 hi, u32 g) { return g < 4u ? (lo & 63u) : (hi | ((lo >> 6u) << 4u)); }

// Byte n of eight: `low` holds 0..3, `high` 4..7. permute4 picks four of them, as the bytes of `select` say.
FN u32 byte8(u32 low, u32 high, u32 n) { return ((n < 4u ? low : high) >> (8u * (n & 3u))) & 255u; }
FN u32 permute4(u32 low, u32 high, u32 select) {
#if defined(__CUDA_ARCH__)
    u32 pairs = select | (select >> 4u);  // a nibble each for prmt
    return __byte_perm(low, high, (pairs & 255u) | ((pairs >> 8u) & 0xff00u));
#elif defined(__HIP_DEVICE_COMPILE__)
    return __builtin_amdgcn_perm(high, low, select);
#else
    return byte8(low, high, select & 7u) | (byte8(low, high, (select >> 8u) & 7u) << 8u) |
           (byte8(low, high, (select >> 16u) & 7u) << 16u) | (byte8(low, high, select >> 24u) << 24u);
#endif
}

// Four bytes of a table of sixteen, named by the low nibbles of the bytes of q.
FN u32 codebook4(u32 t0, u32 t1, u32 t2, u32 t3, u32 q) {
    u32 select = q & 0x07070707u;
    u32 upper = ((q >> 3u) & 0x01010101u) * 255u;
    return (permute4(t0, t1, select) & ~upper) | (permute4(t2, t3, select) & upper);
}

#if !defined(RIDGE_GLSL)
}  // namespace ridge::dialect
#endif

#endif  // RIDGE_DIALECT_H
