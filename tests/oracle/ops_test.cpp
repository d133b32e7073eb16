// The oracle's operations on examples small enough to compute by hand.
#include "oracle/ops.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>

namespace ridge::oracle {
namespace {

constexpr double kTiny = 1e-14;

void expect_near(const Reals &got, const Reals &want, double tolerance = kTiny) {
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], tolerance) << "element " << i;
}

TEST(OracleOps, ContractSumsAndMagnitudes) {
    const Reals w = {1, 2, 3, -1, 0, 1}, x = {1, -1, 2, 0.5, 0, -4};
    const Sums y = contract({.m = 2, .n = 2, .k = 3}, w, x);
    EXPECT_EQ(y.sum, (Reals{5, 1, -11.5, -4.5}));
    EXPECT_EQ(y.magnitude, (Reals{9, 3, 12.5, 4.5}));
}

TEST(OracleOps, ContractByExpert) {
    const Reals w = {1, 0, /**/ 0, 1, /**/ 10, 100}, x = {2, 3, 4, 5};
    const std::vector<int32_t> ids = {2, 0, 1, 2};
    const Sums y = contract({.m = 2, .n = 1, .k = 2, .experts = 3, .chosen = 2}, w, x, ids);
    EXPECT_EQ(y.sum, (Reals{320, 2, 5, 540}));
    // As a callable, and with one expert per row.
    const Sums z = contract(
        {.m = 2, .n = 1, .k = 2, .experts = 3}, [&](size_t r, size_t c) { return w[2 * r + c]; }, x,
        std::vector<int32_t>{1, 0});
    EXPECT_EQ(z.sum, (Reals{3, 4}));
}

TEST(OracleOps, RmsNorm) {
    // Mean square of (3, 4) is 12.5; with eps 12.5 the root is 5.
    expect_near(rms_norm(Reals{3, 4, 0, 0}, Reals{1, -2}, 12.5), {0.6, -1.6, 0, 0});
    expect_near(rms_norm(Reals{2, -2}, Reals{1, 1}, 0), {1, -1});
}

TEST(OracleOps, RopePairs) {
    const Reals x = {1, 2, 3, 4, 9};
    const std::vector<int32_t> positions = {1};
    const Reals frequencies = {std::numbers::pi, std::numbers::pi / 2};
    Rope how{.frequencies = frequencies};
    how.pairs = RopePairs::halves;  // (1, 3) by 180 degrees, (2, 4) by 90
    expect_near(rope(how, x, 1, 5, positions), {-1, -4, -3, 2, 9});
    how.pairs = RopePairs::adjacent;  // (1, 2) by 180, (3, 4) by 90
    expect_near(rope(how, x, 1, 5, positions), {-1, -2, -4, 3, 9});
    how.magnitude = 1.5;  // what does not turn keeps its size
    expect_near(rope(how, x, 1, 5, positions), {-1.5, -3, -6, 4.5, 9});
}

TEST(OracleOps, RopeUsesEachTokensPosition) {
    const Reals x = {1, 0, 0, 1, /**/ 1, 0, 0, 1};  // two tokens of two heads
    const Reals frequencies = {std::numbers::pi / 2};
    const Rope how{.frequencies = frequencies};
    expect_near(rope(how, x, 2, 2, std::vector<int32_t>{0, 3}), {1, 0, 0, 1, 0, -1, 1, 0});
}

TEST(OracleOps, RopeFrequenciesFallGeometrically) {
    expect_near(rope_frequencies(6, 1000), {1, 0.1, 0.01});
    EXPECT_TRUE(rope_frequencies(0, 1000).empty());
}

// Base 16 and 4 pairs: pair i turns 16 * 2^-i times in a context of 2 pi * 16.
Yarn small_yarn(double beta_fast, double beta_slow, bool whole_pairs) {
    return {.base = 16,
            .factor = 4,
            .original_context = 2 * std::numbers::pi * 16,
            .beta_fast = beta_fast,
            .beta_slow = beta_slow,
            .whole_pairs = whole_pairs};
}

