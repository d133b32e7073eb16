// The matrix instructions of every machine behind one interface: products of 16 rows with 16 columns over 32 bytes of k
// (32 int8, 16 f16 or bf16, 8 tf32), by one wave.
//
//   Rows a = load_rows(p, stride)       operand whose row i (0..15) has its 32 bytes at p + i * stride in shared
//   memory, Columns b = load_columns(p, stride) and the other one, whose column j lies there likewise: k is contiguous
//   in both.
//                                       p and stride are multiples of 16; odd multiples of 16 have no bank conflicts
//   load_columns_transposed16(p, stride) of 16-bit elements where element (k, j) is at p + k * stride + 2 * j
//   dot32 dot16 add_f16 add_bf16 add_tf32   the products, below
//
// Element e = r * kLaneColumns + c of a lane's kElements sums is that of row row_of(lane, r) and column column_of(lane,
// c).
//
//   NVIDIA (sm_80 and later)  mma.sync m16n8k32 s8, m16n8k16 f16/bf16, m16n8k8 tf32, two for 16 columns
//   gfx11                     v_wmma_*_16x16x16: every lane holds a whole row (32 bytes), lanes 16..31 the same again
//   gfx12                     v_wmma_*_16x16x16 with its own layout: k is spread over the two halves of the wave
//   gfx90a, gfx942            v_mfma_*: k is spread over the four quarters of a wave of 64
//
// Which bytes of k an instruction takes for which does not matter as long as both operands agree: load_rows and
// load_columns place them so that the first 16 bytes are one half of dot16 everywhere.
#pragma once

#include "backend/simt/device.h"

#if defined(RIDGE_CUDA)
#define RIDGE_MATRIX_NVIDIA 1
#elif defined(RIDGE_HIP)
#if defined(__GFX9__)
#define RIDGE_MATRIX_GFX9 1
#elif defined(__GFX12__)
#define RIDGE_MATRIX_GFX12 1
#else
#define RIDGE_MATRIX_GFX11 1
#endif
#elif RIDGE_EMULATE_ARCH == 1
#define RIDGE_MATRIX_GFX11 1
#elif RIDGE_EMULATE_ARCH == 2
#define RIDGE_MATRIX_GFX9 1
#else
#define RIDGE_MATRIX_NVIDIA 1
#endif

namespace ridge::simt::matrix {

constexpr u32 kTile = 16;        // rows, and columns
constexpr u32 kDepthBytes = 32;  // of k

#if defined(RIDGE_MATRIX_NVIDIA)
constexpr u32 kLaneRows = 2, kLaneColumns = 4, kRegisters = 4;
DEVICE u32 row_of(u32 lane, u32 r) { return lane / 4 + 8 * r; }
DEVICE u32 column_of(u32 lane, u32 c) { return 2 * (lane % 4) + c % 2 + 8 * (c / 2); }
#elif defined(RIDGE_MATRIX_GFX11)
constexpr u32 kLaneRows = 8, kLaneColumns = 1, kRegisters = 8;
DEVICE u32 row_of(u32 lane, u32 r) { return 2 * r + lane / 16; }
DEVICE u32 column_of(u32 lane, u32) { return lane % 16; }
DEVICE u32 byte_of(u32, u32 i) { return 4 * i; }
#elif defined(RIDGE_MATRIX_GFX12)
constexpr u32 kLaneRows = 8, kLaneColumns = 1, kRegisters = 4;
DEVICE u32 row_of(u32 lane, u32 r) { return r + 8 * (lane / 16); }
DEVICE u32 column_of(u32 lane, u32) { return lane % 16; }
DEVICE u32 byte_of(u32 lane, u32 i) { return 16 * (i / 2) + 8 * (lane / 16) + 4 * (i % 2); }
#else
constexpr u32 kLaneRows = 4, kLaneColumns = 1, kRegisters = 2;
DEVICE u32 row_of(u32 lane, u32 r) { return 4 * (lane / 16) + r; }
DEVICE u32 column_of(u32 lane, u32) { return lane % 16; }
DEVICE u32 byte_of(u32 lane, u32 i) { return 16 * i + 4 * (lane / 16); }
#endif
constexpr u32 kElements = kLaneRows * kLaneColumns;

// Where a lane finds what belongs to its rows (columns) side by side: the values of `tiles` tiles of 16 rows lie at
// row_slot(row, tiles), those of a lane from row_slot(row_of(lane, 0), tiles) on, tile after tile.
DEVICE u32 row_slot(u32 row, u32 tiles) {
    const u32 i = row % 16;
#if defined(RIDGE_MATRIX_NVIDIA)
    const u32 group = i % 8, r = i / 8;
#elif defined(RIDGE_MATRIX_GFX11)
    const u32 group = i % 2, r = i / 2;
#else
    const u32 group = i / kLaneRows, r = i % kLaneRows;
#endif
    return group * kLaneRows * tiles + row / 16 * kLaneRows + r;
}
DEVICE u32 column_slot(u32 column, u32 tiles) {
    const u32 i = column % 16;
#if defined(RIDGE_MATRIX_NVIDIA)
    const u32 group = i % 8 / 2, c = i % 2 + 2 * (i / 8);
#else
    const u32 group = i, c = 0;
#endif
    return group * kLaneColumns * tiles + column / 16 * kLaneColumns + c;
}

struct Rows {
    u32 v[kRegisters];
};
struct Columns {
    u32 v[kRegisters];
};

// ---- Operands from shared memory

#if defined(RIDGE_CUDA)

DEVICE u32 shared_address(const void *p) { return static_cast<u32>(__cvta_generic_to_shared(p)); }

DEVICE Rows load_rows(const std::byte *p, u32 stride) {
    const u32 l = lane();
    Rows f;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(f.v[0]), "=r"(f.v[1]), "=r"(f.v[2]), "=r"(f.v[3])
                 : "r"(shared_address(p) + l % 16 * stride + l / 16 * 16)
                 : "memory");
    return f;
}
DEVICE Columns load_columns(const std::byte *p, u32 stride) {
    const u32 l = lane();
    Columns f;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(f.v[0]), "=r"(f.v[1]), "=r"(f.v[2]), "=r"(f.v[3])
                 : "r"(shared_address(p) + (l / 16 * 8 + l % 8) * stride + l / 8 % 2 * 16)
                 : "memory");
    return f;
}
DEVICE Columns load_columns_transposed16(const std::byte *p, u32 stride) {
    const u32 l = lane();
    Columns f;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(f.v[0]), "=r"(f.v[1]), "=r"(f.v[2]), "=r"(f.v[3])
                 : "r"(shared_address(p) + l % 16 * stride + l / 16 * 16)
                 : "memory");
    return f;
}

