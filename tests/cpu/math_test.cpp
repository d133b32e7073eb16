// exp, silu and f16 of math.h against double. The vector forms are compared with these in ops_test.cpp.
#include "backend/cpu/math.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

namespace ridge::cpu {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// Size of the last bit of the f32 nearest to x.
double ulp(double x) {
    int exponent = 0;
    std::frexp(x, &exponent);
    return std::ldexp(1.0, std::max(exponent - 24, -149));
}

TEST(Exp, WithinOneUlpOverTheWholeRange) {
    double worst = 0;
    uint64_t checked = 0;
    for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 1009) {
        const float x = std::bit_cast<float>(static_cast<uint32_t>(bits));
        const float y = exp_(x);
        if (std::isnan(x)) {
            ASSERT_TRUE(std::isnan(y));
            continue;
        }
        const double want = std::exp(static_cast<double>(x));
        if (std::isinf(static_cast<float>(want))) {
            ASSERT_TRUE(y == kInf || y == std::numeric_limits<float>::max()) << x;
            continue;
        }
        ASSERT_TRUE(std::isfinite(y)) << x;
        worst = std::max(worst, std::fabs(y - want) / ulp(want));
        checked++;
    }
    EXPECT_GT(checked, 2'000'000u);
    EXPECT_LE(worst, 1.0);
}

TEST(Exp, Limits) {
    EXPECT_EQ(exp_(0.0f), 1.0f);
    EXPECT_EQ(exp_(-0.0f), 1.0f);
    EXPECT_EQ(exp_(kInf), kInf);
    EXPECT_EQ(exp_(89.0f), kInf);
    EXPECT_EQ(exp_(-kInf), 0.0f);
    EXPECT_FALSE(std::signbit(exp_(-kInf)));
    EXPECT_EQ(exp_(-104.0f), 0.0f);
    EXPECT_EQ(exp_(-103.0f), std::numeric_limits<float>::denorm_min());  // 2^-148.6, nothing is flushed
    EXPECT_TRUE(std::isnan(exp_(std::numeric_limits<float>::quiet_NaN())));
}

TEST(Silu, AgainstDouble) {
    for (float x = -100; x <= 100; x += 0.037f) {
        const double want = x / (1 + std::exp(-static_cast<double>(x)));
        // exp is within an ulp, the sum and the quotient round once each.
        if (std::fabs(want) > 1e-36) {
            EXPECT_NEAR(silu(x), want, 2.5 * ulp(want)) << x;
        }
    }
    EXPECT_EQ(silu(-200.0f), 0.0f);
    EXPECT_EQ(silu(kInf), kInf);
    EXPECT_EQ(silu(0.0f), 0.0f);
}

// The f16 with these bits, as the standard defines it.
double f16_value(uint32_t h) {
    const int exponent = static_cast<int>(h >> 10 & 31), mantissa = static_cast<int>(h & 1023);
    const double magnitude = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
    return (h & 0x8000) != 0 ? -magnitude : magnitude;
}

TEST(F16, AllValuesBothWays) {
    for (uint32_t h = 0; h < 65536; h++) {
        const float x = f16_to_f32(static_cast<uint16_t>(h));
        if ((h >> 10 & 31) == 31) {
            EXPECT_TRUE((h & 1023) == 0 ? std::isinf(x) : std::isnan(x));
        } else {
            EXPECT_EQ(x, f16_value(h));
        }
        if (!std::isnan(x)) {
            EXPECT_EQ(f32_to_f16(x), h);
        }
    }
}

TEST(F16, RoundsToNearestEven) {
    for (uint32_t h = 0; h < 0x7bff; h++) {
        const double low = f16_value(h), high = f16_value(h + 1);
        const auto middle = static_cast<float>((low + high) / 2);  // exact
        EXPECT_EQ(f32_to_f16(middle), (h & 1) == 0 ? h : h + 1);
        EXPECT_EQ(f32_to_f16(std::nextafter(middle, 0.0f)), h);
        EXPECT_EQ(f32_to_f16(std::nextafter(middle, kInf)), h + 1);
        EXPECT_EQ(f32_to_f16(-middle), 0x8000 | ((h & 1) == 0 ? h : h + 1));
    }
    EXPECT_EQ(f32_to_f16(65519.0f), 0x7bff);
    EXPECT_EQ(f32_to_f16(65520.0f), 0x7c00);
    EXPECT_EQ(f32_to_f16(1e30f), 0x7c00);
    EXPECT_EQ(f32_to_f16(-kInf), 0xfc00);
    EXPECT_EQ(f32_to_f16(std::numeric_limits<float>::quiet_NaN()) & 0x7e00, 0x7e00);
}

}  // namespace
}  // namespace ridge::cpu
