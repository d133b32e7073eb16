// `ridge template`, and the flags of `ridge run` that choose and feed a chat template.
#include <algorithm>
#include <cctype>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/support.h"
#include "gguf/gguf.h"
#include "model/edited_file.h"
#include "text/chat.h"

namespace ridge::test {
namespace {

using Args = std::vector<std::string>;

void expect_words(const std::string &text, const std::vector<std::string> &words) {
    for (const std::string &w : words) EXPECT_NE(text.find(w), std::string::npos) << "no '" << w << "' in: " << text;
}

// A file beside the tiny model that is named after what is in it.
std::string file_with(const std::string &name, const std::string &text) {
    const std::filesystem::path path = tiny_chat_model().parent_path() / name;
    std::ofstream(path, std::ios::binary) << text;
    return path.string();
}

std::string hello() { return file_with("hello.json", R"([{"role": "user", "content": "Hello <|im_end|>!"}])"); }

std::string one_tool() {
    return file_with("tools.json", R"([{"type": "function", "function": {"name": "f", "parameters": {}}}])");
}

// Shows whatever it is given.
std::string show_all() {
    return file_with("all.jinja",
                     "{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"
                     "{{ tools | tojson }} {{ mood }} {{ strftime_now('%A %d %B %Y') }}"
                     "{% if add_generation_prompt %}[answer]{% endif %}");
}

TEST(TemplateCommand, RendersMessagesToolsAndVariables) {
    const Args base{"template", "--chat-template", show_all(), "--messages", hello(), "--now", "2026-03-04T15:09:05"};
    const Result plain = ridge(base);
    EXPECT_EQ(plain.code, 0) << plain.err;
    EXPECT_EQ(plain.out, "[user] Hello <|im_end|>!\nnull  Wednesday 04 March 2026[answer]");
    Args more = base;
    more.insert(more.end(), {"--tools", one_tool(), "--template-vars", R"({"mood": "good", "bos_token": "<s>"})",
                             "--no-generation-prompt"});
    EXPECT_EQ(ridge(more).out,
              "<s>[user] Hello <|im_end|>!\n"
              R"([{"type": "function", "function": {"name": "f", "parameters": {}}}] good Wednesday 04 March 2026)");
}

TEST(TemplateCommand, ReadsMessagesFromTheStandardInput) {
    const Result r = ridge({"template", "--chat-template", "chatml", "--messages", "-", "--no-generation-prompt"},
                           {.input = R"([{"role": "user", "content": "über"}])"});
    EXPECT_EQ(r.out, "<|im_start|>user\nüber<|im_end|>\n") << r.err;
}

TEST(TemplateCommand, UsesTheTemplateOfAModel) {
    const Result r = ridge({"template", "-m", tiny_chat_model().string(), "--messages", hello()});
    EXPECT_EQ(r.out, "<|im_start|>user\nHello <|im_end|>!<|im_end|>\n<|im_start|>assistant\n") << r.err;
    const Result source = ridge({"template", "-m", tiny_chat_model().string(), "--source"});
    EXPECT_EQ(source.out, text::kPlainChatMl) << source.err;
    // Another template with the model's names of BOS and EOS.
    const Result other =
        ridge({"template", "-m", tiny_chat_model().string(), "--chat-template", show_all(), "--messages", hello()});
    EXPECT_EQ(other.code, 0) << other.err;
}

TEST(TemplateCommand, SegmentsTellWhoWroteWhat) {
    const Result r = ridge({"template", "--chat-template", "chatml", "--messages", hello(), "--segments"});
    EXPECT_EQ(r.out,
              "template '<|im_start|>user\\n'\n"
              "data     'Hello <|im_end|>!'\n"
              "template '<|im_end|>\\n<|im_start|>assistant\\n'\n")
        << r.err;
}

TEST(TemplateCommand, BuiltinTemplatesAreListedAndWork) {
    const Result list = ridge({"template", "--list"});
    EXPECT_EQ(list.code, 0) << list.err;
    expect_words(list.out, {"chatml\n", "llama3\n", "gemma\n", "mistral\n", "phi3\n"});
    std::istringstream names(list.out);
    size_t count = 0;
    for (std::string name; names >> name; ++count) {
        const Result r = ridge({"template", "--chat-template", name, "--messages", hello()});
        EXPECT_EQ(r.code, 0) << name << ": " << r.err;
        expect_words(r.out, {"Hello <|im_end|>!"});
        EXPECT_GT(ridge({"template", "--chat-template", name, "--source"}).out.size(), 40U);
    }
    EXPECT_EQ(count, text::builtin_templates().size());
}

TEST(TemplateCommand, DocumentsReachTheTemplate) {
    const Result r = ridge({"template", "--chat-template", file_with("documents.jinja", "{{ documents[0].text }}"),
                            "--messages", hello(), "--documents", file_with("two.json", R"([{"text": "é"}, {}])")});
    EXPECT_EQ(r.out, "é") << r.err;
}

TEST(TemplateCommand, NumbersStayWhatTheyAre) {
    const Result r =
        ridge({"template", "--chat-template", file_with("numbers.jinja", "{{ n | tojson }}"), "--messages", hello(),
               "--template-vars",
               R"({"n": [-9223372036854775808, 9223372036854775807, 1.5, 1e2, {"a": [], "b": {"c": 1}}]})"});
    EXPECT_EQ(r.out, R"([-9223372036854775808, 9223372036854775807, 1.5, 100.0, {"a": [], "b": {"c": 1}}])") << r.err;
}

TEST(TemplateCommand, NotesTellWhatIsLeftOut) {
    const auto notes = [](const Args &more) {
        Args args{"template", "--messages", hello(), "--chat-template"};
        args.insert(args.end(), more.begin(), more.end());
        const Result r = ridge(args);
        EXPECT_EQ(r.code, 0) << r.err;
        return r.err;
    };
    EXPECT_EQ(notes({"chatml"}), "");
    expect_words(notes({"llama2"}), {"bos_token is undefined", "eos_token is undefined", "-m"});
    EXPECT_EQ(notes({"llama2", "-m", tiny_chat_model().string()}), "");
    EXPECT_EQ(notes({"llama2", "--template-vars", R"({"bos_token": "", "eos_token": ""})"}), "");
    expect_words(notes({"chatml", "--tools", one_tool()}), {"chatml", "knows no tools"});
    EXPECT_EQ(notes({file_with("tools.jinja", "{{ tools | tojson }}"), "--tools", one_tool()}), "");
    const std::string near = file_with("near.jinja", "{{ my_tools }}{{ toolset }}x");
    expect_words(notes({near, "--tools", one_tool()}), {"near.jinja", "knows no tools"});
}

// ---- refusals

// A file that is written once the test runs: its name and what is in it.
struct Given {
    std::string flag, name, text;
};

struct Refusal {
    const char *name;
    Args args;
    std::vector<Given> files;
    int code;
    std::vector<std::string> words;  // of the message
};

class TemplateRefusals : public testing::TestWithParam<Refusal> {};

TEST_P(TemplateRefusals, AreToldWithTheirCode) {
    Args args = GetParam().args;
    std::replace(args.begin(), args.end(), std::string("<tiny>"), tiny_chat_model().string());
    std::replace(args.begin(), args.end(), std::string("<hello>"), hello());
    std::replace(args.begin(), args.end(), std::string("<folder>"), tiny_chat_model().parent_path().string());
    for (const Given &g : GetParam().files) {
        args.push_back(g.flag);
        args.push_back(file_with(g.name, g.text));
    }
    const Result r = ridge(args);
    EXPECT_EQ(r.code, GetParam().code) << r.err;
    EXPECT_EQ(r.out, "");
    expect_words(r.err, GetParam().words);
    EXPECT_EQ(r.err.find("bug"), std::string::npos) << r.err;
    EXPECT_TRUE(std::ranges::all_of(r.err, [](unsigned char c) { return c >= 0x20 || c == '\n'; })) << r.err;
}

std::vector<Refusal> refusals() {
    const Args run{"run", "-m", "<tiny>", "-p", "hi", "-n", "2"};
    const Args render{"template", "--chat-template", "chatml"};
    const auto with = [](Args a, const Args &more) {
        a.insert(a.end(), more.begin(), more.end());
        return a;
    };
    const std::string deep(300, '[');
    std::string keys = "[{\"role\": \"user\"";
    for (int i = 0; i < 10'000; ++i) keys += ", \"" + std::to_string(i) + "\": 0";
    keys += "}]";
    return {
        {"NothingToRender", render, {}, 2, {"--messages"}},
        {"NoTemplate", {"template", "--messages", "<hello>"}, {}, 2, {"-m", "--chat-template"}},
        {"NoSuchTemplate", with(run, {"--chat-template", "/no/such.jinja"}), {}, 3, {"/no/such.jinja", "chatml"}},
        {"TemplateIsAFolder", with(run, {"--chat-template", "<folder>"}), {}, 3, {"ridge-test-"}},
        {"TemplateWithControlsInItsName", with(run, {"--chat-template", "/no/\x1b[2J"}), {}, 3, {"/no/\\u001b"}},
        {"MessagesWithControlsInTheirName", with(render, {"--messages", "/no/\x1b[2J"}), {}, 3, {"/no/\\u001b"}},
        {"PromptWithControlsInItsName", {"run", "-m", "<tiny>", "--file", "/no/\x1b[2J"}, {}, 3, {"/no/\\u001b"}},
        {"ToolsWithControlsInTheirName", run, {{"--tools", "tools\x1b[2J.json", "7"}}, 3, {"tools\\u001b", "array"}},
        {"DocumentsNoArray", run, {{"--documents", "documents.json", "{}"}}, 3, {"documents.json", "array", "object"}},
        {"ModelMissing", {"template", "-m", "/no/such.gguf", "--source"}, {}, 3, {"/no/such.gguf"}},
        {"MessagesMissing", with(render, {"--messages", "/no/such.json"}), {}, 3, {"/no/such.json", "No such file"}},
        {"MessagesCutShort",
         render,
         {{"--messages", "cut.json", "[{\"role\": \"user\","}},
         3,
         {"cut.json", "too early"}},
        {"MessagesNoJson",
         render,
         {{"--messages", "bad.json", "[\n  {\"role\": 'user'}\n]"}},
         3,
         {"bad.json", "byte 14", "line 2, column 12"}},
        {"MessagesNoArray", render, {{"--messages", "object.json", "{\"role\": \"user\"}"}}, 2, {"messages"}},
        {"MessagesEmpty", render, {{"--messages", "none.json", "[]"}}, 2, {"message"}},
        {"MessageWithoutRole", render, {{"--messages", "norole.json", "[{\"content\": \"x\"}]"}}, 2, {"role"}},
        {"MessagesTooDeep", render, {{"--messages", "deep.json", deep}}, 5, {"deep.json", "200 levels"}},
        {"ToolsMissing", with(run, {"--tools", "/no/such.json"}), {}, 3, {"/no/such.json"}},
        {"ToolsNoJson", run, {{"--tools", "tools1.json", "[{]"}}, 3, {"tools1.json", "byte 3"}},
        {"ToolsEmptyFile", run, {{"--tools", "tools2.json", ""}}, 3, {"tools2.json", "too early"}},
        {"ToolsAnObject",
         run,
         {{"--tools", "tools3.json", "{\"name\": \"f\"}"}},
         3,
         {"tools3.json", "array", "[ and ]"}},
        {"ToolsAString", run, {{"--tools", "tools4.json", "\"f\""}}, 3, {"tools4.json", "array", "string"}},
        {"ToolNoObject", run, {{"--tools", "tools5.json", "[{\"name\": \"f\"}, 7]"}}, 3, {"tools5.json", "[1]"}},
        {"ToolWithoutName",
         run,
         {{"--tools", "tools6.json", "[{\"type\": \"function\", \"function\": {}}]"}},
         3,
         {"tools6.json", "[0]", "function.name"}},
        {"VariablesNoJson",
         with(run, {"--template-vars", "{enable_thinking: false}"}),
         {},
         2,
         {"--template-vars", "byte 2"}},
        {"VariablesNoObject", with(run, {"--template-vars", "[1]"}), {}, 2, {"--template-vars", "object", "array"}},
        {"VariablesWithMessages",
         with(run, {"--template-vars", R"({"messages": []})"}),
         {},
         2,
         {"--template-vars", "may not replace messages"}},
        {"VariablesOutOfRange", with(run, {"--template-vars", R"({"a": 1e999})"}), {}, 2, {"1e999", "out of range"}},
        {"VariablesBeyond64Bits",
         with(run, {"--template-vars", R"({"a": 18446744073709551616})"}),
         {},
         2,
         {"--template-vars", "the integer 18446744073709551616", "64 bits"}},
        {"MessagesWithManyKeys", render, {{"--messages", "keys.json", keys}}, 5, {"keys.json", "10000 keys"}},
        {"TemplateBeforeTheContext",  // told before the state of the model is set up, which would not work
         with(run, {"-c", "1025"}),
         {{"--chat-template", "early.jinja", "{{ raise_exception('no user may speak') }}"}},
         2,
         {"early.jinja", "no user may speak"}},
        {"VariablesWithControls", with(run, {"--template-vars", "\x1b[2J"}), {}, 2, {"--template-vars", "byte 1"}},
        {"Time", with(render, {"--messages", "<hello>", "--now", "yesterday"}), {}, 2, {"--now yesterday", "2026-"}},
        {"NoSuchDay",
         with(render, {"--messages", "<hello>", "--now", "2026-02-31T00:00:00"}),
         {},
         2,
         {"--now 2026-02-31T00:00:00"}},
        {"RawWithTools", with(run, {"--raw"}), {{"--tools", "tools7.json", "[]"}}, 2, {"--tools"}},
        {"RawWithTemplate", with(run, {"--raw", "--chat-template", "chatml"}), {}, 2, {"--chat-template"}},
        {"RawWithVariables", with(run, {"--raw", "--template-vars", "{}"}), {}, 2, {"--template-vars"}},
        {"SyntaxError",
         run,
         {{"--chat-template", "syntax.jinja", "{% for m in messages %}\n  {{ m.role }\n{% endfor %}"}},
         4,
         {"syntax.jinja", "line 2"}},
        {"TemplateRaises",
         run,
         {{"--chat-template", "raises.jinja", "{{ raise_exception('no user may speak') }}"}},
         2,
         {"no user may speak"}},
        {"RunTimeError",
         run,
         {{"--chat-template", "undefined.jinja", "x\n{{ nothing.at_all }}"}},
         2,
         {"undefined.jinja", "line 2", "nothing"}},
        {"Endless",
         run,
         {{"--chat-template", "endless.jinja",
           "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}"}},
         5,
         {"endless.jinja"}},
        {"WritesNothing", run, {{"--chat-template", "empty.jinja", "{# nothing #}"}}, 2, {"empty.jinja"}},
    };
}

INSTANTIATE_TEST_SUITE_P(Each, TemplateRefusals, testing::ValuesIn(refusals()),
                         [](const auto &tested) { return tested.param.name; });

// ---- ridge run

size_t prompt_tokens(const Args &more) {
    Args args{"run", "-m", tiny_chat_model().string(), "-t", "1", "-p", "hi", "-n", "2", "--ignore-end", "--json"};
    args.insert(args.end(), more.begin(), more.end());
    const Result r = ridge(args);
    EXPECT_EQ(r.code, 0) << r.err;
    return r.code == 0 ? nlohmann::json::parse(r.out).at("prompt_tokens").get<size_t>() : 0;
}

TEST(RunTemplate, TheFlagsReachThePrompt) {
    const std::string shows = file_with("shows.jinja",
                                        "{{ messages[-1].content }}{% if tools %}{{ tools | length }} tools{% endif %}"
                                        "{% if mood is defined %}{{ mood }}{% endif %}");
    const size_t bare = prompt_tokens({"--chat-template", shows});
    EXPECT_LT(bare, prompt_tokens({}));
    EXPECT_EQ(prompt_tokens({"--chat-template", "chatml"}), prompt_tokens({}));
    EXPECT_GT(prompt_tokens({"--chat-template", shows, "--tools", one_tool()}), bare);
    EXPECT_GT(prompt_tokens({"--chat-template", shows, "--template-vars", R"({"mood": "good"})"}), bare);
    // What the user writes is text: a token of its name would be one, its letters are many.
    EXPECT_GT(prompt_tokens({"--chat-template", shows, "--template-vars", R"({"mood": "<|im_end|>"})"}), bare + 3);
}

TEST(RunTemplate, ToolsThatATemplateDoesNotKnowAreTold) {
    const Result r =
        ridge({"run", "-m", tiny_chat_model().string(), "-t", "1", "-p", "hi", "-n", "2", "-q", "--tools", one_tool()});
    EXPECT_EQ(r.code, 0);
    expect_words(r.err, {"knows no tools"});
}

// The tiny model with an edit.
std::string edited_model(const std::string &name, const Edit &edit) {
    const std::filesystem::path path = tiny_chat_model().parent_path() / name;
    write_edited(gguf::File::open(tiny_chat_model()), edit, path);
    return path.string();
}

TEST(RunTemplate, AFileWithoutATemplateIsRefusedFirst) {
    const std::string model = edited_model("no_template.gguf", without("tokenizer.chat_template"));
    // A context that the model cannot have is found later, when its state is set up.
    const Args args{"run", "-m", model, "-t", "1", "-c", "1025"};
    Args one = args;
    one.insert(one.end(), {"-p", "hi"});
    const Result r = ridge(one);
    EXPECT_EQ(r.code, 4);
    expect_words(r.err, {"no_template.gguf", "tokenizer.chat_template", "--raw"});
    Terminal chat(args);
    chat.expect("tokenizer.chat_template");
    EXPECT_EQ(chat.wait(), 4);
}

TEST(RunTemplate, BytesWithoutATokenAreTold) {
    constexpr const char *kTokens = "tokenizer.ggml.tokens";
    const gguf::File tiny = gguf::File::open(tiny_chat_model());
    const std::vector<std::string_view> given = tiny.find(kTokens)->as_strings().value();
    std::vector<std::string> tokens(given.begin(), given.end());
    const auto token = std::ranges::find(tokens, "\u0101");  // the byte 1, as byte-level vocabularies write it
    ASSERT_NE(token, tokens.end());
    *token = "another token";
    const std::string model = edited_model("no_byte.gguf", with(kTokens, strings(kTokens, tokens)));
    for (const bool raw : {false, true}) {
        Args args{"run", "-m", model, "-t", "1", "-p", "a\x01\x01", "-n", "2", "--ignore-end", "--json"};
        if (raw) args.push_back("--raw");
        const Result r = ridge(args);
        ASSERT_EQ(r.code, 0) << r.err;
        EXPECT_EQ(nlohmann::json::parse(r.out).at("bytes_without_token"), 2);
        expect_words(r.err, {"left out 2 bytes"});
    }
}

TEST(RunTemplate, AChatGoesOnAfterARefusal) {
    const std::string choosy = file_with(
        "choosy.jinja",
        "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system prompts here') }}{% endif %}"
        "{{ m.content }}{% endfor %}");
    Terminal t(
        {"run", "-m", tiny_chat_model().string(), "-t", "1", "-n", "6", "--ignore-end", "--chat-template", choosy}, 100,
        30);
    t.expect("> ");
    t.type("/system be kind\n");
    t.expect("> ");
    t.type("hello\n");
    t.expect("no system prompts here");
    t.expect("/system without a text removes it");
    t.expect("> ");
    t.type("/system\n");
    t.expect("the system prompt is removed");
    t.expect("> ");
    t.type("hello\n");
    t.expect("answer 6 tokens");
    t.expect("> ");
    t.type("\x04");
    EXPECT_EQ(t.wait(), 0);
}

}  // namespace
}  // namespace ridge::test