#else

DEVICE u32 word_at(const std::byte *p) { return *reinterpret_cast<const u32 *>(p); }
DEVICE u32 pair_at(const std::byte *p, u32 stride) {
    return *reinterpret_cast<const u16 *>(p) | static_cast<u32>(*reinterpret_cast<const u16 *>(p + stride)) << 16;
}

#if defined(RIDGE_MATRIX_NVIDIA)
DEVICE Rows load_rows(const std::byte *p, u32 stride) {
    const u32 l = lane();
    Rows f;
    for (u32 i = 0; i < 4; i++) f.v[i] = word_at(p + (l / 4 + i % 2 * 8) * stride + l % 4 * 4 + i / 2 * 16);
    return f;
}
DEVICE Columns load_columns(const std::byte *p, u32 stride) {
    const u32 l = lane();
    Columns f;
    for (u32 i = 0; i < 4; i++) f.v[i] = word_at(p + (l / 4 + i / 2 * 8) * stride + l % 4 * 4 + i % 2 * 16);
    return f;
}
DEVICE Columns load_columns_transposed16(const std::byte *p, u32 stride) {
    const u32 l = lane();
    Columns f;
    for (u32 i = 0; i < 4; i++)
        f.v[i] = pair_at(p + (l % 4 * 2 + i % 2 * 8) * stride + 2 * (l / 4 + i / 2 * 8), stride);
    return f;
}
#else
DEVICE Rows load_rows(const std::byte *p, u32 stride) {
    const u32 l = lane();
    Rows f;
    for (u32 i = 0; i < kRegisters; i++) f.v[i] = word_at(p + l % 16 * stride + byte_of(l, i));
    return f;
}
DEVICE Columns load_columns(const std::byte *p, u32 stride) {
    const u32 l = lane();
    Columns f;
    for (u32 i = 0; i < kRegisters; i++) f.v[i] = word_at(p + l % 16 * stride + byte_of(l, i));
    return f;
}
DEVICE Columns load_columns_transposed16(const std::byte *p, u32 stride) {
    const u32 l = lane();
    Columns f;
    for (u32 i = 0; i < kRegisters; i++) f.v[i] = pair_at(p + byte_of(l, i) / 2 * stride + 2 * (l % 16), stride);
    return f;
}
#endif

#endif

// ---- Products

