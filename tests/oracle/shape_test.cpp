// What the oracle reads from the metadata of a file, for keys and defaults of every architecture.
#include "oracle/shape.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <string>

#include "model/tiny_file.h"
#include "oracle/forward.h"
#include "support/errors.h"

namespace ridge::oracle {
namespace {

using ridge::test::error_of;
using ridge::test::TempFile;

// A file of keys: 8 layers of width 64, 4 heads of 16 elements, and an embedding table of 3 tokens.
struct Keys {
    std::string arch = "llama";
    std::map<std::string, uint32_t> counts = {};
    std::map<std::string, float> reals = {};
    std::map<std::string, std::string> texts = {};
    std::vector<int32_t> pattern = {};
    std::map<std::string, std::vector<float>> vectors = {};  // tensors
};

class ShapeFile {
  public:
    explicit ShapeFile(const Keys &keys) : temp_("shape.gguf") {
        gguf::Writer w;
        w.add_string("general.architecture", keys.arch);
        std::map<std::string, uint32_t> counts = {
            {"block_count", 8}, {"embedding_length", 64}, {"attention.head_count", 4}, {"context_length", 4096}};
        for (const auto &[key, value] : keys.counts) counts[key] = value;
        for (const auto &[key, value] : counts) w.add_u32(keys.arch + "." + key, value);
        w.add_f32(keys.arch + ".attention.layer_norm_rms_epsilon", 0.5F);
        for (const auto &[key, value] : keys.reals) w.add_f32(keys.arch + "." + key, value);
        for (const auto &[key, value] : keys.texts) w.add_string(keys.arch + "." + key, value);
        if (!keys.pattern.empty()) w.add_i32s(keys.arch + ".attention.sliding_window_pattern", keys.pattern);
        std::vector<std::vector<float>> data = {std::vector<float>(64 * 3)};
        w.add_tensor("token_embd.weight", Format::F32, std::vector<uint64_t>{64, 3});
        for (const auto &[name, values] : keys.vectors) {
            w.add_tensor(name, Format::F32, std::vector<uint64_t>{values.size()});
            data.push_back(values);
        }
        w.write(temp_.path(), [&](size_t index, uint64_t offset, std::span<std::byte> out) {
            std::memcpy(out.data(), reinterpret_cast<const char *>(data[index].data()) + offset, out.size());
        });
    }
    gguf::File open() const { return gguf::File::open(temp_.path()); }

