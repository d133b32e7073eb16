// contract and gate_up with AVX-512 and VNNI.
//
// vpdpbusd multiplies unsigned by signed bytes: formats without a bias keep code + 128 in their chunks, and 128 times
// the sum of the activations is taken off again, exactly, in integers. The five formats with a bias have codes >= 0.
//
//   vector form (few tokens): a row's 64 codes at once; sixteen rows' sums are transposed and added to a row per lane.
//   matrix form (many): the chunk is transposed once to [k / 4][16 rows][4], so that a vpdpbusd with four activations
//   broadcast from memory advances sixteen rows by four codes. Two groups of sixteen rows and six tokens are in
//   registers: broadcasts are the scarcer resource (on Zen 5 1.3 a cycle to two vpdpbusd), so each serves two.
#include "backend/cpu/contract_loops.h"
#include "backend/cpu/contract_scales_avx512.h"

namespace ridge::cpu {
inline namespace RIDGE_ISA {
namespace {

FN __m512i load512(const void *p) { return _mm512_loadu_si512(p); }

// 4x4 dwords within each 128 bits: from rows to columns.
FN void transpose4(__m512i &a, __m512i &b, __m512i &c, __m512i &d) {
    const __m512i ab_low = _mm512_unpacklo_epi32(a, b), ab_high = _mm512_unpackhi_epi32(a, b);
    const __m512i cd_low = _mm512_unpacklo_epi32(c, d), cd_high = _mm512_unpackhi_epi32(c, d);
    a = _mm512_unpacklo_epi64(ab_low, cd_low), b = _mm512_unpackhi_epi64(ab_low, cd_low);
    c = _mm512_unpacklo_epi64(ab_high, cd_high), d = _mm512_unpackhi_epi64(ab_high, cd_high);
}
// 4x4 of 128 bits.
FN void transpose128(__m512i &a, __m512i &b, __m512i &c, __m512i &d) {
    const __m512i ab_low = _mm512_shuffle_i32x4(a, b, 0x88), ab_high = _mm512_shuffle_i32x4(a, b, 0xdd);
    const __m512i cd_low = _mm512_shuffle_i32x4(c, d, 0x88), cd_high = _mm512_shuffle_i32x4(c, d, 0xdd);
    a = _mm512_shuffle_i32x4(ab_low, cd_low, 0x88), c = _mm512_shuffle_i32x4(ab_low, cd_low, 0xdd);
    b = _mm512_shuffle_i32x4(ab_high, cd_high, 0x88), d = _mm512_shuffle_i32x4(ab_high, cd_high, 0xdd);
}

// ---- Few tokens: one by one

// Sums of each four lanes of v[0..3], as four lanes in their place.
FN __m512i add_lanes4(const __m512i *v) {
    const __m512i a = _mm512_add_epi32(_mm512_unpacklo_epi32(v[0], v[1]), _mm512_unpackhi_epi32(v[0], v[1]));
    const __m512i b = _mm512_add_epi32(_mm512_unpacklo_epi32(v[2], v[3]), _mm512_unpackhi_epi32(v[2], v[3]));
    return _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
}

// Integer dots of 64 codes of sixteen rows: four groups of 16 codes, a row per lane.
FN void dots64(const uint8_t (*codes)[kChunk], uint32_t i, __m512i x, __m512i (&dot)[4]) {
#pragma GCC unroll 4
    for (uint32_t q = 0; q < 4; q++) {
        __m512i v[4];
#pragma GCC unroll 4
        for (uint32_t r = 0; r < 4; r++)
            v[r] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), load512(codes[4 * q + r] + i), x);
        dot[q] = add_lanes4(v);
    }
    transpose128(dot[0], dot[1], dot[2], dot[3]);
}

// sum += scale * x_scale * (dot of the codes) (+ bias * x_scale * total) for a group; total is its activations' sum.
template <bool kBias>
FN __m512 add_group(const Chunk &c, uint32_t g, __m512i dot, __m512 x_scale, int32_t total, __m512 sum) {
    if constexpr (!kBias) dot = _mm512_sub_epi32(dot, _mm512_set1_epi32(128 * total));
    sum = _mm512_fmadd_ps(_mm512_mul_ps(_mm512_load_ps(c.scale[g]), x_scale), _mm512_cvtepi32_ps(dot), sum);
    if constexpr (kBias)
        sum = _mm512_fmadd_ps(_mm512_mul_ps(_mm512_load_ps(c.bias[g]), x_scale),
                              _mm512_set1_ps(static_cast<float>(total)), sum);
    return sum;
}

template <bool kHalves, bool kBias>
FN __m512 add_block(const Chunk &c, uint32_t b, __m512i first, __m512i last, float x_scale, const int16_t *x_sums,
                    __m512 sum) {
    const __m512 xs = _mm512_set1_ps(x_scale);
    if constexpr (kHalves) {
        sum = add_group<kBias>(c, 2 * b, first, xs, x_sums[0], sum);
        return add_group<kBias>(c, 2 * b + 1, last, xs, x_sums[1], sum);
    } else {
        return add_group<kBias>(c, b, _mm512_add_epi32(first, last), xs, x_sums[0] + x_sums[1], sum);
    }
}

template <bool kHalves, bool kBias>
void multiply_vector(const Int8Call &call, uint32_t group, uint32_t t) {
    const Work &w = call.work;
    const Chunk &chunk = call.chunk[group];
    float *sums = call.sums[group][t];
    const size_t x_block = size_t{call.listed.x_row[t]} * (w.k / 32) + call.first;
    const int8_t *x = w.codes + 32 * x_block;
    const float *x_scale = w.scale + x_block;
    const int16_t *x_sums = w.sums + 2 * x_block;
    __m512 sum = _mm512_loadu_ps(sums);
    __m512i dot[4];
    uint32_t b = 0;
    for (; b + 2 <= call.blocks; b += 2) {
        dots64(chunk.codes, 32 * b, load512(x + 32 * b), dot);
        sum = add_block<kHalves, kBias>(chunk, b, dot[0], dot[1], x_scale[b], x_sums + 2 * b, sum);
        sum = add_block<kHalves, kBias>(chunk, b + 1, dot[2], dot[3], x_scale[b + 1], x_sums + 2 * b + 2, sum);
    }
    if (b < call.blocks) {
        const __m512i last = _mm512_castsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(x + 32 * b)));
        dots64(chunk.codes, 32 * b, last, dot);
        sum = add_block<kHalves, kBias>(chunk, b, dot[0], dot[1], x_scale[b], x_sums + 2 * b, sum);
    }
    _mm512_storeu_ps(sums, sum);
}