// What a product of integers starts from. The result is an i32 that is |dot| < 2^22 above `init`: started from the bits
// of 12582912.0f = 1.5 * 2^23, it is the bits of 12582912.0f + dot, and a subtraction makes the dot a float.
struct Dots {
    u32 v[kElements];
};
constexpr u32 kDotStart = 0x4b400000u;
DEVICE f32 dot_value(u32 bits) { return as_f32(bits) - 12582912.0f; }

#if defined(RIDGE_CUDA)

DEVICE Dots dot32(const Rows &a, const Columns &b) {
    Dots d;
#pragma unroll
    for (u32 j = 0; j < 2; j++)
        asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, "
            "%10, "
            "%10};"
            : "=r"(d.v[2 * j]), "=r"(d.v[2 * j + 1]), "=r"(d.v[4 + 2 * j]), "=r"(d.v[5 + 2 * j])
            : "r"(a.v[0]), "r"(a.v[1]), "r"(a.v[2]), "r"(a.v[3]), "r"(b.v[2 * j]), "r"(b.v[2 * j + 1]), "r"(kDotStart));
    return d;
}
// Of half `half` (0, 1) of the 32 only.
DEVICE Dots dot16(const Rows &a, const Columns &b, u32 half) {
    Dots d;
#pragma unroll
    for (u32 j = 0; j < 2; j++)
        asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %7, %7, %7};"
            : "=r"(d.v[2 * j]), "=r"(d.v[2 * j + 1]), "=r"(d.v[4 + 2 * j]), "=r"(d.v[5 + 2 * j])
            : "r"(a.v[2 * half]), "r"(a.v[2 * half + 1]), "r"(b.v[2 * j + half]), "r"(kDotStart));
    return d;
}
#define RIDGE_ADD(name, shape)                                                                                \
    DEVICE void name(f32(&sum)[kElements], const Rows &a, const Columns &b) {                                 \
        _Pragma("unroll") for (u32 j = 0; j < 2; j++) asm(                                                    \
            "mma.sync.aligned." shape " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" :    \
            "+f"(sum[2 * j]), "+f"(sum[2 * j + 1]), "+f"(sum[4 + 2 * j]), "+f"(sum[5 + 2 * j]) : "r"(a.v[0]), \
            "r"(a.v[1]), "r"(a.v[2]), "r"(a.v[3]), "r"(b.v[2 * j]), "r"(b.v[2 * j + 1]));                     \
    }
// sum += a b, with f32 sums: products are exact, in which order the machine adds them and how it rounds is its own.
RIDGE_ADD(add_f16, "m16n8k16.row.col.f32.f16.f16.f32")
RIDGE_ADD(add_bf16, "m16n8k16.row.col.f32.bf16.bf16.f32")
// Operands are f32 whose low 13 bits are 0.
RIDGE_ADD(add_tf32, "m16n8k8.row.col.f32.tf32.tf32.f32")
#undef RIDGE_ADD

#elif defined(RIDGE_HIP)

typedef int I32x2 __attribute__((ext_vector_type(2)));
typedef int I32x4 __attribute__((ext_vector_type(4)));
typedef int I32x8 __attribute__((ext_vector_type(8)));
typedef float F32x4 __attribute__((ext_vector_type(4)));
typedef float F32x8 __attribute__((ext_vector_type(8)));

// Vectors of the shapes that the builtins want, out of plain registers.
template <class To, class From>
DEVICE To reshape(const From &from) {
    static_assert(sizeof(To) == sizeof(From));
    return __builtin_bit_cast(To, from);
}
struct Words2 {
    u32 v[2];
};
struct Words4 {
    u32 v[4];
};

#if defined(RIDGE_MATRIX_GFX11) || defined(RIDGE_MATRIX_GFX12)

#if defined(RIDGE_MATRIX_GFX11)
typedef _Float16 Half __attribute__((ext_vector_type(16)));
typedef short Bf16 __attribute__((ext_vector_type(16)));
DEVICE I32x8 wmma_i8(const Rows &a, const Columns &b, u32 half, I32x8 c) {
    const Words4 x = {a.v[4 * half], a.v[4 * half + 1], a.v[4 * half + 2], a.v[4 * half + 3]};
    const Words4 y = {b.v[4 * half], b.v[4 * half + 1], b.v[4 * half + 2], b.v[4 * half + 3]};
    return __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32(true, reshape<I32x4>(x), true, reshape<I32x4>(y), c, false);
}
#else
typedef _Float16 Half __attribute__((ext_vector_type(8)));
typedef short Bf16 __attribute__((ext_vector_type(8)));
DEVICE I32x8 wmma_i8(const Rows &a, const Columns &b, u32 half, I32x8 c) {
    const Words2 x = {a.v[2 * half], a.v[2 * half + 1]}, y = {b.v[2 * half], b.v[2 * half + 1]};
    return __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32_gfx12(true, reshape<I32x2>(x), true, reshape<I32x2>(y), c, false);
}
#endif

