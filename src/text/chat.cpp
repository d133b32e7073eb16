#include "text/chat.h"

#include <algorithm>
#include <array>
#include <fstream>

#include "core/error.h"
#include "gguf/printable.h"
#include "text/chat_builtin.h"

namespace ridge::text {

namespace {

// Templates build control tokens around a role ("<|" + role + "|>"), so the roles in use count as the template's text.
constexpr std::array<std::string_view, 8> kRoles{"system", "user",      "assistant", "tool",
                                                 "model",  "developer", "function",  "ipython"};

bool is_trusted(std::string_view key, std::string_view value) {
    return key == "role" && std::ranges::find(kRoles, value) != kRoles.end();
}

void check_messages(const Json &messages) {
    if (!messages.is_array()) {
        fail(ErrorKind::usage, "the messages of a chat are a JSON array, not {}", messages.type_name());
    }
    if (messages.empty()) fail(ErrorKind::usage, "a chat needs at least one message");
    for (size_t i = 0; i < messages.size(); ++i) {
        const Json &m = messages[i];
        if (!m.is_object() || !m.contains("role") || !m["role"].is_string()) {
            fail(ErrorKind::usage, "messages[{}] is no object with a \"role\" that is a string", i);
        }
    }
}

// As transformers hands messages to a template: a key that is null is not there (OpenAI's API has "content": null
// beside tool calls), and then reasoning is found under all its names.
Json prepared(const Json &messages) {
    constexpr std::array<std::string_view, 3> kReasoning{"reasoning_content", "thinking", "reasoning"};
    Json list = Json::array();
    for (const Json &m : messages) {
        std::array<const Json *, kReasoning.size()> found{};
        for (const auto &[key, value] : m.items()) {
            const auto name = std::ranges::find(kReasoning, key);
            if (name != kReasoning.end() && !value.is_null()) found[size_t(name - kReasoning.begin())] = &value;
        }
        const auto first = std::ranges::find_if(found, [](const Json *value) { return value != nullptr; });
        const Json *reasoning = first == found.end() ? nullptr : *first;
        // Keys are appended: each differs from all before it, and a look-up would go through them.
        Json::object_t out;
        if (reasoning != nullptr) out.emplace_back("thinking", found[1] != nullptr ? *found[1] : *reasoning);
        for (const auto &[key, value] : m.items()) {
            if (!value.is_null() && key != "thinking") out.emplace_back(key, value);
        }
        if (reasoning != nullptr && found[0] == nullptr) out.emplace_back("reasoning_content", *reasoning);
        list.push_back(std::move(out));
    }
    return list;
}

jinja::Template parse(std::string_view jinja, std::string_view origin) {
    if (jinja.empty()) {
        fail(ErrorKind::unsupported,
             "{}: the file has no chat template (tokenizer.chat_template); choose one with --chat-template NAME or "
             "FILE, or use --raw to give the prompt as it is",
             origin);
    }
    return jinja::Template::parse(jinja, origin);
}

}  // namespace

Json message(std::string_view role, std::string_view content) {
    Json m = Json::object();
    m["role"] = role;
    m["content"] = content;
    return m;
}

SpecialNames special_names(const Tokenizer &tokenizer) {
    const auto name = [&](std::optional<int32_t> id) -> std::optional<std::string> {
        if (!id) return std::nullopt;
        return std::string(tokenizer.piece(*id, true));
    };
    return {name(tokenizer.bos()), name(tokenizer.eos())};
}

ChatTemplate::ChatTemplate(std::string_view jinja, SpecialNames names, std::string_view origin)
    : template_(parse(jinja, origin)), names_(std::move(names)) {}

ChatTemplate::ChatTemplate(std::string_view jinja, const Tokenizer &tokenizer, std::string_view origin)
    : ChatTemplate(jinja, special_names(tokenizer), origin) {}

std::vector<Segment> ChatTemplate::render(const Json &messages, const ChatOptions &options) const {
    check_messages(messages);
    if (!options.tools.is_null() && !options.tools.is_array()) {
        fail(ErrorKind::usage, "the tools of a chat are a JSON array, not {}", options.tools.type_name());
    }
    if (!options.documents.is_null() && !options.documents.is_array()) {
        fail(ErrorKind::usage, "the documents of a chat are a JSON array, not {}", options.documents.type_name());
    }
    if (!options.variables.is_null() && !options.variables.is_object()) {
        fail(ErrorKind::usage, "the variables of a chat template are a JSON object, not {}",
             options.variables.type_name());
    }
    Json variables = options.variables.is_null() ? Json::object() : options.variables;
    const auto set = [&](const char *name, Json value) {
        if (variables.contains(name)) {
            fail(ErrorKind::usage, "the further variables of a chat template (--template-vars) may not replace {}",
                 name);
        }
        variables[name] = std::move(value);
    };
    set("messages", prepared(messages));
    set("tools", options.tools);
    set("documents", options.documents);
    set("add_generation_prompt", options.add_generation_prompt);

    jinja::RenderOptions render;
    render.trusted = Json::object();
    if (names_.bos) render.trusted["bos_token"] = *names_.bos;
    if (names_.eos) render.trusted["eos_token"] = *names_.eos;
    render.is_trusted = is_trusted;
    render.now = options.now;
    render.limits = options.limits;
    return template_.render(variables, render);
}

std::vector<int32_t> ChatTemplate::encode(const Tokenizer &tokenizer, const Json &messages, const ChatOptions &options,
                                          size_t *without_token) const {
    if (!tokenizer.has_control_tokens()) {
        fail(ErrorKind::file,
             "{}: the vocabulary says of no token that it is a control token (tokenizer.ggml.token_type), so those of "
             "the chat template would be read as plain text; use --raw to give the prompt as it is",
             template_.origin());
    }
    const std::vector<Segment> segments = render(messages, options);
    std::vector<int32_t> ids = tokenizer.encode(segments, without_token);
    if (ids.empty()) fail(ErrorKind::usage, "{}: the chat template writes nothing", template_.origin());
    if (tokenizer.adds_bos() && tokenizer.bos() && ids.front() != *tokenizer.bos()) {
        ids.insert(ids.begin(), *tokenizer.bos());
    }
    return ids;
}

TemplateSource load_chat_template(const std::string &name_or_path) {
    for (const BuiltinTemplate &t : builtin_templates()) {
        if (t.name == name_or_path) return {t.source, fmt::format("--chat-template {}", t.name)};
    }
    std::ifstream in(name_or_path, std::ios::binary);
    std::string text(jinja::kMaxSource + 1, '\0');
    if (in) in.read(text.data(), static_cast<std::streamsize>(text.size()));
    if (!in.is_open() || in.bad() || (in.gcount() == 0 && !in.eof())) {
        fail(ErrorKind::file, "--chat-template '{}': it is neither a file that can be read nor one of {}",
             gguf::printable(name_or_path), builtin_template_names());
    }
    text.resize(static_cast<size_t>(in.gcount()));
    std::string origin = gguf::printable(name_or_path, name_or_path.size());
    if (text.empty()) fail(ErrorKind::file, "{}: the chat template file is empty", origin);
    return {std::move(text), std::move(origin)};
}

}  // namespace ridge::text
