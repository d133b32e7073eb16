// The regime that is named for models made to be in each, on this machine; and what is advised.
#include "measure/explain.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <deque>
#include <filesystem>
#include <map>

#include "backend/cpu/cpu.h"
#include "core/error.h"
#include "engine/fuse.h"
#include "engine/place.h"
#include "measure/ceilings_store.h"
#include "measure/synthetic.h"
#include "support/forwarding.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

// Runs the rows of another backend, each tile after a spin: work that no ceiling explains.
class Slowed final : public test::Forwarding {
  public:
    using Forwarding::Forwarding;
    std::unique_ptr<Executable> compile(const Program &p, const Bindings &b, std::vector<Launch> launches) override {
        for (Launch &l : launches) {
            rows().emplace(&p.nodes[l.node].op, l.kernel->tile.run);
            kernels_.push_back(*l.kernel);
            kernels_.back().tile.run = spin_and_run;
            l.kernel = &kernels_.back();
        }
        return Forwarding::compile(p, b, std::move(launches));
    }

  private:
    using Run = void (*)(const LaunchView &, uint32_t, std::byte *);
    // By operation, because a tile function has no state of its own. Several token counts may use one operation with
    // different rows: the tests run one count with an engine.
    static std::map<const Op *, Run> &rows() {
        static std::map<const Op *, Run> all;
        return all;
    }
    static void spin_and_run(const LaunchView &view, uint32_t tile, std::byte *scratch) {
        const auto start = std::chrono::steady_clock::now();
        while (std::chrono::steady_clock::now() - start < std::chrono::microseconds(20)) {
        }
        rows().at (&view.op)(view, tile, scratch);
    }
    std::deque<Kernel> kernels_;
};

class Regimes : public testing::Test {
  protected:
    void SetUp() override {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__OPTIMIZE__)
        GTEST_SKIP() << "kernels of this build are slow: it says nothing about regimes";
#endif
    }
    ~Regimes() override { fs::remove(path_); }

    std::unique_ptr<Model> open(const SynthOptions &o, unsigned threads) {
        write_synthetic(path_, o);
        std::unique_ptr<Model> model = Model::open(path_, {.threads = threads, .tokenizer = false});
        model->file().prefetch([](uint64_t, uint64_t) { return true; }, gguf::Pages::file);
        return model;
    }

    // Those of the machine with its usual number of threads, once for all tests; none where it is busy.
    static const CeilingFigures *ceilings() {
        static const std::optional<CeilingFigures> measured = [] {
            std::optional<CeilingFigures> f;
            try {
                const auto device = backends()[0].open({});
                f = measure_ceilings(backends()[0], *device, WhenBusy::refuse).figures;
            } catch (const Error &e) {
                why_not() = e.what();
            }
            return f;
        }();
        return measured ? &*measured : nullptr;
    }
    static std::string &why_not() {
        static std::string text;
        return text;
    }

    // The phase, where the machine is quiet enough to say anything; says why where it is not.
    static std::optional<Phase> measured(bench::Side &side, const PhaseOptions &o) {
        if (!ceilings()) return {};
        try {
            return explain_phase(side, *ceilings(), o);
        } catch (const Error &e) {
            why_not() = e.what();
            return {};
        }
    }

    static std::string told(const Phase &p) {
        std::string text = p.name + ":";
        for (size_t r = 0; r < kRegimes; r++)
            text += fmt::format(" {} {:.0f}%", name(static_cast<Regime>(r)), 100 * p.verdict.time[r]);
        return text;
    }

    fs::path path_ = fs::temp_directory_path() / ("ridge_explain_" + std::to_string(getpid()) + ".gguf");
};

// Three layers of qwen3-4b, 360 MB: an answer reads all of it for every token, a prompt shares it.
TEST_F(Regimes, LargeWeights) {
    if (!ceilings()) GTEST_SKIP() << why_not();
    if (ceilings()->get("cache") > 90e6) GTEST_SKIP() << "the caches of this machine hold too much of the model";
    const auto model = open({.like = "qwen3-4b", .quant = "Q8_0", .pure = true, .layers = 3, .vocab = 16000}, 0);
    bench::Side side(*model, LeverSet::defaults(), 256, 128);
    const auto decode = measured(side, {.answer = 6});
    if (!decode) GTEST_SKIP() << why_not();
    EXPECT_EQ(decode->verdict.regime, Regime::bandwidth) << told(*decode);
    EXPECT_GT(decode->verdict.read_share, 0.4);
    EXPECT_LT(decode->verdict.read_share, 1.2);
    EXPECT_FALSE(decode->verdict.cached);
    ASSERT_FALSE(decode->next.empty());
    EXPECT_NE(decode->next[0].what.find("fewer bytes of weights: Q4_K"), std::string::npos) << decode->next[0].what;

    const auto prefill = measured(side, {.prompt = 128, .repeats = 2});
    if (!prefill) GTEST_SKIP() << why_not();
    EXPECT_EQ(prefill->verdict.regime, Regime::compute) << told(*prefill);
    EXPECT_GT(prefill->verdict.compute_share, 2 * prefill->verdict.read_share);
    // The same work, whoever counts it: a multiply-add per weight and token, all but the embedding's.
    double int8 = 0;
    for (const LaunchClass &c : prefill->times.classes) int8 += c.int8;
    const double layers = 3.0 * (2560.0 * (4096 + 2 * 1024) + 4096.0 * 2560 + 3 * 2560.0 * 9728);
    EXPECT_NEAR(int8 / (128 * layers + 2560.0 * 16000), 1, 0.02);
}

