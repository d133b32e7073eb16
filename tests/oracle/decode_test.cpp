// The oracle's decoders against values that the Python package gguf computed for the same bytes, bit for bit.
#include "oracle/decode.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdio>
#include <limits>
#include <set>

#include "core/error.h"
#include "data/golden_blocks.h"

namespace ridge {
namespace {

bool same_bits(float a, float b) {
    return (std::isnan(a) && std::isnan(b)) || std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

TEST(OracleDecode, GoldenValuesBitForBit) {
    size_t formats = 0, values = 0, nbad = 0;
    for (const test::GoldenBlocks &g : test::read_golden_blocks()) {
        ASSERT_EQ(g.block_weights, oracle::block_weights(g.ggml_type)) << g.name;
        ASSERT_EQ(g.block_bytes, oracle::block_bytes(g.ggml_type)) << g.name;
        ASSERT_GT(g.count, 0u) << g.name;
        ++formats;
        for (size_t n = 0; n < g.values.size(); ++n) {
            const unsigned char *block = g.bytes.data() + n / g.block_weights * g.block_bytes;
            const unsigned i = static_cast<unsigned>(n % g.block_weights);
            const float got = oracle::value(g.ggml_type, block, i);
            ++values;
            if (same_bits(got, g.values[n])) continue;
            if (nbad++ < 20)
                ADD_FAILURE() << g.name << " block " << n / g.block_weights << " weight " << i << ": oracle " << got
                              << ", gguf " << g.values[n];
        }
    }
    fmt::print("golden: formats={} values={} nbad={}\n", formats, values, nbad);
    RecordProperty("values", static_cast<int>(values));
    EXPECT_EQ(formats, oracle::types().size());
    EXPECT_GT(values, 50'000u);
    EXPECT_EQ(nbad, 0u);
}

// The golden blocks must themselves hold what makes them worth comparing.
TEST(OracleDecode, GoldenBlocksHoldExtremes) {
    for (const test::GoldenBlocks &g : test::read_golden_blocks()) {
        size_t zero = 0, nan = 0, infinite = 0, negative = 0, tiny = 0, large = 0;
        const auto count = [&](double v) {
            zero += v == 0;
            nan += std::isnan(v);
            infinite += std::isinf(v);
            negative += v < 0;
            tiny += v != 0 && std::fabs(v) < 0x1p-14;
            large += std::isfinite(v) && std::fabs(v) > 8000;
        };
        for (size_t n = 0; n < g.values.size(); ++n) {
            const oracle::Element e = oracle::element(g.ggml_type, g.bytes.data() + n / g.block_weights * g.block_bytes,
                                                      static_cast<unsigned>(n % g.block_weights));
            count(e.has_bias && n % 2 ? e.bias : e.scale);
        }
        EXPECT_GT(tiny, 0u) << g.name;
        EXPECT_GT(large, 0u) << g.name;
        if (g.name == "MXFP4") continue;  // its scales are powers of two
        EXPECT_GT(zero, 0u) << g.name;
        EXPECT_GT(negative, 0u) << g.name;
        EXPECT_GT(infinite, 0u) << g.name;
        EXPECT_GT(nan, 0u) << g.name;
    }
}

TEST(OracleDecode, CodesFitInt8AndBiasIsWhereItBelongs) {
    const std::set<uint32_t> biased = {3, 7, 10, 12, 13};  // Q4_1 Q5_1 Q2_K Q4_K Q5_K
    size_t checked = 0;
    for (const test::GoldenBlocks &g : test::read_golden_blocks()) {
        for (size_t n = 0; n < g.values.size(); ++n) {
            const oracle::Element e = oracle::element(g.ggml_type, g.bytes.data() + n / g.block_weights * g.block_bytes,
                                                      static_cast<unsigned>(n % g.block_weights));
            ASSERT_GE(e.code, -128) << g.name;
            ASSERT_LE(e.code, 127) << g.name;
            ASSERT_EQ(e.has_bias, biased.contains(g.ggml_type)) << g.name;
            // Exactly an f32, so that every decoder can state it without rounding.
            for (const double x : {e.scale, e.bias})
                ASSERT_TRUE(std::isnan(x) || x == static_cast<double>(static_cast<float>(x))) << g.name << " " << x;
            ++checked;
        }
    }
    EXPECT_GT(checked, 0u);
}

TEST(OracleDecode, ByHand) {
    // Q4_0: d = 1.5 (0x3e00), low nibble of byte 0 is 3, high nibble 15.
    unsigned char q4_0[18] = {0x00, 0x3e, 0xf3};
    EXPECT_EQ(oracle::value(2, q4_0, 0), 1.5f * (3 - 8));
    EXPECT_EQ(oracle::value(2, q4_0, 16), 1.5f * (15 - 8));
    EXPECT_EQ(oracle::value(2, q4_0, 1), 1.5f * -8);

    // Q4_1: d = 2 (0x4000), m = -1 (0xbc00).
    unsigned char q4_1[20] = {0x00, 0x40, 0x00, 0xbc, 0x07};
    const oracle::Element e = oracle::element(3, q4_1, 0);
    EXPECT_EQ(e.scale, 2);
    EXPECT_EQ(e.code, 7);
    EXPECT_EQ(e.bias, -1);
    EXPECT_TRUE(e.has_bias);
    EXPECT_EQ(oracle::value(3, q4_1, 0), 13);

    // BF16 0xc040 is -3; F16 0x0001 is 2^-24; F32.
    const unsigned char bf16[2] = {0x40, 0xc0}, f16[2] = {0x01, 0x00}, f32[4] = {0x00, 0x00, 0x20, 0x41};
    EXPECT_EQ(oracle::value(30, bf16, 0), -3);
    EXPECT_EQ(oracle::value(1, f16, 0), 0x1p-24f);
    EXPECT_EQ(oracle::value(0, f32, 0), 10);

    // MXFP4: e = 128 scales by 2; nibble 0xb is -1.5, nibble 0x7 is 6.
    unsigned char mxfp4[17] = {128, 0x7b};
    EXPECT_EQ(oracle::value(39, mxfp4, 0), -3);
    EXPECT_EQ(oracle::value(39, mxfp4, 16), 12);
}

TEST(OracleDecode, DecodeIsElementAfterElement) {
    for (const test::GoldenBlocks &g : test::read_golden_blocks()) {
        const std::vector<double> all = oracle::decode(g.ggml_type, g.bytes.data(), g.values.size());
        ASSERT_EQ(all.size(), g.values.size());
        for (size_t n = 0; n < all.size(); ++n)
            ASSERT_TRUE(same_bits(static_cast<float>(all[n]), g.values[n])) << g.name << " weight " << n;
    }
}

TEST(OracleDecode, PlantedScalesAreTheScales) {
    for (const uint32_t type : oracle::types()) {
        std::vector<unsigned char> block(oracle::block_bytes(type), 0x5a);
        oracle::plant_scales(type, block.data(), 0, 0);
        const oracle::Element zero = oracle::element(type, block.data(), 0);
        if (type == 39)
            EXPECT_EQ(zero.scale, 0x1p-128);
        else if (type == 0)
            EXPECT_LT(std::fabs(zero.scale), std::numeric_limits<float>::min());
        else
            EXPECT_EQ(zero.scale, 0) << type;
        EXPECT_EQ(zero.bias, 0) << type;
        if (type == 39) continue;
        oracle::plant_scales(type, block.data(), 0x7fff, 0x7fff);
        EXPECT_TRUE(std::isnan(oracle::element(type, block.data(), 0).scale)) << type;
    }
}

TEST(OracleDecode, UnknownTypeIsAnError) {
    const unsigned char byte = 0;
    EXPECT_THROW(oracle::element(9, &byte, 0), Error);
    EXPECT_THROW(oracle::block_bytes(1000), Error);
}

}  // namespace
}  // namespace ridge
