// Generation on a small model with random weights: where it ends, what it says, what it keeps.
#include "runtime/generate.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "core/error.h"
#include "runtime/model.h"
#include "runtime/tiny_model.h"
#include "support/errors.h"
#include "text/stream.h"

namespace ridge::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

class Generate : public testing::Test {
  protected:
    static void SetUpTestSuite() { model_ = Model::open(tiny_file("tiny-llama"), {.threads = 2}).release(); }
    static void TearDownTestSuite() {
        delete model_;
        model_ = nullptr;
    }
    static Model &model() { return *model_; }
    static const text::Tokenizer &tokenizer() { return model_->tokenizer(); }
    static std::unique_ptr<Session> session(uint32_t context = 256, uint32_t batch = 16) {
        return model_->session({.context = context, .batch = batch, .map = {}});
    }
    // Greedy; the control tokens, which end an answer, are banned.
    static SamplerOptions endless() {
        SamplerOptions o;
        o.temperature = 0;
        for (int32_t id = 0; id < tokenizer().size(); id++)
            if (tokenizer().type(id) == text::TokenType::control) o.logit_bias[id] = -kInf;
        return o;
    }
    static Generation run(Session &s, SamplerOptions sampling, std::span<const int32_t> prompt, GenerateOptions o,
                          const GenerateCallbacks &c = {}) {
        Sampler sampler(std::move(sampling));
        return generate(s, tokenizer(), sampler, prompt, o, c);
    }
    const std::vector<int32_t> prompt = some_tokens(20);

  private:
    static Model *model_;
};
Model *Generate::model_ = nullptr;

std::vector<int32_t> held(const Session &s) { return {s.tokens().begin(), s.tokens().end()}; }

