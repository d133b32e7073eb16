// The oracle's forward pass: held to logits that other code computed, and to what any causal model must do.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "model/tiny_file.h"
#include "oracle/forward.h"

namespace ridge {
namespace {

using test::TinyModel;

const std::vector<int32_t> kTokens{7, 1, 30, 254, 100, 5, 299, 77, 12, 13, 14, 200};

struct Pin {
    const char *like;
    double logits[4];  // of tokens 0, 1, 150 and 299, after all of kTokens
    size_t best;
    double best_logit;
    std::vector<std::string> without = {};  // keys that the file had not
    double tolerance = 3e-5;
};
// Computed by llama.cpp (the sources of llama-cpp-python 0.3.36) on the CPU, with a context of 64, f32 KV and without
// flash attention, from the pure F32 files of seed 0. Its rounding errors there are about 4e-6; its gelu comes from a
// table of f16. It knows no windows in llama and phi3, and rounds where the ramp of YaRN begins and ends in gpt-oss,
// which the model's own code does not: those keys were left out.
const Pin kPins[] = {
    {"tiny-llama", {1.91569, -0.16821, 0.86991, 1.6839}, 200, 6.89343},
    {"tiny-qwen2", {0.71011, 4.73546, 3.10096, -0.70031}, 108, 5.1215},
    {"tiny-qwen3", {0.30934, -0.13728, 0.9367, -2.0311}, 20, 5.31802},
    {"tiny-qwen3moe", {2.32639, -1.94994, 0.03596, -3.56421}, 96, 5.14846},
    {"tiny-mistral", {-3.62206, 0.51615, 2.23668, -3.42067}, 121, 7.15934, {"llama.attention.sliding_window"}},
    {"tiny-mixtral", {-2.86325, -0.993064, 0.095696, -1.90284}, 13, 5.41949},
    {"tiny-mistral3", {1.135, -0.241713, -1.12818, -2.03158}, 200, 6.25102},
    {"tiny-qwen2moe", {1.90176, -0.540024, 1.31763, -1.45688}, 44, 5.81565},
    {"tiny-gemma2", {-0.470667, 0.51685, 1.18618, -2.08645}, 200, 5.88315, {}, 4e-3},
    {"tiny-gemma3", {-1.40086, -0.497179, 3.37636, 0.966429}, 200, 14.0064, {}, 6e-3},
    {"tiny-phi3", {2.5661, -1.04625, 0.0706601, -0.932394}, 200, 6.17239, {"phi3.attention.sliding_window"}},
    {"tiny-olmo2", {-1.60837, -0.739539, 1.38892, -1.75394}, 12, 5.34301},
    {"tiny-olmo3", {3.07461, -3.38108, 2.94042, -1.31461}, 260, 5.66204},
    {"tiny-granite", {1.41963, -0.391837, 1.94112, 1.07338}, 148, 6.5597},
    {"tiny-gpt-oss",
     {-1.63851, -0.0901563, 1.33931, 0.600505},
     271,
     4.70543,
     {"gpt-oss.rope.scaling.type", "gpt-oss.rope.scaling.factor", "gpt-oss.rope.scaling.original_context_length"}},
};

class Forward : public testing::TestWithParam<Pin> {
  public:
    static std::string name(const testing::TestParamInfo<Pin> &p) {
        std::string name = std::string(p.param.like).substr(5);
        std::replace(name.begin(), name.end(), '-', '_');
        return name;
    }
};
INSTANTIATE_TEST_SUITE_P(All, Forward, testing::ValuesIn(kPins), Forward::name);

TEST_P(Forward, AgreesWithLlamaCpp) {
    const Pin &pin = GetParam();
    const TinyModel model({.like = pin.like, .quant = "F32"});
    test::Edit edit;
    edit.without.insert(pin.without.begin(), pin.without.end());
    const test::TempFile temp(std::string(pin.like) + ".edited.gguf");
    test::write_edited(model.file, edit, temp.path());
    const gguf::File file = gguf::File::open(temp.path());
    const oracle::Logits l = oracle::Model(file).forward(kTokens, 64);
    ASSERT_EQ(l.positions, kTokens.size());
    ASSERT_EQ(l.vocab, 300u);
    const oracle::RealSpan last = l.at(kTokens.size() - 1);
    const size_t at[4] = {0, 1, 150, 299};
    for (int i = 0; i < 4; i++) EXPECT_NEAR(last[at[i]], pin.logits[i], pin.tolerance);
    EXPECT_EQ(oracle::argmax(last), pin.best);
    EXPECT_NEAR(last[pin.best], pin.best_logit, pin.tolerance);
}

TEST_P(Forward, IsFiniteLivelyAndDeterministic) {
    const TinyModel model({.like = GetParam().like, .quant = "Q4_K_M"});
    oracle::Model oracle(model.file);
    const oracle::Logits l = oracle.forward(kTokens);
    double square = 0;
    for (double x : l.values) {
        ASSERT_TRUE(std::isfinite(x));
        square += x * x;
    }
    // What synthetic weights are made for: logits near 2, neither flat nor exploding.
    EXPECT_NEAR(std::sqrt(square / static_cast<double>(l.values.size())), 2, 0.3);
    EXPECT_EQ(l.values, oracle.forward(kTokens).values);
    EXPECT_EQ(l.values, oracle::Model(model.file).forward(kTokens).values);
    if (synthetic_shape(GetParam().like).n_experts)
        for (double margin : l.route_margin) EXPECT_LT(margin, 1);
    else
        EXPECT_EQ(l.route_margin, oracle::Reals(kTokens.size(), INFINITY));
}

TEST_P(Forward, LooksBackOnly) {
    const TinyModel model({.like = GetParam().like, .quant = "Q4_K_M"});
    oracle::Model oracle(model.file);
    const oracle::Logits before = oracle.forward(kTokens);
    std::vector<int32_t> tokens = kTokens;
    tokens[6] = 42;
    const oracle::Logits after = oracle.forward(tokens);
    const auto changed = [&](size_t i) {
        return !std::equal(before.at(i).begin(), before.at(i).end(), after.at(i).begin());
    };
    for (size_t i = 0; i < 6; i++) EXPECT_FALSE(changed(i)) << i;
    for (size_t i = 6; i < tokens.size(); i++) EXPECT_TRUE(changed(i)) << i;
    // A part of the text has the logits that it has within the whole.
    const oracle::Logits part = oracle.forward(std::span(kTokens).first(5));
    for (size_t i = 0; i < 5; i++)
        EXPECT_TRUE(std::equal(part.at(i).begin(), part.at(i).end(), before.at(i).begin())) << i;
}

TEST_P(Forward, KnowsOrder) {
    const TinyModel model({.like = GetParam().like, .quant = "Q4_K_M"});
    oracle::Model oracle(model.file);
    const auto last = [&](std::vector<int32_t> tokens) {
        const oracle::Logits l = oracle.forward(tokens);
        const oracle::RealSpan at = l.at(tokens.size() - 1);
        return oracle::Reals(at.begin(), at.end());
    };
    const auto distance = [](const oracle::Reals &a, const oracle::Reals &b) {
        double most = 0;
        for (size_t i = 0; i < a.size(); i++) most = std::max(most, std::abs(a[i] - b[i]));
        return most;
    };
    EXPECT_GT(distance(last({5, 9, 17}), last({9, 5, 17})), 1e-2);
    // Equal tokens see equal values wherever they stand: attention averages what is all the same. But sinks weigh less
    // the more there is.
    if (synthetic_shape(GetParam().like).has(Part::sinks)) return;
    EXPECT_LT(distance(last({5}), last({5, 5, 5, 5, 5, 5, 5})), 1e-12);
}

TEST(Oracle, RefusesWhatIsNotThere) {
    const TinyModel model({.like = "tiny-llama"});
    oracle::Model oracle(model.file);
    for (int32_t token : {-1, 300}) try {
            oracle.forward(std::vector<int32_t>{1, token});
            ADD_FAILURE() << token;
        } catch (const Error &e) {
            EXPECT_EQ(e.kind(), ErrorKind::usage);
        }
}

}  // namespace
}  // namespace ridge
