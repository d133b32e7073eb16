// Chat: messages to the text that a model was trained on.
//
// A model file states its format as a Jinja template (`tokenizer.chat_template`), and that is what is rendered; a
// template may also be chosen by name or file. A rendering is a list of segments, so that the template's control tokens
// become tokens and what a user writes never does.
//
// Messages, tools and further variables are JSON as chat programs exchange it:
//     [{"role": "system", "content": "..."}, {"role": "user", "content": "..."},
//      {"role": "assistant", "content": null, "tool_calls": [...]}, {"role": "tool", "content": "...", ...}]
// A template sees them with all their keys but those that are null; reasoning, under whichever of its names it comes
// (of several the first of reasoning_content, thinking, reasoning), is reasoning_content, and thinking unless there is
// one already.
#pragma once

#include <cstdint>
#include <ctime>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat_builtin.h"
#include "text/jinja/template.h"
#include "text/tokenizer.h"

namespace ridge::text {

using Json = jinja::Json;

Json message(std::string_view role, std::string_view content);

struct ChatOptions {
    bool add_generation_prompt = true;          // the text ends where the model's answer starts
    Json tools = nullptr;                       // an array of tools, or null: none
    Json documents = nullptr;                   // an array of documents to answer from, or null: none
    Json variables = nullptr;                   // an object of further variables (enable_thinking, ...), or null: none
    std::optional<std::tm> now = std::nullopt;  // for templates that write the date; the local time where absent
    jinja::Limits limits = {};
};

// The names of BOS and EOS as templates write them; absent where the vocabulary has none.
struct SpecialNames {
    std::optional<std::string> bos, eos;
};
SpecialNames special_names(const Tokenizer &tokenizer);

class ChatTemplate {
  public:
    // Throws Error{unsupported} where the source is empty or is no template that can be rendered; `origin` (the file)
    // opens the message.
    ChatTemplate(std::string_view jinja, SpecialNames names, std::string_view origin);
    ChatTemplate(std::string_view jinja, const Tokenizer &tokenizer, std::string_view origin);

    // The variables are messages, add_generation_prompt, tools and documents (none where absent), bos_token and
    // eos_token, and those of the options, which may replace only these two. Throws Error{usage} where there is no
    // message, one is no object with a role, a variable may not be replaced, or the template refuses the messages.
    std::vector<Segment> render(const Json &messages, const ChatOptions &options = {}) const;

    // The rendering as tokens. BOS stands first where the template writes it or the vocabulary asks for it: once.
    // `without_token` as for Tokenizer::encode. Throws Error{usage} also where the template writes nothing, Error{file}
    // where the vocabulary has no control token at all.
    std::vector<int32_t> encode(const Tokenizer &tokenizer, const Json &messages, const ChatOptions &options = {},
                                size_t *without_token = nullptr) const;

  private:
    jinja::Template template_;
    SpecialNames names_;
};

// A template chosen by name or read from a file, with what to call it in messages: text that is safe to print.
struct TemplateSource {
    std::string text, origin;
};

// Throws Error{file} where it is neither a known name nor a file that can be read, naming the names.
TemplateSource load_chat_template(const std::string &name_or_path);

}  // namespace ridge::text
