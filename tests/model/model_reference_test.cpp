// Real models against transformers in f32 on the dequantised weights (tools/make_model_reference.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "model/model_reference.h"
#include "runtime/generate.h"
#include "runtime/model.h"
#include "support/real_models.h"

namespace ridge {
namespace {

using model_reference::Position;
using model_reference::Reference;
using model_reference::Sequence;

struct RealModel {
    const char *name;
    const char *file;
    const char *reference;
    // The most that the mean KL of logits with keys and values in q8_0 beside f16 may be. Qwen2.5 adds a bias to its
    // keys, far above the rest in a few columns: a block with one of those has a coarse scale.
    double q8_0_kl;
};

constexpr const char *kGemma3Data = "gemma3_reference.bin";
constexpr RealModel kModels[] = {
    {"SmolLm2", test::kSmolLm2, "smollm2_reference.bin", 5e-3},
    {"Qwen25", test::kQwen25, "qwen2.5_reference.bin", 0.1},
    {"Gemma3", test::kGemma3, kGemma3Data, 5e-3},
};

Reference load(const char *file) { return model_reference::load_reference(std::string(RIDGE_TEST_DATA) + "/" + file); }

std::vector<int32_t> ids(std::span<const uint32_t> tokens) { return {tokens.begin(), tokens.end()}; }

struct Agreement {
    size_t positions = 0, same_top = 0;
    double mean_kl = 0, max_kl = 0;
};

class ModelReference : public testing::TestWithParam<RealModel> {
  public:
    static std::string name(const testing::TestParamInfo<RealModel> &p) { return p.param.name; }

  protected:
    void SetUp() override {
        path_ = test::real_model(GetParam().file);
        RIDGE_NEEDS_MODEL(path_);
        reference_ = load(GetParam().reference);
    }
    // Teacher-forced over every recorded position.
    Agreement compare(DType kv, LeverSet levers) const {
        const auto model = Model::open(path_, {.kv_type = kv});
        Agreement a;
        for (const Sequence &s : reference_.sequences) {
            const auto session = model->session({.context = 640, .batch = 128, .levers = levers});
            const std::vector<int32_t> tokens = ids(s.tokens);
            const uint32_t first = s.positions.front().position;
            if (first > 0) session->evaluate(std::span(tokens).first(first), Want::none);
            session->evaluate(std::span(tokens).subspan(first), Want::all);
            for (const Position &p : s.positions) {
                const std::span<const float> logits = session->logits(p.position - first);
                const double kl = model_reference::kl_divergence(p, logits);
                EXPECT_FALSE(std::isnan(kl));
                a.mean_kl += kl;
                a.max_kl = std::max(a.max_kl, kl);
                const auto top = std::max_element(logits.begin(), logits.end()) - logits.begin();
                a.same_top += static_cast<uint32_t>(top) == p.ids[0] ? 1 : 0;
                a.positions++;
            }
        }
        a.mean_kl /= static_cast<double>(a.positions);
        std::printf("%s: kv %s, levers %s: positions %zu, mean KL %.2e, max KL %.2e, top-1 agreement %zu (%.1f%%)\n",
                    GetParam().name, std::string(ridge::name(kv)).c_str(), levers.to_string().c_str(), a.positions,
                    a.mean_kl, a.max_kl, a.same_top,
                    100.0 * static_cast<double>(a.same_top) / static_cast<double>(a.positions));
        return a;
    }

