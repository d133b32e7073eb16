// Problems for softmax, normalize and the routing of experts.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/error.h"
#include "measure/gate_problems.h"
#include "op/bound.h"

namespace ridge::gate {
namespace {

std::vector<uint32_t> step_sizes(const Trial &trial) {
    if (trial.options().quick) return {1, 3, 9, 34};
    return {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 33, 66};
}

ValueId add_value(Problem &p, std::string name, uint32_t cols, DType type = DType::f32, uint32_t per_row = 1) {
    return p.program.add_value({std::move(name), type, Rows::tokens, per_row, cols});
}

// Rows of logits that differ in how far apart they are: 1, 30, all equal, one far above, 0.001.
Reals logits(Random &random, size_t rows, size_t n) {
    Reals x = normals(random, rows * n);
    for (size_t i = 0; i < x.size(); i++) {
        const size_t kind = i / n % 5;
        const double scale[] = {1, 30, 0, 1, 0.001};
        x[i] = static_cast<float>(x[i] * scale[kind] + (kind == 3 && i % n == n / 2 ? 80 : 0) + (kind == 2 ? 3 : 0));
    }
    return x;
}

// How far each logit of a row is below the largest, and the largest such distance.
struct Distances {
    Reals of;      // (rows, n)
    Reals spread;  // (rows)
};
Distances distances(RealSpan x, size_t n) {
    Distances d;
    for (size_t row = 0; row < x.size(); row += n) {
        const double top = *std::max_element(&x[row], &x[row] + n), low = *std::min_element(&x[row], &x[row] + n);
        for (size_t j = 0; j < n; j++) d.of.push_back(top - x[row + j]);
        d.spread.push_back(top - low);
    }
    return d;
}

Reals softmax_rows(RealSpan x, size_t n) {
    Reals p;
    for (size_t row = 0; row < x.size(); row += n) {
        const Reals one = oracle::softmax(x.subspan(row, n));
        p.insert(p.end(), one.begin(), one.end());
    }
    return p;
}

void try_softmax(Trial &trial, uint32_t n) {
    Problem p;
    const Softmax op{add_value(p, "x", n), add_value(p, "out", n)};
    p.program.nodes = {{op, 0, 0}};
    p.name = fmt::format("n={}", n);
    p.steps = step_sizes(trial);
    p.plain_tokens(p.steps.back());
    p.fill = [op, n](Problem &q) {
        Random random(n);
        Reals x = logits(random, q.rows(op.x), n);
        const Reals want = softmax_rows(x, n);
        q.expect(op.out, want, [=, d = distances(x, n)](Order o, size_t i) {
            return bound::softmax(o, n, want[i], d.of[i], d.spread[i / n]);
        });
        q.inputs.push_back({op.x, std::move(x)});
    };
    trial.run(p);
}

// What normalize meets: positive numbers, as probabilities are; some rows with zeros among them.
void try_normalize(Trial &trial, uint32_t k) {
    Problem p;
    const Normalize op{add_value(p, "x", k), add_value(p, "out", k)};
    p.program.nodes = {{op, 0, 0}};
    p.name = fmt::format("k={}", k);
    p.steps = step_sizes(trial);
    p.plain_tokens(p.steps.back());
    p.fill = [op, k](Problem &q) {
        Random random(k);
        Reals x, want, sums;
        for (size_t r = 0; r < q.rows(op.x); r++) {
            double sum = 0;
            for (size_t j = 0; j < k; j++) {
                const double size = r % 3 == 1 ? std::exp(20 * (random.uniform() - 1)) : random.uniform() + 0.01;
                x.push_back(r % 3 == 2 && j % 2 == 1 ? 0 : static_cast<float>(size));
                sum += x.back();
            }
            for (size_t j = 0; j < k; j++) want.push_back(x[r * k + j] / sum);
            sums.push_back(sum);
        }
        q.expect(op.out, want,
                 [=](Order o, size_t i) { return bound::normalize(o, k, want[i], sums[i / k], sums[i / k]); });
        q.inputs.push_back({op.x, std::move(x)});
    };
    trial.run(p);
}

// Many equal values, both zeros among them: of equals the lower index comes first.
Reals with_ties(Random &random, size_t rows, size_t n) {
    Reals x = normals(random, rows * n);
    for (size_t i = 0; i < x.size(); i++) {
        if (i / n % 3 == 1) x[i] = static_cast<double>(random.below(4)) - 1;
        if (i / n % 3 == 2) x[i] = random.below(2) ? 0.0 : -0.0;
        if (i / n % 6 == 5 && random.below(8) == 0) x[i] = 1;
    }
    return x;
}

void try_top_k(Trial &trial, uint32_t n, uint32_t k) {
    Problem p;
    const TopK op{add_value(p, "x", n), add_value(p, "ids", k, DType::i32), add_value(p, "weights", k)};
    p.program.nodes = {{op, 0, 0}};
    p.name = fmt::format("n={} k={}", n, k);
    p.steps = step_sizes(trial);
    p.plain_tokens(p.steps.back());
    p.fill = [op, n, k](Problem &q) {
        Random random(n * 100 + k);
        Reals x = with_ties(random, q.rows(op.x), n), ids, weights;
        for (size_t row = 0; row < x.size(); row += n) {
            std::vector<size_t> order(n);
            std::iota(order.begin(), order.end(), size_t{0});
            std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return x[row + a] > x[row + b]; });
            for (size_t s = 0; s < k; s++)
                ids.push_back(static_cast<double>(order[s])), weights.push_back(x[row + order[s]]);
        }
        q.inputs.push_back({op.x, std::move(x)});
        q.expect(op.ids, std::move(ids));
        q.expect(op.weights, std::move(weights));
    };
    trial.run(p);
}

