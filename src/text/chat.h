// Chat: messages to the text that a model was trained on.
//
// A model file states its format as a Jinja template (`tokenizer.chat_template`). Here are the ChatML formats
//     <|im_start|>role\ncontent<|im_end|>\n
// of SmolLM2, Qwen2.5 and Qwen3, recognised by what their templates contain. A rendering is a list of segments, so that
// the template's control tokens become tokens and what a user writes never does.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace ridge::text {

struct Message {
    std::string role;  // "system", "user" or "assistant"
    std::string content;
};

struct ChatTemplate {
    std::string_view name;                           // "Qwen2.5"
    std::optional<std::string_view> default_system;  // stands first where the messages start with no system message
    bool splits_thinking = false;  // <think>...</think> in an answer is left out once another question follows
};

// ChatML with nothing added, as many files have it and `ridge synth` writes it; recognised whole.
extern const std::string_view kPlainChatMl;

// Throws Error{unsupported} for a template that is not known, or an empty one; `origin` (the file) opens the message.
ChatTemplate chat_template_from(std::string_view jinja, std::string_view origin);

// With `add_generation_prompt` the text ends where the model's answer starts. Throws Error{usage} where there is no
// message or one has another role.
std::vector<Segment> render_chat(const ChatTemplate &t, std::span<const Message> messages, bool add_generation_prompt);

// Throws Error{file} where the vocabulary lacks the template's control tokens.
std::vector<int32_t> encode_chat(const Tokenizer &tokenizer, const ChatTemplate &t, std::span<const Message> messages,
                                 bool add_generation_prompt);

}  // namespace ridge::text
