// The backend: memory, weights in place, and executables over several launches at several thread counts.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <thread>

#include "core/error.h"
#include "one_op.h"

namespace ridge::testing_cpu {
namespace {

TEST(CpuBackend, MemoryIsZeroAlignedAndCopied) {
    const auto cpu = make_cpu_backend({.name = "here", .threads = 1});
    EXPECT_EQ(cpu->info().name, "here");
    EXPECT_GT(cpu->info().memory_total, 0u);
    for (size_t bytes : {size_t{0}, size_t{1}, size_t{1000}, size_t{3} << 20, (size_t{5} << 20) + 7}) {
        const Buffer b = cpu->allocate(bytes, "test");
        EXPECT_EQ(b.bytes, bytes);
        EXPECT_EQ(b.address % 64, 0u);
        const auto *p = reinterpret_cast<const std::byte *>(b.address);
        EXPECT_TRUE(std::all_of(p, p + bytes, [](std::byte x) { return x == std::byte{0}; }));
        if (bytes < 3) continue;
        const std::byte in[2] = {std::byte{7}, std::byte{9}};
        std::byte out[3] = {};
        cpu->upload(b, bytes - 2, in);
        cpu->download(b, bytes - 3, out);
        EXPECT_EQ(out[0], std::byte{0});
        EXPECT_EQ(out[1], std::byte{7});
        EXPECT_EQ(out[2], std::byte{9});
    }
}

TEST(CpuBackend, TooMuchMemoryIsAnErrorWithSizes) {
    const auto cpu = make_cpu_backend({.threads = 1});
    for (size_t bytes : {size_t{1} << 46, std::numeric_limits<size_t>::max() / 4}) try {
            cpu->allocate(bytes, "the KV cache");
            ADD_FAILURE() << "allocated";
        } catch (const Error &e) {
            EXPECT_EQ(e.kind(), ErrorKind::limit);
            EXPECT_NE(std::string(e.what()).find("the KV cache"), std::string::npos);
            EXPECT_NE(std::string(e.what()).find("MiB are free"), std::string::npos);
        }
}

// Untouched memory is not taken yet, but promised.
TEST(CpuBackend, TogetherTooMuchIsAnErrorToo) {
    const auto cpu = make_cpu_backend({.threads = 1});
    const size_t most = cpu->info().memory_free / 10 * 6;
    const Buffer first = cpu->allocate(most, "first");
    EXPECT_THROW(cpu->allocate(most, "second"), Error);
}

TEST(CpuBackend, TooManyThreadsAreAnError) {
    try {
        make_cpu_backend({.threads = 1'000'000});
        ADD_FAILURE() << "made";
    } catch (const Error &e) {
        EXPECT_EQ(e.kind(), ErrorKind::usage);
    }
}

TEST(CpuBackend, WeightsStayWhereTheyAre) {
    const auto cpu = make_cpu_backend({.threads = 1});
    alignas(4) std::byte file[100];
    const Weight w{.name = "w", .format = Format::F16, .n = 3, .k = 7, .experts = 2, .data = file + 1};
    const Buffer b = cpu->load(w, Layout::file);
    EXPECT_EQ(b.address, reinterpret_cast<uint64_t>(file + 1));
    EXPECT_EQ(b.bytes, 2u * 3 * 7 * 2);
}

// A chain whose launches have one tile, many tiles, and none, so that barriers are needed and skipped:
// sum = a + b; n = rmsnorm(sum); y = silu(n) * sum; s = softmax(y); g = gather(s).
struct Chain {
    Bench b;
    std::vector<ValueId> results;
    std::vector<Launch> launches;

