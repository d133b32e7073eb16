// Each operation: all rows give the same bits, fused forms the bits of their parts, and the portable row is near
// double.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "backend/cpu/rows.h"
#include "format/decode.h"
#include "one_op.h"

namespace ridge::testing_cpu {
namespace {

constexpr double kUnit = 0x1p-24;
const std::vector<uint32_t> kWidths = {1, 5, 15, 16, 17, 33, 64, 100, 576, 1000};

TEST(Rows, NamesAreUnique) {
    std::vector<std::string_view> names;
    for (const Kernel &k : cpu_kernels()) {
        names.push_back(k.name);
        EXPECT_TRUE(k.name.starts_with("cpu.")) << k.name;
        EXPECT_TRUE(k.tile.count && k.tile.run) << k.name;
    }
    std::sort(names.begin(), names.end());
    EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
}

TEST(Rows, LeversAndRanksFollowTheInstructionSet) {
    for (OpKind op :
         {kind<Embed>(), kind<RmsNorm>(), kind<RopeTable>(), kind<Rope>(), kind<KvWrite>(), kind<Attention>(),
          kind<Glu>(), kind<Add>(), kind<Scale>(), kind<RowGate>(), kind<Softmax>(), kind<TopK>(), kind<Normalize>(),
          kind<MoeCombine>(), kind<GatherRows>(), kind<AddRmsNorm>(), kind<QkNormRope>(), kind<MoeRoute>()}) {
        int baselines = 0;
        for (const Kernel &k : cpu_kernels()) {
            if (k.op != op) continue;
            baselines += k.lever == Lever::none ? 1 : 0;
            EXPECT_EQ(k.lever, k.needs == cpu::kAvx512 ? Lever::avx512
                               : k.needs == cpu::kAvx2 ? Lever::avx2
                               : k.needs == cpu::kNeon ? Lever::neon
                                                       : Lever::none)
                << k.name;
            for (const Kernel &other : cpu_kernels())
                if (other.op == op && other.needs < k.needs) {
                    EXPECT_LT(other.rank, k.rank) << k.name;
                    EXPECT_EQ(other.order, k.order) << k.name;
                }
        }
        EXPECT_EQ(baselines, 1) << op_name(op);
    }
}

TEST(RmsNormRows, BitsAndValues) {
    for (uint32_t width : kWidths)
        for (uint32_t heads : {1u, 3u}) {
            const uint32_t m = 7, cols = width * heads;
            Bench b = bench(m);
            const RmsNorm op{.x = b.value(cols, random_floats(m * cols, width)),
                             .out = b.value(cols),
                             .weight = b.weight(random_floats(width, 3)),
                             .width = width,
                             .eps = 1e-5f};
            expect_same_bits(b, op);
            const auto x = b.floats(op.x), out = b.floats(op.out);
            const float *w = reinterpret_cast<const float *>(b.program.weight(op.weight).data);
            for (size_t at = 0; at < x.size(); at += width) {
                double squares = 0;
                for (uint32_t j = 0; j < width; j++) squares += double{x[at + j]} * x[at + j];
                const double scale = 1 / std::sqrt(squares / width + double{op.eps});
                for (uint32_t j = 0; j < width; j++) {
                    const double want = x[at + j] * scale * w[j];
                    // Below the smallest normal number each product may be off by half a step of 2^-149.
                    const double step = (1 + std::fabs(w[j])) * 0x1p-149;
                    ASSERT_NEAR(out[at + j], want, (width / 16 + 12) * kUnit * std::fabs(want) + step);
                }
            }
        }
}

TEST(AddRmsNormRows, EqualsItsParts) {
    for (uint32_t n : kWidths)
        for (float scale : {1.0f, 0.22f, -3.0f}) {
            const uint32_t m = 5;
            Bench b = bench(m);
            const ValueId a = b.value(n, random_floats(m * n, n)), c = b.value(n, random_floats(m * n, n + 1));
            const WeightId w = b.weight(random_floats(n, 3));
            const AddRmsNorm fused{
                .a = a, .b = c, .sum = b.value(n), .out = b.value(n), .weight = w, .eps = 1e-6f, .scale = scale};
            expect_same_bits(b, fused);
            const Add add{.a = a, .b = c, .out = b.value(n), .scale = scale};
            expect_same_bits(b, add);
            const RmsNorm norm{.x = add.out, .out = b.value(n), .weight = w, .width = n, .eps = 1e-6f};
            run_portable(b, norm);
            EXPECT_EQ(b.floats(fused.sum), b.floats(add.out));
            EXPECT_EQ(b.floats(fused.out), b.floats(norm.out));
            const auto x = b.floats(a), y = b.floats(c), sum = b.floats(add.out);
            for (size_t i = 0; i < x.size(); i++) ASSERT_EQ(sum[i], std::fma(scale, y[i], x[i]));
        }
}

TEST(AddRmsNormRows, CombinesLikeItsParts) {
    for (uint32_t n : kWidths)
        for (uint32_t slots : {1u, 3u, 8u, 9u}) {
            const uint32_t m = 5;
            Bench b = bench(m);
            const ValueId a = b.value(n, random_floats(m * n, n));
            const ValueId rows = b.value(n, random_floats(m * slots * n, n + 1), Rows::tokens, slots);
            const ValueId weights = b.value(slots, random_floats(m * slots, n + 2));
            const WeightId w = b.weight(random_floats(n, 3));
            AddRmsNorm fused{
                .a = a, .b = rows, .sum = b.value(n), .out = b.value(n), .weight = w, .eps = 1e-6f, .scale = 0.22f};
            fused.slots = weights;
            expect_same_bits(b, fused);
            const MoeCombine combine{.x = rows, .weights = weights, .out = b.value(n)};
            run_portable(b, combine);
            const AddRmsNorm plain{.a = a,
                                   .b = combine.out,
                                   .sum = b.value(n),
                                   .out = b.value(n),
                                   .weight = w,
                                   .eps = 1e-6f,
                                   .scale = 0.22f};
            run_portable(b, plain);
            EXPECT_EQ(b.floats(fused.sum), b.floats(plain.sum));
            EXPECT_EQ(b.floats(fused.out), b.floats(plain.out));
        }
}

constexpr GluKind kUnits[] = {GluKind::silu, GluKind::gelu, GluKind::clamped};

// All exponents, and half of them where units bend.
std::vector<float> all_magnitudes(size_t n, uint32_t seed) {
    std::mt19937 random(seed);
    std::vector<float> x(n);
    for (float &v : x) {
        v = std::bit_cast<float>(static_cast<uint32_t>(random()));
        if (!std::isfinite(v)) v = 1;
        if (random() % 2 == 0) v = std::fmod(v, 100.0f);
    }
    return x;
}

TEST(GluRows, BitsOverAllMagnitudes) {
    for (const GluKind unit : kUnits)
        for (uint32_t n : {1u, 15u, 16u, 4099u}) {
            const uint32_t m = 9;
            Bench b = bench(m);
            const auto gate = all_magnitudes(m * n, n), up = random_floats(m * n, 5, 4);
            const Glu op{.gate = b.value(n, gate), .up = b.value(n, up), .out = b.value(n), .kind = unit};
            expect_same_bits(b, op);
            const auto out = b.floats(op.out);
            for (size_t i = 0; i < out.size(); i++) {
                ASSERT_FALSE(std::isnan(out[i])) << gate[i] << " " << up[i];
                if (unit == GluKind::silu) {
                    ASSERT_EQ(std::bit_cast<uint32_t>(out[i]), std::bit_cast<uint32_t>(cpu::silu(gate[i]) * up[i]));
                }
            }
        }
}

// Far from 0 a unit is its operand or nothing; the limits of the clamped one hold.
TEST(GluRows, Ends) {
    for (const Kernel *k : rows_for(kind<Glu>())) {
        const auto run = [&](GluKind unit, float gate, float up) {
            Bench b = bench(1);
            const Glu op{.gate = b.value(1, {gate}), .up = b.value(1, {up}), .out = b.value(1), .kind = unit};
            b.run(*k, op);
            return b.floats(op.out)[0];
        };
        for (const GluKind unit : {GluKind::silu, GluKind::gelu}) {
            EXPECT_EQ(run(unit, 1e30f, 1), 1e30f);
            EXPECT_EQ(run(unit, -1e30f, 1), 0);
            EXPECT_EQ(run(unit, INFINITY, 1), INFINITY);
            EXPECT_EQ(run(unit, 0, 5), 0);
        }
        EXPECT_NEAR(run(GluKind::gelu, 1, 1), 0.841192f, 1e-6f);
        EXPECT_NEAR(run(GluKind::gelu, -4, 1), -7.0246e-5f, 1e-9f);
        EXPECT_EQ(run(GluKind::clamped, INFINITY, INFINITY), run(GluKind::clamped, 7, 7));
        EXPECT_EQ(run(GluKind::clamped, 100, -INFINITY), run(GluKind::clamped, 7, -7));
        EXPECT_NEAR(run(GluKind::clamped, 7, 7), 55.99963f, 1e-4f);
        EXPECT_EQ(run(GluKind::clamped, -1e30f, 3), 0);
        EXPECT_EQ(run(GluKind::clamped, 3, -1), 0);
    }
}

TEST(GluRows, NanAndInfinityComeThrough) {
    for (const Kernel *k : rows_for(kind<Glu>()))
        for (const GluKind unit : kUnits) {
            Bench b = bench(1);
            std::vector<float> gate(16, 1.0f), up(16, 1.0f);
            gate[3] = NAN, gate[5] = INFINITY, up[7] = NAN, gate[9] = -INFINITY;
            const Glu op{.gate = b.value(16, gate), .up = b.value(16, up), .out = b.value(16), .kind = unit};
            b.run(*k, op);
            const auto out = b.floats(op.out);
            EXPECT_TRUE(std::isnan(out[3]) && std::isnan(out[7]) && std::isfinite(out[0])) << k->name;
            EXPECT_EQ(std::isinf(out[5]), unit != GluKind::clamped) << k->name;
            EXPECT_TRUE(std::isnan(out[9])) << k->name;  // as the formula has it: -inf / inf
        }
}

TEST(ScaleRows, BitsAndValues) {
    for (uint32_t n : kWidths)
        for (auto [scale, cap] : {std::pair{0.37f, 0.0f}, {1.0f, 30.0f}, {0.125f, 2.5f}, {-1.0f, 0.0f}}) {
            const uint32_t m = 6;
            Bench b = bench(m);
            auto x = all_magnitudes(m * n, n);
            const Scale op{.x = b.value(n, x), .out = b.value(n), .scale = scale, .softcap = cap};
            expect_same_bits(b, op);
            const auto out = b.floats(op.out);
            for (size_t i = 0; i < x.size(); i++) {
                const double scaled = double{x[i]} * double{scale};
                if (cap == 0)
                    ASSERT_EQ(out[i], static_cast<float>(scaled));
                else
                    ASSERT_NEAR(out[i], cap * std::tanh(scaled / cap), 9.01 * kUnit * cap) << x[i];
            }
        }
}

TEST(ScaleRows, NanAndInfinity) {
    for (const Kernel *k : rows_for(kind<Scale>())) {
        Bench b = bench(1);
        const Scale op{.x = b.value(4, {NAN, INFINITY, -INFINITY, -0.0f}), .out = b.value(4), .softcap = 30};
        b.run(*k, op);
        const auto out = b.floats(op.out);
        EXPECT_TRUE(std::isnan(out[0])) << k->name;
        EXPECT_EQ(std::vector<float>(out.begin() + 1, out.end()), (std::vector<float>{30, -30, 0})) << k->name;
    }
}

TEST(RowGateRows, BitsAndValues) {
    for (uint32_t n : kWidths) {
        const uint32_t m = 40;
        Bench b = bench(m);
        auto gate = random_floats(m, n, 3);
        gate[5] = -200, gate[6] = 200, gate[7] = INFINITY;
        const RowGate op{.x = b.value(n, random_floats(m * n, 2)), .out = b.value(n), .gate = b.value(1, gate)};
        expect_same_bits(b, op);
        const auto x = b.floats(op.x), out = b.floats(op.out);
        for (size_t i = 0; i < x.size(); i++) {
            const double want = x[i] / (1 + std::exp(-double{gate[i / n]}));
            const double overflow = gate[i / n] < -88.7f ? std::fabs(want) : 0;  // of exp: a zero instead
            ASSERT_NEAR(out[i], want, 6.01 * kUnit * std::fabs(want) + 0x1p-146 + overflow) << gate[i / n];
        }
    }
}

std::vector<double> softmax_of(const float *x, size_t n) {
    const double top = *std::max_element(x, x + n);
    std::vector<double> e(n);
    for (size_t i = 0; i < n; i++) e[i] = std::exp(x[i] - top);
    const double sum = std::accumulate(e.begin(), e.end(), 0.0);
    for (double &v : e) v /= sum;
    return e;
}

TEST(SoftmaxRows, BitsAndValues) {
    for (uint32_t n : kWidths) {
        const uint32_t m = 6;
        Bench b = bench(m);
        const Softmax op{.x = b.value(n, random_floats(m * n, n, 3)), .out = b.value(n)};
        expect_same_bits(b, op);
        const auto x = b.floats(op.x), out = b.floats(op.out);
        for (uint32_t i = 0; i < m; i++) {
            const auto want = softmax_of(&x[i * n], n);
            const double spread =
                *std::max_element(&x[i * n], &x[i * n] + n) - *std::min_element(&x[i * n], &x[i * n] + n);
            for (uint32_t j = 0; j < n; j++)
                ASSERT_NEAR(out[i * n + j], want[j], (spread + n / 16 + 16) * kUnit * want[j] + 0x1p-146);
        }
    }
}

TEST(NormalizeRows, BitsAndValues) {
    for (uint32_t n : kWidths) {
        const uint32_t m = 4;
        Bench b = bench(m);
        std::vector<float> x = random_floats(m * n, n);
        for (float &v : x) v = std::fabs(v) + 1e-3f;
        const Normalize op{.x = b.value(n, x), .out = b.value(n)};
        expect_same_bits(b, op);
        const auto out = b.floats(op.out);
        for (uint32_t i = 0; i < m; i++) {
            const double sum = std::accumulate(&x[i * n], &x[i * n] + n, 0.0);
            for (uint32_t j = 0; j < n; j++)
                ASSERT_NEAR(out[i * n + j], x[i * n + j] / sum, (n / 16 + 8) * kUnit * x[i * n + j] / sum);
        }
    }
}

TEST(TopKRows, DescendingLowerIndexFirstOfEquals) {
    Bench b = bench(3);
    const std::vector<float> x = {1,   5,  2,   5,  0,   5,   // equals
                                  NAN, -1, NAN, -2, NAN, -3,  // NaN ranks last
                                  -1,  -2, -3,  -4, -5,  -6};
    const TopK op{.x = b.value(6, x), .ids = b.value(4, {}, Rows::tokens, 1, DType::i32), .weights = b.value(4)};
    expect_same_bits(b, op);
    EXPECT_EQ(b.ints(op.ids), (std::vector<int32_t>{1, 3, 5, 2, 1, 3, 5, 0, 0, 1, 2, 3}));
    const auto w = b.floats(op.weights);
    EXPECT_EQ(std::vector<float>(w.begin(), w.begin() + 7), (std::vector<float>{5, 5, 5, 2, -1, -2, -3}));
    EXPECT_TRUE(std::isnan(w[7]));
}

TEST(TopKRows, AgainstASort) {
    const uint32_t m = 5, n = 128, k = 8;
    Bench b = bench(m);
    auto x = random_floats(m * n, 9);
    for (float &v : x) v = std::round(v * 4) / 4;  // many equals
    const TopK op{.x = b.value(n, x), .ids = b.value(k, {}, Rows::tokens, 1, DType::i32), .weights = b.value(k)};
    run_portable(b, op);
    for (uint32_t i = 0; i < m; i++) {
        std::vector<int32_t> order(n);
        std::iota(order.begin(), order.end(), 0);
        const float *row = &x[i * n];
        std::stable_sort(order.begin(), order.end(), [&](int32_t p, int32_t q) { return row[p] > row[q]; });
        for (uint32_t s = 0; s < k; s++) {
            ASSERT_EQ(b.ints(op.ids)[i * k + s], order[s]);
            ASSERT_EQ(b.floats(op.weights)[i * k + s], row[order[s]]);
        }
    }
}

TEST(MoeRouteRows, EqualsItsParts) {
    for (bool normalize : {false, true})
        for (uint32_t n : {4u, 60u, 128u}) {
            const uint32_t m = 70, k = 4;
            Bench b = bench(m);
            const ValueId logits = b.value(n, random_floats(m * n, n, 2));
            const auto ints = [&] { return b.value(k, {}, Rows::tokens, 1, DType::i32); };
            const MoeRoute fused{.logits = logits, .ids = ints(), .weights = b.value(k), .normalize = normalize};
            expect_same_bits(b, fused);
            const Softmax softmax{.x = logits, .out = b.value(n)};
            const TopK top{.x = softmax.out, .ids = ints(), .weights = b.value(k)};
            const Normalize norm{.x = top.weights, .out = b.value(k)};
            run_portable(b, softmax);
            run_portable(b, top);
            run_portable(b, norm);
            EXPECT_EQ(b.ints(fused.ids), b.ints(top.ids));
            EXPECT_EQ(b.floats(fused.weights), b.floats(normalize ? norm.out : top.weights));
        }
}

TEST(MoeCombineRows, BitsAndValues) {
    for (uint32_t n : kWidths) {
        const uint32_t m = 5, slots = 8;
        Bench b = bench(m);
        const MoeCombine op{.x = b.value(n, random_floats(m * slots * n, n), Rows::tokens, slots),
                            .weights = b.value(slots, random_floats(m * slots, 4)),
                            .out = b.value(n)};
        expect_same_bits(b, op);
        const auto x = b.floats(op.x), w = b.floats(op.weights), out = b.floats(op.out);
        for (uint32_t i = 0; i < m; i++)
            for (uint32_t j = 0; j < n; j++) {
                double want = 0, size = 0;
                for (uint32_t s = 0; s < slots; s++) {
                    const double term = double{w[i * slots + s]} * x[(i * slots + s) * n + j];
                    want += term, size += std::fabs(term);
                }
                ASSERT_NEAR(out[i * n + j], want, slots * kUnit * size + 0x1p-146);
            }
    }
}

TEST(GatherRowsRows, TakesTheWantedRows) {
    const uint32_t m = 10, n = 33;
    Bench b = bench(m, 0, 3);
    const GatherRows op{.x = b.value(n, random_floats(m * n, 1)), .out = b.value(n, {}, Rows::outputs)};
    expect_same_bits(b, op);
    const auto x = b.floats(op.x), out = b.floats(op.out);
    ASSERT_EQ(out.size(), 4u * n);
    for (uint32_t j = 0; j < 4; j++)
        for (uint32_t c = 0; c < n; c++) ASSERT_EQ(out[j * n + c], x[3 * j * n + c]);
}

TEST(EmbedRows, EveryFormatAndTheScale) {
    for (const FormatInfo &f : all_formats())
        for (float scale : {1.0f, 0.5f}) {
            const uint32_t m = 3, n = 2 * std::max(f.block, 16u), vocab = 4;
            Bench b = bench(m);
            Bytes table(row_bytes(f.id, n) * vocab, std::byte{0});
            for (size_t i = 0; i < table.size(); i++) table[i] = std::byte(i * 37 % 61);  // small scales, no NaN
            b.program.add_weight({"t", f.id, vocab, n, 1, table.data()});
            b.bindings.weights.push_back(reinterpret_cast<uint64_t>(table.data()));
            const Embed op{.table = 0, .out = b.value(n), .scale = scale};
            for (const Kernel *k : rows_for(kind<Embed>())) {
                EXPECT_TRUE(k->formats.has(f.id));
                b.run(*k, op);
                for (uint32_t i = 0; i < m; i++) {
                    std::vector<float> want(n);
                    dequantize(f.id, table.data() + i * row_bytes(f.id, n), want.data(), n);
                    for (uint32_t j = 0; j < n; j++) ASSERT_EQ(b.floats(op.out)[i * n + j], want[j] * scale) << f.name;
                }
            }
        }
}

}  // namespace
}  // namespace ridge::testing_cpu