TEST(OracleOps, YarnSlowsWhatTurnsSlowly) {
    const Reals frequencies = rope_frequencies(8, 16);
    expect_near(frequencies, {1, 0.5, 0.25, 0.125});
    // Pair 1 turns 8 times, pair 3 turns 2 times: pair 2 lies halfway between 1 and a quarter.
    const Reals want = {1, 0.5, 0.25 * 0.625, 0.125 * 0.25};
    expect_near(yarn_frequencies(small_yarn(8, 2, false), frequencies), want);
    // 6 turns: pair log2(16 / 6) = 1.415, and 2.5 turns: pair 2.678. Whole pairs are 1 and 3 again.
    expect_near(yarn_frequencies(small_yarn(6, 2.5, true), frequencies), want);
    const double low = std::log2(16 / 6.0), high = std::log2(16 / 2.5);
    const double part = (2 - low) / (high - low);
    expect_near(yarn_frequencies(small_yarn(6, 2.5, false), frequencies),
                {1, 0.5, 0.25 * (1 - 0.75 * part), 0.125 * 0.25});
}

TEST(OracleOps, YarnAtTheEdges) {
    const Reals frequencies = rope_frequencies(8, 16);
    // Both ends at pair 2: a step behind it.
    expect_near(yarn_frequencies(small_yarn(4, 4, false), frequencies), {1, 0.5, 0.25, 0.125 / 4});
    // The ramp begins before the first pair: it is cut there.
    expect_near(yarn_frequencies(small_yarn(64, 4, false), frequencies), {1, 0.5 * 0.625, 0.25 / 4, 0.125 / 4});
    // Its end behind the last: element 7 of 8 counts as the last pair.
    expect_near(yarn_frequencies(small_yarn(16, 0.001, false), frequencies),
                {1, 0.5 * (1 - 0.75 / 7), 0.25 * (1 - 1.5 / 7), 0.125 * (1 - 2.25 / 7)});
}

TEST(OracleOps, MagnitudesOfStretchedContexts) {
    EXPECT_NEAR(yarn_magnitude(10), 1.2302585092994046, kTiny);
    EXPECT_EQ(yarn_magnitude(1), 1);
    EXPECT_EQ(yarn_magnitude(0.5), 1);
    EXPECT_NEAR(longrope_magnitude(4, 256), std::sqrt(1.25), kTiny);  // ln 4 / ln 256 = 1/4
    EXPECT_EQ(longrope_magnitude(1, 256), 1);
    EXPECT_EQ(longrope_magnitude(0.5, 256), 1);
}

TEST(OracleOps, AttentionWeighsVisibleCells) {
    // Two query heads share one kv head. Scores of head 0: ln 3 and 0 (weights 3/4, 1/4); of head 1: equal.
    const AttentionShape shape{.heads = 2, .kv_heads = 1, .k_dim = 1, .v_dim = 2, .scale = 1};
    const Reals q = {std::log(3.0), 0, /**/ std::log(3.0), 0};
    const Reals k = {1, 0, 7}, v = {4, -8, 8, 8, 100, 100};
    const std::vector<int32_t> q_positions = {5, 4}, k_positions = {4, 5, -1};
    const Attention y = attention(shape, q, k, v, q_positions, k_positions);
    expect_near(y.sum, {5, -4, 6, 0, /* the second token sees one cell */ 4, -8, 4, -8});
    expect_near(y.magnitude, {5, 8, 6, 8, 4, 8, 4, 8});
    expect_near(y.score_magnitude, {std::log(3.0), 0, std::log(3.0), 0});
}

