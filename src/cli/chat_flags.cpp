#include "cli/chat_flags.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "cli/terminal.h"
#include "gguf/printable.h"

namespace ridge {
namespace {

// Of JSON; tools and messages have about ten of either.
constexpr size_t kMostLevels = 200, kMostKeys = 10'000;

// The tools' own templates read more than this, but nothing can be done with a tool that has no name.
void check_tools(const text::Json &tools, const std::string &path) {
    if (!tools.is_array())
        fail(ErrorKind::file, "{}: the tools must be a JSON array, but this is {}", gguf::printable(path),
             tools.is_object() ? "an object; put it between [ and ]" : tools.type_name());
    for (size_t i = 0; i < tools.size(); ++i) {
        const text::Json &tool = tools[i];
        const bool is_wrapped = tool.is_object() && tool.contains("function");
        const text::Json &function = is_wrapped ? tool["function"] : tool;
        if (!function.is_object() || !function.contains("name") || !function["name"].is_string())
            fail(ErrorKind::file,
                 "{}: [{}] is no tool: there is no {}. A tool is an object such as {{\"type\": \"function\", "
                 "\"function\": {{\"name\": \"f\", \"description\": \"...\", \"parameters\": {{...}}}}}}",
                 gguf::printable(path), i, is_wrapped ? "function.name" : "function");
    }
}

// Builds a value from what the parser finds, and refuses what the rest could not handle.
class JsonBuilder : public nlohmann::json_sax<text::Json> {
  public:
    JsonBuilder(std::string_view text, std::string_view origin, ErrorKind kind)
        : text_(text), origin_(gguf::printable(origin)), kind_(kind) {}
    text::Json result;

    bool null() override { return add(nullptr); }
    bool boolean(bool value) override { return add(value); }
    bool number_integer(number_integer_t value) override { return add(value); }
    bool number_unsigned(number_unsigned_t value) override { return add(value); }
    bool number_float(number_float_t value, const string_t &digits) override {
        // The parser makes a double of an integer that fits no other type.
        if (digits.find_first_of(".eE") == string_t::npos)
            fail(kind_, "{}: the integer {} does not fit 64 bits", origin_, digits_shown(digits));
        return add(value);
    }
    bool string(string_t &value) override { return add(std::move(value)); }
    bool binary(binary_t &value) override { return add(std::move(value)); }
    bool start_object(size_t) override { return open(text::Json::object()); }
    bool start_array(size_t) override { return open(text::Json::array()); }
    bool end_object() override { return close(); }
    bool end_array() override { return close(); }

    bool key(string_t &name) override {
        text::Json &object = *open_.back();
        if (object.size() == kMostKeys)
            fail(ErrorKind::limit, "{}: a JSON object has more than {} keys", origin_, kMostKeys);
        place_ = &object[name];
        return true;
    }

    // A byte counts from 1; past the end where more was expected.
    bool parse_error(size_t byte, const std::string &token, const text::Json::exception &e) override {
        constexpr int kOutOfRange = 406;
        if (e.id == kOutOfRange) fail(kind_, "{}: the number {} is out of range", origin_, digits_shown(token));
        const std::string_view before = text_.substr(0, byte == 0 ? 0 : byte - 1);
        const auto line = 1 + std::count(before.begin(), before.end(), '\n');
        const size_t column = before.size() - (before.rfind('\n') + 1) + 1;
        fail(kind_, "{}: this is no JSON: {} at byte {} (line {}, column {})", origin_,
             before.size() >= text_.size() ? "it ends too early" : "it breaks", byte, line, column);
    }

  private:
    static std::string digits_shown(std::string_view digits) { return gguf::printable(digits, 40); }

    bool add(text::Json value) {
        place(std::move(value));
        return true;
    }

    text::Json &place(text::Json value) {
        if (open_.empty()) return result = std::move(value);
        if (!open_.back()->is_array()) return *place_ = std::move(value);
        open_.back()->push_back(std::move(value));
        return open_.back()->back();
    }

