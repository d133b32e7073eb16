// SmolLM2-135M-Instruct Q4_1 against transformers in f32 on the dequantised weights (tools/make_smollm2_reference.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <fstream>

#include "model/smollm2_reference.h"
#include "runtime/generate.h"
#include "runtime/model.h"
#include "support/real_models.h"

namespace ridge {
namespace {

const smollm2::Reference &reference() {
    static const smollm2::Reference r =
        smollm2::load_reference(std::string(RIDGE_TEST_DATA) + "/smollm2_reference.bin");
    return r;
}

std::vector<int32_t> ids(const std::vector<uint32_t> &tokens) { return {tokens.begin(), tokens.end()}; }

struct Agreement {
    size_t positions = 0, same_top = 0;
    double mean_kl = 0, max_kl = 0;
};

// Teacher-forced over every recorded position.
Agreement compare(const std::filesystem::path &path, DType kv, LeverSet levers) {
    const auto model = Model::open(path, {.kv_type = kv});
    Agreement a;
    for (const smollm2::Sequence &s : reference().sequences) {
        const auto session = model->session({.context = 512, .batch = 128, .levers = levers});
        session->evaluate(ids(s.tokens), Want::all);
        for (const smollm2::Position &p : s.positions) {
            const std::span<const float> logits = session->logits(p.position);
            const double kl = smollm2::kl_divergence(p, logits);
            EXPECT_FALSE(std::isnan(kl));
            a.mean_kl += kl;
            a.max_kl = std::max(a.max_kl, kl);
            const auto top = std::max_element(logits.begin(), logits.end()) - logits.begin();
            a.same_top += static_cast<uint32_t>(top) == p.ids[0] ? 1 : 0;
            a.positions++;
        }
    }
    a.mean_kl /= static_cast<double>(a.positions);
    std::printf("smollm2: kv %s, levers %s: positions %zu, mean KL %.2e, max KL %.2e, top-1 agreement %zu (%.1f%%)\n",
                std::string(name(kv)).c_str(), levers.to_string().c_str(), a.positions, a.mean_kl, a.max_kl, a.same_top,
                100.0 * static_cast<double>(a.same_top) / static_cast<double>(a.positions));
    return a;
}

// The reference's own distance from an f64 pass is 1e-11. A wrong epsilon (0.9e-5 for 1e-5) gives 9e-9, a rope base
// wrong by 0.1% gives 2e-8: 1e-9 tells both apart from rounding.
TEST(SmolLm2, F32ActivationsMatchTheReference) {
    const auto path = test::real_model(test::kSmolLm2);
    RIDGE_NEEDS_MODEL(path);
    const Agreement a = compare(path, DType::f32, LeverSet::defaults().without(Lever::int8_dot));
    EXPECT_GE(a.positions, 96U);
    EXPECT_LE(a.mean_kl, 1e-9);
    EXPECT_EQ(a.same_top, a.positions);
}

TEST(SmolLm2, Int8ActivationsStayClose) {
    const auto path = test::real_model(test::kSmolLm2);
    RIDGE_NEEDS_MODEL(path);
    const Agreement a = compare(path, DType::f16, LeverSet::defaults());
    EXPECT_LE(a.mean_kl, 5e-3);
    EXPECT_GE(static_cast<double>(a.same_top), 0.95 * static_cast<double>(a.positions));
}

// 64 greedy tokens, in f32, through the generation loop. The smallest margin of the reference's top two is 0.06.
TEST(SmolLm2, GreedyContinuationIsTheReferences) {
    const auto path = test::real_model(test::kSmolLm2);
    RIDGE_NEEDS_MODEL(path);
    const auto model = Model::open(path, {.kv_type = DType::f32});
    for (const smollm2::Sequence &s : reference().sequences) {
        if (s.margins.empty()) continue;
        ASSERT_GE(*std::min_element(s.margins.begin(), s.margins.end()), 1e-3F);
        const auto session = model->session({.context = 256, .levers = LeverSet::defaults().without(Lever::int8_dot)});
        Sampler greedy({.temperature = 0});
        const std::vector<int32_t> all = ids(s.tokens);
        const auto prompt = std::span(all).first(s.n_prompt);
        const Generation g = generate(*session, model->tokenizer(), greedy, prompt,
                                      {.max_tokens = static_cast<uint32_t>(s.margins.size()), .ignore_end = true});
        EXPECT_EQ(g.tokens, std::vector<int32_t>(all.begin() + s.n_prompt, all.end())) << g.text;
    }
}

// The texts of the reference were tokenized by transformers.
TEST(SmolLm2, TokenizesAsTheReference) {
    const auto path = test::real_model(test::kSmolLm2);
    RIDGE_NEEDS_MODEL(path);
    const auto model = Model::open(path, {});
    for (const smollm2::Sequence &s : reference().sequences) {
        std::vector<int32_t> want = ids(s.tokens);
        want.resize(s.n_prompt);
        EXPECT_EQ(model->tokenizer().encode(s.text, {.add_special = false, .parse_special = true}), want) << s.name;
    }
}

}  // namespace
}  // namespace ridge