// Rows of logits, of ties, and of what has no largest number.
void try_arg_max(Trial &trial, uint32_t n, uint32_t per_row) {
    Problem p;
    const ArgMax op{add_value(p, "x", n, DType::f32, per_row), add_value(p, "ids", 1, DType::i32, per_row)};
    p.program.nodes = {{op, 0, 0}};
    p.name = fmt::format("n={}, {} rows per token", n, per_row);
    p.steps = step_sizes(trial);
    p.plain_tokens(p.steps.back());
    p.fill = [op, n](Problem &q) {
        constexpr double kInfinity = std::numeric_limits<double>::infinity();
        Random random(n);
        Reals x = with_ties(random, q.rows(op.x), n), ids;
        for (size_t row = 0; row < q.rows(op.x); row++) {
            const std::span<double> r(&x[row * n], n);
            const uint32_t at = random.below(n), other = random.below(n);
            if (row % 7 == 1) r[at] = kInfinity;
            if (row % 7 == 2) r[at] = std::numeric_limits<double>::quiet_NaN(), r[other] = row % 2 == 0 ? 7 : kInfinity;
            if (row % 7 == 3) std::fill(r.begin(), r.end(), -kInfinity);
            if (row % 7 == 4) std::fill(r.begin(), r.end(), -kInfinity), r[at] = -3e38f, r[other] = -3e38f;
            if (row % 7 == 5) r[n - 1] = 9;
            const bool none = std::any_of(r.begin(), r.end(), [](double v) { return !(v < kInfinity); }) ||
                              *std::max_element(r.begin(), r.end()) == -kInfinity;
            ids.push_back(none ? -1 : static_cast<double>(oracle::argmax(r)));
        }
        q.inputs.push_back({op.x, std::move(x)});
        q.expect(op.ids, std::move(ids));
    };
    trial.run(p);
}

// Logits whose probabilities are told apart by any correct softmax: multiples of 1/8 within 12 of each other, so that
// two of them are equal (the lower id comes first) or a factor of 1.13 apart.
Reals routing_logits(Random &random, size_t rows, size_t experts) {
    Reals x(rows * experts);
    for (size_t i = 0; i < x.size(); i++) {
        const uint32_t levels = i / experts % 4 == 3 ? 3 : 97;
        x[i] = static_cast<double>(random.below(levels)) / 8 - 4;
    }
    return x;
}