DEVICE I32x8 start() {
    constexpr int s = static_cast<int>(kDotStart);
    return {s, s, s, s, s, s, s, s};
}
DEVICE Dots dot32(const Rows &a, const Columns &b) {
    return reshape<Dots>(wmma_i8(a, b, 1, wmma_i8(a, b, 0, start())));
}
DEVICE Dots dot16(const Rows &a, const Columns &b, u32 half) { return reshape<Dots>(wmma_i8(a, b, half, start())); }

DEVICE void put(f32 (&sum)[kElements], F32x8 v) {
#pragma unroll
    for (u32 i = 0; i < 8; i++) sum[i] = v[i];
}
DEVICE F32x8 get(const f32 (&s)[kElements]) { return {s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7]}; }
DEVICE void add_f16(f32 (&sum)[kElements], const Rows &a, const Columns &b) {
#if defined(RIDGE_MATRIX_GFX11)
    put(sum, __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(reshape<Half>(a), reshape<Half>(b), get(sum)));
#else
    put(sum, __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(reshape<Half>(a), reshape<Half>(b), get(sum)));
#endif
}
DEVICE void add_bf16(f32 (&sum)[kElements], const Rows &a, const Columns &b) {
#if defined(RIDGE_MATRIX_GFX11)
    put(sum, __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(reshape<Bf16>(a), reshape<Bf16>(b), get(sum)));
#else
    put(sum, __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(reshape<Bf16>(a), reshape<Bf16>(b), get(sum)));
#endif
}

#else  // gfx9

typedef _Float16 Half __attribute__((ext_vector_type(4)));
typedef short Bf16 __attribute__((ext_vector_type(4)));

DEVICE I32x4 start() {
    constexpr int s = static_cast<int>(kDotStart);
    return {s, s, s, s};
}
#if defined(__gfx90a__)
DEVICE I32x4 mfma_i8(const Rows &a, const Columns &b, u32 half, I32x4 c) {
    return __builtin_amdgcn_mfma_i32_16x16x16i8(static_cast<int>(a.v[half]), static_cast<int>(b.v[half]), c, 0, 0, 0);
}
DEVICE Dots dot32(const Rows &a, const Columns &b) {
    return reshape<Dots>(mfma_i8(a, b, 1, mfma_i8(a, b, 0, start())));
}
DEVICE Dots dot16(const Rows &a, const Columns &b, u32 half) { return reshape<Dots>(mfma_i8(a, b, half, start())); }
#else
DEVICE Dots dot32(const Rows &a, const Columns &b) {
    return reshape<Dots>(__builtin_amdgcn_mfma_i32_16x16x32_i8(reshape<long>(a), reshape<long>(b), start(), 0, 0, 0));
}
DEVICE Dots dot16(const Rows &a, const Columns &b, u32 half) {
    Rows one = a;
    one.v[1 - half] = 0;
    return dot32(one, b);
}
#endif

DEVICE void put(f32 (&sum)[kElements], F32x4 v) {
#pragma unroll
    for (u32 i = 0; i < 4; i++) sum[i] = v[i];
}
DEVICE F32x4 get(const f32 (&s)[kElements]) { return {s[0], s[1], s[2], s[3]}; }
DEVICE void add_f16(f32 (&sum)[kElements], const Rows &a, const Columns &b) {
    put(sum, __builtin_amdgcn_mfma_f32_16x16x16f16(reshape<Half>(a), reshape<Half>(b), get(sum), 0, 0, 0));
}
DEVICE void add_bf16(f32 (&sum)[kElements], const Rows &a, const Columns &b) {
    put(sum, __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(reshape<Bf16>(a), reshape<Bf16>(b), get(sum), 0, 0, 0));
}

#endif

#else  // the emulator: every lane puts its operands where the whole wave reads them

struct Exchange {
    Rows a[kWave];
    Columns b[kWave];

#if defined(RIDGE_MATRIX_NVIDIA)
    u32 row_word(u32 row, u32 w) const { return a[row % 8 * 4 + w % 4].v[row / 8 + 2 * (w / 4)]; }
    u32 column_word(u32 column, u32 w) const { return b[column % 8 * 4 + w % 4].v[2 * (column / 8) + w / 4]; }
#elif defined(RIDGE_MATRIX_GFX11)
    // The upper half of the wave must hold what the lower one does: it is what the instruction reads there.
    u32 row_word(u32 row, u32 w) const { return a[row + w % 2 * 16].v[w]; }
    u32 column_word(u32 column, u32 w) const { return b[column + w % 2 * 16].v[w]; }
#else
    u32 row_word(u32 row, u32 w) const { return a[row + w % 4 * 16].v[w / 4]; }
    u32 column_word(u32 column, u32 w) const { return b[column + w % 4 * 16].v[w / 4]; }
#endif
};