// ---- Many tokens

constexpr uint32_t kManyTokens = 5;  // from here on the matrix form is faster (Zen 5, Q4_1 of 1536 x 576)
constexpr uint32_t kTokens = 6;      // at a time

struct Room {
    alignas(64) uint8_t codes[2][kChunk / 4][kLanes][4];
    alignas(64) int8_t x[kTokens][kChunk];  // where the tokens' rows do not lie one after the other
    alignas(32) float x_scale[kTokens][kChunkBlocks];
    // Of each block, or of each of its halves: the sum of the activations, or -128 times that as an integer.
    alignas(64) float total[kTokens][16];
    alignas(64) int32_t minus128[kTokens][16];
};

void transpose_codes(const Chunk &c, uint32_t blocks, uint8_t (*codes)[kLanes][4]) {
    for (uint32_t b = 0; b < blocks; b += 2) {
        __m512i v[16];
#pragma GCC unroll 16
        for (uint32_t r = 0; r < 16; r++) v[r] = load512(c.codes[r] + 32 * b);
#pragma GCC unroll 4
        for (uint32_t q = 0; q < 16; q += 4) transpose4(v[q], v[q + 1], v[q + 2], v[q + 3]);
#pragma GCC unroll 4
        for (uint32_t q = 0; q < 4; q++) {
            transpose128(v[q], v[q + 4], v[q + 8], v[q + 12]);
#pragma GCC unroll 4
            for (uint32_t p = 0; p < 4; p++) _mm512_store_si512(codes[8 * b + 4 * p + q], v[q + 4 * p]);
        }
    }
}

