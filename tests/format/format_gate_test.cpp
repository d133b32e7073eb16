// Every decoder passes the gate of the formats, and every planted mutant of it fails there.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <set>

#include "data/golden_blocks.h"
#include "format/decode.h"
#include "measure/gate_format.h"
#include "oracle/decode.h"

namespace ridge {
namespace {

using Blocks = std::vector<std::byte>;

Blocks golden_blocks(Format f) {
    for (const test::GoldenBlocks &g : test::read_golden_blocks()) {
        if (g.ggml_type != static_cast<uint32_t>(f)) continue;
        const auto *first = reinterpret_cast<const std::byte *>(g.bytes.data());
        return Blocks(first, first + g.bytes.size());
    }
    return {};
}

// At least 2000 blocks, and no fewer than 64,000 weights.
size_t random_count(Format f) { return std::max<size_t>(2000, 64'000 / info(f).block); }

TEST(FormatGate, ShapesAreTheOracles) {
    EXPECT_EQ(all_formats().size(), oracle::types().size());
    for (const FormatInfo &format : all_formats()) {
        const uint32_t type = static_cast<uint32_t>(format.id);
        EXPECT_EQ(format.block, oracle::block_weights(type)) << format.name;
        EXPECT_EQ(format.bytes, oracle::block_bytes(type)) << format.name;
        if (format.is_float()) continue;
        // Scale and bias change from group to group, not within one.
        Blocks blocks = random_blocks(format.id, 1, 7);
        auto *block = reinterpret_cast<unsigned char *>(blocks.data());
        oracle::plant_scales(type, block, 0x3c00, 0x3c00);
        std::set<double> scales;
        for (unsigned i = 0; i < format.block; ++i) {
            const oracle::Element e = oracle::element(type, block, i);
            const oracle::Element first = oracle::element(type, block, i / format.group * format.group);
            ASSERT_EQ(e.scale, first.scale) << format.name << " weight " << i;
            ASSERT_EQ(e.bias, first.bias) << format.name << " weight " << i;
            ASSERT_EQ(e.has_bias, format.has_bias) << format.name;
            scales.insert(e.scale);
        }
        EXPECT_EQ(scales.size() > 1, format.block > format.group) << format.name;
    }
}

TEST(FormatGate, EveryDecoderPasses) {
    size_t formats = 0, checked = 0, nbad = 0;
    for (const FormatInfo &format : all_formats()) {
        const GateResult golden = gate_format(decoder(format.id), format.id, golden_blocks(format.id));
        const GateResult random =
            gate_format(decoder(format.id), format.id, random_blocks(format.id, random_count(format.id), 1));
        fmt::print("{:8} golden nbad={}/{}  random nbad={}/{}\n", format.name, golden.nbad, golden.checked, random.nbad,
                   random.checked);
        EXPECT_TRUE(golden.ok()) << golden.first_bad;
        EXPECT_TRUE(random.ok()) << random.first_bad;
        EXPECT_GE(random.checked, 64'000u) << format.name;
        ++formats;
        checked += golden.checked + random.checked;
        nbad += golden.nbad + random.nbad;
    }
    fmt::print("formats={} nbad={}/{}\n", formats, nbad, checked);
    EXPECT_EQ(formats, 25u);
    EXPECT_EQ(nbad, 0u);
}

TEST(FormatGate, DequantizeGivesTheOraclesBits) {
    size_t checked = 0;
    for (const FormatInfo &format : all_formats()) {
        const size_t count = 60, n = count * format.block;
        const Blocks blocks = random_blocks(format.id, count, 2);
        std::vector<float> got(n);
        dequantize(format.id, blocks.data(), got.data(), n);
        for (size_t i = 0; i < n; ++i) {
            const auto *block =
                reinterpret_cast<const unsigned char *>(blocks.data()) + i / format.block * format.bytes;
            const float want =
                oracle::value(static_cast<uint32_t>(format.id), block, static_cast<unsigned>(i % format.block));
            const bool same = (std::isnan(got[i]) && std::isnan(want)) ||
                              std::bit_cast<uint32_t>(got[i]) == std::bit_cast<uint32_t>(want);
            ASSERT_TRUE(same) << format.name << " weight " << i << ": " << got[i] << ", oracle " << want;
            ++checked;
        }
    }
    EXPECT_GT(checked, 0u);
}

TEST(FormatGate, CheckingNothingFails) { EXPECT_FALSE(gate_format(decoder(Format::Q4_K), Format::Q4_K, {}).ok()); }

// The decoder under mutation. Function pointers carry no state, so it stands here.
struct {
    DecodeFns fns;
    const FormatInfo *format;
    const std::byte *first, *end;
} base;

u32 groups() { return base.format->block / base.format->group; }
u32 parts() { return base.format->block / 32; }
const std::byte *next_block(const std::byte *b) {
    const std::byte *next = b + base.format->bytes;
    return next == base.end ? base.first : next;
}

u32 map_codes(u32 codes, int (*change)(int)) {
    u32 out = 0;
    for (u32 lane = 0; lane < 4; ++lane) {
        const int code = static_cast<int8_t>(codes >> (8 * lane) & 255);
        out |= (static_cast<u32>(change(code)) & 255) << (8 * lane);
    }
    return out;
}

// Below the normal numbers of the stored scale: f16, or MXFP4's exponent as f32.
float flushed(float scale) {
    const float smallest =
        base.format->id == Format::MXFP4 || base.format->id == Format::F32 || base.format->id == Format::BF16
            ? 0x1p-126f
            : 0x1p-14f;
    return std::fabs(scale) < smallest ? std::copysign(0.0f, scale) : scale;
}

// A slip that a decoder could have. It replaces functions of `fns`, which start as those of `base`.
struct Mutant {
    const char *name;
    bool (*applies)(const FormatInfo &);
    void (*plant)(DecodeFns &fns);
};

bool always(const FormatInfo &) { return true; }
bool biased(const FormatInfo &f) { return f.has_bias; }
bool unbiased(const FormatInfo &f) { return !f.has_bias; }  // their codes have both signs
bool stores_a_float_scale(const FormatInfo &f) { return f.id != Format::MXFP4; }

const Mutant kBlockMutants[] = {
    {"halves of each 32 exchanged", always,
     [](DecodeFns &f) { f.codes4 = [](const std::byte *b, u32 g, u32 j) { return base.fns.codes4(b, g, j ^ 4); }; }},
    {"neighbours exchanged", always,
     [](DecodeFns &f) {
         f.codes4 = [](const std::byte *b, u32 g, u32 j) {
             const u32 c = base.fns.codes4(b, g, j);
             return (c & 0x00ff00ff) << 8 | (c >> 8 & 0x00ff00ff);
         };
     }},
    {"codes of the next 32", always,
     [](DecodeFns &f) {
         f.codes4 = [](const std::byte *b, u32 g, u32 j) {
             return g + 1 < parts() ? base.fns.codes4(b, g + 1, j) : base.fns.codes4(next_block(b), 0, j);
         };
     }},
    {"code off by one", always,
     [](DecodeFns &f) {
         f.codes4 = [](const std::byte *b, u32 g, u32 j) {
             return map_codes(base.fns.codes4(b, g, j), [](int c) { return c + 1; });
         };
     }},
    {"last code of a block off by one", always,
     [](DecodeFns &f) {
         f.codes4 = [](const std::byte *b, u32 g, u32 j) {
             const u32 c = base.fns.codes4(b, g, j);
             return g + 1 == parts() && j == 7 ? c ^ 0x01000000 : c;
         };
     }},
    {"sign lost", unbiased,
     [](DecodeFns &f) {
         f.codes4 = [](const std::byte *b, u32 g, u32 j) {
             return map_codes(base.fns.codes4(b, g, j), [](int c) { return std::abs(c); });
         };
     }},
    {"scale off by one group", always,
     [](DecodeFns &f) {
         f.scale = [](const std::byte *b, u32 g) {
             return g + 1 < groups() ? base.fns.scale(b, g + 1) : base.fns.scale(next_block(b), 0);
         };
     }},
    {"scale's sign lost", stores_a_float_scale,
     [](DecodeFns &f) { f.scale = [](const std::byte *b, u32 g) { return std::fabs(base.fns.scale(b, g)); }; }},
    {"small scales flushed to zero", always,
     [](DecodeFns &f) { f.scale = [](const std::byte *b, u32 g) { return flushed(base.fns.scale(b, g)); }; }},
    {"infinite scale made finite", stores_a_float_scale,
     [](DecodeFns &f) {
         f.scale = [](const std::byte *b, u32 g) {
             const float s = base.fns.scale(b, g);
             return std::isinf(s) ? std::copysign(65536.0f, s) : s;
         };
     }},
    {"NaN scale made infinite", stores_a_float_scale,
     [](DecodeFns &f) {
         f.scale = [](const std::byte *b, u32 g) {
             const float s = base.fns.scale(b, g);
             return std::isnan(s) ? INFINITY : s;
         };
     }},
    {"bias dropped", biased, [](DecodeFns &f) { f.bias = nullptr; }},
    {"bias zero", biased, [](DecodeFns &f) { f.bias = [](const std::byte *, u32) { return 0.0f; }; }},
    {"bias's sign turned", biased,
     [](DecodeFns &f) { f.bias = [](const std::byte *b, u32 g) { return -base.fns.bias(b, g); }; }},
    {"bias off by one group", biased,
     [](DecodeFns &f) {
         f.bias = [](const std::byte *b, u32 g) {
             return g + 1 < groups() ? base.fns.bias(b, g + 1) : base.fns.bias(next_block(b), 0);
         };
     }},
    {"bias of zero where there is none", unbiased,
     [](DecodeFns &f) { f.bias = [](const std::byte *, u32) { return 0.0f; }; }},
};

u32 value_count() { return static_cast<u32>(static_cast<size_t>(base.end - base.first) / base.format->bytes); }

const Mutant kFloatMutants[] = {
    {"next value", always,
     [](DecodeFns &f) {
         f.value = [](const std::byte *b, u32 i) { return base.fns.value(b, (i + 1) % value_count()); };
     }},
    {"sign lost", always,
     [](DecodeFns &f) { f.value = [](const std::byte *b, u32 i) { return std::fabs(base.fns.value(b, i)); }; }},
    {"exponent off by one", always,
     [](DecodeFns &f) { f.value = [](const std::byte *b, u32 i) { return 2 * base.fns.value(b, i); }; }},
    {"last mantissa bit turned", always,
     [](DecodeFns &f) {
         f.value = [](const std::byte *b, u32 i) {
             return std::bit_cast<float>(std::bit_cast<u32>(base.fns.value(b, i)) ^ 1);
         };
     }},
    {"subnormals flushed to zero", always,
     [](DecodeFns &f) { f.value = [](const std::byte *b, u32 i) { return flushed(base.fns.value(b, i)); }; }},
    {"infinity made finite", always,
     [](DecodeFns &f) {
         f.value = [](const std::byte *b, u32 i) {
             const float v = base.fns.value(b, i);
             return std::isinf(v) ? std::copysign(65536.0f, v) : v;
         };
     }},
    {"NaN made infinite", always,
     [](DecodeFns &f) {
         f.value = [](const std::byte *b, u32 i) {
             const float v = base.fns.value(b, i);
             return std::isnan(v) ? INFINITY : v;
         };
     }},
};

TEST(FormatGate, EveryMutantIsKilled) {
    size_t planted = 0, killed = 0;
    for (const FormatInfo &format : all_formats()) {
        // Fewer blocks than the gate proper: what these find, it finds too.
        Blocks blocks = golden_blocks(format.id);
        const Blocks random = random_blocks(format.id, format.is_float() ? 1000 : 100, 3);
        blocks.insert(blocks.end(), random.begin(), random.end());
        base = {decoder(format.id), &format, blocks.data(), blocks.data() + blocks.size()};
        ASSERT_TRUE(gate_format(base.fns, format.id, blocks).ok()) << format.name << ": the decoder itself fails";

        size_t here = 0;
        for (const Mutant &mutant : format.is_float() ? std::span<const Mutant>(kFloatMutants) : kBlockMutants) {
            if (!mutant.applies(format)) continue;
            DecodeFns fns = base.fns;
            mutant.plant(fns);
            const GateResult result = gate_format(fns, format.id, blocks);
            ++here;
            killed += result.nbad > 0;
            EXPECT_GT(result.nbad, 0u) << format.name << ": mutant survived: " << mutant.name;
        }
        EXPECT_GE(here, 4u) << format.name;
        planted += here;
    }
    fmt::print("mutants planted={} killed={}\n", planted, killed);
    RecordProperty("mutants_planted", static_cast<int>(planted));
    RecordProperty("mutants_killed", static_cast<int>(killed));
    EXPECT_EQ(planted, killed);
}

}  // namespace
}  // namespace ridge
