// The oracle's operations on examples small enough to compute by hand.
#include "oracle/ops.h"

#include <gtest/gtest.h>

#include <cmath>
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
    // rotated = 4, base = 4: the pairs turn by p and p/2. At position pi: 180 and 90 degrees, by way of `scale`.
    const Reals x = {1, 2, 3, 4, 9};
    const std::vector<int32_t> positions = {1};
    Rope how{.rotated = 4, .base = 4, .scale = std::numbers::pi};
    how.pairs = RopePairs::halves;  // (1, 3) by 180, (2, 4) by 90
    expect_near(rope(how, x, 1, 5, positions), {-1, -4, -3, 2, 9});
    how.pairs = RopePairs::adjacent;  // (1, 2) by 180, (3, 4) by 90
    expect_near(rope(how, x, 1, 5, positions), {-1, -2, -4, 3, 9});
    const Reals factors = {2, 1};  // now 90 and 90
    how.factors = factors;
    expect_near(rope(how, x, 1, 5, positions), {-2, 1, -4, 3, 9});
}

TEST(OracleOps, RopeUsesEachTokensPosition) {
    const Reals x = {1, 0, 0, 1, /**/ 1, 0, 0, 1};  // two tokens of two heads
    const Rope how{.rotated = 2, .scale = std::numbers::pi / 2};
    expect_near(rope(how, x, 2, 2, std::vector<int32_t>{0, 3}), {1, 0, 0, 1, 0, -1, 1, 0});
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

TEST(OracleOps, RouteEachTokenApart) {
    const Routes r = route(Reals{0, 1, 1, 0}, 2, 1, true);
    EXPECT_EQ(r.ids, (std::vector<int32_t>{1, 0}));
    expect_near(r.weights, {1, 1});
}

}  // namespace
}  // namespace ridge::oracle
