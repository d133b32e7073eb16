// The operations, each by its defining formula.
#include "oracle/ops.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>

#include "core/error.h"

namespace ridge::oracle {

Sums contract(const ContractShape &s, const WeightAt &w, RealSpan x, std::span<const int32_t> ids) {
    RIDGE_ASSERT(x.size() == s.m * s.k);
    RIDGE_ASSERT(ids.empty() || ids.size() == s.m * s.chosen);
    Sums y{Reals(s.m * s.chosen * s.n), Reals(s.m * s.chosen * s.n)};
    for (size_t row = 0; row < s.m * s.chosen; ++row) {
        const size_t expert = ids.empty() ? 0 : static_cast<size_t>(ids[row]);
        RIDGE_ASSERT(expert < s.experts);
        const RealSpan in = x.subspan(row / s.chosen * s.k, s.k);
        for (size_t o = 0; o < s.n; ++o) {
            double sum = 0, magnitude = 0;
            for (size_t j = 0; j < s.k; ++j) {
                const double term = w(expert * s.n + o, j) * in[j];
                sum += term;
                magnitude += std::fabs(term);
            }
            y.sum[row * s.n + o] = sum;
            y.magnitude[row * s.n + o] = magnitude;
        }
    }
    return y;
}

Sums contract(const ContractShape &s, RealSpan w, RealSpan x, std::span<const int32_t> ids) {
    RIDGE_ASSERT(w.size() == s.experts * s.n * s.k);
    return contract(
        s, [&](size_t row, size_t column) { return w[row * s.k + column]; }, x, ids);
}

Reals rms_norm(RealSpan x, RealSpan weight, double eps) {
    const size_t n = weight.size();
    RIDGE_ASSERT(n > 0 && x.size() % n == 0);
    Reals y(x.size());
    for (size_t row = 0; row < x.size(); row += n) {
        double squares = 0;
        for (size_t j = 0; j < n; ++j) squares += x[row + j] * x[row + j];
        const double root = std::sqrt(squares / static_cast<double>(n) + eps);
        for (size_t j = 0; j < n; ++j) y[row + j] = x[row + j] / root * weight[j];
    }
    return y;
}

Reals rope(const Rope &how, RealSpan x, size_t heads, size_t head_dim, std::span<const int32_t> positions) {
    const size_t pairs = how.frequencies.size();
    RIDGE_ASSERT(2 * pairs <= head_dim);
    RIDGE_ASSERT(x.size() == positions.size() * heads * head_dim);
    Reals y(x.begin(), x.end());
    for (size_t row = 0; row < positions.size() * heads; ++row) {
        const double position = positions[row / heads];
        for (size_t i = 0; i < pairs; ++i) {
            const double angle = position * how.frequencies[i];
            const double cosine = how.magnitude * std::cos(angle), sine = how.magnitude * std::sin(angle);
            const size_t a = row * head_dim + (how.pairs == RopePairs::halves ? i : 2 * i);
            const size_t b = how.pairs == RopePairs::halves ? a + pairs : a + 1;
            y[a] = x[a] * cosine - x[b] * sine;
            y[b] = x[a] * sine + x[b] * cosine;
        }
    }
    return y;
}

Reals rope_frequencies(size_t rotated, double base) {
    RIDGE_ASSERT(rotated % 2 == 0);
    Reals f;
    for (size_t i = 0; i < rotated; i += 2)
        f.push_back(std::pow(base, -static_cast<double>(i) / static_cast<double>(rotated)));
    return f;
}

Reals yarn_frequencies(const Yarn &how, RealSpan frequencies) {
    const double rotated = 2 * static_cast<double>(frequencies.size());
    const auto pair_that_turns = [&](double times) {
        return rotated * std::log(how.original_context / (2 * std::numbers::pi * times)) / (2 * std::log(how.base));
    };
    double low = pair_that_turns(how.beta_fast), high = pair_that_turns(how.beta_slow);
    if (how.whole_pairs) low = std::floor(low), high = std::ceil(high);
    low = std::max(low, 0.0), high = std::min(high, rotated - 1);
    if (low == high) high += 0.001;  // a step, where the two meet
    Reals f;
    for (size_t i = 0; i < frequencies.size(); ++i) {
        const double r = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
        f.push_back(frequencies[i] * (1 - r + r / how.factor));
    }
    return f;
}

double yarn_magnitude(double factor) { return factor <= 1 ? 1 : 1 + 0.1 * std::log(factor); }

double longrope_magnitude(double factor, double original_context) {
    return factor <= 1 ? 1 : std::sqrt(1 + std::log(factor) / std::log(original_context));
}

namespace {

// One head of one query.
struct Head {
    const AttentionShape &shape;
    RealSpan q;  // (k_dim)
    RealSpan k;  // (history, kv_heads, k_dim)
    RealSpan v;  // (history, kv_heads, v_dim)
    size_t head, kv_head;

