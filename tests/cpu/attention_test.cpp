// Rotary embedding, KV write, their fused form, and attention: bits across rows, parts and cuts; values against double.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <thread>

#include "one_op.h"

namespace ridge::testing_cpu {
namespace {

constexpr double kUnit = 0x1p-24;

std::vector<double> frequencies(uint32_t n_rot) {
    std::vector<double> f;
    for (uint32_t j = 0; j < n_rot / 2; j++) f.push_back(std::pow(10000.0, -2.0 * j / n_rot));
    return f;
}

// (cos, sin) pairs for every token of the step.
ValueId rope_table(Bench &b, uint32_t n_rot) {
    const RopeTable op{.out = b.value(n_rot), .frequency = frequencies(n_rot), .magnitude = 1.25};
    run_portable(b, op);
    return op.out;
}

TEST(RopeTableRows, IsTheNearestFloat) {
    Bench b = bench(70, 1000);
    const uint32_t n_rot = 64;
    const auto table = b.floats(rope_table(b, n_rot));
    const auto f = frequencies(n_rot);
    for (uint32_t i = 0; i < 70; i++)
        for (uint32_t j = 0; j < n_rot / 2; j++) {
            ASSERT_EQ(table[i * n_rot + 2 * j], static_cast<float>(std::cos((1000 + i) * f[j]) * 1.25));
            ASSERT_EQ(table[i * n_rot + 2 * j + 1], static_cast<float>(std::sin((1000 + i) * f[j]) * 1.25));
        }
}

struct RopeCase {
    uint32_t heads, head_dim, n_rot;
    RopePairs pairs;
};
const RopeCase kRopes[] = {{3, 64, 64, RopePairs::halves},   {3, 64, 64, RopePairs::adjacent},
                           {2, 80, 32, RopePairs::halves},   {2, 80, 32, RopePairs::adjacent},
                           {5, 6, 6, RopePairs::halves},     {1, 128, 128, RopePairs::halves},
                           {4, 22, 10, RopePairs::adjacent}, {1, 2, 2, RopePairs::adjacent}};

TEST(RopeRows, BitsAndValues) {
    for (const RopeCase &c : kRopes) {
        const uint32_t m = 45, cols = c.heads * c.head_dim;
        Bench b = bench(m, 17);
        const Rope op{.x = b.value(cols, random_floats(m * cols, c.head_dim)),
                      .out = b.value(cols),
                      .table = rope_table(b, c.n_rot),
                      .head_dim = c.head_dim,
                      .pairs = c.pairs};
        expect_same_bits(b, op);
        const auto x = b.floats(op.x), out = b.floats(op.out), table = b.floats(op.table);
        for (uint32_t i = 0; i < m; i++)
            for (uint32_t h = 0; h < c.heads; h++) {
                const size_t at = size_t{i} * cols + size_t{h} * c.head_dim;
                for (uint32_t j = 0; j < c.n_rot / 2; j++) {
                    const size_t p = at + (c.pairs == RopePairs::halves ? j : 2 * j);
                    const size_t q = at + (c.pairs == RopePairs::halves ? j + c.n_rot / 2 : 2 * j + 1);
                    const double cosine = table[i * c.n_rot + 2 * j], sine = table[i * c.n_rot + 2 * j + 1];
                    const double size = 1.25 * (std::fabs(x[p]) + std::fabs(x[q]));
                    ASSERT_NEAR(out[p], x[p] * cosine - x[q] * sine, 2 * kUnit * size + 0x1p-147);
                    ASSERT_NEAR(out[q], x[p] * sine + x[q] * cosine, 2 * kUnit * size + 0x1p-147);
                }
                for (uint32_t j = c.n_rot; j < c.head_dim; j++) ASSERT_EQ(out[at + j], x[at + j]);
            }
    }
}

TEST(KvWriteRows, EachRowInItsSlotAndNothingElse) {
    for (DType type : {DType::f16, DType::f32})
        for (uint32_t cols : {3u, 16u, 192u, 200u}) {
            const uint32_t m = 100, first = 30;
            Bench b = bench(m, first);
            const uint32_t pages = 3;
            const KvWrite op{.k = b.value(cols, random_floats(m * cols, 1)),
                             .v = b.value(cols, random_floats(m * cols, 2)),
                             .k_state = b.state(cols, type, pages),
                             .v_state = b.state(cols, type, pages)};
            expect_same_bits(b, op);
            const auto k = b.floats(op.k);
            const Bytes &state = b.state_bytes(op.k_state);
            size_t written = 0;
            for (uint32_t i = 0; i < m; i++)
                for (uint32_t c = 0; c < cols; c++, written++) {
                    const size_t at = b.step.view().slot(0, first + i) * cols + c;
                    if (type == DType::f32) {
                        float x = 0;
                        std::memcpy(&x, &state[4 * at], 4);
                        ASSERT_EQ(x, k[i * cols + c]);
                    } else {
                        uint16_t x = 0;
                        std::memcpy(&x, &state[2 * at], 2);
                        ASSERT_EQ(x, cpu::f32_to_f16(k[i * cols + c]));
                    }
                }
            const size_t bytes = written * (type == DType::f32 ? 4 : 2);
            const auto untouched = static_cast<size_t>(std::count(state.begin(), state.end(), std::byte{0xff}));
            EXPECT_GE(untouched, size_t{pages} * kPageTokens * cols * (type == DType::f32 ? 4 : 2) - bytes);
        }
}

TEST(QkNormRopeRows, EqualsItsParts) {
    for (const RopeCase &c : kRopes)
        for (int norms = 0; norms < 4; norms++)
            for (DType type : {DType::f16, DType::f32}) {
                const uint32_t m = 35, kv_heads = 2, q_cols = c.heads * kv_heads * c.head_dim;
                const uint32_t kv_cols = kv_heads * c.head_dim;
                Bench b = bench(m, 40);
                const uint32_t pages = 2;
                const ValueId q = b.value(q_cols, random_floats(m * q_cols, 1));
                const ValueId k = b.value(kv_cols, random_floats(m * kv_cols, 2));
                const ValueId v = b.value(kv_cols, random_floats(m * kv_cols, 3));
                const WeightId q_norm = norms & 1 ? b.weight(random_floats(c.head_dim, 4)) : kNone;
                const WeightId k_norm = norms & 2 ? b.weight(random_floats(c.head_dim, 5)) : kNone;
                const ValueId table = rope_table(b, c.n_rot);
                const auto state = [&] { return b.state(kv_cols, type, pages); };
                QkNormRope fused{.q = q, .k = k, .v = v, .table = table, .q_out = b.value(q_cols)};
                fused.q_norm = q_norm, fused.k_norm = k_norm, fused.k_state = state(), fused.v_state = state();
                fused.head_dim = c.head_dim, fused.pairs = c.pairs, fused.eps = 1e-6f;
                expect_same_bits(b, fused);

                const auto part = [&](ValueId x, WeightId norm, uint32_t cols) {
                    if (norm != kNone) {
                        const RmsNorm n{x, b.value(cols), norm, c.head_dim, 1e-6f};
                        run_portable(b, n);
                        x = n.out;
                    }
                    const Rope rope{x, b.value(cols), table, c.head_dim, c.pairs};
                    run_portable(b, rope);
                    return rope.out;
                };
                const ValueId q_rope = part(q, q_norm, q_cols);
                const KvWrite write{part(k, k_norm, kv_cols), v, state(), state()};
                run_portable(b, write);
                EXPECT_EQ(b.floats(fused.q_out), b.floats(q_rope));
                EXPECT_EQ(b.state_bytes(fused.k_state), b.state_bytes(write.k_state));
                EXPECT_EQ(b.state_bytes(fused.v_state), b.state_bytes(write.v_state));
            }
}

TEST(RopeTableRows, GrowsByTheTemperature) {
    Bench b = bench(70, 1000);
    RopeTable op{.out = b.value(2), .frequency = {0}, .magnitude = 1.5};
    op.temperature = 0.2, op.temperature_every = 16;
    run_portable(b, op);
    const auto table = b.floats(op.out);
    for (uint32_t i = 0; i < 70; i++) {
        const double periods = (1000 + i) / 16;  // whole ones
        EXPECT_FLOAT_EQ(table[2 * i], static_cast<float>(1.5 * (1 + 0.2 * std::log(1 + periods)))) << i;
        EXPECT_EQ(table[2 * i + 1], 0);
    }
}

struct alignas(64) Line {
    std::byte bytes[64];
};

struct AttentionCase {
    uint32_t heads, kv_heads, head_dim, window;
    DType type;
    float softcap = 0;
    bool sinks = false;
};
const AttentionCase kAttentions[] = {
    {9, 3, 64, 0, DType::f16},          {9, 3, 64, 0, DType::f32},       {4, 4, 128, 0, DType::f16},
    {2, 1, 80, 0, DType::f16},          {3, 3, 7, 0, DType::f32},        {8, 2, 33, 0, DType::f16},
    {4, 2, 64, 20, DType::f16},         {4, 2, 64, 100, DType::f32},     {2, 1, 256, 64, DType::f16},
    {1, 1, 16, 1, DType::f16},          {4, 2, 64, 0, DType::f16, 1.5f}, {8, 2, 33, 70, DType::f16, 0, true},
    {6, 3, 40, 9, DType::f32, 4, true}, {8, 2, 64, 0, DType::q8_0},      {3, 3, 32, 0, DType::q8_0, 2, true},
    {10, 2, 128, 90, DType::q8_0},      {16, 8, 32, 0, DType::f16},
};

std::vector<float> kv_data(const AttentionCase &c, uint32_t pages, uint32_t seed) {
    auto x = random_floats(size_t{pages} * kPageTokens * c.kv_heads * c.head_dim, seed);
    // As the state holds it, so that double arithmetic starts from the same numbers.
    if (c.type == DType::f16)
        for (float &v : x) v = cpu::f16_to_f32(cpu::f32_to_f16(v));
    if (c.type == DType::q8_0) {
        std::vector<Q8Block> blocks(x.size() / 32);
        cpu::write_q8_0(x.data(), x.size(), blocks.data());
        for (size_t i = 0; i < x.size(); i++)
            x[i] = cpu::f16_to_f32(blocks[i / 32].scale) * static_cast<float>(blocks[i / 32].codes[i % 32]);
    }
    return x;
}

// Below, among and above the scores.
std::vector<float> sinks_of(const AttentionCase &c) {
    std::vector<float> sinks;
    for (uint32_t h = 0; h < c.heads; h++) sinks.push_back(static_cast<float>(h % 4) * 2 - 3);
    return sinks;
}

Attention attention(Bench &b, const AttentionCase &c, const std::vector<float> &q, uint32_t pages,
                    const std::vector<float> &k, const std::vector<float> &v) {
    const std::vector<float> sinks = sinks_of(c);
    return {.q = b.value(c.heads * c.head_dim, q),
            .out = b.value(c.heads * c.head_dim),
            .k_state = b.state(c.kv_heads * c.head_dim, c.type, pages, k),
            .v_state = b.state(c.kv_heads * c.head_dim, c.type, pages, v),
            .heads = c.heads,
            .kv_heads = c.kv_heads,
            .head_dim = c.head_dim,
            .scale = 1 / std::sqrt(static_cast<float>(c.head_dim)),
            .window = c.window,
            .softcap = c.softcap,
            .sinks = c.sinks ? b.weight(sinks) : kNone};
}

// Value and error bound of one output element: the error of a score moves its weight by as much, relatively; the
// rescalings, the sums of weights and of weighted values add roundings per position, block and segment.
struct Expected {
    double value, bound;
};
std::vector<Expected> attend(const AttentionCase &c, const Attention &op, const StepView &step, uint32_t i, uint32_t h,
                             const float *q, const std::vector<float> &k, const std::vector<float> &v) {
    const auto last = static_cast<uint32_t>(step.position()[i]), seq = static_cast<uint32_t>(step.sequence()[i]);
    const uint32_t first = c.window > 0 && last + 1 > c.window ? last + 1 - c.window : 0;
    const size_t cols = size_t{c.kv_heads} * c.head_dim, group = h / (c.heads / c.kv_heads);
    std::vector<double> s;
    double error = 0, lowest = INFINITY, top = -INFINITY;
    for (uint32_t p = first; p <= last; p++) {
        double dot = 0, size = 0;
        for (uint32_t d = 0; d < c.head_dim; d++) {
            const double term = double{q[d]} * k[step.slot(seq, p) * cols + group * c.head_dim + d];
            dot += term, size += std::fabs(term);
        }
        s.push_back(dot * op.scale);
        error = std::max(error, size * op.scale * (c.head_dim / 16 + 8) * kUnit + 9.01 * kUnit * c.softcap);
        if (c.softcap > 0) s.back() = c.softcap * std::tanh(s.back() / c.softcap);
        lowest = std::min(lowest, s.back());
        top = std::max(top, s.back());
    }
    const double sink = c.sinks ? double{sinks_of(c)[h]} : -INFINITY;
    if (c.sinks) top = std::max(top, sink), lowest = std::min(lowest, sink);
    const double steps = (last - first) + 2.0 * (last / 64 + 1) + 6.0 * (last / 512 + 1) + 16;
    const double relative = 2 * error + (2 * (top - lowest) + steps) * kUnit;
    std::vector<Expected> out(c.head_dim, {0, 0});
    double sum = std::exp(sink - top);
    for (double x : s) sum += std::exp(x - top);
    for (uint32_t d = 0; d < c.head_dim; d++) {
        double size = 0;
        for (uint32_t p = first; p <= last; p++) {
            const double term =
                std::exp(s[p - first] - top) / sum * v[step.slot(seq, p) * cols + group * c.head_dim + d];
            out[d].value += term, size += std::fabs(term);
        }
        out[d].bound = relative * size + 0x1p-140;
    }
    return out;
}

TEST(AttentionRows, BitsAndValues) {
    for (const AttentionCase &c : kAttentions)
        for (auto [m, position] :
             {std::pair{1u, 0u}, {1u, 63u}, {1u, 64u}, {1u, 300u}, {3u, 190u}, {70u, 100u}, {1u, 1100u}, {14u, 505u}}) {
            Bench b = bench(m, position);
            const uint32_t pages = (position + m + 63) / 64;
            const auto k = kv_data(c, pages, 1), v = kv_data(c, pages, 2);
            const auto q = random_floats(m * c.heads * c.head_dim, 3, 2);
            const Attention op = attention(b, c, q, pages, k, v);
            expect_same_bits(b, op);
            const auto out = b.floats(op.out);
            for (uint32_t i = 0; i<m; i += m> 10 ? 23 : 1)
                for (uint32_t h = 0; h < c.heads; h++) {
                    const size_t at = (size_t{i} * c.heads + h) * c.head_dim;
                    const auto want = attend(c, op, b.step.view(), i, h, &q[at], k, v);
                    for (uint32_t d = 0; d < c.head_dim; d++)
                        ASSERT_NEAR(out[at + d], want[d].value, want[d].bound) << c.head_dim << " " << position;
                }
        }
}

// Two sequences of different length whose tokens come alternately, in runs and singly, on scattered pages.
TEST(AttentionRows, BitsDoNotDependOnCompanyOrCut) {
    for (const AttentionCase &c : kAttentions) {
        const uint32_t each = 150, pages = 2 * 6, width = c.heads * c.head_dim;
        const auto k = kv_data(c, pages, 1), v = kv_data(c, pages, 2), q = random_floats(2 * each * width, 3);
        struct Token {
            uint32_t sequence, position;
        };
        std::vector<Token> tokens;  // token t has row t of q
        for (uint32_t i = 0, done[2] = {0, 0}; tokens.size() < 2 * each; i++) {
            const uint32_t s = i % 2;
            for (uint32_t r = 0; r < 1 + i % 9 && done[s] < each; r++, done[s]++)
                tokens.push_back({s, (s == 0 ? 0 : 170) + done[s]});
        }
        const auto run = [&](const Kernel &kernel, size_t from, size_t to) {
            const auto m = static_cast<uint32_t>(to - from);
            Bench b(StepLimits{.tokens = m, .outputs = 1, .sequences = 2, .pages = 6});
            b.step.begin();
            for (uint32_t p = 0; p < 6; p++)
                b.step.set_page(0, p, (7 * p + 3) % 12), b.step.set_page(1, p, (7 * p + 45) % 12);
            for (size_t t = from; t < to; t++) b.step.add(0, tokens[t].position, tokens[t].sequence, false);
            const std::vector<float> rows(q.begin() + static_cast<long>(from * width),
                                          q.begin() + static_cast<long>(to * width));
            const Attention op = attention(b, c, rows, pages, k, v);
            b.run(kernel, op);
            return b.floats(op.out);
        };
        for (const Kernel *kernel : rows_for(kind<Attention>())) {
            const auto all = run(*kernel, 0, tokens.size());
            for (size_t t = 0; t < tokens.size(); t += 13) {
                const auto one = run(*kernel, t, t + 1);
                ASSERT_EQ(one, std::vector<float>(all.begin() + static_cast<long>(t * width),
                                                  all.begin() + static_cast<long>((t + 1) * width)))
                    << kernel->name << " token " << t;
            }
            const auto some = run(*kernel, 40, 110);
            ASSERT_TRUE(std::equal(some.begin(), some.end(), all.begin() + 40 * static_cast<long>(width)))
                << kernel->name;
        }
    }
}

// However many workers there are, and whether they share memory: then a segment may be a tile. Twice in the same
// memory, which must be left as it was found.
TEST(AttentionRows, BitsDoNotDependOnWorkers) {
    for (const AttentionCase &c : kAttentions)
        for (auto [m, position] : {std::pair{2u, 1535u}, {9u, 1020u}, {40u, 1000u}}) {
            Bench b = bench(m, position);
            const uint32_t pages = (position + m + 63) / 64;
            const auto k = kv_data(c, pages, 1), v = kv_data(c, pages, 2);
            const Attention op = attention(b, c, random_floats(m * c.heads * c.head_dim, 3, 2), pages, k, v);
            for (const Kernel *kernel : rows_for(kind<Attention>())) {
                b.run(*kernel, op);
                const auto alone = b.floats(op.out);
                for (const uint32_t workers : {1u, 2u, 7u, 64u}) {
                    std::fill_n(b.data(op.out), alone.size(), NAN);
                    b.run(*kernel, op, workers);
                    ASSERT_EQ(b.floats(op.out), alone) << kernel->name << " " << m << " " << workers;
                }
            }
        }
}

// Segments of one row on several threads at once, in memory that is used again and again.
TEST(AttentionRows, ThreadsShareTheSegments) {
    const AttentionCase c{8, 2, 64, 0, DType::f16};
    constexpr uint32_t kTokens = 3, kPosition = 2000, kThreads = 4, kPages = (kPosition + kTokens + 63) / 64;
    Bench b = bench(kTokens, kPosition);
    const auto k = kv_data(c, kPages, 1), v = kv_data(c, kPages, 2);
    const Attention op = attention(b, c, random_floats(kTokens * c.heads * c.head_dim, 3), kPages, k, v);
    const Op any = op;
    b.bindings.limits = b.step.limits();
    for (const Kernel *kernel : rows_for(kind<Attention>())) {
        b.run(*kernel, op);
        const auto alone = b.floats(op.out);
        const size_t bytes = kernel->tile.shared_bytes(b.program, any, b.step.limits());
        ASSERT_GT(bytes, 0u);
        std::vector<Line> shared(bytes / sizeof(Line) + 1);
        const LaunchView view{b.program, any, b.bindings, b.step.view(), shared[0].bytes, kThreads};
        const uint32_t count = kernel->tile.count(view);
        ASSERT_GT(count, kThreads) << kernel->name;
        for (int round = 0; round < 20; round++) {
            std::fill_n(b.data(op.out), alone.size(), NAN);
            std::atomic<uint32_t> next{0};
            std::vector<std::thread> threads;
            for (uint32_t w = 0; w < kThreads; w++)
                threads.emplace_back([&] {
                    std::vector<Line> scratch(kernel->tile.scratch_bytes / sizeof(Line) + 1);
                    for (uint32_t t; (t = next++) < count;) kernel->tile.run(view, t, scratch[0].bytes);
                });
            for (std::thread &t : threads) t.join();
            ASSERT_EQ(b.floats(op.out), alone) << kernel->name;
        }
    }
}

TEST(AttentionRows, NothingOutsideTheSequenceIsRead) {
    for (const Kernel *kernel : rows_for(kind<Attention>()))
        for (const AttentionCase &c : kAttentions) {
            // The state is full of NaN but for what token 0 may see.
            Bench b = bench(1, 70);
            const uint32_t first = c.window > 0 && c.window < 71 ? 71 - c.window : 0;
            const size_t cols = size_t{c.kv_heads} * c.head_dim;
            std::vector<float> kv(2 * kPageTokens * cols, NAN);
            for (uint32_t p = first; p <= 70; p++)
                std::fill_n(kv.begin() + static_cast<long>(b.step.view().slot(0, p) * cols), cols, 0.5f);
            const Attention op = attention(b, c, random_floats(c.heads * c.head_dim, 3), 2, kv, kv);
            b.run(*kernel, op);
            // All values are 0.5, or as near as q8_0 comes to it; a sink takes a share.
            for (float x : b.floats(op.out)) {
                ASSERT_LT(x, 0.50001f) << kernel->name;
                ASSERT_GT(x, c.sinks ? 0.0f : c.type == DType::q8_0 ? 0.4999f : 0.49999f) << kernel->name;
            }
        }
}

// A sink of -inf is none; one far above all scores leaves nothing; NaN shows.
TEST(AttentionRows, ExtremeSinks) {
    for (const Kernel *kernel : rows_for(kind<Attention>())) {
        const AttentionCase c{4, 2, 64, 0, DType::f16};
        Bench b = bench(3, 100);
        const auto k = kv_data(c, 2, 1), v = kv_data(c, 2, 2), q = random_floats(3 * 4 * 64, 3);
        Attention op = attention(b, c, q, 2, k, v);
        b.run(*kernel, op);
        const auto without = b.floats(op.out);
        op.sinks = b.weight({-INFINITY, 500, NAN, -INFINITY});
        b.run(*kernel, op);
        const auto with = b.floats(op.out);
        for (size_t i = 0; i < with.size(); i++) {
            const size_t head = i / 64 % 4;
            if (head == 1)
                ASSERT_EQ(with[i], 0) << kernel->name;
            else if (head == 2)
                ASSERT_TRUE(std::isnan(with[i])) << kernel->name;
            else
                ASSERT_EQ(with[i], without[i]) << kernel->name;
        }
    }
}

TEST(AttentionRows, RefusesWhatItCannotDo) {
    for (const Kernel *kernel : rows_for(kind<Attention>())) {
        Bench b = bench(1);
        Attention op = attention(b, kAttentions[0], {}, 1, {}, {});
        EXPECT_EQ(kernel->refuses(b.program, op), "");
        op.head_dim = 513;
        EXPECT_NE(kernel->refuses(b.program, op), "");
        op.head_dim = 64;
        op.v_state = b.state(3 * 64, DType::f32, 1);
        EXPECT_NE(kernel->refuses(b.program, op), "");
        op.k_state = op.v_state = b.state(3 * 64, DType::q8_0, 1);
        EXPECT_EQ(kernel->refuses(b.program, op), "");
        op.head_dim = 48;
        EXPECT_NE(kernel->refuses(b.program, op), "");
    }
}

}  // namespace
}  // namespace ridge::testing_cpu
