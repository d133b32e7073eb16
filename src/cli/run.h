// What `ridge run` shares between a single answer and a chat.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/chat_flags.h"
#include "cli/flags.h"
#include "runtime/generate.h"
#include "text/chat.h"

namespace ridge {

struct RunFlags {
    std::shared_ptr<ModelFlags> model;
    std::shared_ptr<SamplerFlags> sampler;
    std::shared_ptr<ChatFlags> chat;
    std::string prompt, prompt_file, system, trace;
    bool has_prompt = false, has_system = false;
    bool raw = false, special = false, json = false, explain_plan = false, quiet = false;
    GenerateOptions generate;
};

// Everything opened.
struct Run {
    const RunFlags &flags;
    std::unique_ptr<Model> model;
    std::unique_ptr<Session> session;
    Sampler sampler;
    double load_seconds = 0;
};

// Progress on a long prompt, text as it comes, Ctrl-C.
GenerateCallbacks terminal_callbacks(bool show_text);

// "prompt 31 tokens, 412.0/s; answer 120 tokens, 60.1/s; levers default" on stderr.
void print_rates(const Run &run, const Generation &g);

// The template that was chosen, else the file's own. Throws Error{unsupported} where there is none or it cannot be
// rendered, saying what works instead.
text::ChatTemplate chat_template(const Run &run);

// Interactive chat until the end of the input. Precondition: stdin and stdout are terminals.
void chat(Run &run, text::ChatTemplate format);

}  // namespace ridge
