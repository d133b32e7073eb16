// The helpers of dialect.h against the plainest way to say the same, over all or very many inputs.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "format/dialect.h"

namespace ridge::dialect {
namespace {

u32 byte_of(u32 w, int k) { return (w >> (8 * k)) & 255u; }

TEST(Helpers, F16IsExact) {
    for (u32 h = 0; h < 0x10000; ++h) {
        const int e = static_cast<int>((h >> 10) & 31u), m = static_cast<int>(h & 1023u);
        float expected =
            e == 0 ? std::ldexp(static_cast<float>(m), -24) : std::ldexp(static_cast<float>(1024 + m), e - 25);
        if (e == 31) expected = std::numeric_limits<float>::infinity();
        if (h & 0x8000u) expected = -expected;
        if (e == 31 && m != 0)
            EXPECT_TRUE(std::isnan(f16_f32(h))) << h;
        else
            EXPECT_EQ(f32_bits(f16_f32(h)), f32_bits(expected)) << h;
    }
}

TEST(Helpers, Signed8) {
    for (u32 x = 0; x < 256; ++x) EXPECT_EQ(signed8(x), static_cast<int8_t>(x));
}

TEST(Helpers, Signs8MakesTheNumberOfSignsEven) {
    for (u32 v = 0; v < 128; ++v) {
        EXPECT_EQ(signs8(v) & 127u, v);
        EXPECT_EQ(std::popcount(signs8(v)) % 2, 0) << v;
        EXPECT_LT(signs8(v), 256u);
    }
}

TEST(Helpers, Minus4StaysInItsLanes) {
    std::mt19937 random(1);
    for (int n = 0; n < 100000; ++n) {
        const u32 a = random() & 0x7f7f7f7fu;
        for (u32 k : {0u, 1u, 4u, 7u, 9u, 16u, 32u, 127u, 128u}) {
            const u32 r = minus4(a, k * 0x01010101u);
            for (int lane = 0; lane < 4; ++lane)
                ASSERT_EQ(byte_of(r, lane), (byte_of(a, lane) - k) & 255u) << a << " - " << k;
        }
    }
}

TEST(Helpers, Negate4NegatesWhatIsSigned) {
    std::mt19937 random(2);
    for (int n = 0; n < 100000; ++n) {
        u32 w = 0;
        for (int lane = 0; lane < 4; ++lane) w |= (1 + random() % 127) << (8 * lane);
        const u32 signs = random();  // bits above the fourth are not looked at
        for (int lane = 0; lane < 4; ++lane) {
            const int magnitude = static_cast<int>(byte_of(w, lane));
            ASSERT_EQ(signed8(byte_of(negate4(w, signs), lane)), (signs >> lane) & 1u ? -magnitude : magnitude);
        }
    }
}

TEST(Helpers, Spread4) {
    for (u32 x = 0; x < 256; ++x)
        for (int lane = 0; lane < 4; ++lane) EXPECT_EQ(byte_of(spread4(x), lane), (x >> lane) & 1u);
}

TEST(Helpers, Codebook4PicksFromSixteen) {
    u32 t[4];
    std::mt19937 random(3);
    for (u32 &w : t) w = random();
    for (u32 n = 0; n < 0x10000; ++n) {
        // Four nibbles, each with something above it that must not matter.
        const u32 q =
            (n & 15u) | ((n >> 4) & 15u) << 8 | ((n >> 8) & 15u) << 16 | (n >> 12) << 24 | (random() & 0xf0f0f0f0u);
        const u32 r = codebook4(t[0], t[1], t[2], t[3], q);
        for (int lane = 0; lane < 4; ++lane) {
            const u32 i = byte_of(q, lane) & 15u;
            ASSERT_EQ(byte_of(r, lane), byte_of(t[i / 4], static_cast<int>(i % 4))) << q;
        }
    }
}

}  // namespace
}  // namespace ridge::dialect