// What the products of one token need besides its codes.
template <bool kHalves, bool kBias>
FN void prepare_token(const Int8Call &call, size_t x_block, uint32_t t, Room &room) {
    const auto some = static_cast<__mmask8>((1u << call.blocks) - 1u);
    _mm256_store_ps(room.x_scale[t], _mm256_maskz_loadu_ps(some, call.work.scale + x_block));
    const auto pairs16 = static_cast<__mmask16>((1u << (2 * call.blocks)) - 1u);
    const __m256i sums = _mm256_maskz_loadu_epi16(pairs16, call.work.sums + 2 * x_block);
    __m512i total;
    if constexpr (kHalves)
        total = _mm512_cvtepi16_epi32(sums);
    else
        total = _mm512_zextsi256_si512(_mm256_madd_epi16(sums, _mm256_set1_epi16(1)));
    if constexpr (kBias)
        _mm512_store_ps(room.total[t], _mm512_cvtepi32_ps(total));
    else
        _mm512_store_si512(room.minus128[t], _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_slli_epi32(total, 7)));
}

FN __m512i four_codes(const int8_t *x) {
    int32_t v;
    __builtin_memcpy(&v, x, 4);
    return _mm512_set1_epi32(v);
}

// Adds a chunk of G groups of rows to the sums of T tokens from token t on, whose activations are `stride` apart.
template <uint32_t G, uint32_t T, bool kHalves, bool kBias>
void multiply_tokens(const Int8Call &call, const Room &room, uint32_t first_token, const int8_t *x, size_t stride) {
    __m512 sum[G][T];
#pragma GCC unroll 12
    for (uint32_t i = 0; i < G * T; i++) sum[i / T][i % T] = _mm512_loadu_ps(call.sums[i / T][first_token + i % T]);
    constexpr uint32_t halves = kHalves ? 2 : 1, fours = 8 / halves;
    for (uint32_t h = 0; h < call.blocks * halves; h++, x += 4 * fours) {
        __m512i dot[G][T];
#pragma GCC unroll 12
        for (uint32_t i = 0; i < G * T; i++)
            dot[i / T][i % T] = kBias ? _mm512_setzero_si512() : _mm512_set1_epi32(room.minus128[i % T][h]);
#pragma GCC unroll 8
        for (uint32_t j = 0; j < fours; j++) {
            __m512i w[G];
#pragma GCC unroll 2
            for (uint32_t g = 0; g < G; g++) w[g] = _mm512_load_si512(room.codes[g][fours * h + j]);
#pragma GCC unroll 6
            for (uint32_t t = 0; t < T; t++) {
                const __m512i xs = four_codes(x + t * stride + 4 * j);
#pragma GCC unroll 2
                for (uint32_t g = 0; g < G; g++) dot[g][t] = _mm512_dpbusd_epi32(dot[g][t], w[g], xs);
            }
        }
#pragma GCC unroll 12
        for (uint32_t i = 0; i < G * T; i++) {
            const uint32_t g = i / T, t = i % T;
            const __m512 x_scale = _mm512_set1_ps(room.x_scale[t][h / halves]);
            const __m512 scale = _mm512_mul_ps(_mm512_load_ps(call.chunk[g].scale[h]), x_scale);
            sum[g][t] = _mm512_fmadd_ps(scale, _mm512_cvtepi32_ps(dot[g][t]), sum[g][t]);
            if constexpr (kBias) {
                const __m512 bias = _mm512_mul_ps(_mm512_load_ps(call.chunk[g].bias[h]), x_scale);
                sum[g][t] = _mm512_fmadd_ps(bias, _mm512_set1_ps(room.total[t][h]), sum[g][t]);
            }
        }
    }
#pragma GCC unroll 12
    for (uint32_t i = 0; i < G * T; i++) _mm512_storeu_ps(call.sums[i / T][first_token + i % T], sum[i / T][i % T]);
}