TEST(OracleOps, AttentionGroupsHeadsAndScales) {
    // Four query heads, two kv heads: 0 and 1 read the first, 2 and 3 the second. Scale 1/sqrt(4) by default.
    const AttentionShape shape{.heads = 4, .kv_heads = 2, .k_dim = 4, .v_dim = 1};
    Reals q(16, 0.0), k(16, 0.0);
    q[0] = 2 * std::log(4.0);  // head 0, score of cell 0: log 4 -> weights 4/5, 1/5
    k[0] = 1;
    const Reals v = {10, 1, /**/ 20, 3};  // (2 cells, 2 kv heads)
    const Attention y = attention(shape, q, k, v, std::vector<int32_t>{1}, std::vector<int32_t>{0, 1});
    expect_near(y.sum, {12, 15, 2, 2});
}

TEST(OracleOps, AttentionOfNothingIsZero) {
    const AttentionShape shape{.heads = 1, .kv_heads = 1, .k_dim = 1, .v_dim = 1};
    const Attention y =
        attention(shape, Reals{1}, Reals{1}, Reals{1}, std::vector<int32_t>{0}, std::vector<int32_t>{1});
    EXPECT_EQ(y.sum, Reals{0});
}

TEST(OracleOps, AttentionWithinAWindow) {
    AttentionShape shape{.heads = 1, .kv_heads = 1, .k_dim = 1, .v_dim = 1};
    const Reals q = {0, 0}, k = {0, 0, 0, 0, 0}, v = {1, 10, 100, 1000, 10000};
    const std::vector<int32_t> q_positions = {2, 4}, k_positions = {1, 4, 3, 0, 2};  // cells in any order
    shape.window = 2;  // the query's own position and one before
    expect_near(attention(shape, q, k, v, q_positions, k_positions).sum, {(1 + 10000) / 2.0, (10 + 100) / 2.0});
    shape.window = 1;
    expect_near(attention(shape, q, k, v, q_positions, k_positions).sum, {10000, 10});
    const Reals all = {(1 + 1000 + 10000) / 3.0, 11111 / 5.0};
    for (const size_t window : {0, 5, 1000}) {
        shape.window = window;
        expect_near(attention(shape, q, k, v, q_positions, k_positions).sum, all, 1e-11);
    }
}

TEST(OracleOps, AttentionCapsScores) {
    // Scores of 2000 and -2000 become 1 and -1; the scale stands before the cap.
    AttentionShape shape{.heads = 1, .kv_heads = 1, .k_dim = 1, .v_dim = 1, .scale = 2};
    shape.softcap = 1;
    const Reals q = {1000}, k = {1, -1}, v = {1, 3};
    const std::vector<int32_t> one = {1}, two = {0, 1};
    const double e2 = std::exp(2);
    expect_near(attention(shape, q, k, v, one, two).sum, {(e2 + 3) / (e2 + 1)});
    // Small scores pass: atanh(ln 2 / 4) * 4 becomes ln 2, weights 2/3 and 1/3.
    shape.softcap = 4, shape.scale = 1;
    const Reals small = {4 * std::atanh(std::log(2.0) / 4)}, keys = {1, 0};
    expect_near(attention(shape, small, keys, v, one, two).sum, {5.0 / 3});
}

TEST(OracleOps, AttentionSinksTakeAShare) {
    AttentionShape shape{.heads = 2, .kv_heads = 1, .k_dim = 1, .v_dim = 1, .scale = 1};
    const Reals sinks = {std::log(4.0), -INFINITY};  // of head 1: no weight
    shape.sinks = sinks;
    const Reals q = {std::log(3.0), std::log(3.0)}, k = {1, 0}, v = {8, -16};
    // Weights 3, 1 and the sink's 4; without it 3 and 1.
    const Attention y = attention(shape, q, k, v, std::vector<int32_t>{1}, std::vector<int32_t>{0, 1});
    expect_near(y.sum, {3 - 2, 6 - 4});
    expect_near(y.magnitude, {3 + 2, 6 + 4});
    // They are not scaled or capped.
    shape.softcap = 1e6, shape.scale = 2;
    const Reals half = {std::log(3.0) / 2, std::log(3.0) / 2};
    expect_near(attention(shape, half, k, v, std::vector<int32_t>{1}, std::vector<int32_t>{0, 1}).sum, {1, 2}, 1e-9);
}