TEST_F(Regimes, ManyThreadsForATinyModel) {
    if (!ceilings()) GTEST_SKIP() << why_not();
    const auto model = open({.like = "tiny-qwen3", .quant = "Q8_0"}, 4 * backends()[0].open({})->info().workers);
    bench::Side side(*model, LeverSet::defaults(), 64, 16);
    const auto decode = measured(side, {.answer = 16});
    if (!decode) GTEST_SKIP() << why_not();
    EXPECT_EQ(decode->verdict.regime, Regime::host) << told(*decode);
    EXPECT_GT(decode->times.barriers, 10);
    EXPECT_TRUE(decode->verdict.cached);
}

TEST_F(Regimes, LaunchesSlowedOnPurpose) {
    if (!ceilings()) GTEST_SKIP() << why_not();
    const auto model = open({.like = "tiny-qwen3", .quant = "Q8_0"}, 1);
    Slowed device(make_cpu_backend());
    Program p = model->program();
    place(p, {});
    p = fuse(std::move(p), LeverSet::defaults());
    insert_copies(p);
    WeightStore weights;
    bench::Side side(
        std::make_unique<Engine>(std::move(p), std::vector<Backend *>{&device}, weights,
                                 EngineOptions{{.tokens = 1, .outputs = 1, .sequences = 1, .pages = 1}, 1}));
    const auto decode = measured(side, {.answer = 8});
    if (!decode) GTEST_SKIP() << why_not();
    EXPECT_EQ(decode->verdict.regime, Regime::busy) << told(*decode);
    EXPECT_LT(decode->verdict.read_share, 0.1);
    EXPECT_LT(decode->verdict.compute_share, 0.1);
}

// ---- advice, on made-up times of a real program

class AdviceOf : public testing::Test {
  protected:
    AdviceOf() {
        write_synthetic(path_, {.like = "tiny-qwen3", .quant = "Q8_0", .pure = true});
        model_ = Model::open(path_, {.threads = 1, .tokenizer = false});
        program_ = model_->program();
        place(program_, {});
        program_ = fuse(std::move(program_), LeverSet::defaults());
    }
    ~AdviceOf() override { fs::remove(path_); }

    static StepTimes step(double wall, double contract_seconds, double bytes, double int8) {
        StepTimes s;
        s.wall = wall, s.workers = 2, s.barriers = 50;
        LaunchClass c;
        c.name = "contract Q8_0", c.launches = 50, c.seconds = contract_seconds, c.bytes = bytes, c.int8 = int8;
        s.classes = {c};
        return s;
    }
    std::vector<Advice> advice(const StepTimes &s) const {
        return next_steps(program_, s, judge(s, machine_), machine_);
    }

    fs::path path_ = fs::temp_directory_path() / ("ridge_advice_" + std::to_string(getpid()) + ".gguf");
    std::unique_ptr<Model> model_;
    Program program_;
    CeilingFigures machine_{"",
                            {{"read", "B/s", 1e10, 0, 0},
                             {"int8", "MAC/s", 1e11, 0, 0},
                             {"f32", "MAC/s", 1e10, 0, 0},
                             {"barrier", "s", 1e-6, 0, 0},
                             {"submit", "s", 1e-6, 0, 0}}};
};

TEST_F(AdviceOf, FewerBytesWhereBytesBind) {
    const StepTimes s = step(1e-2, 9.5e-3, 9e7, 1e7);
    const std::vector<Advice> a = advice(s);
    ASSERT_GE(a.size(), 2U);
    EXPECT_EQ(a[0].what, "fewer bytes of weights: Q4_K would leave 53% of contract Q8_0");
    EXPECT_NEAR(a[0].most, 1 / (1 - 0.95 * (1 - 144.0 / 272)), 1e-9);
    EXPECT_NEAR(a[1].most, 1 / (1 - 0.95 * (1 - 9 / 9.5)), 1e-9) << a[1].what;
    const std::string no = not_worth(judge(s, machine_));
    EXPECT_EQ(no, "faster arithmetic (at most 1.00x), fewer launches (at most 1.05x)");
}

TEST_F(AdviceOf, FasterKernelsWhereArithmeticBinds) {
    const std::vector<Advice> a = advice(step(1e-2, 9.9e-3, 1e6, 5e8));
    ASSERT_FALSE(a.empty());
    EXPECT_EQ(a[0].what, "a faster kernel for contract Q8_0: at 51% of the rate of its arithmetic now");
    EXPECT_EQ(a.size(), 1U) << "what gives less than 2% is not advised";
}

TEST_F(AdviceOf, FewerLaunchesAndTheLeversForItWhereTheHostBinds) {
    program_.levers = LeverSet::defaults().without(Lever::gate_up).without(Lever::avx2);
    const std::vector<Advice> a = advice(step(1e-2, 1e-3, 1e4, 1e4));
    ASSERT_GE(a.size(), 3U);
    EXPECT_EQ(a[0].what.substr(0, 25), "fewer or cheaper launches");
    EXPECT_NEAR(a[0].most, 10, 1e-9);
    EXPECT_EQ(a.back().what, "switch on the levers that are off and should surface here: gate_up");
    EXPECT_EQ(a.back().most, 0);
}

TEST_F(AdviceOf, LessWorkWhereNoCeilingIsNear) {
    const std::vector<Advice> a = advice(step(1e-2, 9.9e-3, 1e4, 1e4));
    ASSERT_FALSE(a.empty());
    EXPECT_EQ(a[0].what, "eliminate work in contract Q8_0: 50 launches a step, at 0% of the nearer ceiling");
}

}  // namespace
}  // namespace ridge
