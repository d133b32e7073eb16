// The text that all who draw share (op/sampling.h), and rows of Sample against the host's sampler: the same tokens.
#include "op/sampling.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/cpu/cpu.h"
#include "runtime/generate.h"
#include "runtime/sampled_rows.h"

namespace ridge::test {
namespace {

TEST(Sampling, ExpIsWithinItsBound) {
    std::mt19937_64 random(1);
    double worst = 0;
    const auto check = [&](double x) {
        const long double want = std::exp(static_cast<long double>(x));
        const double nearest = static_cast<double>(want), ulp = std::nextafter(nearest, 2.0) - nearest;
        const auto off = static_cast<double>(std::fabs(static_cast<long double>(sampling::exp(x)) - want) / ulp);
        worst = std::max(worst, off);
        ASSERT_LT(off, 1.1) << x;
    };
    for (int i = 0; i < 1000000; i++) {
        const double u = static_cast<double>(random() >> 11) * 0x1p-53;
        check(-u), check(-708 * u), check(-40 * u), check(-std::pow(2.0, -60 * u));
        // Where the reduction's remainder is largest.
        const double half = (std::floor(1000 * u) + 0.5) * -0.6931471805599453;
        check(std::max(half, -708.0)), check(std::max(std::nextafter(half, -1000), -708.0));
    }
    fmt::print("worst {:.3f} ulp\n", worst);
    EXPECT_EQ(sampling::exp(0), 1);
    EXPECT_EQ(sampling::exp(-0.0), 1);
    check(-708), check(-0x1p-1074), check(-0x1p-54);
    for (const double x : {-708.0000000000001, -745.0, -1e6, -1e300, -std::numeric_limits<double>::infinity()})
        EXPECT_EQ(sampling::exp(x), 0) << x;
}

TEST(Sampling, FirstFindsWhereSomethingBegins) {
    for (uint32_t n = 0; n < 40; n++)
        for (uint32_t begin = 0; begin <= n; begin++)
            EXPECT_EQ(sampling::first(n, [&](uint32_t i) { return i >= begin; }), begin);
}

TEST(Sampling, TheLastPlaceIsReachedAndNoneBehindIt) {
    for (uint32_t n = 1; n <= sampling::kMostCandidates; n++) {
        std::vector<double> weight(n, 1.0 / 3), sum(n);
        sampling::add_up(weight.data(), sum.data(), n);
        EXPECT_EQ(sampling::drawn(sum.data(), n, 1 - 0x1p-53), n - 1);
        EXPECT_EQ(sampling::drawn(sum.data(), n, 0), 0U);
        // What adds nothing to the sum is never drawn, and top-p 1 keeps it.
        weight.assign(n, 1e-300), weight[0] = 1;
        sampling::add_up(weight.data(), sum.data(), n);
        EXPECT_EQ(sampling::drawn(sum.data(), n, 1 - 0x1p-53), 0U);
        EXPECT_EQ(sampling::kept(weight.data(), sum.data(), n, 1, 0), n);
    }
}

TEST(Sampling, TheCpuDrawsWhatTheHostDraws) {
    const auto cpu = make_cpu_backend({.threads = 2});
    size_t draws = 0;
    for (const uint32_t n : {1U, 2U, 100U, 300U, 5000U}) {
        const Agreement a = agreement(*cpu, n, 16, n > 1000 ? 20 : 100, n);
        EXPECT_EQ(a.differ, 0U) << n;
        EXPECT_GT(a.spread, n >= 100 ? 0.2 : -1) << n;
        draws += a.draws;
    }
    EXPECT_GT(draws, 6000U);
}

TEST(Sampling, DrawsFollowTheDistribution) {
    const std::vector<double> p{0.35, 0.02, 0.25, 0.13, 0.05, 0.1, 0.07, 0.03};
    constexpr uint32_t kRows = 500, kRounds = 40;
    std::vector<float> logits;
    for (uint32_t r = 0; r < kRows; r++)
        for (const double x : p) logits.push_back(static_cast<float>(std::log(x)));
    const auto cpu = make_cpu_backend({.threads = 2});
    SampledRows sampled(*cpu, 8, kRows);
    SamplerOptions o;
    o.temperature = 1, o.top_p = 1, o.min_p = 0, o.seed = 3;
    const Sampler sampler(o);
    std::vector<double> seen(8);
    for (uint32_t round = 0; round < kRounds; round++) {
        std::vector<Draw> draws;
        for (uint32_t r = 0; r < kRows; r++) draws.push_back(sampler.on_device(round * kRows + r));
        for (const int32_t id : sampled.run(logits, draws)) seen[static_cast<size_t>(id)]++;
    }
    double chi = 0;
    for (size_t i = 0; i < 8; i++) {
        const double expected = p[i] * kRows * kRounds;
        chi += (seen[i] - expected) * (seen[i] - expected) / expected;
    }
    EXPECT_LT(chi, 24.32);  // 99.9%, 7 degrees of freedom
}

TEST(Sampling, WhatADeviceCanDraw) {
    const SamplerOptions usual;
    const auto with = [&](auto change) {
        SamplerOptions o = usual;
        change(o);
        return chooses_for(o);
    };
    EXPECT_EQ(chooses_for(usual), Chooses::drawn);
    EXPECT_EQ(with([](auto &o) { o.temperature = 0; }), Chooses::largest);
    EXPECT_EQ(with([](auto &o) { o.temperature = 0, o.top_k = 0, o.typical_p = 0.5F; }), Chooses::largest);
    EXPECT_EQ(with([](auto &o) { o.top_k = 1; }), Chooses::drawn);
    EXPECT_EQ(with([](auto &o) { o.top_k = sampling::kMostCandidates; }), Chooses::drawn);
    EXPECT_EQ(with([](auto &o) { o.top_k = sampling::kMostCandidates + 1; }), Chooses::nothing);
    EXPECT_EQ(with([](auto &o) { o.top_k = 0; }), Chooses::nothing);
    EXPECT_EQ(with([](auto &o) { o.typical_p = 0.99F; }), Chooses::nothing);
    for (const float temperature : {0.0F, 1.0F}) {
        const auto at = [&](auto change) { return with([&](auto &o) { o.temperature = temperature, change(o); }); };
        EXPECT_EQ(at([](auto &o) { o.repetition_penalty = 1.1F; }), Chooses::nothing);
        EXPECT_EQ(at([](auto &o) { o.presence_penalty = 0.1F; }), Chooses::nothing);
        EXPECT_EQ(at([](auto &o) { o.frequency_penalty = -0.1F; }), Chooses::nothing);
        EXPECT_EQ(at([](auto &o) { o.logit_bias[3] = 0; }), Chooses::nothing);
    }
    // Greedy, whatever else is said.
    SamplerOptions greedy;
    greedy.temperature = 0, greedy.top_k = 0;
    EXPECT_EQ(Sampler(greedy).on_device(9).temperature, 0);
    const Draw d = Sampler(usual).on_device(9);
    EXPECT_EQ(d.temperature, usual.temperature);
    EXPECT_EQ(d.top_k, usual.top_k);
    EXPECT_EQ(d.uniform, uniform(usual.seed, 9));
}

}  // namespace
}  // namespace ridge::test