TEST(OracleOps, UnitsOfFeedForwardNetworks) {
    EXPECT_EQ(sigmoid(0), 0.5);
    EXPECT_NEAR(sigmoid(1), 0.7310585786300049, kTiny);
    EXPECT_EQ(sigmoid(-1000), 0);
    EXPECT_EQ(softcap(0, 30), 0);
    EXPECT_NEAR(softcap(30, 30), 30 * 0.7615941559557649, 1e-13);
    EXPECT_NEAR(softcap(-1e6, 30), -30, kTiny);
    EXPECT_EQ(gelu(0), 0);
    EXPECT_NEAR(gelu(1), 0.8411919906082767, kTiny);
    EXPECT_NEAR(gelu(-0.5), -0.15428599017485607, kTiny);
    EXPECT_NEAR(gelu(40), 40, kTiny);
    expect_near(gelu_mul(Reals{3, -1}, Reals{2, -10}), {2 * 2.996362607918227, 1.5880800939172329}, 1e-13);
    // Gate 1 and up 0; both far above their limits; the gate has no lower one, and up is held to -7.
    expect_near(clamped_mul(Reals{1, 100, -3, 0}, Reals{0, 100, -100, 5}),
                {0.8457957659328213, 55.999625026426538, 0.10842785824671580, 0}, 1e-13);
}

TEST(OracleOps, SiluAndAdd) {
    EXPECT_EQ(silu(0), 0);
    EXPECT_NEAR(silu(1), 0.7310585786300049, kTiny);
    EXPECT_EQ(silu(-1000), 0);
    expect_near(silu_mul(Reals{1, 0}, Reals{-2, 5}), {-2 * 0.7310585786300049, 0});
    EXPECT_EQ(add(Reals{1, 2}, Reals{10, -2}), (Reals{11, 0}));
}

TEST(OracleOps, LogSumExpSoftmaxArgmax) {
    EXPECT_NEAR(log_sum_exp(Reals{1000, 1000}), 1000 + std::log(2.0), 1e-12);
    expect_near(softmax(Reals{std::log(1.0), std::log(3.0)}), {0.25, 0.75});
    EXPECT_EQ(argmax(Reals{1, 5, 5, 2}), 1u);
    EXPECT_EQ(argmax(Reals{-3}), 0u);
}

