// Rows of logits drawn by a device's row of Sample and by the host's sampler.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "engine/engine.h"
#include "op/sampling.h"
#include "runtime/sampler.h"

namespace ridge::test {

// Sample as a program of one operation.
class SampledRows {
  public:
    SampledRows(Backend &device, uint32_t n, uint32_t rows) : step_({.tokens = rows, .outputs = rows}) {
        Program p;
        x_ = p.add_value({"x", DType::f32, Rows::outputs, 1, n});
        ids_ = p.add_value({"ids", DType::i32, Rows::outputs, 1, 1});
        p.nodes = {{Sample{x_, ids_}, 0, 0}};
        p.inputs = {x_};
        p.levers = LeverSet::defaults();
        EngineOptions o;
        o.limits = step_.limits();
        engine_ = std::make_unique<Engine>(std::move(p), std::vector<Backend *>{&device}, weights_, o);
    }
    // A token of each row of `logits`, (draws.size(), n).
    std::vector<int32_t> run(std::span<const float> logits, std::span<const Draw> draws) {
        step_.begin();
        for (uint32_t r = 0; r < draws.size(); r++) {
            step_.add(0, r % kPageTokens, 0, true);
            step_.set_draw(r, draws[r]);
        }
        engine_->write_value(x_, std::as_bytes(logits));
        engine_->run(step_);
        const std::vector<std::byte> bytes = engine_->read_value(ids_, draws.size());
        std::vector<int32_t> ids(draws.size());
        std::memcpy(ids.data(), bytes.data(), bytes.size());
        return ids;
    }

  private:
    StepBuffer step_;
    WeightStore weights_;
    ValueId x_ = kNone, ids_ = kNone;
    std::unique_ptr<Engine> engine_;
};

// A row of some character: far apart or near, multiples of 1/4 with many equal, zeros of both signs, banned tokens.
inline std::vector<float> random_logits(std::mt19937 &random, uint32_t n) {
    std::normal_distribution<float> normal;
    const float scales[] = {0.01F, 1, 2, 40};
    const float scale = scales[random() % 4];
    const uint32_t kind = random() % 4;
    std::vector<float> x(n);
    for (float &v : x) {
        v = scale * normal(random);
        if (kind == 1) v = static_cast<float>(static_cast<int>(4 * v)) / 4;
        if (kind == 2 && random() % 3 == 0) v = -std::numeric_limits<float>::infinity();
    }
    x[random() % n] = 0.5F;
    return x;
}

// Options that leave the draw to a device.
inline SamplerOptions random_options(std::mt19937 &random) {
    const float temperatures[] = {0, 1e-3F, 0.3F, 0.7F, 1, 2, 50}, top_p[] = {1, 1, 0.95F, 0.5F},
                min_p[] = {0, 0, 0.05F, 0.3F};
    const uint32_t top_k[] = {1, 2, 7, 40, 100, sampling::kMostCandidates};
    SamplerOptions o;
    o.temperature = temperatures[random() % 7], o.top_p = top_p[random() % 4], o.min_p = min_p[random() % 4];
    o.top_k = top_k[random() % 6], o.seed = random();
    return o;
}

// `rounds` times as many random rows as the device takes at once: how many tokens differ from the host's, and how many
// different tokens there were.
struct Agreement {
    size_t draws = 0, differ = 0;
    double spread = 0;  // share of draws that are not the largest logit
};
inline Agreement agreement(Backend &device, uint32_t n, uint32_t rows, uint32_t rounds, uint32_t seed) {
    std::mt19937 random(seed);
    SampledRows sampled(device, n, rows);
    Agreement a;
    for (uint32_t round = 0; round < rounds; round++) {
        std::vector<float> logits;
        std::vector<Draw> draws;
        std::vector<int32_t> want;
        for (uint32_t r = 0; r < rows; r++) {
            const std::vector<float> row = random_logits(random, n);
            const uint64_t draw = random();
            Sampler sampler(random_options(random));
            logits.insert(logits.end(), row.begin(), row.end());
            want.push_back(sampler.sample(row, {}, draw));
            draws.push_back(sampler.on_device(draw));
            a.spread += row[static_cast<size_t>(want.back())] < *std::max_element(row.begin(), row.end()) ? 1 : 0;
        }
        const std::vector<int32_t> got = sampled.run(logits, draws);
        for (uint32_t r = 0; r < rows; r++) a.differ += got[r] != want[r] ? 1 : 0;
        a.draws += rows;
    }
    a.spread /= static_cast<double>(a.draws);
    return a;
}

}  // namespace ridge::test
