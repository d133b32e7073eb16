#include "runtime/generate.h"

#include <algorithm>
#include <chrono>

#include "core/error.h"
#include "text/stream.h"

namespace ridge {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

}  // namespace

std::string_view name(Finish f) {
    switch (f) {
        case Finish::end:
            return "end";
        case Finish::stop:
            return "stop";
        case Finish::length:
            return "length";
        case Finish::context:
            return "context";
        case Finish::cancelled:
            return "cancelled";
    }
    return "?";
}

double Generation::prompt_rate() const { return prompt_seconds > 0 ? evaluated_tokens / prompt_seconds : 0; }

// The first token's time belongs to the prompt, so the rate counts the others.
double Generation::answer_rate() const {
    return answer_seconds > 0 && tokens.size() > 1 ? static_cast<double>(tokens.size() - 1) / answer_seconds : 0;
}

Chooses chooses_for(const SamplerOptions &o) {
    return o.takes_largest() ? Chooses::largest : o.draws_from_few() ? Chooses::drawn : Chooses::nothing;
}

Generation generate(Session &session, const text::Tokenizer &tokenizer, Sampler &sampler,
                    std::span<const int32_t> prompt, const GenerateOptions &options,
                    const GenerateCallbacks &callbacks) {
    if (prompt.empty())
        fail(ErrorKind::usage, "the prompt is empty: it has no tokens, so there is nothing to continue");
    Generation g;
    g.prompt_tokens = static_cast<uint32_t>(prompt.size());
    if (prompt.size() > session.context())
        fail(ErrorKind::limit,
             "the prompt has {} tokens, but the context has {} positions; use a larger --context or a shorter prompt",
             prompt.size(), session.context());

    // At least one token is evaluated, for its logits.
    const std::span<const int32_t> held = session.tokens();
    const size_t most = std::min(held.size(), prompt.size() - 1);
    const auto shared =
        std::mismatch(held.begin(), held.begin() + static_cast<std::ptrdiff_t>(most), prompt.begin()).first;
    g.cached_tokens = static_cast<uint32_t>(shared - held.begin());
    session.truncate(g.cached_tokens);

    const Clock::time_point start = Clock::now();
    const std::span<const int32_t> fresh = prompt.subspan(g.cached_tokens);
    const Chooses needs = chooses_for(sampler.options());
    const Want want = needs != Chooses::nothing && session.chooses() >= needs ? Want::token : Want::last;
    // The draw is named by its position: an answer does not reuse the random numbers of the one before, and a session
    // that is truncated and replayed draws the same tokens.
    const auto evaluate = [&](std::span<const int32_t> tokens,
                              const std::function<bool(size_t done, size_t total)> &progress = {}) {
        const Draw draw = want == Want::token ? sampler.on_device(session.position() + tokens.size()) : Draw{};
        return session.evaluate(tokens, want, progress, draw);
    };
    const bool complete = evaluate(fresh, callbacks.prompt);
    g.prompt_seconds = seconds_since(start);
    g.evaluated_tokens = session.position() - g.cached_tokens;
    if (!complete) {
        g.finish = Finish::cancelled;
        return g;
    }

    text::Utf8Stream characters;
    text::StopMatcher matcher(options.stop);
    bool cancelled = false;
    auto emit = [&](std::string_view text) {
        g.text += text;
        if (callbacks.text && !cancelled && !callbacks.text(text)) cancelled = true;
    };

    const Clock::time_point answer_start = Clock::now();
    while (true) {
        const int32_t token = want == Want::token
                                  ? session.choice()
                                  : sampler.sample(session.logits(), session.tokens(), session.position());
        if (tokenizer.is_end(token) && !options.ignore_end) {
            g.finish = Finish::end;
            break;
        }
        g.tokens.push_back(token);
        emit(matcher.feed(characters.feed(tokenizer.piece(token))));
        if (matcher.stopped())
            g.finish = Finish::stop;
        else if (cancelled)
            g.finish = Finish::cancelled;
        else if (options.max_tokens != 0 && g.tokens.size() == options.max_tokens)
            g.finish = Finish::length;
        else if (session.position() == session.context())
            g.finish = Finish::context;
        else {
            evaluate({&token, 1});
            continue;
        }
        break;
    }
    g.answer_seconds = seconds_since(answer_start);
    if (!matcher.stopped()) {
        const std::string rest = matcher.feed(characters.finish());
        emit(rest + matcher.finish());
    }
    return g;
}

}  // namespace ridge
