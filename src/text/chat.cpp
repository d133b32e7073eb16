#include "text/chat.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/error.h"
#include "gguf/printable.h"

namespace ridge::text {

const std::string_view kPlainChatMl =
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + "
    "'\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

namespace {

constexpr std::string_view kStart = "<|im_start|>";
constexpr std::string_view kEnd = "<|im_end|>";

constexpr std::string_view kSmolLm2System = "You are a helpful AI assistant named SmolLM, trained by Hugging Face";
constexpr std::string_view kQwen25System = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.";

struct Row {
    ChatTemplate format;
    std::array<std::string_view, 2> marks;  // what its Jinja source contains, beside the two control tokens
};

constexpr std::array kRows{
    Row{{"SmolLM2", kSmolLm2System}, {kSmolLm2System, "<|im_start|>assistant"}},
    Row{{"Qwen2.5", kQwen25System}, {kQwen25System, "<|im_start|>assistant"}},
    Row{{"Qwen3", std::nullopt, true}, {"enable_thinking is false", "ns.last_query_index"}},
};

std::string known_templates() {
    std::vector<std::string_view> names{"ChatML"};
    for (const Row &row : kRows) names.push_back(row.format.name);
    return fmt::format("{}", fmt::join(names, ", "));
}

// An assistant message that may hold its reasoning.
struct Answer {
    std::string_view thinking, content;
};

std::string_view without_leading_newlines(std::string_view s) {
    s.remove_prefix(std::min(s.find_first_not_of('\n'), s.size()));
    return s;
}

std::string_view without_trailing_newlines(std::string_view s) { return s.substr(0, s.find_last_not_of('\n') + 1); }

Answer split_thinking(std::string_view content) {
    constexpr std::string_view kOpen = "<think>";
    constexpr std::string_view kClose = "</think>";
    const size_t close = content.find(kClose);
    if (close == std::string_view::npos) return {{}, content};
    std::string_view thinking = without_trailing_newlines(content.substr(0, close));
    if (const size_t open = thinking.rfind(kOpen); open != std::string_view::npos) {
        thinking.remove_prefix(open + kOpen.size());
    }
    return {without_trailing_newlines(without_leading_newlines(thinking)),
            without_leading_newlines(content.substr(content.rfind(kClose) + kClose.size()))};
}

// The index of the last question; answers after it keep their reasoning.
size_t last_question(std::span<const Message> messages) {
    for (size_t i = messages.size(); i-- > 0;) {
        const std::string_view content = messages[i].content;
        const bool is_tool_result = content.starts_with("<tool_response>") && content.ends_with("</tool_response>");
        if (messages[i].role == "user" && !is_tool_result) return i;
    }
    return messages.size() - 1;
}

// Collects segments, joining neighbours of the same kind.
class Renderer {
  public:
    void from_template(std::string_view text) { add(text, true); }
    void from_message(std::string_view text) { add(text, false); }
    std::vector<Segment> take() { return std::move(segments_); }

  private:
    void add(std::string_view text, bool is_template) {
        if (text.empty()) return;
        if (segments_.empty() || segments_.back().is_template != is_template) segments_.push_back({"", is_template});
        segments_.back().text += text;
    }
    std::vector<Segment> segments_;
};

}  // namespace

ChatTemplate chat_template_from(std::string_view jinja, std::string_view origin) {
    if (jinja == kPlainChatMl) return {"ChatML", std::nullopt};
    const auto has = [&](std::string_view mark) { return jinja.find(mark) != std::string_view::npos; };
    for (const Row &row : kRows) {
        if (has(kStart) && has(kEnd) && std::ranges::all_of(row.marks, has)) return row.format;
    }
    if (jinja.empty()) {
        fail(ErrorKind::unsupported,
             "{}: the file has no chat template (tokenizer.chat_template); use --raw to give the prompt as it is",
             origin);
    }
    fail(ErrorKind::unsupported,
         "{}: this chat template is not supported yet (tokenizer.chat_template, '{}'); supported: those of {}. "
         "Use --raw to give the prompt as it is",
         origin, gguf::printable(jinja), known_templates());
}

std::vector<Segment> render_chat(const ChatTemplate &t, std::span<const Message> messages, bool add_generation_prompt) {
    if (messages.empty()) fail(ErrorKind::usage, "a chat needs at least one message");
    Renderer out;
    const auto open = [&](std::string_view role) { out.from_template(fmt::format("{}{}\n", kStart, role)); };
    const auto close = [&] { out.from_template(fmt::format("{}\n", kEnd)); };
    if (t.default_system && messages[0].role != "system") {
        open("system");
        out.from_template(*t.default_system);
        close();
    }
    const size_t question = last_question(messages);
    for (size_t i = 0; i < messages.size(); ++i) {
        const auto &[role, content] = messages[i];
        if (role != "system" && role != "user" && role != "assistant") {
            fail(ErrorKind::usage, "messages[{}] has the role '{}'; supported: system, user, assistant", i,
                 gguf::printable(role));
        }
        open(role);
        if (t.splits_thinking && role == "assistant") {
            const Answer answer = split_thinking(content);
            const bool is_last = i + 1 == messages.size();
            if (i > question && (is_last || !answer.thinking.empty())) {
                out.from_template("<think>\n");
                out.from_message(answer.thinking);
                out.from_template("\n</think>\n\n");
                out.from_message(without_leading_newlines(answer.content));
            } else {
                out.from_message(answer.content);
            }
        } else {
            out.from_message(content);
        }
        close();
    }
    if (add_generation_prompt) open("assistant");
    return out.take();
}

std::vector<int32_t> encode_chat(const Tokenizer &tokenizer, const ChatTemplate &t, std::span<const Message> messages,
                                 bool add_generation_prompt) {
    for (const std::string_view name : {kStart, kEnd}) {
        const auto id = tokenizer.named(name);
        if (!id || tokenizer.type(*id) != TokenType::control) {
            fail(ErrorKind::file,
                 "the chat template of {} needs the control token {}, which the vocabulary does not have", t.name,
                 name);
        }
    }
    return tokenizer.encode(render_chat(t, messages, add_generation_prompt));
}

}  // namespace ridge::text
