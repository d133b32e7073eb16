// Sessions: what is refused leaves them as they were, rows of logits, cancelling between steps.
#include "runtime/session.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <set>
#include <string>

#include "backend/cpu/cpu.h"
#include "core/error.h"
#include "runtime/sampler.h"
#include "runtime/tiny_model.h"
#include "support/errors.h"

namespace ridge::test {
namespace {

void expect_words(const std::string &text, const std::vector<std::string> &words) {
    for (const std::string &w : words) EXPECT_NE(text.find(w), std::string::npos) << "no '" << w << "' in: " << text;
}

class SessionTest : public testing::Test {
  protected:
    const TinyModel &model = tiny_model("tiny-qwen3");  // trained for 1024, vocabulary of 300
    std::unique_ptr<Backend> cpu = make_cpu_backend({.threads = 2});
    WeightStore weights;
    std::unique_ptr<Session> session(uint32_t context, uint32_t batch = 512) {
        return session_of(model, {cpu.get()}, weights, {.context = context, .batch = batch, .map = {}});
    }
};

TEST_F(SessionTest, ContextIsWhatWasAskedOrTheDefault) {
    EXPECT_EQ(default_context(1024), 1024U);
    EXPECT_EQ(default_context(8192), 8192U);
    EXPECT_EQ(default_context(131072), 8192U);
    EXPECT_EQ(session(0)->context(), 1024U);
    EXPECT_EQ(session(1)->context(), 1U);
    EXPECT_EQ(session(1024)->context(), 1024U);
    expect_words(error_of(ErrorKind::usage, [&] { session(1025); }), {"1025", "1024", "--context 1024"});
}

TEST_F(SessionTest, StateGrowsWithTheContextByPages) {
    // f16, k and v, 2 kv heads of 64, 3 layers, pages of 64 positions.
    const size_t page = 64UL * 2 * 2 * (2 * 64) * 3;
    EXPECT_EQ(session(1)->engine().state_bytes(), page);
    EXPECT_EQ(session(64)->engine().state_bytes(), page);
    EXPECT_EQ(session(65)->engine().state_bytes(), 2 * page);
}

TEST_F(SessionTest, WhatDoesNotFitIsRefusedAndChangesNothing) {
    const auto s = session(50, 16), twin = session(50, 16);
    const std::vector<int32_t> text = some_tokens(60);
    s->evaluate(std::span(text).first(40));
    twin->evaluate(std::span(text).first(40));
    const std::vector<float> before = row(*s, 0);
    expect_words(error_of(ErrorKind::limit, [&] { s->evaluate(std::span(text).subspan(40, 11)); }),
                 {"11 more tokens", "40 of 50 positions", "--context"});
    error_of(ErrorKind::limit, [&] { s->evaluate(text); });
    EXPECT_EQ(s->position(), 40U);
    EXPECT_EQ(std::vector<int32_t>(s->tokens().begin(), s->tokens().end()),
              std::vector<int32_t>(text.begin(), text.begin() + 40));
    EXPECT_EQ(differing_bits(row(*s, 0), before), 0U);
    // It goes on as if nothing had been asked, to the last position and not beyond.
    s->evaluate(std::span(text).subspan(40, 10));
    twin->evaluate(std::span(text).subspan(40, 10));
    EXPECT_EQ(differing_bits(row(*s, 0), row(*twin, 0)), 0U);
    EXPECT_EQ(s->position(), s->context());
    error_of(ErrorKind::limit, [&] { s->evaluate(std::span(text).first(1)); });
}

TEST_F(SessionTest, IdsOutsideTheVocabularyAreRefusedAndChangeNothing) {
    const auto s = session(64);
    s->evaluate(some_tokens(5));
    const std::vector<float> before = row(*s, 0);
    for (int32_t bad : {-1, 300, std::numeric_limits<int32_t>::max(), std::numeric_limits<int32_t>::min()}) {
        const std::vector<int32_t> text{1, 2, bad, 3};
        expect_words(error_of(ErrorKind::usage, [&] { s->evaluate(text); }),
                     {std::to_string(bad), "vocabulary of 300"});
        EXPECT_EQ(s->position(), 5U);
        EXPECT_EQ(differing_bits(row(*s, 0), before), 0U);
    }
    const std::vector<int32_t> last{299};
    EXPECT_TRUE(s->evaluate(last));
}

TEST_F(SessionTest, WantSaysWhichRows) {
    const std::vector<int32_t> text = some_tokens(20);
    const auto all = session(64, 8), last = session(64, 8), none = session(64, 8);
    all->evaluate(text, Want::all);
    last->evaluate(text, Want::last);
    EXPECT_EQ(all->logits(0).size(), 300U);
    EXPECT_EQ(differing_bits(row(*all, 19), row(*last, 0)), 0U);
    EXPECT_GT(differing_bits(row(*all, 18), row(*last, 0)), 0U);
    none->evaluate(std::span(text).first(19), Want::none);
    none->evaluate(std::span(text).subspan(19), Want::last);
    EXPECT_EQ(differing_bits(row(*none, 0), row(*last, 0)), 0U);
    // Row i of all is what a session that ends there says.
    for (size_t i : {0U, 7U, 8U, 13U}) {
        last->truncate(0);
        last->evaluate(std::span(text).first(i + 1));
        EXPECT_EQ(differing_bits(row(*all, i), row(*last, 0)), 0U) << i;
    }
}

TEST_F(SessionTest, TheTokenOfTheLargestLogit) {
    const std::vector<int32_t> text = some_tokens(20);
    const auto logits = session(64, 8);
    SessionOptions options{
        .context = 64, .batch = 8, .levers = LeverSet::defaults(), .map = {}, .chooses = Chooses::largest};
    const auto tokens = session_of(model, {cpu.get()}, weights, options);
    ASSERT_EQ(tokens->chooses(), Chooses::largest);
    EXPECT_EQ(logits->chooses(), Chooses::nothing);
    for (const size_t n : {1U, 8U, 11U}) {  // one step or two
        logits->truncate(0), tokens->truncate(0);
        logits->evaluate(std::span(text).first(n));
        tokens->evaluate(std::span(text).first(n), Want::token);
        const std::vector<float> l = row(*logits, 0);
        EXPECT_EQ(tokens->choice(), std::max_element(l.begin(), l.end()) - l.begin()) << n;
    }
    // Logits are still to be had.
    tokens->truncate(10);
    tokens->evaluate(std::span(text).subspan(10, 1));
    EXPECT_EQ(differing_bits(row(*tokens, 0), row(*logits, 0)), 0U);
    EXPECT_DEATH(logits->evaluate(text, Want::token), "ridge: bug");
    options.levers = options.levers.without(Lever::argmax);
    EXPECT_EQ(session_of(model, {cpu.get()}, weights, options)->chooses(), Chooses::nothing);
}

TEST_F(SessionTest, ATokenThatIsDrawn) {
    const std::vector<int32_t> text = some_tokens(20);
    const auto logits = session(64, 8);
    const auto tokens =
        session_of(model, {cpu.get()}, weights,
                   {.context = 64, .batch = 8, .levers = LeverSet::defaults(), .map = {}, .chooses = Chooses::drawn});
    SamplerOptions o;
    o.temperature = 1.5F, o.seed = 11;
    Sampler sampler(o);
    std::set<int32_t> seen;
    for (uint64_t draw = 0; draw < 20; draw++)
        for (const size_t n : {1U, 8U, 11U}) {  // one step or two
            logits->truncate(0), tokens->truncate(0);
            logits->evaluate(std::span(text).first(n));
            tokens->evaluate(std::span(text).first(n), Want::token, {}, sampler.on_device(draw));
            EXPECT_EQ(tokens->choice(), sampler.sample(logits->logits(), text, draw)) << n;
            seen.insert(tokens->choice());
        }
    EXPECT_GT(seen.size(), 10U);
    // Where nothing is said about the draw, it is the largest.
    tokens->truncate(0);
    tokens->evaluate(std::span(text).first(11), Want::token);
    const std::vector<float> l = row(*logits, 0);
    EXPECT_EQ(tokens->choice(), std::max_element(l.begin(), l.end()) - l.begin());
    const auto largest =
        session_of(model, {cpu.get()}, weights,
                   {.context = 64, .batch = 8, .levers = LeverSet::defaults(), .map = {}, .chooses = Chooses::largest});
    EXPECT_DEATH(largest->evaluate(text, Want::token, {}, sampler.on_device(0)), "ridge: bug");
}

TEST_F(SessionTest, LogitsOfALongBatchTakeLittleMemory) {
    EXPECT_LE(session(1024, 512)->engine().options().limits.outputs, 32U);
    const std::vector<int32_t> text = some_tokens(100);
    EXPECT_EQ(differing_bits(all_logits(*session(128, 512), text), all_logits(*session(128, 1), text)), 0U);
}

// Not "threadsafe" deaths: those start the program anew, and what ends with abort leaves its temporary folder behind.
TEST_F(SessionTest, RowsThatWereNotWantedAreABug) {
    const auto s = session(64);
    EXPECT_DEATH((void)s->logits(), "ridge: bug");
    s->evaluate(some_tokens(3), Want::last);
    EXPECT_DEATH((void)s->logits(1), "ridge: bug");
    EXPECT_DEATH(s->truncate(4), "ridge: bug");
}

TEST_F(SessionTest, ProgressIsToldBetweenStepsAndMayCancel) {
    const std::vector<int32_t> text = some_tokens(50);
    const auto s = session(64, 16);
    std::vector<std::pair<size_t, size_t>> calls;
    EXPECT_TRUE(s->evaluate(text, Want::last, [&](size_t done, size_t total) {
        calls.emplace_back(done, total);
        return true;
    }));
    EXPECT_EQ(calls, (std::vector<std::pair<size_t, size_t>>{{16, 50}, {32, 50}, {48, 50}, {50, 50}}));
    const std::vector<float> whole = row(*s, 0);

    s->truncate(0);
    EXPECT_FALSE(s->evaluate(text, Want::last, [](size_t done, size_t) { return done < 32; }));
    EXPECT_EQ(s->position(), 32U);
    EXPECT_TRUE(std::equal(s->tokens().begin(), s->tokens().end(), text.begin()));
    // The rest can still be said.
    EXPECT_TRUE(s->evaluate(std::span(text).subspan(32)));
    EXPECT_EQ(differing_bits(row(*s, 0), whole), 0U);
    // When all is done there is nothing to cancel.
    s->truncate(40);
    EXPECT_TRUE(s->evaluate(std::span(text).subspan(40), Want::last, [](size_t, size_t) { return false; }));
    EXPECT_EQ(s->position(), 50U);
}

TEST_F(SessionTest, TwoSessionsShareOneCopyOfTheWeightsAndNothingElse) {
    const std::vector<int32_t> text = some_tokens(30), other = some_tokens(30, 5);
    const auto a = session(64), alone = session(64);
    const auto b = session_of(model, {cpu.get()}, weights, {.context = 64, .levers = LeverSet::none(), .map = {}});
    for (size_t i = 0; i < 30; i++) {
        a->evaluate(std::span(text).subspan(i, 1));
        b->evaluate(std::span(other).subspan(i, 1));
    }
    alone->evaluate(text);
    EXPECT_EQ(differing_bits(row(*a, 0), row(*alone, 0)), 0U);
}

TEST_F(SessionTest, TooMuchMemoryIsALimit) {
    // 2^31 positions of state are more than any machine has.
    expect_words(
        error_of(ErrorKind::limit,
                 [&] { Session(model.program, 1U << 31, {cpu.get()}, weights, {.context = 1U << 31, .map = {}}); }),
        {"state 0.k"});
}

}  // namespace
}  // namespace ridge::test