// body(e, row, column, exchange) for each element of this lane. The meeting place lies in the frame of lane 0, which
// stays until all have read.
template <class Body>
DEVICE void exchange(const Rows &a, const Columns &b, Body &&body) {
    Exchange mine;
    const auto here = reinterpret_cast<uintptr_t>(&mine);
    const u32 low = shuffle(static_cast<u32>(here), 0), high = shuffle(static_cast<u32>(u64{here} >> 32), 0);
    auto *all = reinterpret_cast<Exchange *>(static_cast<uintptr_t>(u64{high} << 32 | low));
    const u32 l = lane();
    all->a[l] = a, all->b[l] = b;
    sync_wave();
    for (u32 r = 0; r < kLaneRows; r++)
        for (u32 c = 0; c < kLaneColumns; c++) body(r * kLaneColumns + c, row_of(l, r), column_of(l, c), *all);
    sync_wave();
}

DEVICE Dots dots_of(const Rows &a, const Columns &b, u32 first, u32 last) {
    Dots d;
    exchange(a, b, [&](u32 e, u32 row, u32 column, const Exchange &x) {
        i32 dot = 0;
        for (u32 w = first; w < last; w++) dot = dot4(dot, x.row_word(row, w), x.column_word(column, w));
        d.v[e] = kDotStart + static_cast<u32>(dot);
    });
    return d;
}
DEVICE Dots dot32(const Rows &a, const Columns &b) { return dots_of(a, b, 0, 8); }
DEVICE Dots dot16(const Rows &a, const Columns &b, u32 half) { return dots_of(a, b, 4 * half, 4 * half + 4); }

template <class Value>
DEVICE void add_pairs(f32 (&sum)[kElements], const Rows &a, const Columns &b, Value &&value) {
    exchange(a, b, [&](u32 e, u32 row, u32 column, const Exchange &x) {
        for (u32 w = 0; w < 8; w++)
            for (u32 i = 0; i < 2; i++)
                sum[e] =
                    fma(value(x.row_word(row, w) >> (16 * i)), value(x.column_word(column, w) >> (16 * i)), sum[e]);
    });
}
DEVICE void add_f16(f32 (&sum)[kElements], const Rows &a, const Columns &b) {
    add_pairs(sum, a, b, [](u32 bits) { return f16_f32(bits & 0xffffu); });
}
DEVICE void add_bf16(f32 (&sum)[kElements], const Rows &a, const Columns &b) {
    add_pairs(sum, a, b, [](u32 bits) { return as_f32(bits << 16); });
}
#if defined(RIDGE_MATRIX_NVIDIA)
DEVICE void add_tf32(f32 (&sum)[kElements], const Rows &a, const Columns &b) {
    // The instruction reads 19 bits.
    const auto value = [](u32 bits) { return as_f32(bits & 0xffffe000u); };
    exchange(a, b, [&](u32 e, u32 row, u32 column, const Exchange &x) {
        for (u32 w = 0; w < 8; w++) sum[e] = fma(value(x.row_word(row, w)), value(x.column_word(column, w)), sum[e]);
    });
}
#endif

#endif

// Sums as the row operand of a next product: row i of it has the 16 columns as 16-bit numbers, `round` makes the bits
// of one. `scratch`: 512 bytes of shared memory of this wave's own, 16-byte aligned, for machines where the two layouts
// differ.
template <class Round>
DEVICE Rows rows_of_sums16(const f32 (&sum)[kElements], std::byte *scratch, Round &&round) {
#if defined(RIDGE_MATRIX_NVIDIA)
    (void)scratch;
    Rows a;
    for (u32 i = 0; i < 4; i++) {
        const u32 e = i % 2 * 4 + i / 2 * 2;
        a.v[i] = (round(sum[e]) & 0xffffu) | round(sum[e + 1]) << 16;
    }
    return a;
#else
    const u32 l = lane();
    sync_wave();
    for (u32 r = 0; r < kLaneRows; r++)
        for (u32 c = 0; c < kLaneColumns; c++)
            *reinterpret_cast<u16 *>(scratch + row_of(l, r) * 32 + 2 * column_of(l, c)) =
                static_cast<u16>(round(sum[r * kLaneColumns + c]));
    sync_wave();
    return load_rows(scratch, 32);
#endif
}

}  // namespace ridge::simt::matrix
