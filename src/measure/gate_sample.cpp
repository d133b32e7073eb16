// Problems for Sample: rows of logits of several characters, each drawn by options of its own.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "measure/gate_problems.h"
#include "op/sampling.h"

namespace ridge::gate {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Logits as a model gives them; many equal ones, zeros of both signs among them; few that are not -infinity; all equal;
// far apart; close to each other; and what nothing can be drawn from.
void fill_logits(Random &random, size_t row, std::span<double> x) {
    const auto n = static_cast<uint32_t>(x.size());
    const double scale[] = {3, 0, 0, 1, 60, 0.3, 8};
    for (double &v : x) v = static_cast<float>(scale[row % 7] * random.normal());
    if (row % 7 == 1)
        for (double &v : x) v = random.below(2) ? -0.0 : static_cast<double>(random.below(9)) / 4 - 2;
    if (row % 7 == 2) {
        std::fill(x.begin(), x.end(), -kInfinity);
        for (uint32_t i = 0; i < 5; i++) x[random.below(n)] = i % 2 == 0 ? -3e38f : static_cast<float>(random.normal());
    }
    if (row % 14 == 3) std::fill(x.begin(), x.end(), x[0]);
    if (row % 7 == 6) x[n - 1] = x[random.below(n)] = 20;
    if (row % 11 == 5) x[random.below(n)] = kInfinity;
    if (row % 11 == 7) x[random.below(n)] = std::numeric_limits<double>::quiet_NaN();
    if (row % 11 == 9) std::fill(x.begin(), x.end(), -kInfinity);
}

Draw some_draw(Random &random, uint32_t n) {
    constexpr float kTemperatures[] = {0, 0.3f, 1, 2, 0.7f, 1e-4f, 100}, kTopP[] = {0.95f, 0.8f, 0.5f, 0.999f, 1e-30f},
                    kMinP[] = {0.05f, 0.2f, 0.5f, 1};
    const uint32_t ks[] = {1, 2, 3, 5, 40, sampling::kMostCandidates, std::min(n + 1, sampling::kMostCandidates)};
    Draw d;
    d.temperature = kTemperatures[random.below(std::size(kTemperatures))];
    d.top_p = random.below(3) == 0 ? 1 : kTopP[random.below(std::size(kTopP))];
    d.min_p = random.below(3) == 0 ? 0 : kMinP[random.below(std::size(kMinP))];
    d.top_k = ks[random.below(std::size(ks))];
    const double ends[] = {0, 1 - 0x1p-53};
    d.uniform = random.below(8) == 0 ? ends[random.below(2)] : random.uniform();
    return d;
}

// Draws are such that no correct sum makes another token of them: relative to what was summed they are further from the
// next one than the roundings of 128 terms.
constexpr double kLeastMargin = 1e-12, kAtEnd = 1e-10;

void try_sample(Trial &trial, uint32_t n, size_t salt, std::vector<uint32_t> steps) {
    Problem p;
    const ValueId x = p.program.add_value({"x", DType::f32, Rows::outputs, 1, n});
    const ValueId ids = p.program.add_value({"ids", DType::i32, Rows::outputs, 1, 1});
    p.program.nodes = {{Sample{x, ids}, 0, 0}};
    p.name = fmt::format("n={}, draws {}", n, salt);
    p.steps = std::move(steps);
    p.plain_tokens(p.steps.back());
    // Outputs are rows of their own, not those of the tokens.
    if (p.tokens.size() > 2) p.tokens[1].wanted = false;
    p.fill = [x, ids, n, salt](Problem &q) {
        Random random(n + 1000 * salt);
        const size_t rows = q.rows(x);
        Reals logits(rows * n), want;
        size_t row = 0;
        for (Token &t : q.tokens) {
            if (!t.wanted) continue;
            const std::span<double> r(&logits[row * n], n);
            fill_logits(random, row + salt, r);
            const auto draw = [&] {
                return oracle::draw(r, {.top_k = t.draw.top_k,
                                        .top_p = double{t.draw.top_p},
                                        .min_p = double{t.draw.min_p},
                                        .temperature = double{t.draw.temperature},
                                        .uniform = t.draw.uniform});
            };
            oracle::Drawn d;
            do {
                t.draw = some_draw(random, n);
                d = draw();
                // A number at one end of those that give the token, where a sum that is off by more would give another.
                if (random.below(2) && d.end - d.begin > 2 * kAtEnd) {
                    const bool low = random.below(2) && d.begin > 0;
                    t.draw.uniform = low ? d.begin + kAtEnd : d.end - kAtEnd;
                    d = draw();
                }
            } while (d.id >= 0 && d.margin < kLeastMargin);
            want.push_back(d.id);
            row++;
        }
        q.inputs.push_back({x, std::move(logits)});
        q.expect(ids, std::move(want));
    };
    trial.run(p);
}

}  // namespace

void try_sample(Trial &trial) {
    if (!trial.wants(kind<Sample>())) return;
    const bool quick = trial.options().quick;
    for (const uint32_t n : {1u, 2u, 5u, 128u, 129u, 1001u})
        for (size_t salt = 0; salt < (quick ? 3 : 20); salt++) try_sample(trial, n, salt, {1, 3, 100});
    for (size_t salt = 0; salt < (quick ? 1 : 4); salt++) {
        try_sample(trial, 5003, salt, {1, 34});
        try_sample(trial, 40000, salt, {1, 12});
    }
    if (!quick) try_sample(trial, 151936, 0, {1, 9});
    // More than the blocks of a row can hold at a time, on a device.
    if (!quick) try_sample(trial, 300007, 0, {4});
}

}  // namespace ridge::gate
