// What the reduction orders promise for whole models: the same bits however a text is cut into steps, on any number of
// threads, with any fusion, beside any other sequence.
#include <algorithm>
#include <cmath>

#include "backend/cpu/cpu.h"
#include "engine/fuse.h"
#include "engine/support.h"
#include "runtime/tiny_model.h"

namespace ridge::test {
namespace {

constexpr size_t kTokens = 75;  // across the border of a page
constexpr const char *kModels[] = {"tiny-llama",  "tiny-qwen2",  "tiny-qwen3", "tiny-qwen3moe", "tiny-qwen2moe",
                                   "tiny-gemma2", "tiny-gemma3", "tiny-phi3",  "tiny-mistral3", "tiny-gpt-oss"};

class Bits : public testing::TestWithParam<const char *> {
  protected:
    const TinyModel *model = &tiny_model(GetParam());
    WeightStore weights;
    std::unique_ptr<Backend> cpu = make_cpu_backend({.threads = 2});
    std::vector<int32_t> tokens = some_tokens(kTokens);

    // Of every token of `text`, `batch` tokens a step.
    std::vector<float> logits(Backend &device, uint32_t batch, LeverSet levers, const std::vector<int32_t> &text) {
        const EngineOptions options{.limits = {.tokens = batch, .outputs = batch, .pages = 2}, .pages = 2};
        Engine engine(fuse(model->program, levers), {&device}, weights, options);
        StepBuffer step(options.limits);
        for (uint32_t i = 0; i < 2; i++) step.set_page(0, i, i);
        std::vector<float> all;
        for (uint32_t at = 0; at < text.size();) {
            step.begin();
            for (uint32_t i = 0; i < batch && at < text.size(); i++, at++) step.add(text[at], at, 0, true);
            engine.run(step);
            all.insert(all.end(), engine.logits().begin(), engine.logits().end());
        }
        return all;
    }
    std::vector<float> logits(Backend &device, uint32_t batch, LeverSet levers = LeverSet::defaults()) {
        return logits(device, batch, levers, tokens);
    }
};

INSTANTIATE_TEST_SUITE_P(Each, Bits, testing::ValuesIn(kModels), [](const auto &tested) {
    std::string n = tested.param;
    std::replace(n.begin(), n.end(), '-', '_');
    return n;
});

TEST_P(Bits, LogitsAreNumbersAndDiffer) {
    const std::vector<float> l = logits(*cpu, 64);
    const size_t vocab = l.size() / kTokens;
    for (float x : l) ASSERT_TRUE(std::isfinite(x));
    const std::span<const float> all(l);
    for (size_t i = 1; i < kTokens; i++)
        EXPECT_GT(differing_bits(all.subspan(0, vocab), all.subspan(i * vocab, vocab)), vocab / 2);
}

TEST_P(Bits, AnyNumberOfThreads) {
    const std::vector<float> expected = logits(*cpu, 64);
    for (unsigned threads : {1U, 3U, 8U}) {
        const auto device = make_cpu_backend({.threads = threads});
        EXPECT_EQ(differing_bits(logits(*device, 64), expected), 0U) << threads << " threads, 64 tokens a step";
        EXPECT_EQ(differing_bits(logits(*device, 7), expected), 0U) << threads << " threads, 7 tokens a step";
    }
}

TEST_P(Bits, AnyCutIntoSteps) {
    for (LeverSet levers : {LeverSet::defaults(), LeverSet::defaults().without(Lever::int8_dot), LeverSet::none()}) {
        const std::vector<float> expected = logits(*cpu, 128, levers);  // one step
        for (uint32_t batch :
             levers == LeverSet::none() ? std::vector<uint32_t>{7} : std::vector<uint32_t>{1, 2, 7, 64})
            EXPECT_EQ(differing_bits(logits(*cpu, batch, levers), expected), 0U)
                << batch << " tokens a step, levers " << levers.to_string();
    }
}

TEST_P(Bits, FusionsAndInstructionSetsChangeNothing) {
    // int8_dot is another arithmetic, and f32_native keeps state in another type; within either, every other lever leaves
    // the bits.
    const LeverSet defaults = LeverSet::defaults();
    std::vector<std::vector<float>> by_arithmetic;
    for (LeverSet base : {defaults, defaults.without(Lever::int8_dot)}) {
        const std::vector<float> expected = logits(*cpu, 16, base);
        for (const LeverInfo &l : all_levers()) {
            if (l.id == Lever::int8_dot || l.id == Lever::f32_native) continue;
            const LeverSet levers = base.has(l.id) ? base.without(l.id) : base.with(l.id);
            EXPECT_EQ(differing_bits(logits(*cpu, 16, levers), expected), 0U) << levers.to_string();
        }
        const LeverSet bare = base.has(Lever::int8_dot) ? LeverSet::none().with(Lever::int8_dot) : LeverSet::none();
        EXPECT_EQ(differing_bits(logits(*cpu, 16, bare), expected), 0U) << bare.to_string();
        const LeverSet avx2 = base.without(Lever::avx512).without(Lever::avxvnni);
        EXPECT_EQ(differing_bits(logits(*cpu, 1, avx2.without(Lever::avx2)), expected), 0U);
        by_arithmetic.push_back(expected);
    }
    EXPECT_GT(differing_bits(by_arithmetic[0], by_arithmetic[1]), by_arithmetic[0].size() / 2);
    // An approximation, not another model. (Where experts are close, another one may be taken, so single values say
    // little.)
    double error = 0, power = 0;
    for (size_t i = 0; i < by_arithmetic[0].size(); i++) {
        error += std::pow(by_arithmetic[0][i] - by_arithmetic[1][i], 2);
        power += std::pow(by_arithmetic[1][i], 2);
    }
    EXPECT_LT(std::sqrt(error / power), 0.2);
}

TEST_P(Bits, WithKeysAndValuesInQ80Too) {
    const std::vector<float> in_f16 = logits(*cpu, 128);
    model = &tiny_model(GetParam(), DType::q8_0);
    const std::vector<float> expected = logits(*cpu, 128);
    EXPECT_GT(differing_bits(in_f16, expected), expected.size() / 2);
    const auto other = make_cpu_backend({.threads = 5});
    const LeverSet on = LeverSet::defaults();
    for (LeverSet levers : {on, on.without(Lever::qk_norm_rope), on.without(Lever::avx512),
                            on.without(Lever::avx512).without(Lever::avxvnni).without(Lever::avx2),
                            LeverSet::none().with(Lever::int8_dot)})
        for (uint32_t batch : {1U, 7U})
            EXPECT_EQ(differing_bits(logits(*other, batch, levers), expected), 0U)
                << batch << " tokens a step, levers " << levers.to_string();
}

TEST_P(Bits, OrdersAreTheSameInEveryBucket) {
    const auto session = session_of(*model, {cpu.get()}, weights,
                                    {.context = 1024, .batch = 512, .levers = LeverSet::defaults(), .map = {}});
    Engine &e = session->engine();
    const std::vector<uint32_t> buckets = token_buckets(e.devices(), 512);
    const Plan &first = e.plan_for(1);
    for (uint32_t m : buckets) {
        const Plan &plan = e.plan_for(m);
        for (size_t i = 0; i < plan.choices.size(); i++)
            EXPECT_EQ(plan.choices[i].chosen->order, first.choices[i].chosen->order)
                << plan.choices[i].chosen->name << " for " << m << " tokens";
    }
}

TEST_P(Bits, TruncateAndReplay) {
    const auto session = session_of(*model, {cpu.get()}, weights,
                                    {.context = 128, .batch = 32, .levers = LeverSet::defaults(), .map = {}});
    const std::vector<float> expected = all_logits(*session, tokens);
    const size_t vocab = expected.size() / kTokens;
    for (uint32_t from : {74U, 64U, 63U, 30U, 1U, 0U}) {
        // Something else first, so that what is forgotten is also overwritten.
        session->truncate(from);
        session->evaluate(some_tokens(40, from + 2));
        session->truncate(from);
        EXPECT_EQ(session->position(), from);
        const std::vector<float> again = all_logits(*session, std::span(tokens).subspan(from));
        EXPECT_EQ(differing_bits(again, std::span(expected).subspan(from * vocab)), 0U) << "from " << from;
    }
}

// Two texts in one engine, interleaved in every step, their pages mixed: each has the logits it has alone.
TEST_P(Bits, SequencesDoNotMeet) {
    const std::vector<int32_t> texts[2] = {tokens, some_tokens(kTokens, 99)};
    const std::vector<float> expected[2] = {logits(*cpu, 128), logits(*cpu, 128, LeverSet::defaults(), texts[1])};
    EngineOptions options{.limits = {.tokens = 20, .outputs = 20, .sequences = 2, .pages = 2}, .pages = 4};
    Engine engine(fuse(model->program, LeverSet::defaults()), {cpu.get()}, weights, options);
    StepBuffer step(options.limits);
    const uint32_t pages[2][2] = {{3, 1}, {0, 2}};
    for (uint32_t s = 0; s < 2; s++)
        for (uint32_t i = 0; i < 2; i++) step.set_page(s, i, pages[s][i]);
    const size_t vocab = expected[0].size() / kTokens;
    for (uint32_t at = 0; at < kTokens;) {
        const uint32_t n = std::min<uint32_t>(at % 3 == 0 ? 10 : 1, kTokens - at);
        step.begin();
        for (uint32_t i = 0; i < n; i++)
            for (uint32_t s = 0; s < 2; s++) step.add(texts[s][at + i], at + i, s, true);
        engine.run(step);
        ASSERT_EQ(engine.logits().size(), 2 * n * vocab);
        for (uint32_t i = 0; i < n; i++)
            for (uint32_t s = 0; s < 2; s++)
                ASSERT_EQ(differing_bits(engine.logits().subspan((2 * i + s) * vocab, vocab),
                                         std::span(expected[s]).subspan((at + i) * vocab, vocab)),
                          0U)
                    << "sequence " << s << ", position " << at + i;
        at += n;
    }
}

TEST(Engine, StateTakesWhatItsTypeNeedsAndIsAsPrecise) {
    WeightStore weights;
    const auto cpu = make_cpu_backend({.threads = 2});
    const std::vector<int32_t> tokens = some_tokens(40);
    constexpr DType kTypes[] = {DType::f16, DType::f32, DType::q8_0};
    std::vector<float> l[3];
    size_t bytes[3];
    for (int i = 0; i < 3; i++) {
        const TinyModel &m = tiny_model("tiny-qwen3", kTypes[i]);
        const auto s = session_of(m, {cpu.get()}, weights, {.context = 64, .levers = LeverSet::none(), .map = {}});
        l[i] = all_logits(*s, tokens);
        bytes[i] = s->engine().state_bytes();
    }
    EXPECT_EQ(bytes[1], 2 * bytes[0]);
    EXPECT_EQ(bytes[2] * 32, bytes[0] * 17);
    double squares = 0, f16 = 0, q8_0 = 0;
    for (size_t i = 0; i < l[0].size(); i++) {
        squares += std::pow(l[1][i], 2);
        f16 += std::pow(l[0][i] - l[1][i], 2), q8_0 += std::pow(l[2][i] - l[1][i], 2);
    }
    EXPECT_GT(f16, 0);
    EXPECT_LT(std::sqrt(f16 / squares), 0.002);
    EXPECT_GT(q8_0, f16);
    EXPECT_LT(std::sqrt(q8_0 / squares), 0.05);
}

TEST(Engine, NoLogitsWhereNoneAreWanted) {
    const TinyModel &m = tiny_model("tiny-qwen3");
    WeightStore weights;
    const auto cpu = make_cpu_backend({.threads = 2});
    EngineOptions options{.limits = {.tokens = 4, .outputs = 1, .pages = 1}, .pages = 1};
    Engine engine(fuse(m.program, LeverSet::defaults()), {cpu.get()}, weights, options);
    StepBuffer step(options.limits);
    step.begin();
    for (uint32_t i = 0; i < 4; i++) step.add(static_cast<int32_t>(i), i, 0, false);
    engine.run(step);
    EXPECT_TRUE(engine.logits().empty());
    step.begin();
    step.add(9, 4, 0, true);
    engine.run(step);
    EXPECT_EQ(engine.logits().size(), m.program.value(m.program.logits).cols);
}

// A backend whose first load fails.
TEST(WeightStore, AFailedLoadIsTriedAgain) {
    class Failing final : public Backend {
      public:
        TableBackend table{"table"};
        int loads = 0;
        DeviceInfo info() const override { return table.info(); }
        std::span<const Kernel> kernels() const override { return {}; }
        Features features() const override { return 0; }
        std::string feature_names(Features) const override { return {}; }
        Buffer allocate(size_t bytes, std::string_view what) override { return table.allocate(bytes, what); }
        Buffer load(const Weight &, Layout) override {
            if (loads++ == 0) fail(ErrorKind::limit, "no room");
            return {7, 1, nullptr};
        }
        void upload(const Buffer &, size_t, std::span<const std::byte>) override {}
        void download(const Buffer &, size_t, std::span<std::byte>) override {}
        std::unique_ptr<Executable> compile(const Program &, const Bindings &, std::vector<Launch>) override {
            return nullptr;
        }
    } device;
    WeightStore store;
    const Weight w{.name = "w", .k = 32};
    error_of(ErrorKind::limit, [&] { (void)store.get(device, w, Layout::file); });
    EXPECT_EQ(store.get(device, w, Layout::file).address, 7U);
    EXPECT_EQ(store.get(device, w, Layout::file).address, 7U);
    EXPECT_EQ(device.loads, 2) << "loaded once, then shared";
}

}  // namespace
}  // namespace ridge::test