// T tokens from listed token t on.
template <uint32_t T, bool kHalves, bool kBias>
void multiply_some(const Int8Call &call, Room &room, uint32_t t) {
    const size_t row_blocks = call.work.k / 32;
    const int8_t *x = call.work.codes + 32 * (call.listed.x_row[t] * row_blocks + call.first);
    size_t stride = call.work.k;
    for (uint32_t i = 0; i < T; i++) {
        const size_t x_block = call.listed.x_row[t + i] * row_blocks + call.first;
        prepare_token<kHalves, kBias>(call, x_block, i, room);
        if (!call.listed.consecutive) __builtin_memcpy(room.x[i], call.work.codes + 32 * x_block, 32 * call.blocks);
    }
    if (!call.listed.consecutive) x = room.x[0], stride = kChunk;
    if (call.groups == 2)
        multiply_tokens<2, T, kHalves, kBias>(call, room, t, x, stride);
    else
        multiply_tokens<1, T, kHalves, kBias>(call, room, t, x, stride);
}

struct VectorForm {
    static constexpr uint32_t kGroups = 1;
    static constexpr size_t kRoom = 64;  // not used
    static constexpr u32 flip(bool has_bias) { return has_bias ? 0 : 128; }

    template <bool kHalves, bool kBias>
    static void multiply(const Int8Call &call) {
        for (uint32_t t = 0; t < call.listed.count; t++) multiply_vector<kHalves, kBias>(call, 0, t);
    }
};

struct MatrixForm {
    static constexpr uint32_t kGroups = 2;
    static constexpr size_t kRoom = sizeof(Room);
    static constexpr u32 flip(bool has_bias) { return has_bias ? 0 : 128; }

    template <bool kHalves, bool kBias>
    static void multiply(const Int8Call &call) {
        const uint32_t count = call.listed.count;
        if (count < kManyTokens) {  // those of one expert, or the only row of logits
            for (uint32_t g = 0; g < call.groups; g++)
                for (uint32_t t = 0; t < count; t++) multiply_vector<kHalves, kBias>(call, g, t);
            return;
        }
        auto &room = *reinterpret_cast<Room *>(call.room);
        for (uint32_t g = 0; g < call.groups; g++) transpose_codes(call.chunk[g], call.blocks, room.codes[g]);
        uint32_t t = 0;
        for (; t + 6 <= count; t += 6) multiply_some<6, kHalves, kBias>(call, room, t);
        for (; t + 2 <= count; t += 2) multiply_some<2, kHalves, kBias>(call, room, t);
        if (t < count) multiply_some<1, kHalves, kBias>(call, room, t);
    }
};

constexpr Kernel many_tokens(std::string_view name, OpKind op) {
    Kernel k = int8_row<MatrixForm>(name, op);
    k.tokens.first = kManyTokens;
    k.rank++;
    return k;
}

constexpr Kernel kTable[] = {
    f32_row(RIDGE_ROW_NAME("contract.f32"), kind<Contract>()),
    f32_row(RIDGE_ROW_NAME("gate_up.f32"), kind<GateUp>()),
    int8_row<VectorForm>(RIDGE_ROW_NAME("contract.int8"), kind<Contract>()),
    int8_row<VectorForm>(RIDGE_ROW_NAME("gate_up.int8"), kind<GateUp>()),
    many_tokens(RIDGE_ROW_NAME("contract.int8_gemm"), kind<Contract>()),
    many_tokens(RIDGE_ROW_NAME("gate_up.int8_gemm"), kind<GateUp>()),
};

}  // namespace
}  // namespace RIDGE_ISA

constinit const RowTable kContractAvx512 = kTable;

}  // namespace ridge::cpu
