// Placement as numbers: what --place and --experts may say, what automatic maps look like, what does not fit.
#include "runtime/auto_place.h"

#include <gtest/gtest.h>

#include <numeric>

#include "engine/support.h"

namespace ridge::test {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20, kGiB = uint64_t{1} << 30;

// ---- --place

using Entries = std::vector<PlaceEntry>;
const std::optional<unsigned> kCpu;

TEST(ParsePlace, SaysHowManyLayersEachDeviceHas) {
    EXPECT_EQ(parse_place("0:48", 48), (Entries{{0, 48}}));
    EXPECT_EQ(parse_place("0:20,1:20,cpu:8", 48), (Entries{{0, 20}, {1, 20}, {kCpu, 8}}));
    EXPECT_EQ(parse_place("cpu:8,1:40", 48), (Entries{{kCpu, 8}, {1, 40}}));
    EXPECT_EQ(parse_place("0:20,1:10,0:18", 48), (Entries{{0, 20}, {1, 10}, {0, 18}}));
}

TEST(ParsePlace, WhatIsNotNamedGoesToTheCpu) {
    EXPECT_EQ(parse_place("0:40", 48), (Entries{{0, 40}, {kCpu, 8}}));
    EXPECT_EQ(parse_place("0:0", 48), (Entries{{0, 0}, {kCpu, 48}}));
}

TEST(ParsePlace, TheLastEntryMayTakeTheRest) {
    EXPECT_EQ(parse_place("cpu", 48), (Entries{{kCpu, 48}}));
    EXPECT_EQ(parse_place("1", 48), (Entries{{1, 48}}));
    EXPECT_EQ(parse_place("0:20,1", 48), (Entries{{0, 20}, {1, 28}}));
}

TEST(ParsePlace, WhatIsWrongIsNamed) {
    const auto refused = [](std::string_view text, const std::vector<std::string> &words) {
        expect_words(error_of(ErrorKind::usage, [&] { parse_place(text, 48); }), words);
    };
    for (const char *empty : {"", "0:20,", ",0:20", "0:20,,1:8"}) refused(empty, {"empty entry", "0:20,1:20,cpu:8"});
    refused("gpu:20", {"'gpu' is no device", "the number of a GPU or cpu"});
    refused("cuda:0:20", {"'cuda' is no device"});
    refused("-1:20", {"'-1' is no device"});
    refused(" 0:20", {"' 0' is no device"});
    refused("0:", {"'' is no number of layers"});
    refused("0:x", {"'x' is no number of layers"});
    refused("0:-3", {"'-3' is no number of layers"});
    refused("0:20:3", {"'20:3' is no number of layers"});
    refused("0:99999999999", {"no number of layers"});
    refused("0,1:20", {"only the last entry"});
    refused("0:49", {"49 layers", "the model has 48", "0:48 would"});
    refused("0:40,1:9", {"49 layers", "the model has 48"});
    refused("0:4294967295,1:4294967295", {"8589934590 layers"});
    refused("0:1\033[2J", {"\\u001b"});
}

// ---- --experts

Program dense(uint32_t layers) {
    Shape s = qwen3();
    s.layers = layers;
    return forward(s);
}
Program experts(uint32_t layers) {
    Shape s = qwen3moe();
    s.layers = layers, s.experts = 64, s.ff = 256;
    return forward(s);
}

TEST(ParseExperts, CountsLayersFromTheLast) {
    const Program p = experts(6);
    EXPECT_EQ(expert_layers(p), (std::vector<int32_t>{0, 1, 2, 3, 4, 5}));
    EXPECT_TRUE(expert_layers(dense(6)).empty());
    EXPECT_EQ(parse_experts("cpu", p), 6U);
    EXPECT_EQ(parse_experts("cpu:2", p), 2U);
    EXPECT_EQ(parse_experts("cpu:0", p), 0U);
    for (const char *bad : {"", "gpu", "cpu:", "cpu:x", "2", "cpu:2,cpu:3"})
        expect_words(error_of(ErrorKind::usage, [&] { parse_experts(bad, p); }), {"cpu:N"});
    expect_words(error_of(ErrorKind::usage, [&] { parse_experts("cpu:7", p); }), {"cpu:7", "in 6 layers"});
    expect_words(error_of(ErrorKind::usage, [&] { parse_experts("cpu", dense(6)); }), {"has no experts"});
}

// ---- what it takes

Demand demand(const Program &p, uint64_t state_per_layer = 1000, uint64_t activations = 500) {
    Demand d{p, activations, {}, 64};
    d.state.assign(p.states.size(), state_per_layer / 2);
    return d;
}
Need sum(const std::vector<Need> &needs) {
    Need s;
    for (const Need &n : needs) s.weights += n.weights, s.state += n.state, s.activations += n.activations;
    return s;
}

TEST(Needs, EveryWeightAndStateIsCountedWhereItIsRead) {
    const Program p = dense(4);
    const Demand d = demand(p);
    uint64_t all = 0;
    for (const Weight &w : p.weights) all += w.bytes();
    EXPECT_EQ(needs_of(d, {}, 1)[0].weights, all);
    EXPECT_EQ(needs_of(d, {}, 1)[0].state, 4000U);
    EXPECT_EQ(needs_of(d, {}, 1)[0].activations, 500U);
    const std::vector<Need> split = needs_of(d, {{0, 0, 0, 1}, {}}, 3);
    EXPECT_EQ(sum(split).weights, all);
    EXPECT_EQ(split[0].state, 3000U);
    EXPECT_EQ(split[1].state, 1000U);
    EXPECT_EQ(split[1].activations, 500U);
    EXPECT_EQ(split[2].bytes(), 0U) << "nothing runs there";
}

TEST(Needs, AMatrixThatIsReadTwiceLiesThereOnce) {
    Program p = dense(2);
    static std::byte table[1];
    const Contract *output = std::get_if<Contract>(&p.nodes.back().op);
    ASSERT_NE(output, nullptr);
    const auto tied = [&](WeightId id) -> Weight & { return p.weights[static_cast<size_t>(id)]; };
    const WeightId embedding = only<Embed>(p).table;
    tied(output->banks[0].weight) = tied(embedding);
    const uint64_t apart = needs_of(demand(p), {}, 1)[0].weights;
    tied(output->banks[0].weight).data = tied(embedding).data = table;
    EXPECT_EQ(needs_of(demand(p), {}, 1)[0].weights, apart - tied(embedding).bytes());
    EXPECT_EQ(sum(needs_of(demand(p), {{0, 1}, {}}, 2)).weights, apart) << "each device has its own";
}

TEST(Needs, ExpertsCountWhereTheyAre) {
    const Program p = experts(4);
    const Demand d = demand(p);
    const std::vector<Need> whole = needs_of(d, {{0, 0, 0, 0}, {}}, 2);
    const std::vector<Need> moved = needs_of(d, {{0, 0, 0, 0}, {0, 0, 1, 1}}, 2);
    uint64_t bank = 0;
    for (const Weight &w : p.weights)
        if (w.experts > 1) bank += w.bytes();
    EXPECT_EQ(moved[1].weights, bank / 2);
    EXPECT_EQ(moved[0].weights, whole[0].weights - bank / 2);
    EXPECT_EQ(moved[1].state, 0U);
}

TEST(DemandOf, HasAllSessionsOfTheContext) {
    const Program p = dense(2);
    const Demand one = demand_of(p, 4096, {.context = 1000, .batch = 32, .map = {}}, 1);
    EXPECT_EQ(one.context, 1000U);
    EXPECT_EQ(one.state[0], 16U * 64 * row_bytes(DType::f16, p.states[0].cols)) << "whole pages";
    const Demand two = demand_of(p, 4096, {.context = 1000, .batch = 32, .map = {}}, 2);
    const Demand three = demand_of(p, 4096, {.context = 1000, .batch = 32, .map = {}}, 3);
    const uint64_t each = two.activations - one.activations;
    EXPECT_GT(each, 0U);
    EXPECT_EQ(three.activations - two.activations, each);
    EXPECT_GT(one.activations, each) << "tables and activations in f16 serve all sessions";
    EXPECT_EQ(three.state[0], 3 * one.state[0]);
    EXPECT_EQ(demand_of(p, 4096, {.map = {}}, 1).context, 4096U);
    EXPECT_EQ(demand_of(p, 512, {.context = 1000, .map = {}}, 1).context, 512U) << "what is too long is told elsewhere";
}

// ---- automatic maps

Room gpu(int number, uint64_t free) {
    return {"gpu:" + std::to_string(number), std::to_string(number), free, free, false, false};
}
Room cpu(uint64_t free) { return {"cpu", "cpu", free, free, true, false}; }
// With room for so much beside the margin.
uint64_t with_margin(uint64_t bytes) { return bytes + bytes / 15 + 16; }

class AutomaticMap : public testing::Test {
  protected:
    const Program plain_ = dense(8);
    const Demand d_ = demand(plain_);
    // What the first n layers take on a device.
    uint64_t first(uint32_t n) const {
        DeviceMap m{std::vector<DeviceId>(8, 1), {}};
        std::fill_n(m.layer.begin(), n, 0);
        return needs_of(d_, m, 2)[0].bytes();
    }
    std::vector<DeviceId> layers(const std::vector<Room> &rooms) const {
        const auto map = automatic_map(d_, rooms);
        if (!map) return {};
        EXPECT_TRUE(map->experts.empty());
        EXPECT_TRUE(fits(needs_of(d_, *map, rooms.size()), rooms));
        return map->layer;
    }
    static std::vector<DeviceId> blocks(std::initializer_list<std::pair<int, int>> counts) {
        std::vector<DeviceId> v;
        for (auto [device, n] : counts) v.insert(v.end(), static_cast<size_t>(n), device);
        return v;
    }
};

TEST_F(AutomaticMap, WhatFitsTheFirstGpuLiesThereAlone) {
    EXPECT_EQ(layers({gpu(0, kGiB), gpu(1, kGiB), cpu(kGiB)}), blocks({{0, 8}}));
    EXPECT_EQ(layers({gpu(0, with_margin(first(8))), cpu(kGiB)}), blocks({{0, 8}}));
    EXPECT_EQ(layers({cpu(kGiB)}), blocks({{0, 8}}));
}

TEST_F(AutomaticMap, TheMarginStaysFree) {
    EXPECT_EQ(layers({gpu(0, first(8) + 1), cpu(kGiB)}).back(), 1) << "it would be full to the brim";
    EXPECT_EQ(margin_of(gpu(0, 4 * kGiB)), 256 * kMiB);
    EXPECT_EQ(margin_of(gpu(0, 80 * kGiB)), 512 * kMiB);
}

TEST_F(AutomaticMap, GpusFillInOrderAndTheRestGoesToTheCpu) {
    EXPECT_EQ(layers({gpu(0, with_margin(first(3))), gpu(1, kGiB), cpu(kGiB)}), blocks({{0, 3}, {1, 5}}));
    EXPECT_EQ(layers({gpu(0, with_margin(first(3))), gpu(1, with_margin(first(3))), cpu(kGiB)}),
              blocks({{0, 3}, {1, 3}, {2, 2}}))
        << "the embedding of layer 0 is larger than nothing, but smaller than a layer";
    EXPECT_EQ(layers({gpu(0, with_margin(first(1)) / 2), cpu(kGiB)}), blocks({{1, 8}}));
    EXPECT_EQ(layers({gpu(0, 0), gpu(1, kGiB), cpu(kGiB)}), blocks({{1, 8}}));
}

TEST_F(AutomaticMap, WhatFitsNowhereHasNoMap) {
    EXPECT_TRUE(layers({gpu(0, with_margin(first(3)))}).empty()) << "the CPU may not be used";
    EXPECT_TRUE(layers({gpu(0, with_margin(first(3))), cpu(first(2))}).empty());
    EXPECT_TRUE(layers({cpu(first(8))}).empty());
}

TEST_F(AutomaticMap, TheOutputCountsWithTheLastLayer) {
    // All layers would fit, the output matrix does not.
    const Need all = needs_of(d_, {}, 1)[0];
    const uint64_t output = needs_of(d_, {blocks({{0, 7}, {1, 1}}), {}}, 2)[1].weights;
    EXPECT_EQ(layers({gpu(0, with_margin(all.bytes() - output / 4)), cpu(kGiB)}), blocks({{0, 7}, {1, 1}}));
}

class SharedMemory : public AutomaticMap {
  protected:
    static Room integrated(uint64_t total, uint64_t free) { return {"gpu:0", "0", total, free, false, true}; }
    static DeviceInfo host(uint64_t total, uint64_t free) {
        DeviceInfo i;
        i.memory_total = total, i.memory_free = free;
        return i;
    }
    static Room corrected(Room r, const DeviceInfo &h) {
        correct_shared_memory({&r, 1}, h);
        return r;
    }
};

TEST_F(SharedMemory, IsNotCountedTwice) {
    // Half of the model would fit the GPU and half the CPU, if they were two memories.
    const uint64_t free = with_margin(first(5));
    EXPECT_EQ(layers({gpu(0, free), cpu(free)}).size(), 8U);
    EXPECT_TRUE(layers({integrated(free, free), cpu(free)}).empty());
    const uint64_t enough = with_margin(first(8));
    EXPECT_EQ(layers({integrated(enough, enough), cpu(enough)}), blocks({{0, 8}}));
}

TEST_F(SharedMemory, TheHostKnowsWhatIsFreeOfIt) {
    // CUDA counts pages of files as taken: what is left by it would send layers to the CPU for nothing.
    EXPECT_EQ(corrected(integrated(120 * kGiB, 3 * kGiB), host(120 * kGiB, 100 * kGiB)).free, 100 * kGiB);
    EXPECT_EQ(corrected(integrated(120 * kGiB, 119 * kGiB), host(120 * kGiB, 20 * kGiB)).free, 20 * kGiB);
}

TEST_F(SharedMemory, AShareOfItIsItsOwnLimit) {
    EXPECT_EQ(corrected(integrated(62 * kGiB, 60 * kGiB), host(124 * kGiB, 100 * kGiB)).free, 60 * kGiB);
    EXPECT_EQ(corrected(integrated(62 * kGiB, 60 * kGiB), host(124 * kGiB, 10 * kGiB)).free, 10 * kGiB);
}

TEST_F(SharedMemory, WhatIsSetAsideForTheGpuIsNotTheHosts) {
    const Room r = corrected(integrated(96 * kGiB, 95 * kGiB), host(31 * kGiB, 28 * kGiB));
    EXPECT_EQ(r.free, 95 * kGiB);
    EXPECT_FALSE(r.shares_host);
}

TEST_F(SharedMemory, AGpuOfItsOwnMemoryStaysAsItIs) {
    EXPECT_EQ(corrected(gpu(0, 24 * kGiB), host(24 * kGiB, 2 * kGiB)).free, 24 * kGiB);
}

class ExpertsMap : public testing::Test {
  protected:
    const Program plain_ = experts(8);
    const Demand d_ = demand(plain_);
    uint64_t without_experts_of(uint32_t n) const {
        DeviceMap m{std::vector<DeviceId>(8, 0), std::vector<DeviceId>(8, 0)};
        std::fill_n(m.experts.rbegin(), n, 1);
        return needs_of(d_, m, 2)[0].bytes();
    }
    static std::vector<DeviceId> last(uint32_t n) {
        std::vector<DeviceId> v(8, 0);
        std::fill_n(v.rbegin(), n, 1);
        return v;
    }
};

TEST_F(ExpertsMap, AsFewExpertsAsHaveToGoBeforeAnyLayerDoes) {
    for (uint32_t n = 1; n <= 8; n++) {
        const auto map = automatic_map(d_, std::vector<Room>{gpu(0, with_margin(without_experts_of(n))), cpu(kGiB)});
        ASSERT_TRUE(map);
        EXPECT_EQ(map->layer, last(0)) << n;
        EXPECT_EQ(map->experts, last(n)) << n;
    }
    EXPECT_TRUE(automatic_map(d_, std::vector<Room>{gpu(0, kGiB), cpu(kGiB)})->experts.empty());
}

TEST_F(ExpertsMap, ThenLayersGoToo) {
    const auto map = automatic_map(d_, std::vector<Room>{gpu(0, without_experts_of(8) / 2), cpu(kGiB)});
    ASSERT_TRUE(map);
    EXPECT_EQ(map->of(0), 0);
    EXPECT_EQ(map->of(7), 1);
    for (int32_t l = 0; l < 8; l++) EXPECT_EQ(map->experts_of(l), 1);
}

TEST_F(ExpertsMap, ExpertsThatAreToBeOnTheCpuAreThere) {
    const std::vector<Room> rooms{gpu(0, kGiB), cpu(kGiB)};
    EXPECT_EQ(automatic_map(d_, rooms, 3)->experts, last(3));
    EXPECT_TRUE(automatic_map(d_, rooms, 0)->experts.empty());
    EXPECT_FALSE(automatic_map(d_, std::vector<Room>{gpu(0, with_margin(without_experts_of(3))), cpu(1)}, 3));
}

// ---- in words

TEST(PlaceFlags, SayTheMapAsPlaceTakesIt) {
    const Program p = dense(8), moe = experts(8);
    const std::vector<Room> rooms{gpu(0, kGiB), gpu(3, kGiB), cpu(kGiB)};
    const DeviceMap maps[] = {
        {{0, 0, 0, 0, 0, 0, 0, 0}, {}},
        {{0, 0, 0, 1, 1, 1, 2, 2}, {}},
        {{2, 2, 2, 2, 2, 2, 2, 2}, {}},
        {{1, 0, 0, 0, 2, 0, 0, 0}, {}},
        {{0, 0, 0, 0, 0, 1, 1, 1}, {0, 0, 0, 0, 2, 2, 2, 2}},
        {{0, 0, 0, 0, 0, 0, 0, 0}, {2, 2, 2, 2, 2, 2, 2, 2}},
        {{0, 0, 0, 0, 0, 0, 2, 2}, {0, 0, 0, 2, 2, 2, 2, 2}},
    };
    for (const DeviceMap &m : maps) {
        const Program &of = m.experts.empty() ? p : moe;
        const std::string flags = place_flags(m, of, rooms);
        const size_t place = flags.find("--place "), experts = flags.find(" --experts ");
        ASSERT_EQ(place, 0U);
        const std::string map_text = flags.substr(8, experts == std::string::npos ? experts : experts - 8);
        const uint32_t n = experts == std::string::npos ? 0 : parse_experts(flags.substr(experts + 11), moe);
        EXPECT_EQ(map_of(parse_place(map_text, 8), n, of, rooms), m) << flags;
    }
    EXPECT_EQ(place_flags(maps[1], p, rooms), "--place 0:3,3:3,cpu:2");
    EXPECT_EQ(place_flags(maps[4], moe, rooms), "--place 0:5,3:3 --experts cpu:4");
    EXPECT_EQ(place_flags(maps[5], moe, rooms), "--place 0:8 --experts cpu");
    EXPECT_EQ(place_flags(maps[6], moe, rooms), "--place 0:6,cpu:2 --experts cpu:5");
}

TEST(DescribeMap, NamesDevicesLayersAndMemory) {
    const Program p = dense(8), moe = experts(8);
    const std::vector<Room> rooms{gpu(0, 79 * kGiB), cpu(24 * kGiB)};
    const Demand d = demand(p, 2 * kGiB, kGiB / 2);
    EXPECT_EQ(describe({{0, 0, 0, 0, 0, 0, 1, 1}, {}}, d, rooms),
              "gpu:0 layers 0-5 + embedding (12.5 of 79.0 GiB free), cpu layers 6-7 + output (4.5 of 24.0 GiB free)");
    EXPECT_EQ(
        describe({{1, 0, 0, 0, 0, 1, 1, 0}, {}}, d, rooms),
        "gpu:0 layers 1-4, 7 + output (10.5 of 79.0 GiB free), cpu layers 0, 5-6 + embedding (6.5 of 24.0 GiB free)");
    expect_words(describe({std::vector<DeviceId>(8, 0), {0, 0, 0, 0, 0, 0, 1, 1}}, demand(moe), rooms),
                 {"gpu:0 layers 0-7 + embedding + output (", "cpu experts of layers 6-7 ("});
}

TEST(Refuse, SaysTheNumbersAndTheContextThatWouldFit) {
    const Program p = dense(8);
    const Demand d = demand_of(p, 65536, {.context = 65536, .batch = 32, .map = {}}, 1);
    const uint64_t half = needs_of(d, {}, 1)[0].bytes() / 2;
    const std::vector<Room> rooms{gpu(0, half), cpu(half / 4)};
    const std::string text = error_of(ErrorKind::limit, [&] {
        refuse(p, 65536, {.context = 65536, .batch = 32, .map = {}}, 1, rooms, std::nullopt, "big.gguf");
    });
    expect_words(text, {"big.gguf: does not fit", "weights", "state", "activations", "a context of 65536", "gpu:0 has",
                        "cpu has", "It would fit with --context", "--place 0:"});
    // It does, and twice as much does not.
    const size_t at = text.find("--context ") + 10;
    const auto context = static_cast<uint32_t>(std::stoul(text.substr(at)));
    EXPECT_GT(context, 20000U);
    EXPECT_LT(context, 65536U);
    EXPECT_TRUE(automatic_map(demand_of(p, 65536, {.context = context, .batch = 32, .map = {}}, 1), rooms));
    EXPECT_FALSE(automatic_map(demand_of(p, 65536, {.context = context + 64, .batch = 32, .map = {}}, 1), rooms));
}

TEST(Refuse, SaysThatNoContextHelps) {
    const Program p = dense(8);
    expect_words(error_of(ErrorKind::limit,
                          [&] {
                              refuse(p, 4096, {.context = 4096, .map = {}}, 1, std::vector<Room>{cpu(10000)},
                                     std::nullopt, "big.gguf");
                          }),
                 {"A model of fewer bytes would fit", "--place cpu runs this one from the disk"});
}

}  // namespace
}  // namespace ridge::test
