// What bench runs and counts, on a device that only writes down what it is asked to do.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>

#include "backend/cpu/cpu.h"
#include "core/error.h"
#include "measure/bench.h"
#include "measure/bench_problem.h"

namespace ridge::bench {
namespace {

using Clock = std::chrono::steady_clock;

void spin(std::chrono::microseconds time) {
    for (const auto start = Clock::now(); Clock::now() - start < time;) {
    }
}

struct Launched {
    std::string row;
    WeightId weight;
    uint32_t tokens;
};

// Rows for contract that take 5 us (fake.fast) and 25 us (fake.slow) a launch, and a row that quantises.
class Recorder final : public Backend {
  public:
    explicit Recorder(std::vector<Launched> &log) : log_(log) {
        Kernel k;
        k.op = kind<Contract>(), k.formats = FormatSet::all(), k.input = DType::q8;
        k.name = "fake.slow", k.rank = 1, kernels_.push_back(k);
        k.name = "fake.fast", k.rank = 5, kernels_.push_back(k);
        k.name = "fake.many", k.rank = 9, k.tokens.first = 16, kernels_.push_back(k);
        k.name = "fake.f32", k.tokens.first = 1, k.input = DType::f32, kernels_.push_back(k);
        k.name = "fake.quantize", k.op = kind<Quantize>(), k.formats = {}, kernels_.push_back(k);
    }
    DeviceInfo info() const override { return {"fake", "fake device", 1 << 30, 1 << 30}; }
    std::span<const Kernel> kernels() const override { return kernels_; }
    Features features() const override { return 0; }
    std::string feature_names(Features) const override { return {}; }
    Buffer allocate(size_t bytes, std::string_view) override {
        auto memory = std::shared_ptr<void>(std::calloc(1, bytes), std::free);
        return {reinterpret_cast<uint64_t>(memory.get()), bytes, memory};
    }
    Buffer load(const Weight &w, Layout) override { return {reinterpret_cast<uint64_t>(w.data), w.bytes(), nullptr}; }
    void upload(const Buffer &to, size_t offset, std::span<const std::byte> from) override {
        std::memcpy(reinterpret_cast<std::byte *>(to.address) + offset, from.data(), from.size());
    }
    void download(const Buffer &, size_t, std::span<std::byte>) override {}

    class Recorded final : public Executable {
      public:
        Recorded(std::vector<Launched> &log, const Program &p, std::vector<Launch> launches)
            : log_(log), program_(p), launches_(std::move(launches)) {}
        void run(const StepBuffer &step, StepTrace *) override {
            for (const Launch &l : launches_) {
                const Contract *c = std::get_if<Contract>(&program_.nodes[l.node].op);
                log_.push_back({std::string(l.kernel->name), c ? c->banks[0].weight : kNone, step.view().tokens()});
                spin(std::chrono::microseconds(l.kernel->name == "fake.slow" ? 25 : 5));
            }
        }

      private:
        std::vector<Launched> &log_;
        const Program &program_;
        std::vector<Launch> launches_;
    };
    std::unique_ptr<Executable> compile(const Program &p, const Bindings &, std::vector<Launch> launches) override {
        return std::make_unique<Recorded>(log_, p, std::move(launches));
    }

