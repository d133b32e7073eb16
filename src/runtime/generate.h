// Generation: a prompt in, text out, token by token, until the model ends its answer or a limit does.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/sampler.h"
#include "runtime/session.h"
#include "text/tokenizer.h"

namespace ridge {

struct GenerateOptions {
    uint32_t max_tokens = 0;        // 0: until the model ends or the context is full
    std::vector<std::string> stop;  // strings that end the answer and are not part of it
    bool ignore_end = false;        // go on past the model's end token (for measuring)
};

enum class Finish : uint8_t {
    end,        // the model ended its answer
    stop,       // a stop string
    length,     // max_tokens
    context,    // no position left
    cancelled,  // a callback said so
};
std::string_view name(Finish f);

struct Generation {
    std::string text;             // what was emitted
    std::vector<int32_t> tokens;  // what was drawn, without the end token
    Finish finish = Finish::end;
    uint32_t prompt_tokens = 0;     // of the whole prompt
    uint32_t cached_tokens = 0;     // of them, already in the session
    uint32_t evaluated_tokens = 0;  // the others; fewer where that was cancelled
    double prompt_seconds = 0;      // evaluating them, up to the first token's logits
    double answer_seconds = 0;      // all tokens after the first
    double prompt_rate() const;     // tokens per second; 0 where nothing was evaluated
    double answer_rate() const;
};

struct GenerateCallbacks {
    std::function<bool(size_t done, size_t total)> prompt;  // between steps of a long prompt; false cancels
    // Once per token drawn and once at the end: the whole characters that are new, perhaps none; false cancels and is
    // the last call.
    std::function<bool(std::string_view text)> text;
};

// What a session must choose so that only tokens of these options come back from it; nothing: the host samples.
Chooses chooses_for(const SamplerOptions &options);

// The session keeps what it shares with `prompt` and forgets the rest; afterwards it holds prompt and answer, but for
// the last token drawn. Throws Error{usage} for an empty prompt, Error{limit} where the prompt does not fit, and then
// has changed nothing.
Generation generate(Session &session, const text::Tokenizer &tokenizer, Sampler &sampler,
                    std::span<const int32_t> prompt, const GenerateOptions &options,
                    const GenerateCallbacks &callbacks = {});

}  // namespace ridge