TEST(OracleOps, Draw) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    const Reals four{std::log(0.3), std::log(0.4), std::log(0.1), std::log(0.2)};
    const auto id = [&](double u, Draw how) {
        how.uniform = u;
        return draw(four, how).id;
    };
    const Draw all{.top_k = 4};
    EXPECT_EQ(id(0, all), 1);
    EXPECT_EQ(id(0.39, all), 1);
    EXPECT_EQ(id(0.41, all), 0);
    EXPECT_EQ(id(0.71, all), 3);
    EXPECT_EQ(id(0.91, all), 2);
    EXPECT_EQ(id(0.99, {.top_k = 1}), 1);
    EXPECT_EQ(id(0.56, {.top_k = 2}), 1);  // 4/7
    EXPECT_EQ(id(0.58, {.top_k = 2}), 0);
    EXPECT_EQ(id(0.99, {.top_k = 4, .top_p = 0.69}), 0);
    EXPECT_EQ(id(0.99, {.top_k = 4, .top_p = 0.71}), 3);
    EXPECT_EQ(id(0.99, {.top_k = 4, .min_p = 0.51}), 0);
    EXPECT_EQ(id(0.99, {.top_k = 4, .min_p = 0.49}), 3);
    EXPECT_EQ(id(0.99, {.top_k = 4, .temperature = 0}), 1);
    EXPECT_EQ(id(0.52, {.top_k = 4, .temperature = 0.5}), 1);  // 16/30
    EXPECT_EQ(id(0.54, {.top_k = 4, .temperature = 0.5}), 0);
    const Drawn d = draw(four, {.top_k = 4, .uniform = 0.5});
    EXPECT_NEAR(d.begin, 0.4, 1e-12);
    EXPECT_NEAR(d.end, 0.7, 1e-12);
    EXPECT_NEAR(d.margin, 0.2, 1e-12);  // 0.5 from 0.4, by 0.5
    EXPECT_LT(draw(four, {.top_k = 4, .uniform = 0.4}).margin, 1e-12);
    // Of equals the lower id; -infinity never; nothing of what has no order.
    EXPECT_EQ(draw(Reals{1, 2, 2, 2}, {.top_k = 2, .uniform = 0.9}).id, 2);
    EXPECT_EQ(draw(Reals{-kInfinity, 2}, {.top_k = 2, .uniform = 0.9}).id, 1);
    EXPECT_EQ(draw(Reals{-kInfinity, -kInfinity}, {.top_k = 2}).id, -1);
    EXPECT_EQ(draw(Reals{1, kInfinity}, {.top_k = 1}).id, -1);
    EXPECT_EQ(draw(Reals{std::nan(""), 1}, {.top_k = 1}).id, -1);
}

TEST(OracleOps, KlDivergence) {
    const Reals p = {std::log(1.0), std::log(1.0)}, q = {std::log(1.0), std::log(3.0)};
    // p = (1/2, 1/2), q = (1/4, 3/4): 1/2 log 2 + 1/2 log(2/3) = 1/2 log(4/3)
    EXPECT_NEAR(kl_divergence(p, q), 0.5 * std::log(4.0 / 3.0), kTiny);
    EXPECT_NEAR(kl_divergence(q, q), 0, kTiny);
    // A probability of zero contributes nothing.
    EXPECT_NEAR(kl_divergence(Reals{0, -INFINITY}, Reals{0, 0}), std::log(2.0), kTiny);
}

TEST(OracleOps, RouteTakesTheMostProbable) {
    // Probabilities 1/8, 4/8, 1/8, 2/8.
    const Reals logits = {0, std::log(4.0), 0, std::log(2.0)};
    const Routes plain = route(logits, 4, 3, false);
    EXPECT_EQ(plain.ids, (std::vector<int32_t>{1, 3, 0}));  // 0 before 2: equal, and lower
    expect_near(plain.weights, {0.5, 0.25, 0.125});
    EXPECT_NEAR(plain.margin[0], 0, kTiny);
    const Routes normalised = route(logits, 4, 2, true);
    EXPECT_EQ(normalised.ids, (std::vector<int32_t>{1, 3}));
    expect_near(normalised.weights, {2.0 / 3, 1.0 / 3});
    expect_near(normalised.margin, {0.125});
}

// What gpt-oss does: choose by logit, then softmax over the chosen alone. The margin stays one of probabilities.
TEST(OracleOps, NormalisedRoutesAreTheSoftmaxOfTheChosen) {
    const Reals logits = {0.3, -1.2, 2.5, 0.7, 1.9};
    const Routes r = route(logits, 5, 3, true);
    EXPECT_EQ(r.ids, (std::vector<int32_t>{2, 4, 3}));
    expect_near(r.weights, softmax(Reals{2.5, 1.9, 0.7}));
    const Reals p = softmax(logits);
    expect_near(r.margin, {p[3] - p[0]});
}

TEST(OracleOps, RouteEachTokenApart) {
    const Routes r = route(Reals{0, 1, 1, 0}, 2, 1, true);
    EXPECT_EQ(r.ids, (std::vector<int32_t>{1, 0}));
    expect_near(r.weights, {1, 1});
}

}  // namespace
}  // namespace ridge::oracle