    double key(size_t cell, size_t j) const { return k[(cell * shape.kv_heads + kv_head) * shape.k_dim + j]; }
    double value(size_t cell, size_t j) const { return v[(cell * shape.kv_heads + kv_head) * shape.v_dim + j]; }
};

// Writes v_dim sums and magnitudes; returns the score magnitude.
double attend(const Head &head, std::span<const size_t> visible, double *sum, double *magnitude) {
    const AttentionShape &s = head.shape;
    const double scale = s.scale != 0 ? s.scale : 1 / std::sqrt(static_cast<double>(s.k_dim));
    double largest = 0;
    Reals scores;
    for (const size_t cell : visible) {
        double score = 0, size = 0;
        for (size_t j = 0; j < s.k_dim; ++j) {
            score += head.q[j] * head.key(cell, j);
            size += std::fabs(head.q[j] * head.key(cell, j));
        }
        scores.push_back(s.softcap != 0 ? softcap(scale * score, s.softcap) : scale * score);
        largest = std::max(largest, std::fabs(scale) * size);
    }
    if (!s.sinks.empty()) scores.push_back(s.sinks[head.head]);
    const Reals p = softmax(scores);
    for (size_t n = 0; n < visible.size(); ++n)
        for (size_t j = 0; j < s.v_dim; ++j) {
            const double term = p[n] * head.value(visible[n], j);
            sum[j] += term;
            magnitude[j] += std::fabs(term);
        }
    return largest;
}

}  // namespace

Attention attention(const AttentionShape &s, RealSpan q, RealSpan k, RealSpan v, std::span<const int32_t> q_positions,
                    std::span<const int32_t> k_positions) {
    const size_t tokens = q_positions.size(), history = k_positions.size();
    RIDGE_ASSERT(s.kv_heads > 0 && s.heads % s.kv_heads == 0);
    RIDGE_ASSERT(q.size() == tokens * s.heads * s.k_dim);
    RIDGE_ASSERT(s.sinks.empty() || s.sinks.size() == s.heads);
    RIDGE_ASSERT(k.size() == history * s.kv_heads * s.k_dim && v.size() == history * s.kv_heads * s.v_dim);
    Attention out{Reals(tokens * s.heads * s.v_dim), Reals(tokens * s.heads * s.v_dim), Reals(tokens * s.heads)};
    for (size_t t = 0; t < tokens; ++t) {
        std::vector<size_t> visible;
        for (size_t cell = 0; cell < history; ++cell) {
            if (k_positions[cell] < 0 || k_positions[cell] > q_positions[t]) continue;
            const size_t back = static_cast<size_t>(q_positions[t] - k_positions[cell]);
            if (s.window == 0 || back < s.window) visible.push_back(cell);
        }
        for (size_t h = 0; h < s.heads; ++h) {
            const size_t row = t * s.heads + h;
            const Head head{s, q.subspan(row * s.k_dim, s.k_dim), k, v, h, h / (s.heads / s.kv_heads)};
            out.score_magnitude[row] = attend(head, visible, &out.sum[row * s.v_dim], &out.magnitude[row * s.v_dim]);
        }
    }
    return out;
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double silu(double x) { return x / (1 + std::exp(-x)); }

// (1 + tanh(y)) / 2 = sigmoid(2 y), which cancels nothing where x is far below 0.
double gelu(double x) { return x * sigmoid(2 * std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)); }

double softcap(double x, double cap) { return cap * std::tanh(x / cap); }

namespace {

template <class Unit>
Reals each(RealSpan gate, RealSpan up, const Unit &unit) {
    RIDGE_ASSERT(gate.size() == up.size());
    Reals y(gate.size());
    for (size_t i = 0; i < y.size(); ++i) y[i] = unit(gate[i], up[i]);
    return y;
}

}  // namespace

Reals silu_mul(RealSpan gate, RealSpan up) {
    return each(gate, up, [](double g, double u) { return silu(g) * u; });
}

Reals gelu_mul(RealSpan gate, RealSpan up) {
    return each(gate, up, [](double g, double u) { return gelu(g) * u; });
}

Reals clamped_mul(RealSpan gate, RealSpan up) {
    return each(gate, up, [](double g, double u) {
        const double held = std::min(g, 7.0);
        return held * sigmoid(1.702 * held) * (std::clamp(u, -7.0, 7.0) + 1);
    });
}

Reals add(RealSpan a, RealSpan b) {
    RIDGE_ASSERT(a.size() == b.size());
    Reals y(a.size());
    for (size_t i = 0; i < y.size(); ++i) y[i] = a[i] + b[i];
    return y;
}

double log_sum_exp(RealSpan logits) {
    if (logits.empty()) return -std::numeric_limits<double>::infinity();
    const double top = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (const double x : logits) sum += std::exp(x - top);
    return top + std::log(sum);
}

Reals softmax(RealSpan logits) {
    const double all = log_sum_exp(logits);
    Reals p;
    for (const double x : logits) p.push_back(std::exp(x - all));
    return p;
}

size_t argmax(RealSpan logits) {
    RIDGE_ASSERT(!logits.empty());
    size_t best = 0;
    for (size_t i = 1; i < logits.size(); ++i)
        if (logits[i] > logits[best]) best = i;
    return best;
}

Drawn draw(RealSpan logits, const Draw &how) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    std::vector<int32_t> order;
    for (size_t i = 0; i < logits.size(); ++i) {
        if (!(logits[i] < kInfinity)) return {};
        if (logits[i] > -kInfinity) order.push_back(static_cast<int32_t>(i));
    }
    const auto logit = [&](size_t place) {
        return static_cast<long double>(logits[static_cast<size_t>(order[place])]);
    };
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
        return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
    });
    if (order.empty()) return {};
    if (how.temperature == 0) return {order[0], kInfinity};
    order.resize(std::min(order.size(), how.top_k));

    Drawn d{-1, kInfinity};
    // Notes how close the two sides of a decision are.
    const auto above = [&](long double a, long double b) {
        d.margin = std::min(d.margin, static_cast<double>(std::fabs(a - b) / std::max(a, b)));
        return a > b;
    };
    long double mass = 0, taken = 0;
    for (size_t i = 0; i < order.size(); ++i) mass += std::exp(logit(i) - logit(0));
    size_t left = order.size();
    if (how.top_p < 1)
        for (left = 0; left < order.size() && (left == 0 || above(how.top_p, taken / mass)); ++left)
            taken += std::exp(logit(left) - logit(0));
    order.resize(left);
    for (left = 1; left < order.size(); ++left)
        // As likely as the first is no close call, whatever min_p.
        if (how.min_p > 0 && logit(left) != logit(0) && above(how.min_p, std::exp(logit(left) - logit(0)))) break;
    order.resize(left);

    std::vector<long double> end;
    for (size_t i = 0; i < left; ++i) {
        const long double weight = std::exp((logit(i) - logit(0)) / static_cast<long double>(how.temperature));
        end.push_back((i == 0 ? 0 : end.back()) + weight);
    }
    size_t place = 0;
    while (place + 1 < left && !above(end[place] / end.back(), how.uniform)) ++place;
    d.id = order[place];
    d.begin = place == 0 ? 0 : static_cast<double>(end[place - 1] / end.back());
    d.end = static_cast<double>(end[place] / end.back());
    return d;
}

