#include "measure/ladder.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "oracle/ops.h"
#include "runtime/generate.h"

namespace ridge {
namespace {

constexpr Rung kRungs[] = {
    {"f32", "-split_kv,-flash_mma"},
    {"split, exp", "-split_kv,+flash_mma,-p_f16,-p_bf16,-p_exp2"},
    {"split, exp2", "-split_kv,+flash_mma,-p_f16,-p_bf16,+p_exp2"},
    {"f16, exp", "-split_kv,+flash_mma,+p_f16,-p_bf16,-p_exp2"},
    {"f16, exp2", "-split_kv,+flash_mma,+p_f16,-p_bf16,+p_exp2"},
    {"bf16, exp", "-split_kv,+flash_mma,-p_f16,+p_bf16,-p_exp2"},
    {"bf16, exp2", "-split_kv,+flash_mma,-p_f16,+p_bf16,+p_exp2"},
};

// Of one prompt, what the first rung gave.
struct Reference {
    oracle::Reals logits;
    std::vector<std::vector<int32_t>> texts;
};

LadderResult try_prompt(Session &session, const text::Tokenizer &tokenizer, const LadderOptions &o,
                        const std::string &prompt, Reference &first, bool is_first) {
    LadderResult r;
    const std::vector<int32_t> tokens = tokenizer.encode(prompt);
    r.prompt_tokens = static_cast<uint32_t>(tokens.size());
    session.truncate(0);
    session.evaluate(tokens);
    const auto row = session.logits();
    const oracle::Reals logits(row.begin(), row.end());
    if (is_first) first.logits = logits;
    r.kl = oracle::kl_divergence(first.logits, logits);
    for (size_t i = 0; i < logits.size(); i++) r.most = std::max(r.most, std::fabs(logits[i] - first.logits[i]));
    for (size_t s = 0; s < o.samplers.size(); s++) {
        Sampler sampler(o.samplers[s]);
        Generation g = generate(session, tokenizer, sampler, tokens, {.max_tokens = o.tokens, .ignore_end = true});
        if (is_first) first.texts.push_back(g.tokens);
        const std::vector<int32_t> &like = first.texts[s];
        LadderText t;
        t.agrees = static_cast<uint32_t>(
            std::mismatch(g.tokens.begin(), g.tokens.end(), like.begin(), like.end()).first - g.tokens.begin());
        t.repetition = find_repetition(g.tokens);
        t.tokens = std::move(g.tokens), t.text = std::move(g.text);
        r.texts.push_back(std::move(t));
    }
    return r;
}

}  // namespace

std::span<const Rung> ladder_rungs() { return kRungs; }

void climb(Model &model, const LadderOptions &o, const std::function<void(const LadderResult &)> &each) {
    size_t longest = 0;
    for (const std::string &p : o.prompts) longest = std::max(longest, model.tokenizer().encode(p).size());
    std::vector<Reference> first(o.prompts.size());
    for (const Rung &rung : kRungs) {
        const auto session = model.session({.context = static_cast<uint32_t>(longest) + o.tokens,
                                            .batch = static_cast<uint32_t>(longest),
                                            .levers = o.levers.edited(rung.levers, "the ladder")});
        for (size_t p = 0; p < o.prompts.size(); p++) {
            LadderResult r = try_prompt(*session, model.tokenizer(), o, o.prompts[p], first[p], &rung == &kRungs[0]);
            r.rung = rung.name, r.prompt = p;
            each(r);
        }
    }
}

}  // namespace ridge