    bool open(text::Json value) {
        open_.push_back(&place(std::move(value)));
        if (open_.size() > kMostLevels)
            fail(ErrorKind::limit, "{}: the JSON is more than {} levels deep", origin_, kMostLevels);
        return true;
    }

    bool close() {
        open_.pop_back();
        return true;
    }

    std::string_view text_;
    std::string origin_;
    ErrorKind kind_;
    std::vector<text::Json *> open_;  // arrays and objects; nothing is added to one while another lies open in it
    text::Json *place_ = nullptr;     // of the value of the last key
};

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

}  // namespace

text::Json parse_json(std::string_view text, std::string_view origin, ErrorKind kind) {
    JsonBuilder builder(text, origin, kind);
    text::Json::sax_parse(text, &builder);
    return std::move(builder.result);
}

text::Json read_json(const std::string &path) {
    const std::unique_ptr<std::FILE, int (*)(std::FILE *)> in(std::fopen(path.c_str(), "rb"), std::fclose);
    if (!in) fail(ErrorKind::file, "cannot open {}: {}", gguf::printable(path), std::strerror(errno));
    return parse_json(read_all(in.get(), path), path, ErrorKind::file);
}

void ChatFlags::resolve() {
    if (!chat_template.empty()) chosen = text::load_chat_template(chat_template);
    if (!tools_file.empty()) {
        options.tools = read_json(tools_file);
        check_tools(options.tools, tools_file);
    }
    if (!documents_file.empty()) {
        options.documents = read_json(documents_file);
        if (!options.documents.is_array())
            fail(ErrorKind::file, "{}: the documents must be a JSON array, but this is {}",
                 gguf::printable(documents_file), options.documents.type_name());
    }
    if (!variables.empty()) {
        options.variables = parse_json(variables, "--template-vars", ErrorKind::usage);
        if (!options.variables.is_object())
            fail(ErrorKind::usage, "--template-vars: must be a JSON object, as in {}, but this is {}",
                 R"({"enable_thinking": false})", options.variables.type_name());
    }
}

std::shared_ptr<ChatFlags> add_chat_flags(CLI::App &cmd) {
    auto f = std::make_shared<ChatFlags>();
    const std::string group = "Chat template";
    cmd.add_option(
           "--chat-template", f->chat_template,
           "Use this template instead of the file's own: a Jinja file, or one of " + text::builtin_template_names())
        ->type_name("NAME|FILE")
        ->group(group);
    cmd.add_option("--tools", f->tools_file, "Tools that the model may call: a JSON array, as OpenAI's API takes it")
        ->type_name("FILE")
        ->group(group);
    cmd.add_option("--documents", f->documents_file,
                   "Documents to answer from, where the template takes any: a JSON array")
        ->type_name("FILE")
        ->group(group);
    cmd.add_option("--template-vars", f->variables,
                   "Further variables of the template, as in '{\"enable_thinking\": false}'")
        ->type_name("JSON")
        ->group(group);
    return f;
}

text::TemplateSource template_source(const ChatFlags &flags, const gguf::File &file) {
    if (flags.chosen) return *flags.chosen;
    // Some files have a template of its own for chats with tools.
    const std::string_view plain = file.get_string("tokenizer.chat_template", "");
    const std::string_view with_tools = file.get_string("tokenizer.chat_template.tool_use", "");
    const bool has_tools = !flags.options.tools.is_null();
    const std::string path = file.paths().front().string();
    return {std::string(has_tools && !with_tools.empty() ? with_tools : plain), gguf::printable(path, path.size())};
}

bool names_variable(std::string_view source, std::string_view variable) {
    for (size_t at = source.find(variable); at != std::string_view::npos; at = source.find(variable, at + 1)) {
        const size_t end = at + variable.size();
        if ((at == 0 || !is_word(source[at - 1])) && (end == source.size() || !is_word(source[end]))) return true;
    }
    return false;
}

void note_unused_tools(const ChatFlags &flags, const text::TemplateSource &source) {
    if (flags.options.tools.is_null() || names_variable(source.text, "tools")) return;
    write_note(fmt::format("ridge: {}: the chat template knows no tools; they are left out\n", source.origin));
}

}  // namespace ridge