double kl_divergence(RealSpan p_logits, RealSpan q_logits) {
    RIDGE_ASSERT(p_logits.size() == q_logits.size());
    const double p_all = log_sum_exp(p_logits), q_all = log_sum_exp(q_logits);
    double sum = 0;
    for (size_t i = 0; i < p_logits.size(); ++i) {
        const double log_p = p_logits[i] - p_all, log_q = q_logits[i] - q_all;
        const double p = std::exp(log_p);
        if (p > 0) sum += p * (log_p - log_q);
    }
    return sum;
}

Routes route(RealSpan logits, size_t experts, size_t top_k, bool normalise) {
    RIDGE_ASSERT(experts > 0 && logits.size() % experts == 0 && top_k <= experts);
    Routes out;
    for (size_t row = 0; row < logits.size(); row += experts) {
        const Reals p = softmax(logits.subspan(row, experts));
        std::vector<int32_t> order(experts);
        std::iota(order.begin(), order.end(), 0);
        // By logit, not by probability: distinct logits may share a rounded probability.
        std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
            return logits[row + static_cast<size_t>(a)] > logits[row + static_cast<size_t>(b)];
        });
        double total = 0;
        for (size_t n = 0; n < top_k; ++n) total += p[static_cast<size_t>(order[n])];
        for (size_t n = 0; n < top_k; ++n) {
            out.ids.push_back(order[n]);
            out.weights.push_back(p[static_cast<size_t>(order[n])] / (normalise ? total : 1));
        }
        const bool all = top_k == 0 || top_k == experts;
        out.margin.push_back(all ? std::numeric_limits<double>::infinity()
                                 : p[static_cast<size_t>(order[top_k - 1])] - p[static_cast<size_t>(order[top_k])]);
    }
    return out;
}

}  // namespace ridge::oracle
