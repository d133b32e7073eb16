// ridge template: what a chat template makes of messages, for people who write or debug templates.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <ctime>
#include <memory>
#include <string>
#include <tuple>

#include "cli/chat_flags.h"
#include "cli/flags.h"
#include "cli/terminal.h"
#include "core/error.h"
#include "gguf/gguf.h"
#include "gguf/printable.h"
#include "text/chat.h"

namespace ridge {
namespace {

struct Options {
    std::shared_ptr<ChatFlags> chat;
    std::string model, messages_file, now;
    std::string pre, family;
    bool no_generation_prompt = false, segments = false, source = false, list = false;
};

// 2026-03-04T15:09:05
std::tm parse_time(const std::string &text) {
    std::tm t{};
    const char *end = strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &t);
    std::tm real = t;
    timegm(&real);  // finds the weekday, and turns 31 February into a day of March
    const auto fields = [](const std::tm &m) { return std::tuple(m.tm_mon, m.tm_mday, m.tm_hour, m.tm_min, m.tm_sec); };
    if (end == nullptr || *end != '\0' || fields(real) != fields(t))
        fail(ErrorKind::usage, "--now {}: must be a time as in 2026-03-04T15:09:05", gguf::printable(text));
    return real;
}

text::Json read_messages(const std::string &path) {
    if (path != "-") return read_json(path);
    return parse_json(read_all(stdin, "the standard input"), "the standard input", ErrorKind::file);
}

void print_segments(const std::vector<text::Segment> &segments) {
    for (const text::Segment &s : segments)
        write_out(
            fmt::format("{} '{}'\n", s.is_template ? "template" : "data    ", gguf::printable(s.text, s.text.size())));
}

// The names of BOS and EOS are those of a model.
void note_undefined_names(std::string_view source, const text::Json &variables) {
    for (const char *name : {"bos_token", "eos_token"}) {
        if (!names_variable(source, name) || variables.contains(name)) continue;
        write_note(fmt::format("ridge: {} is undefined without a model (-m) or --template-vars\n", name));
    }
}

void print_template(Options &o) {
    if (o.list) {
        for (const text::BuiltinTemplate &t : text::builtin_templates()) write_out(fmt::format("{}\n", t.name));
        return;
    }
    if (!o.now.empty()) o.chat->options.now = parse_time(o.now);
    o.chat->options.add_generation_prompt = !o.no_generation_prompt;
    o.chat->resolve();
    if (o.model.empty() && !o.chat->chosen)
        fail(ErrorKind::usage, "which template? Give a model with -m, or --chat-template NAME|FILE");

    text::TemplateSource source;
    text::SpecialNames names;
    if (!o.model.empty()) {
        const gguf::File file = gguf::File::open(o.model);
        source = template_source(*o.chat, file);
        if (!o.source)
            names = text::special_names(*text::Tokenizer::from(text::vocabulary_from_gguf(file, o.pre, o.family)));
    } else {
        source = *o.chat->chosen;
    }
    if (o.source) {
        if (source.text.empty())
            fail(ErrorKind::unsupported, "{}: the file has no chat template (tokenizer.chat_template)", source.origin);
        write_out(source.text);
        return;
    }
    if (o.messages_file.empty())
        fail(ErrorKind::usage, "what shall be rendered? Give --messages FILE, or --source to see the template itself");
    note_unused_tools(*o.chat, source);
    if (o.model.empty()) note_undefined_names(source.text, o.chat->options.variables);
    const text::ChatTemplate chat_template(source.text, names, source.origin);
    const std::vector<text::Segment> segments = chat_template.render(read_messages(o.messages_file), o.chat->options);
    if (o.segments) {
        print_segments(segments);
        return;
    }
    for (const text::Segment &s : segments) write_out(s.text);
}

}  // namespace

void add_template(CLI::App &app) {
    auto o = std::make_shared<Options>();
    CLI::App *cmd = app.add_subcommand("template", "Show what a chat template makes of messages");
    CLI::Option *model =
        cmd->add_option("-m,--model", o->model, "Use the template of this GGUF file, and its names of BOS and EOS")
            ->type_name("FILE");
    o->chat = add_chat_flags(*cmd);
    cmd->add_option("--messages", o->messages_file,
                    "JSON array of {\"role\": ..., \"content\": ...}; - reads the standard input")
        ->type_name("FILE");
    cmd->add_flag("--no-generation-prompt", o->no_generation_prompt, "End after the last message");
    cmd->add_flag("--segments", o->segments,
                  "Print who wrote what, a line each: only text of the template may become control tokens");
    cmd->add_option("--now", o->now, "The time that the template sees (default: now)")->type_name("TIME");
    add_tokenizer_flags(*cmd, o->pre, o->family, model);
    cmd->add_flag("--source", o->source, "Print the template itself");
    cmd->add_flag("--list", o->list, "List the names that --chat-template knows");
    cmd->callback([o] { print_template(*o); });
}

}  // namespace ridge
