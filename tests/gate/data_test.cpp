// What the gate tests with, and how much its bounds allow.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "measure/gate_state.h"
#include "op/bound.h"

namespace ridge::gate {
namespace {

TEST(GateData, EveryF16ReturnsAndTiesGoToEven) {
    for (uint32_t p = 0; p < 65536; p++) {
        const auto pattern = static_cast<uint16_t>(p);
        const double x = from_f16(pattern);
        if (std::isnan(x)) continue;
        ASSERT_EQ(to_f16(x), pattern);
        if (p % 0x8000 >= 0x7bff) continue;
        const double next = from_f16(static_cast<uint16_t>(p + 1)), half = (x + next) / 2;
        ASSERT_EQ(to_f16(half), p % 2 == 0 ? p : p + 1);
        ASSERT_EQ(to_f16(std::nextafter(half, x)), p);
        ASSERT_EQ(to_f16(std::nextafter(half, next)), p + 1);
    }
    EXPECT_EQ(to_f16(65519.99), 0x7bff);
    EXPECT_EQ(to_f16(65520), 0x7c00);
}

TEST(GateData, WeightsHaveTheSizeOfARealModelsAndExtremeRows) {
    for (const FormatInfo &f : all_formats()) {
        Random random(1);
        Weight w{"w", f.id, 10, 512, 1, nullptr};
        const Bytes bytes = random_weight(random, w);
        w.data = bytes.data();
        const DecodedWeight d = decode(w);
        double squares = 0;
        for (size_t i = 0; i < d.value.size(); i++) {
            ASSERT_TRUE(std::isfinite(d.value[i])) << f.name;
            if (i / w.k % 5 != 4) squares += d.value[i] * d.value[i];
        }
        const double deviation = std::sqrt(squares / (8.0 * w.k)) * std::sqrt(w.k);
        EXPECT_GT(deviation, 0.4) << f.name;
        EXPECT_LT(deviation, 2.5) << f.name;
    }
}

TEST(GateData, Q8IsLaidOutAsTheEngineHasIt) {
    constexpr size_t kRows = 3, kCols = 64;
    Random random(3);
    const Reals x = activations(random, kRows, kCols), q = quantize(kRows, kCols, x);
    std::vector<std::byte> bytes = pack(DType::q8, kCols, kRows, q);
    EXPECT_EQ(unpack(DType::q8, kCols, kRows, bytes), q);
    const Q8View view(bytes.data(), kRows, kCols);
    for (size_t i = 0; i < kRows * kCols; i++) {
        const double scale = view.scale[i / 32];
        ASSERT_LE(std::fabs(x[i] - scale * view.codes[i]), 0.5001 * scale);
        if (i % 16 != 0) continue;
        int sum = 0;
        for (size_t j = i; j < i + 16; j++) sum += view.codes[j];
        ASSERT_EQ(view.sums[i / 16], sum);
    }
}

TEST(GateState, Q80IsLaidOutAsTheEngineHasIt) {
    constexpr size_t kRows = 6;
    constexpr uint32_t kCols = 96;
    Random random(3);
    const Reals x = activations(random, kRows, kCols), numbers = to_state(DType::q8_0, kRows, kCols, x);
    ASSERT_EQ(numbers.size(), kRows * (kCols + 3));
    const std::vector<std::byte> bytes = pack(DType::q8_0, kCols, kRows, numbers);
    ASSERT_EQ(bytes.size(), kRows * 3 * sizeof(Q8Block));
    EXPECT_EQ(unpack(DType::q8_0, kCols, kRows, bytes), numbers);
    const auto *blocks = reinterpret_cast<const Q8Block *>(bytes.data());
    const Reals seen = from_state(DType::q8_0, kRows, kCols, numbers);
    for (size_t i = 0; i < x.size(); i++) {
        const double scale = from_f16(blocks[i / 32].scale);
        ASSERT_EQ(seen[i], scale * blocks[i / 32].codes[i % 32]);
        ASSERT_LE(std::fabs(x[i] - seen[i]), 0.5001 * scale + 127 * 0x1p-25);
    }
    // What was stored is stored again as it is.
    EXPECT_EQ(to_state(DType::q8_0, kRows, kCols, seen), numbers);
    Reals spoilt(32, 1.0);
    spoilt[7] = INFINITY;
    const Reals nan = to_state(DType::q8_0, 1, 32, spoilt);
    EXPECT_TRUE(std::isnan(nan[32]));
    EXPECT_EQ(nan[0], 0);
}

// Whatever values within the error are stored, the bound holds them; where there is none they are exact.
TEST(GateState, BoundsHoldWhatValuesWithinTheErrorBecome) {
    constexpr uint32_t kCols = 64;
    constexpr size_t kRows = 200;
    Random random(5);
    size_t exact = 0;
    for (const DType type : {DType::f32, DType::f16, DType::q8_0}) {
        Reals x = normals(random, kRows * kCols), error(x.size());
        for (size_t r = 0; r < kRows; r++)
            for (size_t i = r * kCols; i < (r + 1) * kCols; i++) {
                x[i] = std::ldexp(x[i], -static_cast<int>(r % 20));
                error[i] = r % 3 == 0 ? 0 : std::fabs(x[i]) * (r % 3 == 1 ? 1e-6 : 1e-2) + 0x1p-26;
            }
        const StoredNumbers s = stored(type, kRows, kCols, x, error);
        for (int trial = 0; trial < 20; trial++) {
            Reals near = x;
            for (size_t i = 0; i < x.size(); i++) {
                const double share = trial == 0 ? -1 : 2 * random.uniform() - 1;
                const double v = static_cast<float>(x[i] + error[i] * share);
                if (std::fabs(v - x[i]) <= error[i]) near[i] = v;
            }
            const Reals got = to_state(type, kRows, kCols, near);
            for (size_t i = 0; i < got.size(); i++) {
                ASSERT_LE(std::fabs(got[i] - s.want[i]), s.bound[i]) << name(type) << " " << i;
                exact += trial == 0 && s.bound[i] == 0;
            }
        }
    }
    EXPECT_GT(exact, 3 * kRows * kCols / 3);
}

TEST(GateData, EveryCharacterIsThere) {
    Random random(4);
    const Reals x = activations(random, 6, 128);
    auto count = [&](size_t row, auto &&is) {
        return std::count_if(x.begin() + static_cast<std::ptrdiff_t>(row * 128),
                             x.begin() + static_cast<std::ptrdiff_t>(row * 128 + 128), is);
    };
    EXPECT_EQ(count(0, [](double v) { return v == 0; }), 0);
    EXPECT_GE(count(1, [](double v) { return std::fabs(v) > 100; }), 1);
    EXPECT_EQ(count(2, [](double v) { return v == 0; }), 64);
    EXPECT_GE(count(3, [](double v) { return v != 0 && std::fabs(v) < 0x1p-126; }), 60);
    EXPECT_EQ(count(4, [](double v) { return v == 1; }), 1);
    EXPECT_GE(count(5, [](double v) { return v == 0 && std::signbit(v); }), 64);
}

// A bound that allowed much more than these would let real mistakes through.
TEST(Bound, IsSmallWhereNothingIsExtreme) {
    EXPECT_LT(bound::contract_f32(Order::f32_lanes16, 1024, 1, false), 68.01 * bound::kU);
    EXPECT_LT(bound::contract_int8(Order::int8_sequential, 32, 1, 1e6, true), 34.01 * bound::kU);
    EXPECT_LT(bound::rmsnorm(Order::f32_lanes16, 576, 1, 1), 25.01 * bound::kU);
    EXPECT_LT(bound::softmax(Order::f32_lanes16, 128, 1, 5, 10), 50 * bound::kU);
    EXPECT_LT(bound::attention(Order::softmax_blocks64, {64, 300, 3, 1, 3}, 0.1), 5e-5);
    EXPECT_LT(bound::attention(Order::softmax_blocks64, {64, 300, 3, 1, 3, 2, 1.5}, 0.1), 6e-5);
    EXPECT_LT(bound::glu(GluKind::silu, 1, 1, 0.73), 8 * bound::kU);
    EXPECT_LT(bound::glu(GluKind::clamped, 1, 1, 1.69), 9 * bound::kU * 1.69);
    EXPECT_LT(bound::glu(GluKind::gelu, 1, 1, 0.84), 11 * bound::kU * 0.84);
    EXPECT_LT(bound::glu(GluKind::gelu, -4, 1, 2e-4), 90 * bound::kU * 2e-4);
    EXPECT_LT(bound::row_gate(1, 0.73), 6.01 * bound::kU);
    EXPECT_LT(bound::softcap(30), 9.01 * bound::kU * 30);
    EXPECT_EQ(bound::gamma(0), 0);
}

}  // namespace
}  // namespace ridge::gate
