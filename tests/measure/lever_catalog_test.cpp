// The catalog of levers out of results.
#include "measure/lever_catalog.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/error.h"

namespace ridge::bench {
namespace {

LeverResult result(std::string lever, std::string verdict, std::string phase = "decode", std::string machine = "one") {
    LeverResult r;
    r.lever = std::move(lever), r.verdict = std::move(verdict), r.phase = std::move(phase),
    r.machine = std::move(machine);
    r.speedup = r.verdict == "helps" ? 1.05 : r.verdict == "hurts" ? 0.9 : 1.0;
    r.model = "m.gguf";
    return r;
}

bool has(const std::vector<LeverInfo> &levers, Lever l) {
    return std::any_of(levers.begin(), levers.end(), [&](const LeverInfo &i) { return i.id == l; });
}

TEST(LeverCatalog, MeasurementsDecideWhatIsADeadEnd) {
    const Catalog c =
        make_catalog({result("moe_by_slot", "hurts"), result("fold_quantize", "flat"), result("huge_weights", "flat"),
                      result("huge_weights", "helps", "prefill"), result("qkv", "flat")});
    EXPECT_TRUE(has(c.dead_ends, Lever::moe_by_slot));
    EXPECT_TRUE(has(c.dead_ends, Lever::fold_quantize));
    EXPECT_TRUE(has(c.kept, Lever::huge_weights)) << "it helps somewhere";
    EXPECT_TRUE(has(c.kept, Lever::qkv)) << "flat, and on";
    EXPECT_TRUE(has(c.unmeasured, Lever::bf16_dot));
    EXPECT_EQ(c.kept.size() + c.dead_ends.size() + c.unmeasured.size(), all_levers().size());
    EXPECT_EQ(c.of("huge_weights").size(), 2U);
}

TEST(LeverCatalog, ContendedResultsAreNoEvidence) {
    LeverResult r = result("moe_by_slot", "helps");
    r.contended = "other processes used 1.00 processors";
    const Catalog c = make_catalog({r});
    EXPECT_TRUE(c.results.empty());
    EXPECT_TRUE(has(c.unmeasured, Lever::moe_by_slot));
}

TEST(LeverCatalog, FlipsDifferInOneThing) {
    LeverResult far = result("qkv", "hurts", "prefill");
    const Catalog c = make_catalog({result("qkv", "helps"), result("qkv", "flat", "prefill"), far,
                                    result("qkv", "flat", "decode", "two"), result("gate_up", "helps"),
                                    result("gate_up", "flat", "prefill", "two")});
    const std::vector<RegimeFlip> flips = regime_flips(c);
    ASSERT_EQ(flips.size(), 2U) << "not gate_up, where machine and phase differ";
    EXPECT_EQ(flips[0].differs, "machine");
    EXPECT_EQ(flips[0].not_so->machine, "two");
    EXPECT_EQ(flips[1].differs, "phase");
    EXPECT_EQ(flips[1].helps->phase, "decode");
    EXPECT_EQ(flips[1].not_so->verdict, "hurts") << "the pair that lies farthest apart";
}

TEST(LeverCatalog, OtherFilesAreRefused) {
    for (const char *text : {"", "{}", "[1", R"({"results": [{"lever": "qkv"}]})"}) {
        try {
            read_results(text, "some.json");
            ADD_FAILURE() << text;
        } catch (const Error &e) {
            EXPECT_EQ(e.kind(), ErrorKind::file);
            EXPECT_NE(std::string(e.what()).find("some.json"), std::string::npos);
        }
    }
}

}  // namespace
}  // namespace ridge::bench