  private:
    std::vector<Launched> &log_;
    std::vector<Kernel> kernels_;
};

KernelOptions small(uint32_t m) {
    KernelOptions o;
    o.op = "contract";
    o.formats = {Format::Q4_K};
    o.tokens = {m};
    o.n = 64, o.k = 256;
    o.rotate_bytes = 200000;  // 22 matrices of 9216 bytes
    o.seconds = 0.05;
    o.when_busy = WhenBusy::mark;
    return o;
}

std::vector<KernelResult> run(Backend &device, const KernelOptions &o) {
    std::vector<KernelResult> found;
    bench_kernels(device, o, [&](const KernelResult &r) { found.push_back(r); });
    return found;
}

TEST(BenchKernels, EveryRowOfAPointIsMeasuredAndTheTimesAreTheirs) {
    std::vector<Launched> log;
    Recorder device(log);
    const std::vector<KernelResult> found = run(device, small(1));
    ASSERT_EQ(found.size(), 2U);
    EXPECT_EQ(found[0].row, "fake.fast");
    EXPECT_TRUE(found[0].planned);
    EXPECT_EQ(found[0].products, KernelResult::Products::int8);
    EXPECT_EQ(found[1].row, "fake.slow");
    EXPECT_FALSE(found[1].planned);
    for (const KernelResult &r : found) {
        EXPECT_GE(r.seconds.count(), 5U);
        EXPECT_EQ(r.copies, 22U);
        EXPECT_EQ(r.bytes, 64 * 144.0);
        EXPECT_EQ(r.multiply_adds, 64 * 256.0);
    }
    EXPECT_GE(found[0].seconds.least(), 5e-6);
    EXPECT_LT(found[0].seconds.least(), 20e-6);
    EXPECT_GE(found[1].seconds.least(), 25e-6);
}

// Between two reads of a matrix lie reads of all the others, whichever row it is that reads.
TEST(BenchKernels, WeightsAreReadAgainOnlyAfterAllOthers) {
    for (const uint32_t m : {1u, 20000u}) {  // many launches in one sample; one launch in one sample
        SCOPED_TRACE(m);
        std::vector<Launched> log;
        Recorder device(log);
        KernelOptions o = small(m);
        o.n = 256, o.rotate_bytes = 22 * 256 * 144;
        run(device, o);
        std::map<WeightId, size_t> last;
        std::map<std::string, size_t> launches;
        size_t nearest = log.size(), at = 0;
        for (const Launched &r : log) {
            if (r.weight == kNone) continue;
            EXPECT_EQ(r.tokens, m);
            launches[r.row]++;
            if (last.contains(r.weight)) nearest = std::min(nearest, at - last[r.weight]);
            last[r.weight] = at++;
        }
        EXPECT_EQ(last.size(), 22U);
        EXPECT_EQ(nearest, 22U);
        EXPECT_EQ(launches.size(), m == 1 ? 2U : 3U);
    }
}

TEST(BenchKernels, RowsAreChosenByName) {
    std::vector<Launched> log;
    Recorder device(log);
    KernelOptions o = small(1);
    o.row = "slow";
    EXPECT_EQ(run(device, o).size(), 1U);
    o.row = "fake.*w";
    ASSERT_EQ(run(device, o).size(), 1U);
    EXPECT_EQ(run(device, o)[0].row, "fake.slow");
    o.row = "*";
    EXPECT_EQ(run(device, o).size(), 2U);
    o.every_input = true;
    EXPECT_EQ(run(device, o).size(), 3U);
    EXPECT_EQ(run(device, o)[2].products, KernelResult::Products::f32);
    o.row = "f*e.f*t";
    EXPECT_EQ(run(device, o)[0].row, "fake.fast");
    o.row = "fake";
    o.tokens = {16};
    EXPECT_EQ(run(device, o)[0].row, "fake.many");
}

std::string usage(Backend &device, const KernelOptions &o) {
    try {
        run(device, o);
    } catch (const Error &e) {
        EXPECT_EQ(e.kind(), ErrorKind::usage) << e.what();
        return e.what();
    }
    ADD_FAILURE() << "nothing was refused";
    return {};
}

TEST(BenchKernels, WhatCannotBeMeasuredIsRefused) {
    std::vector<Launched> log;
    Recorder device(log);
    KernelOptions o = small(1);
    o.op = "softmax";
    EXPECT_NE(usage(device, o).find("gate_up"), std::string::npos);
    o = small(1);
    o.k = 100;
    EXPECT_NE(usage(device, o).find("blocks of 256"), std::string::npos);
    o = small(1);
    o.row = "nobody";
    EXPECT_NE(usage(device, o).find("nobody"), std::string::npos);
    o = small(1);
    o.experts = 4, o.slots = 5;
    EXPECT_NE(usage(device, o).find("5 of 4 experts"), std::string::npos);
}

// ---- on the real CPU

std::set<int32_t> experts_of(const Problem &p, Backend &) {
    std::set<int32_t> launches;
    for (const Node &n : p.program().nodes)
        if (const Contract *c = std::get_if<Contract>(&n.op)) launches.insert(c->ids);
    return launches;
}

TEST(BenchProblem, ExpertsThatOneTokenUses) {
    const std::unique_ptr<Backend> cpu = make_cpu_backend({.threads = 1});
    KernelOptions o = small(1);
    o.experts = 12, o.slots = 3, o.rotate_bytes = 2 * 12 * 64 * 144;
    const Problem p(*cpu, o, Format::Q4_K, DType::q8, 1, 0);
    EXPECT_EQ(p.copies(), 2U);
    EXPECT_EQ(p.launches(), 8U);  // four tokens go round the experts of a copy
    EXPECT_EQ(experts_of(p, *cpu).size(), 8U);
    EXPECT_DOUBLE_EQ(p.bytes(), 3 * 64 * 144);
    EXPECT_DOUBLE_EQ(p.multiply_adds(), 3 * 64 * 256);
}

TEST(BenchProblem, ExpertsThatManyTokensUse) {
    const std::unique_ptr<Backend> cpu = make_cpu_backend({.threads = 1});
    KernelOptions o = small(64);
    o.experts = 12, o.slots = 3;
    const Problem p(*cpu, o, Format::Q4_K, DType::q8, 64, 0);
    EXPECT_DOUBLE_EQ(p.bytes(), 12 * 64 * 144) << "each expert has one of 192 choices";
    EXPECT_DOUBLE_EQ(p.multiply_adds(), 64 * 3 * 64 * 256);
}

TEST(BenchProblem, AttentionReadsItsState) {
    const std::unique_ptr<Backend> cpu = make_cpu_backend({.threads = 1});
    KernelOptions o = small(2);
    o.op = "attention", o.heads = 4, o.kv_heads = 2, o.head_dim = 32;
    o.rotate_bytes = 100000;
    Problem p(*cpu, o, Format::F32, DType::f32, 2, 100);
    EXPECT_DOUBLE_EQ(p.bytes(), 102 * 2 * 64 * 2);                      // positions x (k, v) x columns x f16
    EXPECT_DOUBLE_EQ(p.multiply_adds(), 2 * 4 * 32 * (101.0 + 102.0));  // two per element, head and position
    EXPECT_EQ(p.copies(), 4U);
    ASSERT_FALSE(p.rows().empty());
}

TEST(BenchKernels, EveryFormatAndOperationRuns) {
    const std::unique_ptr<Backend> cpu = make_cpu_backend({.threads = 2});
    KernelOptions o = small(3);
    o.seconds = 0.001;
    o.formats.clear();
    for (const FormatInfo &f : all_formats()) o.formats.push_back(f.id);
    for (const char *op : {"contract", "gate_up", "attention"}) {
        o.op = op;
        o.heads = 4, o.kv_heads = 2, o.head_dim = 32, o.depths = {0, 70};
        std::set<std::string> points;
        for (const KernelResult &r : run(*cpu, o)) {
            points.insert(r.point);
            EXPECT_GT(r.seconds.least(), 0) << r.row;
            EXPECT_GT(r.bytes_per_second(), 0) << r.row;
        }
        EXPECT_EQ(points.size(), std::string(op) == "attention" ? 2U : all_formats().size());
    }
}

TEST(KernelResult, SharesOfTheRoof) {
    KernelResult r;
    r.seconds = Samples({0.5});
    r.bytes = 10, r.multiply_adds = 100;
    r.products = KernelResult::Products::int8;
    EXPECT_DOUBLE_EQ(r.read_share({.read = 40, .int8 = 1000, .f32 = 300}), 0.5);
    EXPECT_DOUBLE_EQ(r.compute_share({.read = 40, .int8 = 1000, .f32 = 300}), 0.2);
    r.products = KernelResult::Products::f32;
    EXPECT_DOUBLE_EQ(r.compute_share({.read = 40, .int8 = 1000, .f32 = 400}), 0.5);
    r.products = KernelResult::Products::bf16;
    EXPECT_DOUBLE_EQ(r.compute_share({.read = 40, .int8 = 1000, .f32 = 400, .bf16 = 800}), 0.25);
    EXPECT_EQ(r.compute_share({.read = 40, .int8 = 1000, .f32 = 400}), 0);
    EXPECT_EQ(r.read_share({}), 0);
}

}  // namespace
}  // namespace ridge::bench