  private:
    TempFile temp_;
};

Shape shape_of(const Keys &keys) { return read_shape(ShapeFile(keys).open()); }

Turns turns_of(const Keys &keys, bool local = false, size_t context = 1) {
    const ShapeFile file(keys);
    const gguf::File f = file.open();
    Weights weights(f);
    return layer_turns(read_shape(f), weights, local, context);
}

void expect_ratio(const Reals &got, const Reals &plain, const Reals &ratio) {
    ASSERT_EQ(got.size(), ratio.size());
    for (size_t i = 0; i < got.size(); i++) EXPECT_NEAR(got[i] / plain[i], ratio[i], 1e-7) << "pair " << i;
}

TEST(OracleShape, PlainModel) {
    const Shape s = shape_of({});
    EXPECT_EQ(s.layers, 8u);
    EXPECT_EQ(s.width, 64u);
    EXPECT_EQ(s.heads, 4u);
    EXPECT_EQ(s.kv_heads, 4u);
    EXPECT_EQ(s.head_dim, 16u);
    EXPECT_EQ(s.rotated, 16u);
    EXPECT_EQ(s.vocab, 3u);
    EXPECT_EQ(s.experts, 0u);
    EXPECT_EQ(s.eps, 0.5);
    EXPECT_EQ(s.arch.pairs, RopePairs::adjacent);
    EXPECT_EQ(s.local, std::vector<bool>(8, false));
    for (const double x : {s.embedding_scale, s.residual_scale, s.logit_divisor, s.factor, s.magnitude})
        EXPECT_EQ(x, 1);
    for (const double x : {s.attention_scale, s.score_cap, s.logit_cap, s.temperature_slope}) EXPECT_EQ(x, 0);
    EXPECT_EQ(s.temperature(100000), 1);
    const Turns t = turns_of({});
    EXPECT_EQ(t.frequencies, rope_frequencies(16, 10000));
    EXPECT_EQ(t.magnitude, 1);
}

TEST(OracleShape, UnknownArchitecture) {
    const std::string text = error_of(ErrorKind::unsupported, [] { shape_of({.arch = "mamba\x1b"}); });
    EXPECT_NE(text.find("mamba"), std::string::npos) << text;
    EXPECT_EQ(text.find('\x1b'), std::string::npos) << text;
}

TEST(OracleShape, HeadsAndExpertsThatCannotBe) {
    error_of(ErrorKind::file, [] { shape_of({.counts = {{"attention.head_count", 0}}}); });
    error_of(ErrorKind::file, [] { shape_of({.counts = {{"attention.head_count_kv", 3}}}); });
    error_of(ErrorKind::file, [] { shape_of({.counts = {{"rope.dimension_count", 15}}}); });
    error_of(ErrorKind::file, [] { shape_of({.counts = {{"rope.dimension_count", 18}}}); });
    error_of(ErrorKind::file, [] { shape_of({.counts = {{"expert_count", 2}, {"expert_used_count", 3}}}); });
}

// The layers with a window, as a string of flags.
std::string locals(const Keys &keys) {
    std::string flags;
    for (const bool local : shape_of(keys).local) flags += local ? '1' : '0';
    return flags;
}

TEST(OracleShape, LayersWithAWindow) {
    const std::map<std::string, uint32_t> window = {{"attention.sliding_window", 5}};
    EXPECT_EQ(locals({.arch = "llama", .counts = window}), "11111111");
    EXPECT_EQ(locals({.arch = "phi3", .counts = window}), "11111111");
    EXPECT_EQ(locals({.arch = "gemma2", .counts = window}), "10101010");
    EXPECT_EQ(locals({.arch = "gpt-oss", .counts = window}), "10101010");
    EXPECT_EQ(locals({.arch = "gemma3", .counts = window}), "11111011");
    EXPECT_EQ(locals({.arch = "olmo2", .counts = window}), "11101110");
    EXPECT_EQ(locals({.arch = "gemma2"}), "10101010");  // of 4096, also where a file does not say so
    EXPECT_EQ(locals({.arch = "phi3"}), "00000000");
    EXPECT_EQ(locals({.arch = "phi3", .counts = {{"attention.sliding_window", 0}}}), "00000000");

    std::map<std::string, uint32_t> period = window;
    period["attention.sliding_window_pattern"] = 3;
    EXPECT_EQ(locals({.arch = "gemma3", .counts = period}), "11011011");
    period["attention.sliding_window_pattern"] = 1;
    EXPECT_EQ(locals({.arch = "gemma3", .counts = period}), "00000000");
    EXPECT_EQ(locals({.arch = "olmo2", .counts = window, .pattern = {0, 1, 1, 0, 0, 0, 1, 0}}), "01100010");
    const std::string text = error_of(ErrorKind::file, [&] {
        shape_of({.arch = "olmo2", .counts = window, .pattern = {0, 1, 1}});
    });
    EXPECT_NE(text.find("olmo2.attention.sliding_window_pattern"), std::string::npos) << text;
}

TEST(OracleShape, ScalesOfScores) {
    EXPECT_EQ(shape_of({.arch = "gemma3"}).attention_scale, 0);
    // One model of each family divides by the root of width / heads, whatever the size of a head.
    const std::map<std::string, uint32_t> gemma2_27b = {{"block_count", 46}, {"attention.key_length", 32}};
    EXPECT_EQ(shape_of({.arch = "gemma2", .counts = gemma2_27b}).attention_scale, 0.25);
    EXPECT_EQ(shape_of({.arch = "gemma3", .counts = gemma2_27b}).attention_scale, 0);
    EXPECT_EQ(shape_of({.arch = "gemma3", .counts = {{"block_count", 62}}}).attention_scale, 0.25);
    EXPECT_EQ(shape_of({.arch = "llama", .counts = {{"block_count", 62}}}).attention_scale, 0);
    EXPECT_EQ(shape_of({.arch = "gemma2", .counts = gemma2_27b, .reals = {{"attention.scale", 0.5F}}}).attention_scale,
              0.5);
    const Shape granite = shape_of(
        {.arch = "granite",
         .reals = {
             {"attention.scale", 0.125F}, {"embedding_scale", 12}, {"residual_scale", 0.25F}, {"logit_scale", 8}}});
    EXPECT_EQ(granite.attention_scale, 0.125);
    EXPECT_EQ(granite.embedding_scale, 12);
    EXPECT_EQ(granite.residual_scale, 0.25);
    EXPECT_EQ(granite.logit_divisor, 8);
    EXPECT_EQ(shape_of({.arch = "gemma3"}).embedding_scale, 8);
    const Shape gemma2 =
        shape_of({.arch = "gemma2", .reals = {{"attn_logit_softcapping", 50}, {"final_logit_softcapping", 30}}});
    EXPECT_EQ(gemma2.score_cap, 50);
    EXPECT_EQ(gemma2.logit_cap, 30);
}

TEST(OracleShape, LinearRope) {
    const Reals plain = rope_frequencies(16, 10000);
    const Reals quarter(8, 0.25), one(8, 1.0);
    const std::map<std::string, float> factor = {{"rope.scaling.factor", 4}};
    expect_ratio(turns_of({.reals = factor}).frequencies, plain, quarter);
    expect_ratio(turns_of({.reals = factor, .texts = {{"rope.scaling.type", "linear"}}}).frequencies, plain, quarter);
    expect_ratio(turns_of({.reals = factor, .texts = {{"rope.scaling.type", "none"}}}).frequencies, plain, one);
    expect_ratio(turns_of({.reals = {{"rope.scale_linear", 4}}}).frequencies, plain, quarter);
    expect_ratio(turns_of({.reals = {{"rope.scaling.factor", 4}, {"rope.scale_linear", 2}}}).frequencies, plain,
                 quarter);
    expect_ratio(turns_of({.reals = {{"rope.scaling.factor", 0}}}).frequencies, plain, one);
    const std::string text = error_of(ErrorKind::unsupported, [] {
        shape_of({.texts = {{"rope.scaling.type", "ntk"}}});
    });
    EXPECT_NE(text.find("llama.rope.scaling.type 'ntk'"), std::string::npos) << text;
}

TEST(OracleShape, RopeOfLayersWithAWindow) {
    const std::map<std::string, float> keys = {{"rope.freq_base", 1e6F}, {"rope.scaling.factor", 8}};
    const auto check = [&](const char *arch, double base, double ratio) {
        Keys k{.arch = arch, .counts = {{"attention.sliding_window", 5}}, .reals = keys};
        expect_ratio(turns_of(k, true).frequencies, rope_frequencies(16, base), Reals(8, ratio));
        expect_ratio(turns_of(k, false).frequencies, rope_frequencies(16, 1e6), Reals(8, 0.125));
        k.reals["rope.freq_base_swa"] = 500;
        expect_ratio(turns_of(k, true).frequencies, rope_frequencies(16, 500), Reals(8, ratio));
        expect_ratio(turns_of(k, false).frequencies, rope_frequencies(16, 1e6), Reals(8, 0.125));
    };
    check("gemma3", 10000, 1);
    check("olmo2", 1e6, 1);
    check("gemma2", 1e6, 0.125);
    check("gpt-oss", 1e6, 0.125);
}

TEST(OracleShape, DivisorsOfFrequencies) {
    const std::vector<float> divisors = {1, 2, 3, 4, 5, 6, 7, 8};
    Keys k{.counts = {{"attention.sliding_window", 5}}, .vectors = {{"rope_freqs.weight", divisors}}};
    const Reals want = {1, 1 / 2.0, 1 / 3.0, 1 / 4.0, 1 / 5.0, 1 / 6.0, 1 / 7.0, 1 / 8.0};
    expect_ratio(turns_of(k).frequencies, rope_frequencies(16, 10000), want);
    expect_ratio(turns_of(k, true).frequencies, rope_frequencies(16, 10000), want);
    k.arch = "gemma3";
    expect_ratio(turns_of(k, true).frequencies, rope_frequencies(16, 10000), Reals(8, 1.0));
    k.vectors["rope_freqs.weight"].pop_back();
    error_of(ErrorKind::file, [&] { turns_of(k); });
}

TEST(OracleShape, YarnRope) {
    Keys k{.counts = {{"rope.scaling.original_context_length", 512}},
           .reals = {{"rope.scaling.factor", 10}},
           .texts = {{"rope.scaling.type", "yarn"}}};
    Yarn yarn{.factor = 10, .original_context = 512};
    const Reals plain = rope_frequencies(16, 10000);
    EXPECT_EQ(turns_of(k).frequencies, yarn_frequencies(yarn, plain));
    EXPECT_NEAR(turns_of(k).magnitude, 1.2302585092994046, 1e-14);
    k.reals["rope.scaling.yarn_log_multiplier"] = 1;
    EXPECT_NEAR(turns_of(k).magnitude, 1, 1e-14);
    k.reals["rope.scaling.yarn_attn_factor"] = 1.5F;
    EXPECT_EQ(turns_of(k).magnitude, 1.5);
    k.reals["rope.scaling.yarn_beta_fast"] = 8, k.reals["rope.scaling.yarn_beta_slow"] = 2;
    yarn.beta_fast = 8, yarn.beta_slow = 2;
    EXPECT_EQ(turns_of(k).frequencies, yarn_frequencies(yarn, plain));
    // The ramp of gpt-oss is not rounded to whole pairs.
    k.arch = "gpt-oss", yarn.whole_pairs = false;
    EXPECT_EQ(turns_of(k).frequencies, yarn_frequencies(yarn, plain));
    yarn.whole_pairs = true;
    EXPECT_NE(turns_of(k).frequencies, yarn_frequencies(yarn, plain));
    // Without its key the original context is the model's.
    k.arch = "llama", k.counts = {}, yarn.original_context = 4096;
    EXPECT_EQ(turns_of(k).frequencies, yarn_frequencies(yarn, plain));
}

TEST(OracleShape, LongRope) {
    Keys k{.arch = "phi3",
           .counts = {{"rope.scaling.original_context_length", 256}, {"context_length", 1024}},
           .vectors = {{"rope_factors_short.weight", std::vector<float>(8, 2)},
                       {"rope_factors_long.weight", std::vector<float>(8, 5)}}};
    const Reals plain = rope_frequencies(16, 10000);
    expect_ratio(turns_of(k, false, 256).frequencies, plain, Reals(8, 1 / 2.0));
    expect_ratio(turns_of(k, false, 257).frequencies, plain, Reals(8, 1 / 5.0));
    EXPECT_NEAR(turns_of(k).magnitude, std::sqrt(1.25), 1e-14);
    k.reals["rope.scaling.attn_factor"] = 1.75F;
    EXPECT_EQ(turns_of(k).magnitude, 1.75);
    k.texts["rope.scaling.type"] = "longrope";
    expect_ratio(turns_of(k, false, 257).frequencies, plain, Reals(8, 1 / 5.0));
    k.vectors.erase("rope_factors_short.weight");
    const std::string text = error_of(ErrorKind::file, [&] { turns_of(k); });
    EXPECT_NE(text.find("rope_factors_short.weight"), std::string::npos) << text;
}

TEST(OracleShape, TemperatureStepsWithTheContext) {
    const Shape s = shape_of({.arch = "mistral3",
                              .counts = {{"rope.scaling.original_context_length", 16}},
                              .reals = {{"attention.temperature_scale", 0.5F}}});
    EXPECT_EQ(s.temperature(0), 1);
    EXPECT_EQ(s.temperature(15), 1);
    EXPECT_NEAR(s.temperature(16), 1 + 0.5 * std::log(2.0), 1e-14);
    EXPECT_NEAR(s.temperature(47), 1 + 0.5 * std::log(3.0), 1e-14);
}

}  // namespace
}  // namespace ridge::oracle
