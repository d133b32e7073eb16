// A program over two devices: the second is the CPU again under another name. The bits are those of one device.
#include "backend/cpu/cpu.h"
#include "engine/support.h"
#include "runtime/tiny_model.h"
#include "support/forwarding.h"

namespace ridge::test {
namespace {

// Forwards to a backend and counts what passes.
class Watched final : public Forwarding {
  public:
    using Forwarding::Forwarding;
    size_t segments_run = 0, launches_run = 0, uploads = 0, downloads = 0;

    void upload(const Buffer &to, size_t offset, std::span<const std::byte> from) override {
        uploads++;
        Forwarding::upload(to, offset, from);
    }
    void download(const Buffer &from, size_t offset, std::span<std::byte> to) override {
        downloads++;
        Forwarding::download(from, offset, to);
    }
    std::unique_ptr<Executable> compile(const Program &p, const Bindings &b, std::vector<Launch> launches) override {
        const size_t n = launches.size();
        return std::make_unique<Counted>(*this, Forwarding::compile(p, b, std::move(launches)), n);
    }

  private:
    class Counted final : public Executable {
      public:
        Counted(Watched &w, std::unique_ptr<Executable> e, size_t n) : w_(w), e_(std::move(e)), n_(n) {}
        void run(const StepBuffer &step, StepTrace *trace) override {
            w_.segments_run++, w_.launches_run += n_;
            e_->run(step, trace);
        }

      private:
        Watched &w_;
        std::unique_ptr<Executable> e_;
        size_t n_;
    };
};

// Prefill in steps of several tokens, then single tokens; every row of logits.
std::vector<float> prefill_and_decode(Session &s) {
    const std::vector<int32_t> tokens = some_tokens(42);
    std::vector<float> l = all_logits(s, std::span(tokens).first(37));
    for (size_t i = 37; i < tokens.size(); i++) {
        const std::vector<float> one = all_logits(s, std::span(tokens).subspan(i, 1));
        l.insert(l.end(), one.begin(), one.end());
    }
    return l;
}

class TwoDevices : public testing::TestWithParam<const char *> {};

TEST_P(TwoDevices, EverySplitGivesTheBitsOfOneDevice) {
    const TinyModel &m = tiny_model(GetParam());
    const uint32_t layers = m.program.n_layers;
    for (LeverSet levers : {LeverSet::defaults(), LeverSet::none().with(Lever::int8_dot)}) {
        Watched a(make_cpu_backend({.name = "cpu", .threads = 1})),
            b(make_cpu_backend({.name = "cpu-b", .threads = 2}));
        WeightStore weights;
        SessionOptions options{.context = 64, .batch = 16, .levers = levers, .map = {}};
        const std::vector<float> one = prefill_and_decode(*session_of(m, {&a}, weights, options));
        ASSERT_EQ(one.size() / 42, m.program.value(m.program.logits).cols);
        EXPECT_EQ(a.uploads, 0U);

        for (unsigned bits = 0; bits < (1U << layers); bits++) {
            options.map.layer.clear();
            size_t borders = 0;
            for (uint32_t l = 0; l < layers; l++) {
                options.map.layer.push_back(static_cast<DeviceId>(bits >> l & 1));
                borders += l > 0 && options.map.layer[l] != options.map.layer[l - 1] ? 1 : 0;
            }
            a.launches_run = b.launches_run = a.uploads = b.uploads = 0;
            const auto session = session_of(m, {&a, &b}, weights, options);
            const std::vector<float> two = prefill_and_decode(*session);
            EXPECT_EQ(differing_bits(one, two), 0U) << "map " << bits << ", levers " << levers.to_string();

            const Program &p = session->engine().program();
            const size_t steps = 3 + 5;
            EXPECT_EQ(a.launches_run > 0, bits != (1U << layers) - 1);
            EXPECT_EQ(b.launches_run > 0, bits != 0);
            EXPECT_EQ(a.launches_run + b.launches_run, steps * (p.nodes.size() - count<Copy>(p)));
            EXPECT_EQ(a.uploads + b.uploads, steps * count<Copy>(p));
            EXPECT_EQ(count<Copy>(p) > 0, borders > 0);
            EXPECT_GE(count<Copy>(p), borders);
        }
    }
}

class ExpertsElsewhere : public testing::TestWithParam<const char *> {};

// What is copied for a layer's experts: their input, the routes and their weights there, the combined rows back.
constexpr size_t kCopiesPerLayer = 4;

TEST_P(ExpertsElsewhere, GiveTheBitsOfOneDevice) {
    const TinyModel &m = tiny_model(GetParam());
    const uint32_t layers = m.program.n_layers;
    for (LeverSet levers : {LeverSet::defaults(), LeverSet::none().with(Lever::int8_dot), LeverSet::none()}) {
        Watched a(make_cpu_backend({.name = "cpu", .threads = 1})),
            b(make_cpu_backend({.name = "cpu-b", .threads = 2}));
        WeightStore weights;
        SessionOptions options{.context = 64, .batch = 16, .levers = levers, .map = {}};
        const std::vector<float> one = prefill_and_decode(*session_of(m, {&a}, weights, options));
        for (unsigned bits = 1; bits < (1U << layers); bits++) {
            options.map = {std::vector<DeviceId>(layers, 0), {}};
            size_t moved = 0;
            for (uint32_t l = 0; l < layers; l++) {
                options.map.experts.push_back(static_cast<DeviceId>(bits >> l & 1));
                moved += bits >> l & 1;
            }
            const auto session = session_of(m, {&a, &b}, weights, options);
            EXPECT_EQ(differing_bits(one, prefill_and_decode(*session)), 0U)
                << "map " << bits << ", levers " << levers.to_string();
            const Program &p = session->engine().program();
            EXPECT_EQ(count<Copy>(p), kCopiesPerLayer * moved) << to_string(p);
            for (const Node &n : p.nodes) {
                const Contract *c = std::get_if<Contract>(&n.op);
                const bool expert = c && c->ids != kNone;
                if (expert) {
                    EXPECT_EQ(n.device, options.map.experts_of(n.layer));
                }
                if (std::holds_alternative<Attention>(n.op)) {
                    EXPECT_EQ(n.device, 0);
                }
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Each, ExpertsElsewhere, testing::Values("tiny-qwen3moe", "tiny-qwen2moe", "tiny-gpt-oss"),
                         [](const auto &tested) {
                             std::string n = tested.param;
                             std::replace(n.begin(), n.end(), '-', '_');
                             return n;
                         });

INSTANTIATE_TEST_SUITE_P(Each, TwoDevices,
                         testing::Values("tiny-llama", "tiny-qwen2", "tiny-qwen3", "tiny-qwen3moe", "tiny-mistral3",
                                         "tiny-gemma2", "tiny-gpt-oss"),
                         [](const auto &tested) {
                             std::string n = tested.param;
                             std::replace(n.begin(), n.end(), '-', '_');
                             return n;
                         });

TEST(TwoDevices, AMapThatNamesADeviceThatIsNotThereIsAnError) {
    const TinyModel &m = tiny_model("tiny-qwen3");
    const auto cpu = make_cpu_backend({.threads = 1});
    WeightStore weights;
    for (DeviceId bad : {1, -1, 7}) {
        SessionOptions o{.context = 64, .map = {{0, bad, 0}}};
        expect_words(error_of(ErrorKind::usage, [&] { (void)session_of(m, {cpu.get()}, weights, o); }),
                     {"layer 1 is placed on device " + std::to_string(bad), "0 to 0"});
    }
}

}  // namespace
}  // namespace ridge::test
