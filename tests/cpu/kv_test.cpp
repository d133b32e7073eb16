// KV state in q8_0: what a write makes of ordinary and extreme values, the same bits in all rows, and what a value that
// is no number spoils.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "one_op.h"

namespace ridge::testing_cpu {
namespace {

constexpr uint32_t kCols = 4 * 32;

// The block of row i at column 32 * b.
Q8Block block(const Bench &b, StateId state, uint32_t position, uint32_t i) {
    Q8Block out;
    const size_t at = b.step.view().slot(0, position) * row_bytes(DType::q8_0, kCols) + i * sizeof out;
    std::memcpy(&out, &b.state_bytes(state)[at], sizeof out);
    return out;
}

// Written by every row, all of the same bits; `k` in rows of kCols.
struct Written {
    Bench b;
    KvWrite op;
    explicit Written(const std::vector<float> &k, uint32_t first = 30)
        : b(bench(static_cast<uint32_t>(k.size() / kCols), first)) {
        const uint32_t pages = (first + static_cast<uint32_t>(k.size() / kCols) + kPageTokens - 1) / kPageTokens;
        op = {.k = b.value(kCols, k),
              .v = b.value(kCols, k),
              .k_state = b.state(kCols, DType::q8_0, pages),
              .v_state = b.state(kCols, DType::q8_0, pages)};
        expect_same_bits(b, op);
    }
};

// As KvWrite in op/op.h has it, in double; the quotients and products it rounds are within 2^-23 of these.
void expect_holds(const float *x, const Q8Block &got) {
    double most = 0;
    for (int j = 0; j < 32; j++) most = std::max(most, std::fabs(double{x[j]}));
    const double scale = cpu::f16_to_f32(got.scale);
    ASSERT_LE(got.scale, 0x7bff) << "finite, and not negative";
    ASSERT_LE(std::fabs(scale - most / 127), most / 127 * (0x1p-11 + 0x1p-22) + 0x1p-25);
    for (int j = 0; j < 32; j++) {
        ASSERT_GE(got.codes[j], -127);
        const double off = std::fabs(x[j] - scale * got.codes[j]);
        ASSERT_LE(off, scale / 2 * (1 + 0x1p-15) + (scale < 0x1p-14 ? 127 * 0x1p-25 : 0)) << x[j] << " " << scale;
    }
}

TEST(Q8State, HoldsEveryValueWithinHalfAStep) {
    std::vector<float> x = random_floats(100 * kCols, 1);
    for (size_t i = 0; i < x.size(); i++) x[i] = std::ldexp(x[i], static_cast<int>(i / 32 % 40) - 30);
    const Written w(x);
    for (uint32_t i = 0; i < 100; i++)
        for (uint32_t b = 0; b < kCols / 32; b++) {
            expect_holds(&x[i * kCols + 32 * b], block(w.b, w.op.k_state, 30 + i, b));
            if (HasFatalFailure()) return;
        }
    EXPECT_EQ(w.b.state_bytes(w.op.k_state), w.b.state_bytes(w.op.v_state));
    const auto &state = w.b.state_bytes(w.op.k_state);
    const auto untouched = static_cast<size_t>(std::count(state.begin(), state.end(), std::byte{0xff}));
    EXPECT_GE(untouched, (3 * kPageTokens - 100) * row_bytes(DType::q8_0, kCols));
}

// Rows in all blocks of which `first` comes first and the others are `rest`.
std::vector<float> blocks(float first, float rest) {
    std::vector<float> x(kCols, rest);
    for (uint32_t i = 0; i < kCols; i += 32) x[i] = first;
    return x;
}
Q8Block only(float first, float rest) {
    const Written w(blocks(first, rest), 0);
    return block(w.b, w.op.k_state, 0, 1);
}

TEST(Q8State, CodesFitTheScaleThatIsStored) {
    // 1 / 127 rounds up to 0x2008, so that 1 is 126.99 steps; ties go to even.
    Q8Block b = only(127, 0.5f);
    EXPECT_EQ(b.scale, 0x3c00);
    EXPECT_EQ(b.codes[0], 127);
    EXPECT_EQ(b.codes[1], 0);
    EXPECT_EQ(only(-127, 1.5f).codes[1], 2);
    EXPECT_EQ(only(-127, -2.5f).codes[31], -2);
    EXPECT_EQ(only(-127, -2.5f).codes[0], -127);
    // 127 * (1 + 2^-11) has the scale 1, and 127.06 steps are 127. Half a step of a scale that were not rounded first
    // would be less.
    b = only(127.0f * (1 + 0x1p-11f), 0.50001f);
    EXPECT_EQ(b.scale, 0x3c00);
    EXPECT_EQ(b.codes[0], 127);
    EXPECT_EQ(b.codes[1], 1);
}

TEST(Q8State, ZerosAndWhatIsTooSmall) {
    for (const float x : {0.0f, -0.0f, 0x1p-149f, 126 * 0x1p-25f}) {
        const Q8Block b = only(x, -x);
        EXPECT_EQ(b.scale, 0) << x;
        for (const int8_t c : b.codes) EXPECT_EQ(c, 0);
    }
    // The least scale there is: 2^-24. Just above half of it, and just below one and a half, where codes are held.
    EXPECT_EQ(only(64 * 0x1p-24f, 0).scale, 1);
    EXPECT_EQ(only(64 * 0x1p-24f, 0).codes[0], 64);
    EXPECT_EQ(only(190 * 0x1p-24f, -190 * 0x1p-24f).scale, 1);
    EXPECT_EQ(only(190 * 0x1p-24f, -190 * 0x1p-24f).codes[0], 127);
    EXPECT_EQ(only(190 * 0x1p-24f, -190 * 0x1p-24f).codes[1], -127);
}

TEST(Q8State, WhatIsNoNumberSpoilsItsBlockAlone) {
    constexpr float kInfinity = std::numeric_limits<float>::infinity(), kMost = std::numeric_limits<float>::max();
    for (const float bad : {NAN, -NAN, kInfinity, -kInfinity, kMost, 127 * 65520.0f})
        for (const uint32_t at : {0u, 15u, 16u, 31u}) {
            std::vector<float> x = random_floats(3 * kCols, 5);
            const Written whole(x, 0);
            x[kCols + 32 + at] = bad;
            const Written w(x, 0);
            for (uint32_t i = 0; i < 3; i++)
                for (uint32_t b = 0; b < kCols / 32; b++) {
                    const Q8Block got = block(w.b, w.op.k_state, i, b), was = block(whole.b, whole.op.k_state, i, b);
                    if (i == 1 && b == 1) {
                        EXPECT_EQ(got.scale, 0x7e00) << bad;
                        for (const int8_t c : got.codes) EXPECT_EQ(c, 0);
                    } else {
                        EXPECT_EQ(std::memcmp(&got, &was, sizeof got), 0);
                    }
                }
        }
    // The largest that has a scale.
    EXPECT_EQ(only(127 * 65504.0f, 1).scale, 0x7bff);
    EXPECT_EQ(only(127 * 65504.0f, 1).codes[0], 127);
}

TEST(Q8State, FusedWriteEqualsItsParts) {
    struct Case {
        uint32_t head_dim, n_rot;
        RopePairs pairs;
    };
    for (const Case &c : {Case{64, 64, RopePairs::halves}, {32, 10, RopePairs::adjacent}, {96, 32, RopePairs::halves}})
        for (const bool norm : {true, false}) {
            const uint32_t m = 35, kv_cols = 2 * c.head_dim;
            Bench b = bench(m, 40);
            const ValueId q = b.value(2 * kv_cols, random_floats(m * 2 * kv_cols, 1));
            const ValueId k = b.value(kv_cols, random_floats(m * kv_cols, 2));
            const ValueId v = b.value(kv_cols, random_floats(m * kv_cols, 3));
            const WeightId k_norm = norm ? b.weight(random_floats(c.head_dim, 5)) : kNone;
            const RopeTable table{.out = b.value(c.n_rot), .frequency = std::vector<double>(c.n_rot / 2, 0.1)};
            run_portable(b, table);
            const auto state = [&] { return b.state(kv_cols, DType::q8_0, 2); };
            QkNormRope fused{.q = q, .k = k, .v = v, .table = table.out, .q_out = b.value(2 * kv_cols)};
            fused.k_norm = k_norm, fused.k_state = state(), fused.v_state = state();
            fused.head_dim = c.head_dim, fused.pairs = c.pairs, fused.eps = 1e-6f;
            expect_same_bits(b, fused);

            ValueId x = k;
            if (norm) {
                const RmsNorm n{k, b.value(kv_cols), k_norm, c.head_dim, 1e-6f};
                run_portable(b, n);
                x = n.out;
            }
            const Rope rope{x, b.value(kv_cols), table.out, c.head_dim, c.pairs};
            run_portable(b, rope);
            const KvWrite write{rope.out, v, state(), state()};
            run_portable(b, write);
            EXPECT_EQ(b.state_bytes(fused.k_state), b.state_bytes(write.k_state));
            EXPECT_EQ(b.state_bytes(fused.v_state), b.state_bytes(write.v_state));
        }
}

}  // namespace
}  // namespace ridge::testing_cpu
