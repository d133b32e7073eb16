// The step buffer: where each number lies, and rows of state through the page table.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <set>

#include "engine/step.h"

namespace ridge {
namespace {

constexpr StepLimits kLimits{.tokens = 5, .outputs = 3, .sequences = 2, .pages = 4};

TEST(Step, LayoutIsTheDocumentedOne) {
    StepBuffer b(kLimits);
    ASSERT_EQ(b.words().size(), 4U + 3 * 5 + 3 + 2 + 2 * 4 + 6 * 3);
    ASSERT_EQ(kLimits.words(), b.words().size());
    for (uint32_t s = 0; s < 2; s++)
        for (uint32_t i = 0; i < 4; i++) b.set_page(s, i, 100 * (s + 1) + i);
    b.begin();
    b.add(11, 0, 0, false);
    b.add(12, 70, 1, true);
    b.add(13, 71, 1, true);
    b.set_draw(1, {.temperature = 1, .top_p = 0.5F, .min_p = 2, .top_k = 40, .uniform = 0x1.0000000000003p-1});
    const std::vector<int32_t> expected{3, 2, 0, 0,                              // header: tokens, outputs
                                        11, 12, 13, 0, 0,                        // token
                                        0, 70, 71, 0, 0,                         // position
                                        0, 1, 1, 0, 0,                           // sequence
                                        1, 2, 0,                                 // output
                                        1, 72,                                   // length
                                        100, 101, 102, 103, 200, 201, 202, 203,  // pages
                                        // draws: nothing said, as said, none
                                        0, 0x3f800000, 0, 1, 0, 0,                              //
                                        0x3f800000, 0x3f000000, 0x40000000, 40, 3, 0x3fe00000,  //
                                        0, 0, 0, 0, 0, 0};
    EXPECT_EQ(std::vector<int32_t>(b.words().begin(), b.words().end()), expected);

    const StepView v = b.view();
    EXPECT_EQ(v.tokens(), 3U);
    EXPECT_EQ(v.outputs(), 2U);
    EXPECT_EQ(v.token() - v.base, 4);
    EXPECT_EQ(v.position() - v.base, 9);
    EXPECT_EQ(v.sequence() - v.base, 14);
    EXPECT_EQ(v.output() - v.base, 19);
    EXPECT_EQ(v.length() - v.base, 22);
    EXPECT_EQ(v.pages(0) - v.base, 24);
    EXPECT_EQ(v.pages(1) - v.base, 28);
    EXPECT_EQ(v.draws() - v.base, 32);
    EXPECT_EQ(v.draw(0).temperature, 0);
    EXPECT_EQ(v.draw(1).temperature, 1);
    EXPECT_EQ(v.draw(1).top_p, 0.5F);
    EXPECT_EQ(v.draw(1).min_p, 2);
    EXPECT_EQ(v.draw(1).top_k, 40U);
    EXPECT_EQ(v.draw(1).uniform, 0x1.0000000000003p-1);
}

TEST(Step, BeginForgetsTokensAndKeepsPages) {
    StepBuffer b(kLimits);
    b.set_page(1, 3, 9);
    b.add(1, 0, 0, true);
    b.begin();
    EXPECT_EQ(b.view().tokens(), 0U);
    EXPECT_EQ(b.view().outputs(), 0U);
    EXPECT_EQ(b.view().pages(1)[3], 9);
    b.add(7, 3, 0, true);
    EXPECT_EQ(b.view().token()[0], 7);
    EXPECT_EQ(b.view().output()[0], 0);
    EXPECT_EQ(b.view().length()[0], 4);
}

TEST(Step, ViewFollowsTheBuffer) {
    StepBuffer b(kLimits);
    const StepView v = b.view();
    b.add(42, 0, 0, false);
    EXPECT_EQ(v.tokens(), 1U);
    EXPECT_EQ(v.token()[0], 42);
}

TEST(Step, SlotsGoThroughThePageTable) {
    StepBuffer b(kLimits);
    const uint32_t table[2][4] = {{7, 0, 5, 2}, {1, 6, 3, 4}};
    for (uint32_t s = 0; s < 2; s++)
        for (uint32_t i = 0; i < 4; i++) b.set_page(s, i, table[s][i]);
    const StepView v = b.view();
    EXPECT_EQ(v.slot(0, 0), 7U * 64);
    EXPECT_EQ(v.slot(0, 63), 7U * 64 + 63);
    EXPECT_EQ(v.slot(0, 64), 0U);
    EXPECT_EQ(v.slot(0, 255), 2U * 64 + 63);
    EXPECT_EQ(v.slot(1, 130), 3U * 64 + 2);
    // Eight pages for two sequences of four: every position has a row of its own.
    std::set<size_t> slots;
    for (uint32_t s = 0; s < 2; s++)
        for (uint32_t pos = 0; pos < 4 * kPageTokens; pos++) slots.insert(v.slot(s, pos));
    EXPECT_EQ(slots.size(), 8U * kPageTokens);
    EXPECT_EQ(*slots.rbegin(), 8U * kPageTokens - 1);
}

TEST(Step, PlanesNeverOverlap) {
    EXPECT_TRUE(rc::check("what is written into a full buffer is read back", [] {
        const StepLimits l{.tokens = *rc::gen::inRange(1U, 20U),
                           .outputs = *rc::gen::inRange(1U, 20U),
                           .sequences = *rc::gen::inRange(1U, 5U),
                           .pages = *rc::gen::inRange(1U, 6U)};
        StepBuffer b(l);
        for (uint32_t s = 0; s < l.sequences; s++)
            for (uint32_t i = 0; i < l.pages; i++) b.set_page(s, i, 1000 + s * l.pages + i);
        b.begin();
        std::vector<uint32_t> wanted;
        std::vector<int32_t> length(l.sequences, 0);
        for (uint32_t i = 0; i < l.tokens; i++) {
            const bool want = wanted.size() < l.outputs && *rc::gen::arbitrary<bool>();
            if (want) wanted.push_back(i);
            const uint32_t position = i % (l.pages * kPageTokens);
            b.add(static_cast<int32_t>(500 + i), position, i % l.sequences, want);
            length[i % l.sequences] = static_cast<int32_t>(position + 1);
        }
        const StepView v = b.view();
        RC_ASSERT(v.tokens() == l.tokens);
        RC_ASSERT(v.outputs() == wanted.size());
        for (uint32_t i = 0; i < l.tokens; i++) {
            RC_ASSERT(v.token()[i] == static_cast<int32_t>(500 + i));
            RC_ASSERT(v.position()[i] == static_cast<int32_t>(i % (l.pages * kPageTokens)));
            RC_ASSERT(v.sequence()[i] == static_cast<int32_t>(i % l.sequences));
        }
        for (size_t i = 0; i < wanted.size(); i++) RC_ASSERT(v.output()[i] == static_cast<int32_t>(wanted[i]));
        for (uint32_t s = 0; s < l.sequences; s++) {
            RC_ASSERT(v.length()[s] == length[s]);
            for (uint32_t i = 0; i < l.pages; i++)
                RC_ASSERT(v.pages(s)[i] == static_cast<int32_t>(1000 + s * l.pages + i));
        }
        for (uint32_t i = 0; i < wanted.size(); i++)
            b.set_draw(i, {.temperature = 1, .top_k = 7 + i, .uniform = 1 / (1.0 + i)});
        for (uint32_t i = 0; i < wanted.size(); i++)
            RC_ASSERT(v.draw(i).top_k == 7 + i && v.draw(i).uniform == 1 / (1.0 + i));
        RC_ASSERT(v.pages(l.sequences - 1)[l.pages - 1] == static_cast<int32_t>(1000 + l.sequences * l.pages - 1));
        RC_ASSERT(v.pages(l.sequences - 1) + l.pages == v.draws());
        RC_ASSERT(v.draws() + size_t{kDrawWords} * l.outputs == v.base + l.words());
    }));
}

TEST(StepDeathTest, LimitsHold) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    StepBuffer b({.tokens = 2, .outputs = 1, .sequences = 1, .pages = 1});
    EXPECT_DEATH(b.add(0, 0, 1, false), "ridge: bug");            // no such sequence
    EXPECT_DEATH(b.add(0, kPageTokens, 0, false), "ridge: bug");  // beyond the last page
    EXPECT_DEATH(b.set_page(0, 1, 0), "ridge: bug");              // no such page
    EXPECT_DEATH(b.set_page(1, 0, 0), "ridge: bug");              // no such sequence
    EXPECT_DEATH(b.set_draw(0, {}), "ridge: bug");                // no such output yet
    b.add(0, 0, 0, true);
    EXPECT_DEATH(b.add(0, 1, 0, true), "ridge: bug");  // too many outputs
    b.add(0, 1, 0, false);
    EXPECT_DEATH(b.add(0, 2, 0, false), "ridge: bug");  // too many tokens
}

}  // namespace
}  // namespace ridge
