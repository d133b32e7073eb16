// Models on devices as the flags say or as they fit: which are opened, which map comes of it, what is refused before
// anything is loaded, and that the bits are those of one device.
#include <gtest/gtest.h>

#include "core/error.h"
#include "runtime/model.h"
#include "runtime/tiny_model.h"
#include "support/errors.h"
#include "support/fake_gpu.h"

namespace ridge::test {
namespace {

void expect_words(const std::string &text, const std::vector<std::string> &words) {
    for (const std::string &w : words) EXPECT_NE(text.find(w), std::string::npos) << "no '" << w << "' in: " << text;
}

// tiny-llama has 3 layers without experts, tiny-qwen3moe 2 with.
class Placed : public testing::Test {
  protected:
    Placed() { fake_gpus() = {}; }
    ~Placed() override { fake_gpus() = {}; }

    static DeviceChoice choice(std::vector<std::string> names = {}, std::string place = "", std::string experts = "") {
        return {.names = std::move(names),
                .place = std::move(place),
                .experts = std::move(experts),
                .options = {},
                .backends = fake_backends()};
    }
    static std::unique_ptr<Model> open(const DeviceChoice &c, const std::string &like = "tiny-llama",
                                       uint32_t context = 64) {
        OpenOptions o{.threads = 1, .devices = c, .tokenizer = false};
        o.sessions_like = {.context = context, .batch = 16, .map = {}};
        return Model::open(tiny_file(like), o);
    }
    static std::vector<float> logits(Model &m) {
        const auto s = m.session({.context = 64, .batch = 16, .map = {}});
        return all_logits(*s, some_tokens(40));
    }
    static std::vector<std::string> names(const Model &m) {
        std::vector<std::string> n;
        for (const auto &d : m.devices()) n.push_back(d->info().name);
        return n;
    }
    // What a tiny model takes on one device.
    static uint64_t whole(const std::string &like) {
        const TinyModel &m = tiny_model(like);
        const Demand d = demand_of(m.program, m.context, {.context = 64, .batch = 16, .map = {}}, 1);
        return needs_of(d, {}, 1)[0].bytes();
    }
    using Names = std::vector<std::string>;
};

TEST_F(Placed, WithoutWordsTheFirstGpuHasItAll) {
    fake_gpus().gpus = {{}, {}};
    const auto m = open(choice());
    EXPECT_EQ(names(*m), Names{"gpu:0"});
    EXPECT_EQ(fake_gpus().opened, 1U) << "a GPU that is not needed is not touched";
    EXPECT_EQ(m->placed().flags, "--place 0:3");
    expect_words(m->placed().text, {"gpu:0 layers 0-2 + embedding + output ("});
}

TEST_F(Placed, WithoutAGpuTheCpuHasIt) {
    fake_gpus().no_driver = "there is no driver";
    EXPECT_EQ(names(*open(choice())), Names{"cpu"});
    fake_gpus().no_driver = "", fake_gpus().gpus = {};
    EXPECT_EQ(names(*open(choice())), Names{"cpu"});
    EXPECT_EQ(open(choice())->placed().flags, "--place cpu:3");
}

TEST_F(Placed, AGpuThatCannotBeOpenedIsToldAndPassedOver) {
    fake_gpus().gpus = {{.broken = "no code for it"}, {}};
    auto m = open(choice());
    EXPECT_EQ(names(*m), Names{"gpu:1"});
    expect_words(m->placed().notes, {"gpu:0 is not used", "no code for it"});
    fake_gpus().gpus = {{.broken = "no code for it"}};
    m = open(choice());
    EXPECT_EQ(names(*m), Names{"cpu"});
    expect_words(m->placed().notes, {"gpu:0 is not used", "no code for it"});
    // But who asks for it gets the reason.
    expect_words(error_of(ErrorKind::unsupported, [] { open(choice({"gpu:0"})); }), {"no code for it"});
}

TEST_F(Placed, WhereNoneOfABackendWorksTheNextIsAsked) {
    static const BackendRow rows[] = {
        fake_backends()[0],
        {"other",
         [](const BackendOptions &) -> std::unique_ptr<Backend> { fail(ErrorKind::unsupported, "no code for it"); }, "",
         nullptr, [](const BackendOptions &) { return 2U; }},
        fake_backends()[1]};
    DeviceChoice c = choice();
    c.backends = rows;
    auto m = open(c);
    EXPECT_EQ(names(*m), Names{"gpu:0"});
    expect_words(m->placed().notes, {"other:0 is not used: no code for it", "other:1 is not used"});
    fake_gpus().gpus = {{.broken = "broken too"}};
    m = open(c);
    EXPECT_EQ(names(*m), Names{"cpu"});
    expect_words(m->placed().notes, {"other:0 is not used", "other:1 is not used", "gpu:0 is not used: broken too"});
}

TEST_F(Placed, DevicesAreThoseThatAreNamed) {
    fake_gpus().gpus = {{}, {}};
    EXPECT_EQ(names(*open(choice({"cpu"}))), Names{"cpu"});
    EXPECT_EQ(names(*open(choice({"gpu:1"}))), Names{"gpu:1"});
    EXPECT_EQ(names(*open(choice({"gpu"}))), Names{"gpu:0"});
    EXPECT_EQ(names(*open(choice({"gpu:1", "gpu:0", "cpu"}))), Names{"gpu:1"}) << "in the order that they are named";
    expect_words(error_of(ErrorKind::unsupported, [] { open(choice({"gpu:2"})); }), {"gpu:2", "gpu:0 to gpu:1"});
    expect_words(error_of(ErrorKind::usage, [] { open(choice({"gpu:x"})); }), {"'x' is no number", "gpu:0"});
    expect_words(error_of(ErrorKind::usage, [] { open(choice({"cpu:0"})); }), {"cpu is one device"});
    expect_words(error_of(ErrorKind::usage, [] { open(choice({"tpu"})); }), {"no device 'tpu'", "cpu, gpu"});
    fake_gpus().gpus = {{}};
    expect_words(error_of(ErrorKind::unsupported, [] { open(choice({"gpu:1"})); }), {"the only one is gpu:0"});
    fake_gpus().no_driver = "there is no driver";
    expect_words(error_of(ErrorKind::unsupported, [] { open(choice({"gpu"})); }), {"there is no driver"});
}

TEST_F(Placed, PlaceIsTakenAtItsWordAndTheRestGoesToTheCpu) {
    fake_gpus().gpus = {{}, {}};
    EXPECT_EQ(names(*open(choice({}, "0:2"))), (Names{"gpu:0", "cpu"}));
    EXPECT_EQ(open(choice({}, "0:2"))->placed().flags, "--place 0:2,cpu:1");
    EXPECT_EQ(names(*open(choice({}, "1:1,0:1,cpu"))), (Names{"gpu:1", "gpu:0", "cpu"}));
    EXPECT_EQ(names(*open(choice({}, "cpu"))), Names{"cpu"});
    EXPECT_EQ(names(*open(choice({}, "0:0"))), Names{"cpu"}) << "nothing runs on it";
    EXPECT_EQ(names(*open(choice({"gpu:1"}, "1:3"))), Names{"gpu:1"});
    expect_words(error_of(ErrorKind::usage, [] { open(choice({"gpu:1"}, "0:3")); }), {"GPU 0", "--device"});
    expect_words(error_of(ErrorKind::usage, [] { open(choice({}, "0:4")); }), {"4 layers", "has 3", "0:3 would"});
    expect_words(error_of(ErrorKind::unsupported, [] { open(choice({}, "2:3")); }), {"gpu:2", "gpu:0 to gpu:1"});
    expect_words(error_of(ErrorKind::unsupported, [] { open(choice({"cpu"}, "0:3")); }), {"GPU", "--place cpu"});
}

TEST_F(Placed, WhatDoesNotFitTheGpusGoesOn) {
    fake_gpus().gpus = {{.memory = whole("tiny-llama") * 7 / 10}, {.memory = uint64_t{1} << 40}};
    EXPECT_EQ(names(*open(choice())), (Names{"gpu:0", "gpu:1"}));
    fake_gpus().gpus.pop_back();
    const auto m = open(choice());
    EXPECT_EQ(names(*m), (Names{"gpu:0", "cpu"}));
    EXPECT_EQ(open(choice({}, m->placed().flags.substr(8)))->placed().map, m->placed().map)
        << "the map that is printed is what --place takes: " << m->placed().flags;
    // Without the CPU it is refused, with what would do.
    expect_words(error_of(ErrorKind::limit, [] { open(choice({"gpu"})); }),
                 {"does not fit", "--device gpu:0,cpu would place it", "cpu layer"});
}

TEST_F(Placed, ExpertsGoBeforeLayersDo) {
    fake_gpus().gpus = {{.memory = whole("tiny-qwen3moe") * 7 / 10}};
    const auto m = open(choice(), "tiny-qwen3moe");
    EXPECT_EQ(names(*m), (Names{"gpu:0", "cpu"}));
    EXPECT_EQ(m->placed().flags, "--place 0:2 --experts cpu:1");
    EXPECT_EQ(m->placed().map, (DeviceMap{{0, 0}, {0, 1}}));
}

TEST_F(Placed, WhatFitsNowhereIsRefusedBeforeItIsLoaded) {
    const uint64_t all = whole("tiny-llama");
    fake_gpus().gpus = {{.memory = all / 3}}, fake_gpus().cpu_memory = all / 3;
    expect_words(error_of(ErrorKind::limit, [] { open(choice()); }),
                 {"does not fit", "gpu:0 has", "cpu has", "--place cpu"});
    // More context than there is memory for.
    fake_gpus().gpus = {{.memory = all * 3 / 2}}, fake_gpus().cpu_memory = 1;
    const std::string text = error_of(ErrorKind::limit, [] { open(choice(), "tiny-llama", 1024); });
    expect_words(text, {"a context of 1024", "It would fit with --context"});
    const auto context = static_cast<uint32_t>(std::stoul(text.substr(text.find("--context ") + 10)));
    EXPECT_EQ(names(*open(choice(), "tiny-llama", context)), Names{"gpu:0"});
    EXPECT_EQ(fake_gpus().weights_loaded, 0U);
    // And a map that does not fit, with one that does.
    fake_gpus().gpus = {{.memory = all / 2}}, fake_gpus().cpu_memory = 0;
    expect_words(error_of(ErrorKind::limit, [] { open(choice({}, "0:3")); }),
                 {"--place 0:3 does not fit", "gpu:0 would take", "weights", "are free", "--place 0:", "would fit"});
}

TEST_F(Placed, MemoryThatIsSharedIsNotCountedTwice) {
    const uint64_t all = whole("tiny-llama");
    fake_gpus().gpus = {{.memory = all * 9 / 10}}, fake_gpus().cpu_memory = all * 9 / 10;
    EXPECT_EQ(names(*open(choice())), (Names{"gpu:0", "cpu"}));
    fake_gpus().integrated = true;
    expect_words(error_of(ErrorKind::limit, [] { open(choice()); }), {"does not fit"});
}

TEST_F(Placed, EveryPlacementGivesTheBitsOfTheCpu) {
    fake_gpus().gpus = {{}, {}};
    for (const char *like : {"tiny-llama", "tiny-qwen3moe", "tiny-gpt-oss"}) {
        const std::vector<float> want = logits(*open(choice({"cpu"}), like));
        for (const char *map : {"0", "0:1", "0:1,1:1", "cpu:1,0"}) {
            const auto m = open(choice({}, map), like);
            EXPECT_EQ(differing_bits(logits(*m), want), 0U) << like << " " << map;
        }
        if (std::string_view(like) == "tiny-llama") continue;
        for (const auto &[map, experts] : {std::pair{"0", "cpu"}, {"0", "cpu:1"}, {"0:1,1", "cpu:2"}, {"", "cpu:2"}}) {
            const auto m = open(choice({}, map, experts), like);
            EXPECT_EQ(names(*m).back(), "cpu");
            EXPECT_EQ(differing_bits(logits(*m), want), 0U) << like << " " << map << " " << experts;
        }
    }
}

TEST_F(Placed, WeightsAreLoadedOnceAndWhereTheyAreRead) {
    fake_gpus().gpus = {{}, {}};
    OpenOptions o{.threads = 1, .devices = choice({}, "0:1,1:1,cpu:1"), .tokenizer = false};
    o.prefetch = gguf::Pages::file;
    const auto m = Model::open(tiny_file("tiny-llama"), o);
    EXPECT_TRUE(m->copies_weights());
    uint64_t last = 0, total = 0;
    EXPECT_TRUE(m->wait_for_weights([&](uint64_t done, uint64_t all) {
        EXPECT_GE(done, last);
        last = done, total = all;
        return true;
    }));
    EXPECT_EQ(last, total);
    EXPECT_TRUE(m->wait_for_weights({})) << "nothing is awaited any more";
    const Demand d = demand_of(m->program(), 1024, {.map = {}}, 1);
    const std::vector<Need> needs = needs_of(d, m->placed().map, 3);
    EXPECT_EQ(fake_gpus().bytes_loaded, needs[0].weights + needs[1].weights);
    const size_t loaded = fake_gpus().weights_loaded;
    const std::vector<float> a = logits(*m), b = logits(*m);
    EXPECT_EQ(differing_bits(a, b), 0U);
    EXPECT_EQ(fake_gpus().weights_loaded, loaded) << "sessions find them";
}

TEST_F(Placed, LoadingCanBeStopped) {
    OpenOptions o{.threads = 1, .devices = choice({"gpu"}), .tokenizer = false};
    o.prefetch = gguf::Pages::file;
    auto m = Model::open(tiny_file("tiny-llama"), o);
    EXPECT_FALSE(m->wait_for_weights([](uint64_t, uint64_t) { return false; }));
    // Whoever goes on all the same gets everything.
    EXPECT_EQ(differing_bits(logits(*m), logits(*open(choice({"cpu"})))), 0U);
    m = Model::open(tiny_file("tiny-llama"), o);
    m.reset();  // while it loads
}

TEST_F(Placed, TheDeviceThatCountsIsTheFirstGpuThatIsNamed) {
    fake_gpus().gpus = {{}, {}};
    const auto name = [](const DeviceChoice &c) { return open_one(c)->info().name; };
    EXPECT_EQ(name(choice()), "gpu:0");
    EXPECT_EQ(name(choice({"cpu"})), "cpu");
    EXPECT_EQ(name(choice({"cpu", "gpu:1"})), "gpu:1");
    EXPECT_EQ(name(choice({}, "1:3")), "gpu:1");
    EXPECT_EQ(name(choice({}, "cpu")), "cpu");
    fake_gpus().gpus[0].broken = "no code for it";
    EXPECT_EQ(name(choice()), "gpu:1");
    fake_gpus().no_driver = "there is no driver";
    EXPECT_EQ(name(choice()), "cpu");
}

}  // namespace
}  // namespace ridge::test