std::vector<int32_t> joined(std::vector<int32_t> a, const std::vector<int32_t> &b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

TEST_F(Generate, StopsAtMaxTokens) {
    for (uint32_t n : {1U, 2U, 9U}) {
        const auto s = session();
        const Generation g = run(*s, endless(), prompt, {.max_tokens = n});
        EXPECT_EQ(g.finish, Finish::length);
        EXPECT_EQ(g.tokens.size(), n);
        EXPECT_EQ(g.prompt_tokens, 20U);
        EXPECT_EQ(g.cached_tokens, 0U);
        EXPECT_EQ(g.text, [&] {
            // Bytes that are no UTF-8 come out as U+FFFD, so compare through the same stream.
            text::Utf8Stream u;
            std::string t = u.feed(tokenizer().decode(g.tokens));
            return t + u.finish();
        }());
        // All but the last token drawn is in the session.
        EXPECT_EQ(held(*s), joined(prompt, {g.tokens.begin(), g.tokens.end() - 1}));
    }
}

TEST_F(Generate, TokensAreTheLikeliestOneAfterAnother) {
    const Generation g = run(*session(), endless(), prompt, {.max_tokens = 6});
    std::vector<int32_t> text = prompt;
    const auto s = session();
    for (int32_t t : g.tokens) {
        s->truncate(0);
        s->evaluate(text);
        Sampler greedy(endless());
        EXPECT_EQ(greedy.sample(s->logits(), text, 0), t);
        text.push_back(t);
    }
}

TEST_F(Generate, FillsTheContextAndSaysSo) {
    const auto s = session(32);
    const Generation g = run(*s, endless(), prompt, {});
    EXPECT_EQ(g.finish, Finish::context);
    EXPECT_EQ(s->position(), 32U);
    EXPECT_EQ(g.tokens.size(), 32U - 20 + 1);  // the last is drawn from the last position's logits
    // A prompt that fills the context exactly still gets one token.
    const auto full = session(20);
    const Generation one = run(*full, endless(), prompt, {});
    EXPECT_EQ(one.finish, Finish::context);
    EXPECT_EQ(one.tokens.size(), 1U);
    EXPECT_EQ(one.tokens[0], g.tokens[0]);
}

TEST_F(Generate, APromptThatDoesNotFitIsRefusedAndChangesNothing) {
    const auto s = session(19);
    s->evaluate(std::span(prompt).first(7));
    const std::string m = error_of(ErrorKind::limit, [&] { run(*s, endless(), prompt, {}); });
    for (const char *word : {"20 tokens", "19 positions", "--context"}) EXPECT_NE(m.find(word), std::string::npos) << m;
    EXPECT_EQ(held(*s), std::vector<int32_t>(prompt.begin(), prompt.begin() + 7));
}

TEST_F(Generate, AnEmptyPromptIsAnError) {
    const std::string m = error_of(ErrorKind::usage, [&] { run(*session(), endless(), {}, {}); });
    EXPECT_NE(m.find("prompt is empty"), std::string::npos) << m;
}

TEST_F(Generate, AnEmptyStopStringIsAnErrorBeforeAnythingIsEvaluated) {
    const auto s = session();
    error_of(ErrorKind::usage, [&] { run(*s, endless(), prompt, {.stop = {""}}); });
}

TEST_F(Generate, EndTokenEndsTheAnswerAndIsNoPartOfIt) {
    const int32_t end = *tokenizer().eos();
    SamplerOptions o = endless();
    o.logit_bias[end] = 1000;
    const Generation g = run(*session(), o, prompt, {});
    EXPECT_EQ(g.finish, Finish::end);
    EXPECT_TRUE(g.tokens.empty());
    EXPECT_EQ(g.text, "");
    // Ignored, it is a token like others, without text.
    const auto s = session();
    const Generation on = run(*s, o, prompt, {.max_tokens = 3, .ignore_end = true});
    EXPECT_EQ(on.finish, Finish::length);
    EXPECT_EQ(on.tokens, (std::vector<int32_t>{end, end, end}));
    EXPECT_EQ(on.text, "");
}

TEST_F(Generate, StopStringsEndTheAnswerWhereverTheyStart) {
    const Generation whole = run(*session(), endless(), prompt, {.max_tokens = 24});
    ASSERT_GT(whole.text.size(), 12U);
    for (size_t at : {size_t{0}, size_t{5}, whole.text.size() - 3}) {
        const std::string stop = whole.text.substr(at, 3);
        const size_t first = whole.text.find(stop);
        std::string shown;
        GenerateCallbacks c;
        c.text = [&](std::string_view t) {
            shown += t;
            return true;
        };
        const Generation g = run(*session(), endless(), prompt, {.max_tokens = 24, .stop = {"no such text", stop}}, c);
        EXPECT_EQ(g.finish, Finish::stop);
        EXPECT_EQ(g.text, whole.text.substr(0, first));
        EXPECT_EQ(shown, g.text);
        EXPECT_LE(g.tokens.size(), whole.tokens.size());
    }
    // What only looked like the start of one is not lost.
    const Generation g = run(*session(), endless(), prompt, {.max_tokens = 24, .stop = {whole.text + "!"}});
    EXPECT_EQ(g.text, whole.text);
    EXPECT_EQ(g.finish, Finish::length);
}

TEST_F(Generate, WhatIsSharedWithThePromptIsNotEvaluatedAgain) {
    const auto s = session(), fresh = session();
    const Generation first = run(*s, endless(), prompt, {.max_tokens = 5});
    // The next question of a chat: everything so far, and more.
    const std::vector<int32_t> next = joined(joined(prompt, first.tokens), some_tokens(9, 4));
    std::vector<size_t> totals;
    GenerateCallbacks c;
    c.prompt = [&](size_t, size_t total) {
        totals.push_back(total);
        return true;
    };
    const Generation g = run(*s, endless(), next, {.max_tokens = 8}, c);
    EXPECT_EQ(g.prompt_tokens, 34U);
    EXPECT_EQ(g.cached_tokens, 24U);  // the last token drawn was never evaluated
    EXPECT_EQ(totals, (std::vector<size_t>{10}));
    EXPECT_EQ(g.tokens, run(*fresh, endless(), next, {.max_tokens = 8}).tokens);
    // The same prompt again: its last token is evaluated, for its logits.
    EXPECT_EQ(run(*s, endless(), next, {.max_tokens = 8}).cached_tokens, 33U);
    // A prompt that parts early; one that is a part of what is held; one that shares nothing.
    std::vector<int32_t> other = next;
    other[3] ^= 1;
    const Generation early = run(*s, endless(), other, {.max_tokens = 8});
    EXPECT_EQ(early.cached_tokens, 3U);
    EXPECT_EQ(early.tokens, run(*session(), endless(), other, {.max_tokens = 8}).tokens);
    const Generation shorter = run(*s, endless(), std::span(other).first(10), {.max_tokens = 8});
    EXPECT_EQ(shorter.cached_tokens, 9U);
    EXPECT_EQ(shorter.tokens, run(*session(), endless(), std::span(other).first(10), {.max_tokens = 8}).tokens);
    other[0] ^= 1;
    EXPECT_EQ(run(*s, endless(), other, {.max_tokens = 1}).cached_tokens, 0U);
}

TEST_F(Generate, TheSameSeedSaysTheSame) {
    SamplerOptions o = endless();
    o.temperature = 1, o.top_k = 0, o.top_p = 1, o.min_p = 0, o.seed = 5;
    const Generation a = run(*session(), o, prompt, {.max_tokens = 20}),
                     b = run(*session(256, 1), o, prompt, {.max_tokens = 20});
    EXPECT_EQ(a.tokens, b.tokens);
    o.seed = 6;
    EXPECT_NE(run(*session(), o, prompt, {.max_tokens = 20}).tokens, a.tokens);
}

// Tokens that come back one by one are those that the host makes of the logits, whatever the session can choose.
TEST_F(Generate, ADeviceThatDrawsSaysTheSame) {
    const LeverSet levers = LeverSet::defaults();
    const auto open = [&](Chooses chooses, LeverSet l) {
        return model().session({.context = 256, .batch = 16, .levers = l, .chooses = chooses});
    };
    const auto host = open(Chooses::nothing, levers), largest = open(Chooses::largest, levers),
               drawn = open(Chooses::drawn, levers), off = open(Chooses::drawn, levers.without(Lever::sample));
    EXPECT_EQ(host->chooses(), Chooses::nothing);
    EXPECT_EQ(largest->chooses(), Chooses::largest);
    EXPECT_EQ(drawn->chooses(), Chooses::drawn);
    EXPECT_EQ(off->chooses(), Chooses::nothing);
    SamplerOptions usual, greedy, hot, all, typical, penal, banned = endless();
    usual.seed = 3, hot.seed = 4, all.seed = 5;
    greedy.temperature = 0, hot.temperature = 2, hot.top_k = 100, hot.min_p = 0;
    all.top_k = 0, typical.typical_p = 0.9F, penal.repetition_penalty = 1.2F, banned.temperature = 1;
    size_t differ = 0;
    for (const SamplerOptions &o : {usual, greedy, hot, all, typical, penal, banned}) {
        const GenerateOptions go{.max_tokens = 40, .ignore_end = true};
        const Generation want = run(*host, o, prompt, go);
        EXPECT_FALSE(host->logits().empty());
        for (Session *s : {largest.get(), drawn.get(), off.get()}) {
            const Generation g = run(*s, o, prompt, go);
            EXPECT_EQ(g.tokens, want.tokens);
            EXPECT_EQ(g.text, want.text);
            // The same session goes on after another answer.
            const Generation next = run(*s, o, joined(prompt, some_tokens(3, 8)), go);
            differ += next.tokens != want.tokens ? 1 : 0;
        }
        // Other answers of the same options: a session that was truncated draws what it drew.
        EXPECT_EQ(run(*drawn, o, prompt, go).tokens, want.tokens);
    }
    EXPECT_GT(differ, 0U);
}

TEST_F(Generate, ThePromptCallbackCancels) {
    const auto s = session(256, 8);
    GenerateCallbacks c;
    c.prompt = [](size_t done, size_t) { return done < 16; };
    c.text = [](std::string_view) -> bool { throw std::logic_error("text after the prompt was cancelled"); };
    const Generation g = run(*s, endless(), prompt, {}, c);
    EXPECT_EQ(g.finish, Finish::cancelled);
    EXPECT_TRUE(g.tokens.empty());
    EXPECT_EQ(g.text, "");
    EXPECT_EQ(s->position(), 16U);
    // The session is sound: the same prompt goes on from there.
    const Generation again = run(*s, endless(), prompt, {.max_tokens = 4});
    EXPECT_EQ(again.cached_tokens, 16U);
    EXPECT_EQ(again.tokens, run(*session(), endless(), prompt, {.max_tokens = 4}).tokens);
}

TEST_F(Generate, TheTextCallbackCancelsAndIsNotCalledAgain) {
    const auto s = session();
    size_t calls = 0;
    GenerateCallbacks c;
    c.text = [&](std::string_view) { return ++calls < 3; };
    const Generation g = run(*s, endless(), prompt, {.max_tokens = 50}, c);
    EXPECT_EQ(g.finish, Finish::cancelled);
    EXPECT_EQ(calls, 3U);
    EXPECT_EQ(g.tokens.size(), 3U);
    EXPECT_EQ(held(*s), joined(prompt, {g.tokens.begin(), g.tokens.end() - 1}));
}

TEST_F(Generate, TokensWithoutTextCanBeCancelledToo) {
    // An end token that is ignored has no text, for ever.
    SamplerOptions o = endless();
    o.logit_bias[*tokenizer().eos()] = 1000;
    size_t calls = 0;
    GenerateCallbacks c;
    c.text = [&](std::string_view) { return ++calls < 5; };
    const Generation g = run(*session(), o, prompt, {.ignore_end = true}, c);
    EXPECT_EQ(g.finish, Finish::cancelled);
    EXPECT_EQ(g.tokens.size(), 5U);
}

TEST_F(Generate, TextComesInWholeCharacters) {
    std::string shown;
    GenerateCallbacks c;
    c.text = [&](std::string_view t) {
        // No piece starts with a continuation byte or ends inside a character.
        EXPECT_TRUE(t.empty() || (static_cast<unsigned char>(t.front()) & 0xC0) != 0x80);
        text::Utf8Stream whole;
        EXPECT_EQ(whole.feed(t), t);
        EXPECT_EQ(whole.finish(), "");
        shown += t;
        return true;
    };
    SamplerOptions o = endless();
    o.temperature = 3, o.top_k = 0, o.top_p = 1, o.min_p = 0;  // bytes at random
    const Generation g = run(*session(), o, prompt, {.max_tokens = 200}, c);
    EXPECT_EQ(shown, g.text);
}

TEST_F(Generate, RatesAreOfWhatWasDone) {
    Generation g;
    g.prompt_tokens = 40, g.cached_tokens = 10, g.evaluated_tokens = 20, g.prompt_seconds = 2, g.answer_seconds = 4;
    g.tokens = {1, 2, 3, 4, 5};
    EXPECT_EQ(g.prompt_rate(), 10);
    EXPECT_EQ(g.answer_rate(), 1);  // the first token's time belongs to the prompt
    g.tokens = {1};
    EXPECT_EQ(g.answer_rate(), 0);
    EXPECT_EQ(Generation{}.prompt_rate(), 0);
    EXPECT_EQ(Generation{}.answer_rate(), 0);
    for (Finish f : {Finish::end, Finish::stop, Finish::length, Finish::context, Finish::cancelled})
        EXPECT_NE(name(f), "?");
}

TEST(ModelOpen, TellsWhatIsWrong) {
    error_of(ErrorKind::file, [] { Model::open("/no/such/file.gguf", {}); });
    error_of(ErrorKind::file, [] { Model::open(__FILE__, {}); });
    const auto m = Model::open(tiny_file("tiny-qwen3moe"), {.kv_type = DType::f32, .threads = 1});
    EXPECT_EQ(m->hparams().architecture, "qwen3moe");
    EXPECT_EQ(m->devices().size(), 1U);
    EXPECT_EQ(m->program().states[0].type, DType::f32);
    EXPECT_EQ(m->tokenizer().size(), 300);
    // Heads of 16.
    const std::string odd = std::string(RIDGE_TEST_DATA) + "/arch/llama.gguf";
    const std::string told =
        error_of(ErrorKind::usage, [&] { Model::open(odd, {.kv_type = DType::q8_0, .tokenizer = false}); });
    for (const char *word : {"llama.gguf", "q8_0", "blocks of 32", "heads of 16", "--kv f16"})
        EXPECT_NE(told.find(word), std::string::npos) << told;
}

}  // namespace
}  // namespace ridge::test
