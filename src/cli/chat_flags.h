// The flags that say how messages become a prompt; `run` and `template` share them.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/error.h"
#include "gguf/gguf.h"
#include "text/chat.h"

namespace ridge {

// --chat-template, --tools, --documents, --template-vars.
struct ChatFlags {
    std::string chat_template, tools_file, documents_file, variables;
    text::ChatOptions options;                   // tools, documents and variables are there once resolved
    std::optional<text::TemplateSource> chosen;  // what --chat-template names
    // Call after parsing, before a model is opened: reads the files. Throws Error{file} and Error{usage}.
    void resolve();
};
std::shared_ptr<ChatFlags> add_chat_flags(CLI::App &cmd);

// What --chat-template chose, else what the file carries: empty where it carries none.
text::TemplateSource template_source(const ChatFlags &flags, const gguf::File &file);

// Whether a template names a variable somewhere: one that it does not name makes no difference.
bool names_variable(std::string_view source, std::string_view variable);

// A note on stderr where there are tools but the template names none.
void note_unused_tools(const ChatFlags &flags, const text::TemplateSource &source);

// JSON from a person or a file. An error of this kind names origin, byte, line and column; numbers must fit 64 bits.
// Error{limit} for more than 200 levels, or an object of more than 10,000 keys: its look-ups go through all of them.
text::Json parse_json(std::string_view text, std::string_view origin, ErrorKind kind);

// Throws Error{file} where the file cannot be read or is no JSON.
text::Json read_json(const std::string &path);

}  // namespace ridge