void try_moe_route(Trial &trial, uint32_t experts, uint32_t k, bool normalize) {
    Problem p;
    MoeRoute op{add_value(p, "logits", experts), add_value(p, "ids", k, DType::i32), add_value(p, "weights", k),
                normalize};
    p.program.nodes = {{op, 0, 0}};
    p.name = fmt::format("{} of {} experts{}", k, experts, normalize ? ", normalised" : "");
    p.steps = step_sizes(trial);
    p.plain_tokens(p.steps.back());
    p.fill = [op, experts, k, normalize](Problem &q) {
        Random random(experts * 100 + k);
        Reals x = routing_logits(random, q.rows(op.logits), experts);
        const oracle::Routes routes = oracle::route(x, experts, k, normalize);
        q.expect(op.ids, Reals(routes.ids.begin(), routes.ids.end()));
        const Reals want = routes.weights;
        q.expect(op.weights, want, [=, d = distances(x, experts)](Order o, size_t i) {
            // All that are taken are off by no more than one as far below the maximum as there is.
            const double spread = d.spread[i / k];
            const double one = bound::softmax_relative(o, experts, spread, spread);
            if (!normalize) return one * want[i] + 4 * bound::kTiny;
            return 2 * one / (1 - one) * want[i] + 2 * bound::normalize(o, k, want[i], 1, 1);
        });
        q.inputs.push_back({op.logits, std::move(x)});
    };
    trial.run(p);
}

void try_moe_combine(Trial &trial, uint32_t n, uint32_t slots) {
    Problem p;
    const MoeCombine op{add_value(p, "x", n, DType::f32, slots), add_value(p, "weights", slots),
                        add_value(p, "out", n)};
    p.program.nodes = {{op, 0, 0}};
    p.name = fmt::format("n={} slots={}", n, slots);
    p.steps = step_sizes(trial);
    p.plain_tokens(p.steps.back());
    p.fill = [op, n, slots](Problem &q) {
        Random random(n);
        Reals x = activations(random, q.rows(op.x), n), weights = normals(random, q.rows(op.weights) * slots);
        Reals want(q.rows(op.out) * n), magnitude(want.size());
        for (size_t i = 0; i < want.size(); i++)
            for (size_t s = 0; s < slots; s++) {
                const double term = weights[i / n * slots + s] * x[(i / n * slots + s) * n + i % n];
                want[i] += term, magnitude[i] += std::fabs(term);
            }
        q.inputs = {{op.x, std::move(x)}, {op.weights, std::move(weights)}};
        // The operation itself fixes the order; a product may be rounded before it is added.
        q.expect(op.out, want, [magnitude, slots](Order, size_t i) {
            return bound::gamma(slots + 1) * magnitude[i] + 2 * slots * bound::kTiny;
        });
    };
    trial.run(p);
}

}  // namespace

void try_softmax(Trial &trial) {
    for (const uint32_t n : {1u, 2u, 8u, 17u, 64u, 128u, 1000u}) {
        if (trial.wants(kind<Softmax>())) try_softmax(trial, n);
        if (trial.wants(kind<Normalize>())) try_normalize(trial, n);
    }
}

void try_top_k(Trial &trial) {
    if (!trial.wants(kind<TopK>())) return;
    for (const uint32_t k : {1u, 2u, 4u, 8u}) try_top_k(trial, 128, k);
    try_top_k(trial, 4097, 3);
    try_top_k(trial, 5, 5), try_top_k(trial, 1, 1), try_top_k(trial, 61, 6);
}

void try_arg_max(Trial &trial) {
    if (!trial.wants(kind<ArgMax>())) return;
    for (const uint32_t n : {1u, 2u, 5u, 128u, 1001u, 5003u, 40000u}) try_arg_max(trial, n, 1);
    try_arg_max(trial, 4097, 3), try_arg_max(trial, 300, 16);
}

void try_moe_route(Trial &trial) {
    if (!trial.wants(kind<MoeRoute>())) return;
    for (const bool normalize : {false, true}) {
        for (const uint32_t k : {1u, 2u, 8u}) try_moe_route(trial, 128, k, normalize);
        try_moe_route(trial, 5, 5, normalize), try_moe_route(trial, 61, 6, normalize);
        try_moe_route(trial, 1, 1, normalize);
        // Rows choose kernels by experts and places.
        try_moe_route(trial, 256, 8, normalize), try_moe_route(trial, 199, 32, normalize);
        try_moe_route(trial, 512, 10, normalize), try_moe_route(trial, 64, 33, normalize);
    }
}

void try_moe_combine(Trial &trial) {
    if (!trial.wants(kind<MoeCombine>())) return;
    for (const uint32_t slots : {1u, 2u, 8u, 11u})
        for (const uint32_t n : {1u, 40u, 577u}) try_moe_combine(trial, n, slots);
}

}  // namespace ridge::gate