    Chain(uint32_t m, uint32_t wanted, uint32_t n, Features features) : b(bench_with(m, wanted)) {
        const ValueId a = b.value(n, random_floats(size_t{m} * n, 1)), c = b.value(n, random_floats(size_t{m} * n, 2));
        const WeightId w = b.weight(random_floats(n, 3));
        const auto out = [&](Rows rows = Rows::tokens) { return results.emplace_back(b.value(n, {}, rows)); };
        const ValueId sum = out(), norm = out(), y = out(), s = out(), g = out(Rows::outputs);
        for (const Op &op : {Op(Add{a, c, sum}), Op(RmsNorm{sum, norm, w, n, 1e-6f}), Op(Glu{norm, sum, y}),
                             Op(Softmax{y, s}), Op(GatherRows{s, g})}) {
            const Kernel *best = nullptr;
            for (const Kernel *k : rows_for(static_cast<OpKind>(op.index())))
                if ((k->needs & ~features) == 0) best = k;
            launches.push_back({best, static_cast<uint32_t>(b.program.nodes.size())});
            b.program.nodes.push_back({op, 0, 0});
        }
        b.bindings.limits = b.step.limits();
    }
    static Bench bench_with(uint32_t m, uint32_t wanted) {
        Bench made(StepLimits{.tokens = m, .outputs = m, .sequences = 1, .pages = m / kPageTokens + 1});
        made.step.begin();
        for (uint32_t i = 0; i < m; i++) made.step.add(0, i, 0, i < wanted);
        return made;
    }
    std::vector<std::vector<float>> values() const {
        std::vector<std::vector<float>> all;
        for (ValueId v : results) all.push_back(b.floats(v));
        return all;
    }
};

TEST(CpuExecutable, SameBitsForAnyThreadsAndRows) {
    const unsigned most = 4 * static_cast<unsigned>(std::max(1u, std::thread::hardware_concurrency()));
    for (auto [m, wanted] : {std::pair{1u, 1u}, {1u, 0u}, {9u, 2u}, {200u, 150u}}) {
        std::vector<std::vector<float>> want;
        for (unsigned threads : {1u, 2u, 3u, 4u, 8u}) {
            if (threads > most) continue;
            const auto cpu = make_cpu_backend({.threads = threads});
            for (Features features : {Features{0}, cpu_features()}) {
                Chain chain(m, wanted, 576, features);
                const auto start = chain.b.snapshot();
                const auto run = cpu->compile(chain.b.program, chain.b.bindings, chain.launches);
                for (int round = 0; round < 20; round++) {
                    chain.b.restore(start);
                    run->run(chain.b.step);
                    if (want.empty()) want = chain.values();
                    ASSERT_EQ(chain.values(), want) << threads << " threads, " << m << " tokens, round " << round;
                }
            }
        }
        for (float x : want.back()) ASSERT_FALSE(std::isnan(x));
    }
}

TEST(CpuExecutable, TwoOfOneBackendFromTwoThreads) {
    const auto cpu = make_cpu_backend({.threads = 2});
    Chain one(20, 20, 100, cpu_features()), two(20, 20, 100, cpu_features());
    const auto run_one = cpu->compile(one.b.program, one.b.bindings, one.launches);
    const auto run_two = cpu->compile(two.b.program, two.b.bindings, two.launches);
    const auto repeat = [](Executable &e, const StepBuffer &step) {
        for (int i = 0; i < 50; i++) e.run(step);
    };
    std::thread other([&] { repeat(*run_two, two.b.step); });
    repeat(*run_one, one.b.step);
    other.join();
    EXPECT_EQ(one.values(), two.values());
}

// Workers' scratch is one for all executables, and grows with them while others run.
TEST(CpuExecutable, ScratchGrowsWhileAnotherRuns) {
    static constexpr auto fill = [](const LaunchView &view, uint32_t tile, std::byte *scratch, size_t bytes) {
        std::memset(scratch, static_cast<int>(tile), bytes);
        float sum = 0;
        for (size_t i = 0; i < bytes; i += 1024) sum += static_cast<float>(std::to_integer<int>(scratch[i]));
        const Add &op = std::get<Add>(view.op);
        view.ptr<float>(op.out)[tile] = sum;
    };
    const auto count = [](const LaunchView &) { return 64u; };
    Kernel small{.name = "small", .op = kind<Add>(), .tile = {.count = count}};
    Kernel large = small;
    constexpr size_t kSmall = 4096, kLarge = size_t{5} << 20;
    small.tile.scratch_bytes = kSmall, large.tile.scratch_bytes = kLarge;
    small.tile.run = [](const LaunchView &v, uint32_t t, std::byte *s) { fill(v, t, s, kSmall); };
    large.tile.run = [](const LaunchView &v, uint32_t t, std::byte *s) { fill(v, t, s, kLarge); };

    const auto cpu = make_cpu_backend({.threads = 2});
    Bench a = bench(1), b = bench(1);
    for (Bench *x : {&a, &b}) {
        const ValueId in = x->value(64), out = x->value(64);
        x->program.nodes.push_back({Add{in, in, out}, 0, 0});
        x->bindings.limits = x->step.limits();
    }
    const auto first = cpu->compile(a.program, a.bindings, {{&small, 0}});
    std::thread other([&] {
        for (int i = 0; i < 200; i++) first->run(a.step);
    });
    const auto second = cpu->compile(b.program, b.bindings, {{&large, 0}});
    for (int i = 0; i < 5; i++) second->run(b.step);
    other.join();
    for (uint32_t t = 0; t < 64; t++) {
        EXPECT_EQ(a.floats(static_cast<ValueId>(1))[t], static_cast<float>(t * kSmall / 1024));
        EXPECT_EQ(b.floats(static_cast<ValueId>(1))[t], static_cast<float>(t * kLarge / 1024));
    }
}

TEST(CpuExecutable, NoLaunchesIsNothing) {
    const auto cpu = make_cpu_backend({.threads = 2});
    Bench b = bench(1);
    cpu->compile(b.program, b.bindings, {})->run(b.step);
}

}  // namespace
}  // namespace ridge::testing_cpu
