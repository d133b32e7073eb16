// The chat templates that --chat-template knows by name.
//
// They are written from the formats that the models were trained on, for files that have no template of their own. They
// write messages whose content is a string, and refuse roles that their format does not have.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace ridge::text {

// ChatML with nothing added, as many files have it and `ridge synth` writes it.
extern const std::string_view kPlainChatMl;

struct BuiltinTemplate {
    std::string_view name;
    std::string source;
};
std::span<const BuiltinTemplate> builtin_templates();

// "chatml, llama2, ...": for messages and help.
std::string builtin_template_names();

}  // namespace ridge::text
