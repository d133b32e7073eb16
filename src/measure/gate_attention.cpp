// Problems for rotary embedding, the KV state and attention. States are paged through tables that are never the
// identity, and several sequences share them; what no token should touch or see holds large numbers.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.h"
#include "measure/gate_problems.h"
#include "measure/gate_state.h"
#include "op/bound.h"

namespace ridge::gate {
namespace {

std::vector<uint32_t> step_sizes(bool quick, uint32_t most) {
    std::vector<uint32_t> sizes;
    for (const uint32_t m : {1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u, 9u, 13u, 16u, 17u, 33u, 66u})
        if (m < most && (!quick || m == 1 || m == 2 || m == 9 || m == 17)) sizes.push_back(m);
    sizes.push_back(most);
    return sizes;
}

ValueId add_value(Problem &p, std::string name, uint32_t cols) {
    return p.program.add_value({std::move(name), DType::f32, Rows::tokens, 1, cols});
}
StateId add_state(Problem &p, std::string name, uint32_t cols, DType type) {
    return p.program.add_state({std::move(name), State::Per::token, cols, type, 0});
}

// Pages for sequences of these lengths, scattered over a pool that has two more.
void scatter_pages(Problem &p, Random &random, const std::vector<uint32_t> &lengths) {
    uint32_t used = 0;
    for (const uint32_t n : lengths) used += (n + kPageTokens - 1) / kPageTokens;
    p.pool = used + 2;
    std::vector<uint32_t> free(p.pool);
    std::iota(free.begin(), free.end(), 0u);
    for (size_t i = free.size(); i > 1; i--) std::swap(free[i - 1], free[random.below(static_cast<uint32_t>(i))]);
    // A shuffle may leave a page where the identity has it.
    if (free.back() == 0) std::swap(free.front(), free.back());
    p.pages.clear();
    for (const uint32_t n : lengths) {
        p.pages.emplace_back();
        for (uint32_t at = 0; at < n; at += kPageTokens) p.pages.back().push_back(free.back()), free.pop_back();
    }
}

size_t slot(const Problem &p, uint32_t sequence, uint32_t position) {
    return size_t{p.pages[sequence][position / kPageTokens]} * kPageTokens + position % kPageTokens;
}

// Tokens of sequences in turn: sequence s starts at start[s].
std::vector<Token> interleaved(const std::vector<uint32_t> &start, uint32_t m) {
    std::vector<Token> tokens;
    std::vector<uint32_t> at = start;
    for (uint32_t i = 0; i < m; i++) {
        const auto s = static_cast<uint32_t>(i % start.size());
        tokens.push_back({0, at[s]++, s, true});
    }
    return tokens;
}

// ---- rope

struct Temperature {
    double slope = 0;  // 0: none
    uint32_t every = 0;
};

void try_rope_table(Trial &trial, uint32_t n_rot, double base, double magnitude, Temperature temperature = {}) {
    Problem p;
    RopeTable op;
    op.out = add_value(p, "out", n_rot);
    op.magnitude = magnitude, op.temperature = temperature.slope, op.temperature_every = temperature.every;
    for (uint32_t j = 0; j < n_rot / 2; j++) op.frequency.push_back(std::pow(base, -2.0 * j / n_rot));
    // What a kernel must not read: a session chooses before there is a step.
    op.long_frequency.assign(op.frequency.size(), 0.5), op.long_above = 10;
    p.program.nodes = {{op, 0, 0}};
    p.name = fmt::format("n_rot={} base={} magnitude={} temperature={}/{}", n_rot, base, magnitude, temperature.slope,
                         temperature.every);
    p.steps = step_sizes(trial.options().quick, 70);
    // Up to 128,000; a third begin a period of eight, a third end one.
    for (uint32_t i = 0; i < 70; i++) {
        const uint32_t far = i * i * 27 + i, position = i % 3 == 0 ? far : far / 8 * 8 + 7 * (i % 3 - 1);
        p.tokens.push_back({0, position, i % 2, true});
    }
    p.fill = [op](Problem &q) {
        Reals want, angles, sizes;
        for (const Token &t : q.tokens) {
            const uint32_t periods = op.temperature_every == 0 ? 0 : t.position / op.temperature_every;
            const double size = op.magnitude * (1 + op.temperature * std::log1p(periods));
            for (const double f : op.frequency) {
                const double angle = t.position * f;
                want.push_back(static_cast<double>(std::cos(static_cast<long double>(angle)) * size));
                want.push_back(static_cast<double>(std::sin(static_cast<long double>(angle)) * size));
                angles.insert(angles.end(), 2, angle), sizes.insert(sizes.end(), 2, size);
            }
        }
        q.expect(op.out, want, [=](Order, size_t i) { return bound::rope_table(want[i], angles[i], sizes[i]); });
    };
    trial.run(p);
}

// A head turned by a row of the table. error: how far each element of x may be off.
struct Turned {
    Reals want, bound;  // bound 0: passes through, the same bits
};
Turned turn(RealSpan x, RealSpan error, RealSpan table, RopePairs pairs) {
    Turned t{Reals(x.begin(), x.end()), Reals(error.begin(), error.end())};
    const size_t half = table.size() / 2;
    for (size_t j = 0; j < half; j++) {
        const size_t a = pairs == RopePairs::halves ? j : 2 * j, b = pairs == RopePairs::halves ? j + half : 2 * j + 1;
        const double c = table[2 * j], s = table[2 * j + 1];
        auto bound = [&](double from_a, double from_b) {
            return bound::rope(std::fabs(x[a] * from_a) + std::fabs(x[b] * from_b),
                               error[a] * std::fabs(from_a) + error[b] * std::fabs(from_b));
        };
        t.want[a] = x[a] * c - x[b] * s, t.bound[a] = bound(c, s);
        t.want[b] = x[a] * s + x[b] * c, t.bound[b] = bound(s, c);
    }
    return t;
}

// turn() for all heads of all rows.
Turned turn_all(RealSpan x, RealSpan error, RealSpan table, size_t rows, size_t head_dim, RopePairs pairs) {
    Turned all;
    const size_t cols = x.size() / rows, n_rot = table.size() / rows;
    for (size_t at = 0; at < x.size(); at += head_dim) {
        const Turned one =
            turn(x.subspan(at, head_dim), error.subspan(at, head_dim), table.subspan(at / cols * n_rot, n_rot), pairs);
        all.want.insert(all.want.end(), one.want.begin(), one.want.end());
        all.bound.insert(all.bound.end(), one.bound.begin(), one.bound.end());
    }
    return all;
}

Reals random_table(Random &random, size_t rows, size_t n_rot) {
    Reals table;
    for (size_t i = 0; i < rows * (n_rot / 2); i++) {
        const double angle = 6.28 * random.uniform();
        table.push_back(static_cast<float>(std::cos(angle))), table.push_back(static_cast<float>(std::sin(angle)));
    }
    return table;
}

void try_rope(Trial &trial, uint32_t heads, uint32_t head_dim, uint32_t n_rot, RopePairs pairs) {
    Problem p;
    Rope op;
    op.x = add_value(p, "x", heads * head_dim), op.out = add_value(p, "out", heads * head_dim);
    op.table = add_value(p, "table", n_rot);
    op.head_dim = head_dim, op.pairs = pairs;
    p.program.nodes = {{op, 0, 0}};
    p.name = fmt::format("{} heads of {}, {} turn, {}", heads, head_dim, n_rot,
                         pairs == RopePairs::halves ? "halves" : "adjacent");
    p.steps = step_sizes(trial.options().quick, 34);
    p.plain_tokens(p.steps.back());
    p.fill = [op, heads, head_dim, n_rot](Problem &q) {
        Random random(head_dim);
        const size_t rows = q.rows(op.x);
        Reals x = activations(random, rows, size_t{heads} * head_dim), table = random_table(random, rows, n_rot);
        const Turned t = turn_all(x, Reals(x.size()), table, rows, head_dim, op.pairs);
        q.inputs = {{op.x, std::move(x)}, {op.table, std::move(table)}};
        q.expect(op.out, t.want, [bound = t.bound](Order, size_t i) { return bound[i]; });
    };
    trial.run(p);
}

// ---- KV state

// Bounds that `make` computes for all numbers of an order at once.
std::function<double(Order, size_t)> by_order(std::function<Reals(Order)> make) {
    auto known = std::make_shared<std::map<Order, Reals>>();
    return [known, make = std::move(make)](Order o, size_t i) {
        auto [at, is_new] = known->try_emplace(o);
        if (is_new) at->second = make(o);
        return at->second[i];
    };
}

// Expects the rows of `numbers`, (tokens, width), in their tokens' slots, and nothing else changed. `bound` is of them.
void expect_written(Problem &p, Random &random, StateId id, RealSpan numbers,
                    std::function<double(Order, size_t i)> bound = {}) {
    const State &s = p.program.state(id);
    const size_t slots = size_t{p.pool} * kPageTokens;
    p.states.push_back({id, to_state(s.type, slots, s.cols, normals(random, slots * s.cols, 100))});
    ExpectedState e;
    e.id = id;
    e.want.assign(numbers.begin(), numbers.end());
    e.bound = std::move(bound);
    e.writer.assign(slots, -1);
    for (size_t i = 0; i < p.tokens.size(); i++)
        e.writer[slot(p, p.tokens[i].sequence, p.tokens[i].position)] = static_cast<int32_t>(i);
    p.expected_states.push_back(std::move(e));
}

void try_kv_write(Trial &trial, uint32_t k_cols, uint32_t v_cols, DType type, std::vector<uint32_t> start) {
    constexpr uint32_t kTokens = 70;
    Problem p;
    KvWrite op;
    op.k = add_value(p, "k", k_cols), op.v = add_value(p, "v", v_cols);
    op.k_state = add_state(p, "k_state", k_cols, type), op.v_state = add_state(p, "v_state", v_cols, type);
    p.program.nodes = {{op, 0, 0}};
    p.name = fmt::format("{} and {} columns, {}, {} sequences", k_cols, v_cols, name(type), start.size());
    p.steps = step_sizes(trial.options().quick, kTokens);
    p.tokens = interleaved(start, kTokens);
    p.fill = [op, &start](Problem &q) {
        Random random(q.program.value(op.k).cols);
        std::vector<uint32_t> lengths;
        for (const uint32_t s : start) lengths.push_back(s + kTokens);
        scatter_pages(q, random, lengths);
        auto write = [&](ValueId v, StateId s) {
            const State &state = q.program.state(s);
            // Down to subnormal f16, and beyond the largest: single values, and runs as long as a block of q8_0.
            Reals x = activations(random, kTokens, state.cols);
            for (size_t i = 0; i < x.size(); i += 3)
                x[i] = static_cast<float>(std::ldexp(x[i], static_cast<int>(random.below(40)) - 28));
            for (size_t i = 0; i + 32 <= x.size(); i += 5 * 32) {
                const int exponent = static_cast<int>(random.below(60)) - 36;
                for (size_t j = i; j < i + 32; j++) x[j] = static_cast<float>(std::ldexp(x[j], exponent));
            }
            // Ties between two codes: the largest is 127, so the scale is exactly 1.
            for (size_t i = 2 * 32; i + 32 <= x.size(); i += 11 * 32)
                for (size_t j = i; j < i + 32; j++) x[j] = j % 32 == 5 ? -127 : random.below(254) - 126.5;
            expect_written(q, random, s, to_state(state.type, kTokens, state.cols, x));
            q.inputs.push_back({v, std::move(x)});
        };
        write(op.k, op.k_state), write(op.v, op.v_state);
    };
    trial.run(p);
}

struct QkShape {
    uint32_t heads, kv_heads, head_dim, n_rot;
    RopePairs pairs;
    DType type;
    bool q_norm, k_norm;
};

// The norm of every head, where there is one, and how far it may be off in order `o`.
struct Normed {
    Reals want, error;
};
Normed norm_heads(Order o, RealSpan x, RealSpan weight, double eps) {
    Normed n{Reals(x.begin(), x.end()), Reals(x.size())};
    if (weight.empty()) return n;
    n.want = oracle::rms_norm(x, weight, eps);
    for (size_t i = 0; i < x.size(); i++)
        n.error[i] = bound::rmsnorm(o, weight.size(), n.want[i], weight[i % weight.size()]);
    return n;
}

void fill_qk_norm_rope(Problem &q, const QkNormRope &op, const QkShape &s) {
    Random random(s.head_dim + s.heads);
    const size_t rows = q.tokens.size();
    scatter_pages(q, random, {200, 200});
    auto norm = [&](WeightId id) {
        Reals w;
        if (id != kNone) w = normals(random, s.head_dim), q.set_weight(id, f32_weight(w));
        return w;
    };
    const Reals q_weight = norm(op.q_norm), k_weight = norm(op.k_norm);
    const Reals x = activations(random, rows, s.heads * s.head_dim);
    const Reals k = normals(random, rows * s.kv_heads * s.head_dim), v = normals(random, k.size());
    const Reals table = random_table(random, rows, s.n_rot);
    q.inputs = {{op.q, x}, {op.k, k}, {op.v, v}, {op.table, table}};
    auto turned = [=, eps = op.eps, head_dim = s.head_dim, pairs = s.pairs](Order o, const Reals &in, const Reals &w) {
        const Normed n = norm_heads(o, in, w, eps);
        return turn_all(n.want, n.error, table, rows, head_dim, pairs);
    };
    q.expect(op.q_out, turned(Order::exact, x, q_weight).want,
             by_order([=](Order o) { return turned(o, x, q_weight).bound; }));
    const uint32_t cols = s.kv_heads * s.head_dim;
    auto k_out = [=, type = s.type](Order o) {
        const Turned t = turned(o, k, k_weight);
        return stored(type, rows, cols, t.want, t.bound);
    };
    expect_written(q, random, op.k_state, k_out(Order::exact).want, by_order([=](Order o) { return k_out(o).bound; }));
    expect_written(q, random, op.v_state, to_state(s.type, rows, cols, v));
}

void try_qk_norm_rope(Trial &trial, const QkShape &s) {
    constexpr uint32_t kTokens = 34;
    Problem p;
    QkNormRope op;
    op.q = add_value(p, "q", s.heads * s.head_dim), op.q_out = add_value(p, "q_out", s.heads * s.head_dim);
    op.k = add_value(p, "k", s.kv_heads * s.head_dim), op.v = add_value(p, "v", s.kv_heads * s.head_dim);
    op.table = add_value(p, "table", s.n_rot);
    op.k_state = add_state(p, "k_state", s.kv_heads * s.head_dim, s.type);
    op.v_state = add_state(p, "v_state", s.kv_heads * s.head_dim, s.type);
    auto norm = [&](bool there, const char *name) {
        return there ? p.program.add_weight({name, Format::F32, 1, s.head_dim, 1, nullptr}) : kNone;
    };
    op.q_norm = norm(s.q_norm, "q_norm"), op.k_norm = norm(s.k_norm, "k_norm");
    op.head_dim = s.head_dim, op.pairs = s.pairs, op.eps = 1e-6f;
    p.program.nodes = {{op, 0, 0}};
    p.name = fmt::format("{}/{} heads of {}, {} turn, {}, {}, norms {}{}", s.heads, s.kv_heads, s.head_dim, s.n_rot,
                         s.pairs == RopePairs::halves ? "halves" : "adjacent", name(s.type), s.q_norm ? "q" : "-",
                         s.k_norm ? "k" : "-");
    p.steps = step_sizes(trial.options().quick, kTokens);
    p.tokens = interleaved({60, 127}, kTokens);
    p.fill = [op, &s](Problem &q) { fill_qk_norm_rope(q, op, s); };
    trial.run(p);
}

// ---- attention

struct AttentionShape {
    std::string name;
    uint32_t heads, kv_heads, head_dim;
    DType type;
    std::vector<uint32_t> start;  // first position of each sequence in the step
    uint32_t tokens;
    uint32_t window = 0;
    double q_scale = 1;
    float softcap = 0;
    bool sinks = false;
};

// One token against its own sequence.
struct Seen {
    oracle::Attention result;
    uint32_t visible = 0;
    Reals reach;  // per head: AttentionCase::reach
};
Seen look(const Problem &p, const AttentionShape &s, const Attention &op, size_t token, RealSpan q, RealSpan k,
          RealSpan v, RealSpan sinks) {
    const Token &t = p.tokens[token];
    const size_t cols = size_t{s.kv_heads} * s.head_dim, q_cols = size_t{s.heads} * s.head_dim;
    Seen seen;
    Reals keys, values;
    std::vector<int32_t> positions;
    for (uint32_t j = 0; j <= t.position; j++) {
        if (s.window > 0 && j + s.window <= t.position) continue;
        const size_t at = slot(p, t.sequence, j) * cols;
        keys.insert(keys.end(), &k[at], &k[at] + cols), values.insert(values.end(), &v[at], &v[at] + cols);
        positions.push_back(static_cast<int32_t>(j));
    }
    seen.visible = static_cast<uint32_t>(positions.size());
    const auto here = static_cast<int32_t>(t.position);
    oracle::AttentionShape shape{s.heads, s.kv_heads, s.head_dim, s.head_dim, op.scale};
    shape.softcap = s.softcap, shape.sinks = sinks;
    seen.result = oracle::attention(shape, q.subspan(token * q_cols, q_cols), keys, values, {&here, 1}, positions);
    for (uint32_t h = 0; h < s.heads; h++) {
        double largest_q = 0, most = 0;
        for (uint32_t d = 0; d < s.head_dim; d++)
            largest_q = std::max(largest_q, std::fabs(q[token * q_cols + size_t{h} * s.head_dim + d]));
        for (size_t row = h / (s.heads / s.kv_heads); row < keys.size() / s.head_dim; row += s.kv_heads) {
            double sum = 0;
            for (uint32_t d = 0; d < s.head_dim; d++) sum += std::fabs(keys[row * s.head_dim + d]);
            most = std::max(most, sum);
        }
        seen.reach.push_back(static_cast<double>(op.scale) * largest_q * most);
    }
    return seen;
}

// A sink for every head: among the scores, equal to one of them (that of the first token with itself), far above all,
// far below, none at all. Neighbours differ.
Reals sinks_for(const Problem &p, const AttentionShape &s, const Attention &op, Random &random, RealSpan q,
                RealSpan k) {
    Reals sinks;
    const Token &t = p.tokens[0];
    for (uint32_t h = 0; h < s.heads; h++) {
        double score = 0;
        const double *key =
            &k[(slot(p, t.sequence, t.position) * s.kv_heads + h / (s.heads / s.kv_heads)) * s.head_dim];
        for (uint32_t d = 0; d < s.head_dim; d++) score += q[size_t{h} * s.head_dim + d] * key[d];
        score *= static_cast<double>(op.scale);
        if (s.softcap > 0) score = oracle::softcap(score, s.softcap);
        const double choices[] = {2 * random.normal(), score, 12, 300, -300, -INFINITY, -1e30};
        sinks.push_back(static_cast<float>(choices[h % 7]));
    }
    return sinks;
}

// Keys and values of every position up to the last token of its sequence; elsewhere numbers that would show.
Reals history(const Problem &p, Random &random, const AttentionShape &s, double scale) {
    const size_t cols = size_t{s.kv_heads} * s.head_dim;
    Reals state(size_t{p.pool} * kPageTokens * cols, 3000);
    std::vector<uint32_t> last(s.start.size(), 0);
    for (const Token &t : p.tokens) last[t.sequence] = std::max(last[t.sequence], t.position);
    for (uint32_t seq = 0; seq < last.size(); seq++)
        for (uint32_t j = 0; j <= last[seq]; j++) {
            const Reals row = normals(random, cols, scale);
            std::copy(row.begin(), row.end(), &state[slot(p, seq, j) * cols]);
        }
    return state;
}

void fill_attention(Problem &p, const Attention &op, const AttentionShape &s) {
    Random random(s.heads * 1000 + s.head_dim);
    std::vector<uint32_t> lengths;
    for (const uint32_t start : s.start) lengths.push_back(start + s.tokens);
    scatter_pages(p, random, lengths);
    const Reals q = normals(random, size_t{s.tokens} * s.heads * s.head_dim, s.q_scale);
    const size_t slots = size_t{p.pool} * kPageTokens;
    const uint32_t cols = s.kv_heads * s.head_dim;
    const Reals k_state = to_state(s.type, slots, cols, history(p, random, s, 1));
    const Reals v_state = to_state(s.type, slots, cols, history(p, random, s, 1));
    const Reals k = from_state(s.type, slots, cols, k_state), v = from_state(s.type, slots, cols, v_state);
    p.inputs = {{op.q, q}};
    p.states = {{op.k_state, k_state}, {op.v_state, v_state}};
    Reals sinks;
    if (s.sinks) sinks = sinks_for(p, s, op, random, q, k), p.set_weight(op.sinks, f32_weight(sinks));
    double largest_v = 0;
    for (const double x : v) largest_v = std::max(largest_v, std::fabs(x));
    Reals want;
    std::vector<bound::AttentionCase> cases;
    for (size_t t = 0; t < p.tokens.size(); t++) {
        const Seen seen = look(p, s, op, t, q, k, v, sinks);
        want.insert(want.end(), seen.result.sum.begin(), seen.result.sum.end());
        for (size_t i = 0; i < seen.result.sum.size(); i++)
            cases.push_back({s.head_dim, seen.visible, seen.result.score_magnitude[i / s.head_dim],
                             seen.result.magnitude[i], largest_v, s.softcap, s.sinks ? sinks[i / s.head_dim] : 0,
                             seen.reach[i / s.head_dim]});
    }
    p.expect(op.out, want, [=](Order o, size_t i) { return bound::attention(o, cases[i], want[i]); });
    for (const StateId id : {op.k_state, op.v_state}) {
        ExpectedState unchanged;
        unchanged.id = id;
        unchanged.writer.assign(size_t{p.pool} * kPageTokens, -1);
        p.expected_states.push_back(std::move(unchanged));
    }
}

void try_attention(Trial &trial, const AttentionShape &s) {
    Problem p;
    Attention op;
    op.q = add_value(p, "q", s.heads * s.head_dim), op.out = add_value(p, "out", s.heads * s.head_dim);
    op.k_state = add_state(p, "k_state", s.kv_heads * s.head_dim, s.type);
    op.v_state = add_state(p, "v_state", s.kv_heads * s.head_dim, s.type);
    op.heads = s.heads, op.kv_heads = s.kv_heads, op.head_dim = s.head_dim, op.window = s.window;
    op.scale = static_cast<float>(1 / std::sqrt(s.head_dim)), op.softcap = s.softcap;
    if (s.sinks) op.sinks = p.program.add_weight({"sinks", Format::F32, 1, s.heads, 1, nullptr});
    p.program.nodes = {{op, 0, 0}};
    p.name = fmt::format("{}: {}/{} heads of {}, {}, window {}, cap {}{}", s.name, s.heads, s.kv_heads, s.head_dim,
                         name(s.type), s.window, s.softcap, s.sinks ? ", sinks" : "");
    p.steps = step_sizes(trial.options().quick, s.tokens);
    p.tokens = interleaved(s.start, s.tokens);
    p.fill = [op, &s](Problem &q) { fill_attention(q, op, s); };
    trial.run(p);
}

}  // namespace

void try_rope_table(Trial &trial) {
    if (!trial.wants(kind<RopeTable>())) return;
    try_rope_table(trial, 64, 10000, 1), try_rope_table(trial, 2, 10000, 1);
    try_rope_table(trial, 128, 1e6, 1.2), try_rope_table(trial, 40, 100000, 1);
    try_rope_table(trial, 64, 1e6, 1, {0.1, 16384}), try_rope_table(trial, 16, 1e4, 1.3, {0.5, 8});
}

void try_rope(Trial &trial) {
    if (!trial.wants(kind<Rope>())) return;
    for (const RopePairs pairs : {RopePairs::halves, RopePairs::adjacent}) {
        try_rope(trial, 1, 2, 2, pairs), try_rope(trial, 3, 64, 64, pairs), try_rope(trial, 4, 80, 32, pairs);
        try_rope(trial, 2, 128, 128, pairs), try_rope(trial, 5, 40, 38, pairs);
    }
}

void try_kv_write(Trial &trial) {
    if (!trial.wants(kind<KvWrite>())) return;
    for (const DType type : {DType::f16, DType::f32}) {
        try_kv_write(trial, 64, 64, type, {0}), try_kv_write(trial, 40, 24, type, {60, 127});
        try_kv_write(trial, 193, 193, type, {1, 64, 191});
    }
    try_kv_write(trial, 64, 64, DType::q8_0, {0}), try_kv_write(trial, 96, 32, DType::q8_0, {60, 127});
    try_kv_write(trial, 224, 224, DType::q8_0, {1, 64, 191});
}

void try_qk_norm_rope(Trial &trial) {
    if (!trial.wants(kind<QkNormRope>())) return;
    using enum RopePairs;
    for (const DType type : {DType::f16, DType::f32, DType::q8_0}) {
        const uint32_t odd = type == DType::q8_0 ? 96 : 40;
        try_qk_norm_rope(trial, {4, 2, 64, 64, halves, type, true, true});
        try_qk_norm_rope(trial, {9, 3, 64, 64, adjacent, type, false, false});
        try_qk_norm_rope(trial, {2, 2, odd, 24, halves, type, true, false});
        try_qk_norm_rope(trial, {4, 2, 32, 32, adjacent, type, true, true});
        try_qk_norm_rope(trial, {8, 1, 128, 128, halves, type, false, true});
    }
}

void try_attention(Trial &trial) {
    if (!trial.wants(kind<Attention>())) return;
    const bool quick = trial.options().quick;
    const std::vector<uint32_t> many = {0, 62, 63, 64, 299};
    // A block of q8_0 does not straddle heads.
    auto attempt = [&](AttentionShape s) {
        if (s.type == DType::q8_0) s.head_dim = (s.head_dim + 31) / 32 * 32;
        try_attention(trial, s);
    };
    for (const DType type : {DType::f16, DType::f32, DType::q8_0}) {
        attempt({"decode of five", 4, 2, 64, type, many, 5});
        attempt({"prefill", 9, 3, 64, type, {0}, quick ? 34u : 70u});
        attempt({"odd head", 3, 3, 40, type, {60, 100}, 18});
        attempt({"one KV head", 8, 1, 128, type, {126}, 9});
        attempt({"window", 4, 2, 80, type, {10, 130}, 20, 64});
        attempt({"small window", 2, 1, 16, type, {0, 63}, 12, 3});
        attempt({"large scores", 4, 4, 64, type, {250, 5}, 16, 0, 100});
        attempt({"soft cap", 4, 2, 64, type, many, 5, 0, 1, 1.5f});
        attempt({"capped large scores", 4, 1, 32, type, {62, 5}, 12, 0, 100, 20});
        attempt({"sinks", 14, 2, 64, type, {0, 61}, 10, 0, 1, 0, true});
        attempt({"sinks, window over a page's end", 7, 1, 24, type, {60, 125}, 12, 9, 1, 0, true});
        attempt({"all of them", 14, 7, 40, type, {0, 130}, 18, 65, 3, 4, true});
        // Several segments of 512 positions.
        attempt({"deep", 4, 2, 32, type, {1100, 511}, 9, 0, 3});
        if (quick) continue;
        attempt({"deep prefill", 2, 1, 64, type, {990}, 66, 0, 10});
        attempt({"deep sinks", 8, 4, 32, type, {1020, 1530}, 20, 0, 3, 0, true});
        attempt({"deep window", 4, 4, 40, type, {1533, 1000}, 20, 515, 3, 5});
        attempt({"own position only", 7, 7, 32, type, {0, 63}, 10, 1, 1, 0, true});
        attempt({"a page", 4, 2, 64, type, {60, 200}, 40, 64, 1, 50});
        attempt({"wide head", 4, 1, 256, type, {0, 120}, 20, 32, 1, 30});
        attempt({"large scores and sinks", 14, 2, 64, type, {250, 5}, 16, 0, 100, 0, true});
        attempt({"tiny head", 6, 2, 5, type, many, 40});
        attempt({"late prefill", 4, 2, 128, type, {231}, 69});
        attempt({"interleaved", 3, 1, 80, type, {0, 57, 128}, 66, 100});
    }
}

}  // namespace ridge::gate
