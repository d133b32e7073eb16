// Every architecture and kind of rotary scaling against transformers: tiny random models with the logits that its f64
// forward pass gives (tools/make_architecture_reference.py).
//
// The engine is held to the error that rounding explains. As in measure/gate_model.h a stage of the model adds an error
// that is independent of the others, relative to what passes through it, and with e their sum, R the rms of a
// position's logits, an element may be off by 6 R e. Two bounds more say that errors are also small on average: the
// rms of all of them is at most R e, and as a KL of logits with errors of variance (R e)^2 is half of that, the mean
// KL is at most (R e)^2.
//
// The reference's tokens leave every router a margin of kRouterMargin between the probabilities near its cut. Rounding
// moves them by about e/8 (gate_model.h has the reasons), so all positions count.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>

#include "gguf/gguf.h"
#include "measure/gate_model.h"
#include "model/architecture_reference.h"
#include "oracle/forward.h"
#include "runtime/model.h"
#include "runtime/tiny_model.h"

namespace ridge {
namespace {

using arch_reference::Case;

constexpr double kRouterMargin = 0.02;  // LEAST_MARGIN of the script

// Empty where the data cannot be read; a test of its own tells why.
const std::vector<Case> &cases() {
    static const std::vector<Case> all = [] {
        try {
            return arch_reference::load(std::string(RIDGE_TEST_DATA) + "/arch");
        } catch (const Error &) {
            return std::vector<Case>{};
        }
    }();
    return all;
}

double rms(oracle::RealSpan x) {
    double squares = 0;
    for (double v : x) squares += v * v;
    return std::sqrt(squares / static_cast<double>(x.size()));
}

struct Agreement {
    size_t checked = 0, bad = 0;  // elements
    double worst = 0;             // error over its bound
    double rms_error = 0;         // over R
    double mean_kl = 0;
    double mean_square = 0;  // of R
};

// got: (positions, n_vocab)
Agreement compare(const Case &c, const std::vector<float> &got, double e) {
    Agreement a;
    double squares = 0;
    const double positions = static_cast<double>(c.positions() - c.first);
    for (size_t p = c.first; p < c.positions(); p++) {
        const oracle::RealSpan want = c.at(p);
        const double r = rms(want);
        const float *row = got.data() + p * c.n_vocab;
        for (size_t i = 0; i < want.size(); i++) {
            const double error = std::abs(row[i] - want[i]) / r;
            a.checked++;
            if (!(error <= 6 * e)) a.bad++;
            a.worst = std::max(a.worst, error / (6 * e));
            squares += error * error;
        }
        a.mean_kl += oracle::kl_divergence(want, oracle::Reals(row, row + c.n_vocab)) / positions;
        a.mean_square += r * r / positions;
    }
    a.rms_error = std::sqrt(squares / static_cast<double>(a.checked));
    return a;
}

class AgainstTransformers : public testing::TestWithParam<size_t> {
  public:
    static std::string name(const testing::TestParamInfo<size_t> &p) {
        std::string n = cases()[p.param].name;
        std::replace(n.begin(), n.end(), '-', '_');
        return n;
    }

  protected:
    const Case &c() const { return cases()[GetParam()]; }
    // (positions, n_vocab)
    std::vector<float> logits(Model &m, LeverSet levers, uint32_t batch) const {
        const auto session = m.session({.context = c().context, .batch = batch, .levers = levers});
        return test::all_logits(*session, c().tokens);
    }
    std::unique_ptr<Model> open(DType kv) const {
        return Model::open(c().file, {.kv_type = kv, .threads = 2, .tokenizer = false});
    }
};
std::vector<size_t> indices() {
    std::vector<size_t> all(cases().size());
    for (size_t i = 0; i < all.size(); i++) all[i] = i;
    return all;
}
INSTANTIATE_TEST_SUITE_P(Tiny, AgainstTransformers, testing::ValuesIn(indices()), AgainstTransformers::name);

TEST(ArchitectureReference, HasEveryArchitecture) {
    EXPECT_FALSE(cases().empty());
    std::set<std::string> found;
    for (const Case &c : arch_reference::load(std::string(RIDGE_TEST_DATA) + "/arch"))
        found.emplace(gguf::File::open(c.file).get_string("general.architecture"));
    for (const Architecture &a : architectures())
        EXPECT_TRUE(found.contains(std::string(a.name))) << a.name << ": tools/make_architecture_reference.py";
}

TEST_P(AgainstTransformers, OracleAgreesInF64) {
    const gguf::File f = gguf::File::open(c().file);
    const oracle::Logits got = oracle::Model(f).forward(c().tokens, c().context);
    ASSERT_EQ(got.positions, c().positions());
    ASSERT_EQ(got.vocab, c().n_vocab);
    double worst = 0;
    for (size_t p = c().first; p < c().positions(); p++) {
        const oracle::RealSpan want = c().at(p);
        for (size_t i = 0; i < want.size(); i++) {
            const double error = std::abs(got.at(p)[i] - want[i]) / rms(want);
            worst = std::isnan(error) ? INFINITY : std::max(worst, error);
        }
    }
    std::printf("%s: oracle in f64, largest error %.1e of the rms\n", c().name.c_str(), worst);
    // What f32 rounding does, at 2^-29 of its size: 6e-14 where it is largest.
    EXPECT_LE(worst, 1e-11);
}

TEST_P(AgainstTransformers, F32ActivationsMatch) {
    const auto m = open(DType::f32);
    const std::vector<float> got = logits(*m, LeverSet::defaults().without(Lever::int8_dot), 512);
    const double e = expected_error(m->program(), m->hparams(), false, DType::f32);
    const Agreement a = compare(c(), got, e);
    std::printf(
        "%s: f32, nbad=%zu/%zu, worst %.3f of its bound, rms error %.1e, mean KL %.1e; "
        "transformers in f32, largest error %.1e\n",
        c().name.c_str(), a.bad, a.checked, a.worst, a.rms_error, a.mean_kl, c().f32_error);
    EXPECT_EQ(a.bad, 0u);
    EXPECT_LE(a.rms_error, e);
    EXPECT_LE(a.mean_kl, a.mean_square * e * e);
}

TEST_P(AgainstTransformers, BatchesAgreeInEveryBit) {
    const auto m = open(DType::f32);
    const LeverSet levers = LeverSet::defaults().without(Lever::int8_dot);
    const std::vector<float> whole = logits(*m, levers, 512);
    for (uint32_t batch : {1u, 7u}) EXPECT_EQ(test::differing_bits(whole, logits(*m, levers, batch)), 0u) << batch;
}

TEST_P(AgainstTransformers, DefaultLeversStayClose) {
    const auto m = open(DType::f16);
    const LeverSet levers = LeverSet::defaults();
    const double e = expected_error(m->program(), m->hparams(), levers.has(Lever::int8_dot), DType::f16);
    ASSERT_LE(e / 8, kRouterMargin);
    const Agreement a = compare(c(), logits(*m, levers, 512), e);
    std::printf("%s: %s, KV f16, nbad=%zu/%zu, worst %.3f of its bound, rms error %.1e, mean KL %.1e (bound %.1e)\n",
                c().name.c_str(), levers.to_string().c_str(), a.bad, a.checked, a.worst, a.rms_error, a.mean_kl,
                a.mean_square * e * e);
    EXPECT_EQ(a.bad, 0u);
    EXPECT_LE(a.rms_error, e);
    EXPECT_LE(a.mean_kl, a.mean_square * e * e);
}

}  // namespace
}  // namespace ridge
