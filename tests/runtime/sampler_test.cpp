// The sampler: each step of the chain on numbers worked out by hand, then what holds for all of it.
#include "runtime/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "core/error.h"
#include "support/errors.h"

namespace ridge {
namespace {

using test::error_of;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Every step off, temperature 1.
SamplerOptions plain() {
    SamplerOptions o;
    o.temperature = 1, o.top_k = 0, o.top_p = 1, o.min_p = 0, o.typical_p = 1;
    return o;
}

std::vector<float> logs(const std::vector<double> &p) {
    std::vector<float> l;
    for (double x : p) l.push_back(static_cast<float>(std::log(x)));
    return l;
}

struct Kept {
    int32_t id;
    double probability;
};

void expect_kept(const SamplerOptions &o, const std::vector<float> &logits, const std::vector<Kept> &expected,
                 const std::vector<int32_t> &history = {}) {
    Sampler s(o);
    const int32_t drawn = s.sample(logits, history, 0);
    ASSERT_EQ(s.candidates().size(), expected.size());
    bool among = false;
    for (size_t i = 0; i < expected.size(); i++) {
        EXPECT_EQ(s.candidates()[i].id, expected[i].id) << "place " << i;
        EXPECT_NEAR(s.candidates()[i].probability, expected[i].probability, 1e-6) << "place " << i;
        among = among || expected[i].id == drawn;
    }
    EXPECT_TRUE(among);
}

const std::vector<float> kFour = logs({0.4, 0.3, 0.2, 0.1});

TEST(SamplerChain, NothingOnKeepsTheModelsDistribution) {
    expect_kept(plain(), kFour, {{0, 0.4}, {1, 0.3}, {2, 0.2}, {3, 0.1}});
    // Most likely first, whatever the ids.
    expect_kept(plain(), logs({0.1, 0.4, 0.2, 0.3}), {{1, 0.4}, {3, 0.3}, {2, 0.2}, {0, 0.1}});
    // Logits need not be normalised.
    const double two = 2 + std::exp(-1.0);
    expect_kept(plain(), {1000, 1000, 999}, {{0, 1 / two}, {1, 1 / two}, {2, std::exp(-1.0) / two}});
}

TEST(SamplerChain, TopK) {
    SamplerOptions o = plain();
    o.top_k = 2;
    expect_kept(o, kFour, {{0, 4 / 7.}, {1, 3 / 7.}});
    o.top_k = 1;
    expect_kept(o, kFour, {{0, 1}});
    for (uint32_t k : {4U, 5U, 4000000000U}) {
        o.top_k = k;
        expect_kept(o, kFour, {{0, 0.4}, {1, 0.3}, {2, 0.2}, {3, 0.1}});
    }
}

TEST(SamplerChain, TopP) {
    SamplerOptions o = plain();
    o.top_p = 0.35F;
    expect_kept(o, kFour, {{0, 1}});
    o.top_p = 0.45F;
    expect_kept(o, kFour, {{0, 4 / 7.}, {1, 3 / 7.}});
    o.top_p = 0.75F;
    expect_kept(o, kFour, {{0, 4 / 9.}, {1, 3 / 9.}, {2, 2 / 9.}});
    o.top_p = 1e-30F;
    expect_kept(o, kFour, {{0, 1}});
}

TEST(SamplerChain, MinP) {
    SamplerOptions o = plain();
    o.min_p = 0.6F;  // of 0.4: 0.24
    expect_kept(o, kFour, {{0, 4 / 7.}, {1, 3 / 7.}});
    o.min_p = 0.45F;  // 0.18
    expect_kept(o, kFour, {{0, 4 / 9.}, {1, 3 / 9.}, {2, 2 / 9.}});
    o.min_p = 1;
    expect_kept(o, kFour, {{0, 1}});
    // The most likely ones are equally likely: all stay.
    expect_kept(o, {1, 1, 0}, {{0, 0.5}, {1, 0.5}});
}

TEST(SamplerChain, Typical) {
    // Entropy 1.2799; surprises 0.916, 1.204, 1.609, 2.303 are 0.364, 0.076, 0.330, 1.023 away: 1, 2, 0, 3.
    SamplerOptions o = plain();
    o.typical_p = 0.25F;
    expect_kept(o, kFour, {{1, 1}});
    o.typical_p = 0.4F;
    expect_kept(o, kFour, {{1, 0.6}, {2, 0.4}});
    o.typical_p = 0.6F;
    expect_kept(o, kFour, {{0, 4 / 9.}, {1, 3 / 9.}, {2, 2 / 9.}});
    o.typical_p = 0.95F;
    expect_kept(o, kFour, {{0, 0.4}, {1, 0.3}, {2, 0.2}, {3, 0.1}});
}

TEST(SamplerChain, Temperature) {
    SamplerOptions o = plain();
    o.temperature = 0.5F;  // squares
    expect_kept(o, kFour, {{0, 16 / 30.}, {1, 9 / 30.}, {2, 4 / 30.}, {3, 1 / 30.}});
    o.temperature = 2;  // roots
    const double sum = std::sqrt(0.4) + std::sqrt(0.3) + std::sqrt(0.2) + std::sqrt(0.1);
    expect_kept(
        o, kFour,
        {{0, std::sqrt(0.4) / sum}, {1, std::sqrt(0.3) / sum}, {2, std::sqrt(0.2) / sum}, {3, std::sqrt(0.1) / sum}});
}

TEST(SamplerChain, StepsSeeWhatTheEarlierOnesLeft) {
    SamplerOptions o = plain();
    // top-k first: 0.4 is 4/7 of what it leaves, which alone is 0.56 of the mass.
    o.top_k = 2, o.top_p = 0.56F;
    expect_kept(o, kFour, {{0, 1}});
    // typical before top-p: it leaves {1: 0.6, 2: 0.4}.
    o = plain();
    o.typical_p = 0.4F, o.top_p = 0.5F;
    expect_kept(o, kFour, {{1, 1}});
    // top-p before min-p: both relative to the largest, so min-p cuts what is left.
    o = plain();
    o.top_p = 0.75F, o.min_p = 0.6F;
    expect_kept(o, kFour, {{0, 4 / 7.}, {1, 3 / 7.}});
}

TEST(SamplerChain, CutsDoNotDependOnTheTemperature) {
    SamplerOptions o = plain();
    o.temperature = 2;
    const double two = std::sqrt(0.4) + std::sqrt(0.3);
    const std::vector<Kept> expected{{0, std::sqrt(0.4) / two}, {1, std::sqrt(0.3) / two}};
    o.top_p = 0.45F;
    expect_kept(o, kFour, expected);
    o.top_p = 1, o.min_p = 0.6F;
    expect_kept(o, kFour, expected);
}

// What is left of logits after bias and penalties, by id.
std::vector<double> biased(SamplerOptions o, const std::vector<float> &logits, const std::vector<int32_t> &history) {
    o.top_k = 0, o.top_p = 1, o.min_p = 0, o.typical_p = 1, o.temperature = 1;
    Sampler s(o);
    s.sample(logits, history, 0);
    std::vector<double> l(logits.size(), -kInf);
    for (const Candidate &c : s.candidates()) l[static_cast<size_t>(c.id)] = c.logit;
    return l;
}

TEST(SamplerPenalties, Repetition) {
    SamplerOptions o;
    o.repetition_penalty = 2;
    EXPECT_EQ(biased(o, {2, -2, 1, 0}, {0, 1, 1, 3}), (std::vector<double>{1, -4, 1, 0}));
    o.repetition_penalty = 0.5F;  // rewards
    EXPECT_EQ(biased(o, {2, -2, 1, 0}, {0, 1, 1, 3}), (std::vector<double>{4, -1, 1, 0}));
}

TEST(SamplerPenalties, PresenceOncePerTokenFrequencyPerOccurrence) {
    SamplerOptions o;
    o.presence_penalty = 0.5F;
    EXPECT_EQ(biased(o, {2, -2, 1, 0}, {0, 1, 1}), (std::vector<double>{1.5, -2.5, 1, 0}));
    o.presence_penalty = 0, o.frequency_penalty = 0.25F;
    EXPECT_EQ(biased(o, {2, -2, 1, 0}, {0, 1, 1}), (std::vector<double>{1.75, -2.5, 1, 0}));
    o.presence_penalty = -0.5F;
    EXPECT_EQ(biased(o, {2, -2, 1, 0}, {0, 1, 1}), (std::vector<double>{2.25, -2, 1, 0}));
    o.repetition_penalty = 2, o.presence_penalty = 0.5F;  // divided first, then subtracted
    EXPECT_EQ(biased(o, {2, -2, 1, 0}, {0, 1, 1}), (std::vector<double>{0.25, -5, 1, 0}));
}

TEST(SamplerPenalties, OnlyTheWindowCounts) {
    SamplerOptions o;
    o.frequency_penalty = 1;
    const std::vector<int32_t> history{0, 0, 0, 1, 2, 1};
    o.penalty_window = 2;
    EXPECT_EQ(biased(o, {9, 9, 9}, history), (std::vector<double>{9, 8, 8}));
    o.penalty_window = 4;
    EXPECT_EQ(biased(o, {9, 9, 9}, history), (std::vector<double>{8, 7, 8}));
    for (uint32_t all : {0U, 6U, 7U, 4000000000U}) {
        o.penalty_window = all;
        EXPECT_EQ(biased(o, {9, 9, 9}, history), (std::vector<double>{6, 7, 8}));
    }
}

TEST(SamplerPenalties, StrangersInTheHistoryDoNotMatter) {
    SamplerOptions o;
    o.presence_penalty = 1;
    EXPECT_EQ(biased(o, {9, 9}, {-1, 2, 1000000, 1, std::numeric_limits<int32_t>::min()}), (std::vector<double>{9, 8}));
    EXPECT_EQ(biased(o, {9, 9}, {}), (std::vector<double>{9, 9}));
}

TEST(SamplerBias, AddsBeforePenaltiesAndBans) {
    SamplerOptions o;
    o.logit_bias = {{0, 2}, {1, -kInf}, {2, -1.5F}};
    EXPECT_EQ(biased(o, {1, 5, 1, 0}, {}), (std::vector<double>{3, -kInf, -0.5, 0}));
    o.repetition_penalty = 2;
    EXPECT_EQ(biased(o, {-1, 5, 1, 0}, {0, 1, 2}), (std::vector<double>{0.5, -kInf, -1, 0}));
    // A banned token is never drawn, though it was by far the likeliest.
    o = plain();
    o.logit_bias = {{1, -kInf}};
    Sampler s(o);
    for (uint64_t draw = 0; draw < 500; draw++) EXPECT_NE(s.sample(std::vector<float>{1, 50, 1, 0}, {}, draw), 1);
    o.temperature = 0;
    EXPECT_EQ(Sampler(o).sample(std::vector<float>{1, 50, 2, 0}, {}, 0), 2);
}

TEST(SamplerGreedy, TakesTheLargestTheLowerOfEquals) {
    SamplerOptions o = plain();
    o.temperature = 0;
    Sampler s(o);
    EXPECT_EQ(s.sample(std::vector<float>{1, 3, 2, 3}, {}, 0), 1);
    EXPECT_EQ(s.sample(std::vector<float>{5, 5, 5}, {}, 17), 0);
    EXPECT_EQ(s.sample(std::vector<float>{-kInf, -7, -kInf}, {}, 0), 1);
    EXPECT_EQ(s.sample(std::vector<float>{-0.0F, 0.0F}, {}, 0), 0);
    ASSERT_EQ(s.candidates().size(), 1U);
    EXPECT_EQ(s.candidates()[0].probability, 1);
    // Cuts do not matter; bias and penalties do.
    o.top_k = 3, o.top_p = 0.1F, o.min_p = 1, o.typical_p = 0.1F;
    EXPECT_EQ(Sampler(o).sample(std::vector<float>{1, 3, 2, 3}, {}, 0), 1);
    o.repetition_penalty = 2;
    EXPECT_EQ(Sampler(o).sample(std::vector<float>{1, 3, 2, 3}, std::vector<int32_t>{1}, 0), 3);
}

TEST(SamplerGreedy, EqualsTopKOneAndTheColdLimit) {
    SamplerOptions greedy = plain(), one = plain(), cold = plain(), coldest = plain();
    greedy.temperature = 0, one.top_k = 1, cold.temperature = 1e-4F;
    coldest.temperature = std::numeric_limits<float>::denorm_min();
    for (uint64_t round = 0; round < 300; round++) {
        std::vector<float> logits(50);
        // Multiples of 1/4, so that ties are common at the top.
        for (size_t i = 0; i < logits.size(); i++)
            logits[i] = static_cast<float>(std::floor(uniform(round, i) * 40)) / 4;
        const int32_t best = Sampler(greedy).sample(logits, {}, round);
        EXPECT_EQ(best, std::max_element(logits.begin(), logits.end()) - logits.begin());
        EXPECT_EQ(Sampler(one).sample(logits, {}, round), best);
        // Of equals, a draw takes any.
        const auto top = logits[static_cast<size_t>(best)];
        EXPECT_EQ(logits[static_cast<size_t>(Sampler(cold).sample(logits, {}, round))], top);
        EXPECT_EQ(logits[static_cast<size_t>(Sampler(coldest).sample(logits, {}, round))], top);
    }
}

TEST(SamplerTies, CutsKeepTheLowerId) {
    SamplerOptions o = plain();
    const std::vector<float> equal(6, 1.5F);
    o.top_k = 2;
    expect_kept(o, equal, {{0, 0.5}, {1, 0.5}});
    o.top_k = 0, o.top_p = 0.3F;
    expect_kept(o, equal, {{0, 0.5}, {1, 0.5}});
    o.top_p = 1, o.typical_p = 0.3F;
    expect_kept(o, equal, {{0, 0.5}, {1, 0.5}});
}

TEST(SamplerDraw, IsTheInverseOfTheCumulativeDistribution) {
    Sampler s(plain());
    for (uint64_t draw = 0; draw < 2000; draw++) {
        const double u = uniform(0, draw);
        const int32_t expected = u < 0.4 ? 0 : u < 0.7 ? 1 : u < 0.9 ? 2 : 3;
        bool near = false;  // the logits are rounded to float
        for (double edge : {0.4, 0.7, 0.9}) near = near || std::abs(u - edge) < 1e-6;
        EXPECT_TRUE(near || s.sample(kFour, {}, draw) == expected) << draw;
    }
}

TEST(SamplerDraw, DependsOnLogitsHistorySeedAndDrawAlone) {
    SamplerOptions o;  // the defaults, with penalties
    o.repetition_penalty = 1.3F, o.frequency_penalty = 0.1F, o.typical_p = 0.9F, o.seed = 42;
    std::vector<std::vector<float>> logits(40, std::vector<float>(200));
    for (size_t i = 0; i < logits.size(); i++)
        for (size_t j = 0; j < 200; j++) logits[i][j] = static_cast<float>(uniform(i, j) * 8);
    const auto history = [](size_t i) { return std::vector<int32_t>(i, static_cast<int32_t>(i * 3)); };

    std::vector<int32_t> in_order, backwards(logits.size()), fresh;
    Sampler one(o), two(o);
    for (size_t i = 0; i < logits.size(); i++) in_order.push_back(one.sample(logits[i], history(i), i));
    for (size_t i = logits.size(); i-- > 0;) {
        two.sample(logits[(i * 7) % logits.size()], {}, 1000 + i);  // others in between
        backwards[i] = two.sample(logits[i], history(i), i);
    }
    for (size_t i = 0; i < logits.size(); i++) fresh.push_back(Sampler(o).sample(logits[i], history(i), i));
    EXPECT_EQ(in_order, backwards);
    EXPECT_EQ(in_order, fresh);
    EXPECT_GT(std::set<int32_t>(in_order.begin(), in_order.end()).size(), 10U) << "they would agree on anything";

    // Another seed, or another draw, draws otherwise.
    o.seed = 43;
    size_t differ_by_seed = 0, differ_by_draw = 0;
    for (size_t i = 0; i < logits.size(); i++) {
        differ_by_seed += Sampler(o).sample(logits[i], history(i), i) != in_order[i] ? 1 : 0;
        differ_by_draw += one.sample(logits[i], history(i), i + 1) != in_order[i] ? 1 : 0;
    }
    EXPECT_GT(differ_by_seed, 20U);
    EXPECT_GT(differ_by_draw, 20U);
}

// Pearson's statistic of `n` draws against exact probabilities.
double chi_square(const std::vector<double> &p, size_t n, const std::function<int32_t(size_t)> &draw) {
    std::vector<double> seen(p.size(), 0);
    for (size_t i = 0; i < n; i++) seen[static_cast<size_t>(draw(i))]++;
    double sum = 0;
    for (size_t i = 0; i < p.size(); i++) {
        const double expected = p[i] * static_cast<double>(n);
        sum += (seen[i] - expected) * (seen[i] - expected) / expected;
    }
    return sum;
}

TEST(SamplerDraw, FollowsTheDistribution) {
    // 99.9% of true samples stay below 24.32 with 7 degrees of freedom. The seeds are fixed.
    const std::vector<double> p{0.35, 0.02, 0.25, 0.13, 0.05, 0.1, 0.07, 0.03};
    const std::vector<float> logits = logs(p);
    SamplerOptions o = plain();
    o.seed = 20240607;
    Sampler s(o);
    EXPECT_LT(chi_square(p, 20000, [&](size_t i) { return s.sample(logits, {}, i); }), 24.32);
    // One draw of many seeds, as users do who let the seed be random.
    EXPECT_LT(chi_square(p, 20000,
                         [&](size_t i) {
                             SamplerOptions with = plain();
                             with.seed = i;
                             return Sampler(with).sample(logits, {}, 0);
                         }),
              24.32);
    // The test itself can tell: a distribution off by 3% of one token is refused.
    std::vector<double> other = p;
    other[0] -= 0.03, other[2] += 0.03;
    EXPECT_GT(chi_square(other, 20000, [&](size_t i) { return s.sample(logits, {}, i); }), 24.32);
    // After cuts and temperature: squares of 0.35, 0.25, 0.13.
    o.top_k = 3, o.temperature = 0.5F;
    Sampler cut(o);
    const double a = 0.35 * 0.35, b = 0.25 * 0.25, c = 0.13 * 0.13, sum = a + b + c;
    const std::vector<double> kept{a / sum, b / sum, c / sum};
    EXPECT_LT(chi_square(kept, 20000,
                         [&](size_t i) {
                             const int32_t id = cut.sample(logits, {}, i);
                             return id == 0 ? 0 : id == 2 ? 1 : 2;
                         }),
              13.82);  // 99.9%, 2 degrees of freedom
}

TEST(SamplerDraw, UniformNumbersAreUniform) {
    for (uint64_t seed : {0ULL, 1ULL, ~0ULL}) {
        double sum = 0, lag = 0, before = 0.5;
        for (uint64_t i = 0; i < 20000; i++) {
            const double u = uniform(seed, i);
            ASSERT_GE(u, 0);
            ASSERT_LT(u, 1);
            sum += u, lag += (u - 0.5) * (before - 0.5), before = u;
        }
        // Four standard deviations.
        EXPECT_NEAR(sum / 20000, 0.5, 4 * std::sqrt(1 / 12. / 20000));
        EXPECT_NEAR(lag / 20000, 0, 4 / 12. / std::sqrt(20000.));
    }
    // Neighbouring seeds are no shifted copies of each other.
    for (uint64_t i = 0; i < 100; i++) EXPECT_NE(uniform(7, i + 1), uniform(8, i));
}

TEST(SamplerErrors, DamagedLogits) {
    for (float bad : {kNan, kInf})
        for (float temperature : {0.0F, 1.0F}) {
            SamplerOptions o = plain();
            o.temperature = temperature;
            const std::string m = error_of(ErrorKind::device, [&] {
                Sampler(o).sample(std::vector<float>{1, 2, bad, 3}, {}, 0);
            });
            EXPECT_NE(m.find("logit of token 2"), std::string::npos) << m;
            EXPECT_NE(m.find("ridge gate"), std::string::npos) << m;
        }
    EXPECT_NO_THROW(Sampler(plain()).sample(std::vector<float>{1, -kInf}, {}, 0));
}

TEST(SamplerErrors, EverythingBanned) {
    for (float temperature : {0.0F, 1.0F}) {
        SamplerOptions o = plain();
        o.temperature = temperature;
        o.logit_bias = {{0, -kInf}, {1, -kInf}};
        const std::string m = error_of(ErrorKind::usage, [&] { Sampler(o).sample(std::vector<float>{1, 2}, {}, 0); });
        EXPECT_NE(m.find("ban every token"), std::string::npos) << m;
    }
}

TEST(SamplerErrors, BiasOutsideTheVocabulary) {
    for (int32_t id : {-1, 2, 1000000}) {
        SamplerOptions o = plain();
        o.logit_bias = {{id, 1}};
        const std::string m = error_of(ErrorKind::usage, [&] { Sampler(o).sample(std::vector<float>{1, 2}, {}, 0); });
        EXPECT_NE(m.find(std::to_string(id)), std::string::npos) << m;
        EXPECT_NE(m.find("ends at 1"), std::string::npos) << m;
    }
}

TEST(SamplerErrors, OptionsOutOfRange) {
    struct Case {
        const char *option;
        std::function<void(SamplerOptions &, float)> set;
        std::vector<float> good, bad;
    };
    const Case cases[] = {
        {"temperature", [](auto &o, float v) { o.temperature = v; }, {0, 1e-30F, 1, 100}, {-0.1F, 100.1F, kInf, kNan}},
        {"top-p", [](auto &o, float v) { o.top_p = v; }, {1e-30F, 0.5F, 1}, {0, -1, 1.01F, kNan, kInf}},
        {"min-p", [](auto &o, float v) { o.min_p = v; }, {0, 0.5F, 1}, {-0.01F, 1.01F, kNan}},
        {"typical-p", [](auto &o, float v) { o.typical_p = v; }, {1e-30F, 1}, {0, -1, 1.01F, kNan}},
        {"repetition penalty", [](auto &o, float v) { o.repetition_penalty = v; }, {0.01F, 1, 100}, {0, -1, 101, kNan}},
        {"presence penalty", [](auto &o, float v) { o.presence_penalty = v; }, {-100, 0, 100}, {-101, 101, kNan, kInf}},
        {"frequency penalty", [](auto &o, float v) { o.frequency_penalty = v; }, {-100, 0, 100}, {-101, 101, kNan}},
        {"logit bias of token 7",
         [](auto &o, float v) { o.logit_bias[7] = v; },
         {-kInf, -1e30F, 0, 1e30F},
         {kInf, kNan}},
    };
    EXPECT_NO_THROW(validate(SamplerOptions{}));
    for (const Case &c : cases) {
        for (float v : c.good) {
            SamplerOptions o;
            c.set(o, v);
            EXPECT_NO_THROW(validate(o)) << c.option << " " << v;
        }
        for (float v : c.bad) {
            SamplerOptions o;
            c.set(o, v);
            const std::string m = error_of(ErrorKind::usage, [&] { validate(o); });
            EXPECT_NE(m.find(c.option), std::string::npos) << m;
            EXPECT_NE(m.find("must be"), std::string::npos) << m;
            error_of(ErrorKind::usage, [&] { Sampler sampler(o); });
        }
    }
}

}  // namespace
}  // namespace ridge