    std::filesystem::path path_;
    Reference reference_;
};
INSTANTIATE_TEST_SUITE_P(Real, ModelReference, testing::ValuesIn(kModels), ModelReference::name);

// The references' own distance from an f64 pass is some 1e-11. The least that a mistake of tests/data/README.md costs
// is 3.6e-9 (Gemma's rope base wrong by 0.1%): 1e-9 tells it apart from rounding.
TEST_P(ModelReference, F32ActivationsMatch) {
    const Agreement a = compare(DType::f32, LeverSet::defaults().without(Lever::int8_dot));
    EXPECT_GE(a.positions, 96U);
    EXPECT_LE(a.mean_kl, 1e-9);
    EXPECT_EQ(a.same_top, a.positions);
}

TEST_P(ModelReference, Int8ActivationsStayClose) {
    const Agreement a = compare(DType::f16, LeverSet::defaults());
    EXPECT_LE(a.mean_kl, 5e-3);
    EXPECT_GE(static_cast<double>(a.same_top), 0.95 * static_cast<double>(a.positions));
}

// What q8_0 costs beside f16 with all else in f32: KL(f16 || q8_0) over the recorded positions.
TEST_P(ModelReference, KeysAndValuesInQ80StayClose) {
    const LeverSet levers = LeverSet::defaults().without(Lever::int8_dot);
    const auto f16 = Model::open(path_, {.kv_type = DType::f16, .tokenizer = false});
    const auto q8_0 = Model::open(path_, {.kv_type = DType::q8_0, .tokenizer = false});
    Agreement a;
    for (const Sequence &s : reference_.sequences) {
        const std::vector<int32_t> tokens = ids(s.tokens);
        const uint32_t first = s.positions.front().position;
        const auto session = [&](Model &m) {
            auto opened = m.session({.context = 640, .batch = 128, .levers = levers});
            if (first > 0) opened->evaluate(std::span(tokens).first(first), Want::none);
            opened->evaluate(std::span(tokens).subspan(first), Want::all);
            return opened;
        };
        const auto exact = session(*f16), got = session(*q8_0);
        for (const Position &recorded : s.positions) {
            const size_t i = recorded.position - first;
            const std::span<const float> want = exact->logits(i), logits = got->logits(i);
            Position p;
            p.full.assign(want.begin(), want.end());
            p.logsumexp = model_reference::log_sum_exp(want);
            const double kl = model_reference::kl_divergence(p, logits);
            a.mean_kl += std::isnan(kl) ? INFINITY : kl;
            a.max_kl = std::max(a.max_kl, kl);
            a.same_top += std::max_element(want.begin(), want.end()) - want.begin() ==
                          std::max_element(logits.begin(), logits.end()) - logits.begin();
            a.positions++;
        }
    }
    a.mean_kl /= static_cast<double>(a.positions);
    std::printf("%s: KV q8_0 beside f16: positions %zu, mean KL %.2e, max KL %.2e, top-1 agreement %zu (%.1f%%)\n",
                GetParam().name, a.positions, a.mean_kl, a.max_kl, a.same_top,
                100.0 * static_cast<double>(a.same_top) / static_cast<double>(a.positions));
    EXPECT_GE(a.positions, 96U);
    EXPECT_GT(a.mean_kl, 0);
    EXPECT_LE(a.mean_kl, GetParam().q8_0_kl);
    EXPECT_GE(static_cast<double>(a.same_top), 0.85 * static_cast<double>(a.positions));
}

// Greedy tokens, in f32, through the generation loop. The reference has no step whose top two are close to a tie.
TEST_P(ModelReference, GreedyContinuationIsTheReferences) {
    const auto model = Model::open(path_, {.kv_type = DType::f32});
    size_t continued = 0;
    for (const Sequence &s : reference_.sequences) {
        if (s.margins.empty()) continue;
        continued++;
        ASSERT_GE(*std::min_element(s.margins.begin(), s.margins.end()), 1e-3F);
        const auto session = model->session({.context = 256, .levers = LeverSet::defaults().without(Lever::int8_dot)});
        Sampler greedy({.temperature = 0});
        const std::vector<int32_t> all = ids(s.tokens);
        const auto prompt = std::span(all).first(s.n_prompt);
        const Generation g = generate(*session, model->tokenizer(), greedy, prompt,
                                      {.max_tokens = static_cast<uint32_t>(s.margins.size()), .ignore_end = true});
        EXPECT_EQ(g.tokens, std::vector<int32_t>(all.begin() + s.n_prompt, all.end())) << g.text;
    }
    EXPECT_EQ(continued, 1U);
}

// The ids are those of the packages `tokenizers` and `sentencepiece`.
TEST_P(ModelReference, TokenizesAsTheReference) {
    const auto model = Model::open(path_, {});
    for (const Sequence &s : reference_.sequences) {
        const std::vector<int32_t> want = ids(std::span(s.tokens).first(s.n_prompt));
        EXPECT_EQ(model->tokenizer().encode(s.text, {.add_special = false, .parse_special = true}), want) << s.name;
    }
}

// Where layers with a window no longer see the first token.
TEST(Gemma3Reference, ReachesPastTheWindow) {
    const auto path = test::real_model(test::kGemma3);
    RIDGE_NEEDS_MODEL(path);
    const auto model = Model::open(path, {.tokenizer = false});
    const std::vector<uint32_t> &windows = model->hparams().window;
    const uint32_t window = *std::max_element(windows.begin(), windows.end());
    ASSERT_GT(window, 0U);
    size_t past = 0;
    for (const Sequence &s : load(kGemma3Data).sequences)
        for (const Position &p : s.positions) past += p.position >= window ? 1 : 0;
    EXPECT_GE(past, 16U);
}

}  // namespace
}  // namespace ridge
