// Chat templates of published models against jinja2 (tools/make_template_reference.py), and who wrote what in their
// renderings. The templates lie in the cache (scripts/fetch_model.py templates), as do the models that carry more.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/error.h"
#include "gguf/gguf.h"
#include "support/real_models.h"
#include "text/chat.h"
#include "text/reference.h"

namespace ridge::text {
namespace {

const std::tm kNow = [] {  // as NOW in the script
    std::tm t{};
    t.tm_year = 2026 - 1900, t.tm_mon = 2, t.tm_mday = 4, t.tm_hour = 15, t.tm_min = 9, t.tm_sec = 5;
    t.tm_wday = 3, t.tm_yday = 62;
    return t;
}();
const SpecialNames kNames{"<|bos|>", "<|eos|>"};  // as SPECIAL in the script

struct Conversation {
    std::string name;
    Json messages, tools, documents, variables;
    std::vector<bool> generation;  // the renderings: with a generation prompt, or without
};

std::vector<Conversation> conversations() {
    const Json all = Json::parse(testing::read_data("template_conversations.json"));
    std::vector<Conversation> list;
    for (const Json &c : all.at("conversations")) {
        Conversation one{c.at("name").get<std::string>(),      Json::array(), nullptr, nullptr,
                         c.value("variables", Json::object()), {true}};
        for (int i = 0; i < c.value("repeat", 1); ++i)
            one.messages.insert(one.messages.end(), c.at("messages").begin(), c.at("messages").end());
        if (c.contains("tools"))
            one.tools = c["tools"].is_string() ? all.at("tools").at(c["tools"].get<std::string>()) : c["tools"];
        one.documents = one.variables.value("documents", Json(nullptr));
        one.variables.erase("documents");
        const bool ends_with_answer = !one.messages.empty() && one.messages.back().value("role", "") == "assistant";
        if (ends_with_answer) one.generation.push_back(false);
        list.push_back(one);
    }
    return list;
}

struct Reference {
    std::string name, hash;            // of the template
    std::vector<std::string> results;  // by conversation and rendering
};

std::vector<Reference> references() {
    static const Json all = Json::parse(testing::read_data("template_reference.json"));
    std::vector<Reference> list;
    for (const auto &[name, entry] : all.at("templates").items()) {
        Reference r{name, entry.at("template").get<std::string>(), {}};
        std::istringstream words(entry.at("results").get<std::string>());
        for (std::string word; words >> word;) r.results.push_back(word);
        list.push_back(r);
    }
    return list;
}

// The template that a reference names; none where its file is not there.
std::optional<std::string> template_text(const std::string &name) {
    if (name.starts_with("builtin:")) return load_chat_template(name.substr(8)).text;
    const bool is_model = name.ends_with(".gguf");
    const auto path = test::real_model(is_model ? name : "templates/" + name);
    if (path.empty()) return std::nullopt;
    if (is_model) return std::string(gguf::File::open(path).get_string("tokenizer.chat_template", ""));
    std::ifstream file(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
}

std::string joined(const std::vector<Segment> &segments) {
    std::string text;
    for (const Segment &s : segments) text += s.text;
    return text;
}

// "length:hash", or "error" where the template or what it does to its variables is refused, or "unable" for any other
// error, which no reference has; why goes to `error`.
std::string result_of(const jinja::Template &t, const Conversation &c, bool generation, std::string &error) {
    Json variables{{"messages", c.messages},
                   {"tools", c.tools},
                   {"documents", c.documents},
                   {"add_generation_prompt", generation}};
    variables.update(c.variables);
    jinja::RenderOptions options;
    options.trusted = {{"bos_token", *kNames.bos}, {"eos_token", *kNames.eos}};
    options.now = kNow;
    try {
        const std::string text = joined(t.render(variables, options));
        return fmt::format("{}:{}", text.size(), testing::fnv1a(text));
    } catch (const Error &e) {
        error = e.what();
        return e.kind() == ErrorKind::usage ? "error" : "unable";
    }
}

struct Counts {
    size_t same = 0, both_refuse = 0, different = 0;
};

Counts compare(const Reference &r, const std::string &source, const std::vector<Conversation> &all) {
    Counts counts;
    EXPECT_EQ(testing::fnv1a(source), r.hash) << r.name << " is not the template that the reference was made with";
    std::optional<jinja::Template> t;
    try {
        t = jinja::Template::parse(source, r.name);
    } catch (const Error &e) {
        ADD_FAILURE() << e.what();
        counts.different = r.results.size();
        return counts;
    }
    size_t at = 0;
    for (const Conversation &c : all) {
        for (const bool generation : c.generation) {
            if (at == r.results.size()) {
                ADD_FAILURE() << r.name << ": the reference has only " << at << " results; make it again";
                return counts;
            }
            const std::string &expected = r.results[at++];
            std::string error;
            const std::string got = result_of(*t, c, generation, error);
            ++(got != expected ? counts.different : got == "error" ? counts.both_refuse : counts.same);
            EXPECT_EQ(got, expected) << error << "\nsee make_template_reference.py --diff " << r.name << ' ' << c.name
                                     << (generation ? "" : " --closed");
        }
    }
    EXPECT_EQ(at, r.results.size()) << r.name << ": the reference has more results; make it again";
    return counts;
}

TEST(Templates, RenderAsJinja2) {
    const std::vector<Conversation> all = conversations();
    Counts total;
    size_t templates = 0, missing = 0;
    for (const Reference &r : references()) {
        const auto source = template_text(r.name);
        if (!source) {
            ++missing;
            continue;
        }
        const Counts counts = compare(r, *source, all);
        fmt::print("{:<60} identical {:>4}, refused by both {:>4}, different {}\n", r.name, counts.same,
                   counts.both_refuse, counts.different);
        ++templates;
        total.same += counts.same, total.both_refuse += counts.both_refuse, total.different += counts.different;
    }
    fmt::print("{} templates, {} conversations: identical {}, refused by both {}, different {}; absent templates {}\n",
               templates, all.size(), total.same, total.both_refuse, total.different, missing);
    EXPECT_EQ(total.different, 0u);
    EXPECT_GE(total.same, 80u) << "the built-in templates at least are always there";
    if (missing > 0 && test::models_required()) FAIL() << missing << " templates are absent";
    if (missing > 0) GTEST_SKIP() << missing << " templates are absent; ./test.sh fetches them";
}

TEST(Templates, SnippetsRenderAsJinja2) {
    const Json all = Json::parse(testing::read_data("template_snippets.json"));
    size_t compared = 0;
    for (const Json &snippet : all.at("snippets")) {
        const auto source = snippet.at(0).get<std::string>();
        std::optional<std::string> got;
        std::optional<jinja::Template> parsed;
        std::string error;
        try {
            jinja::RenderOptions options;
            options.now = kNow;
            parsed = jinja::Template::parse(source, "snippet");
            got = joined(parsed->render(all.at("variables"), options));
        } catch (const Error &e) {
            error = e.what();
            // A range is bounded in jinja2's sandbox too; no other limit may stand for an error of jinja2.
            if (error.find("a range has more than") == std::string::npos) {
                EXPECT_EQ(e.kind(), parsed ? ErrorKind::usage : ErrorKind::unsupported) << source << '\n' << error;
            }
        }
        ++compared;
        if (snippet.at(1).is_null())
            EXPECT_FALSE(got) << source << "\nmust be an error, but renders: " << got.value_or("");
        else
            EXPECT_EQ(got.value_or(error), snippet.at(1).get<std::string>()) << source;
    }
    EXPECT_GE(compared, 700u);
}

// ---- provenance

constexpr std::string_view kMark = "~80517~";  // in no template; unchanged by case, escapes, stripping

// After every run of spaces and at the end: what a template looks for at the start of a text stays there.
std::string marked(const std::string &text) {
    std::string out;
    for (size_t i = 0; i < text.size(); ++i) {
        out += text[i];
        const bool space = text[i] == ' ' || text[i] == '\n';
        const bool next_is_space = i + 1 < text.size() && (text[i + 1] == ' ' || text[i + 1] == '\n');
        if (space && !next_is_space) out += kMark;
    }
    return out + std::string(kMark);
}

// All strings that a user writes; what a template compares (roles, types, ids, settings) stays as it is.
Json marked(const Json &value) {
    static const std::set<std::string> kKept{"role", "type", "id", "tool_call_id", "reasoning_effort", "channel"};
    static const std::set<std::string> kKeysOfUsers{"arguments", "properties"};
    if (value.is_string()) return marked(value.get<std::string>());
    if (!value.is_structured()) return value;
    Json out = value;
    for (auto it = out.begin(); it != out.end(); ++it) {
        const std::string key = out.is_object() ? it.key() : "";
        if (kKept.contains(key)) continue;
        *it = marked(*it);
        if (!kKeysOfUsers.contains(key) || !it->is_object()) continue;
        Json renamed = Json::object();
        for (const auto &[name, inner] : it->items()) renamed[name + std::string(kMark)] = inner;
        *it = renamed;
    }
    return out;
}

// How many marks a rendering has; each must lie in text of the user.
size_t count_marks(const std::vector<Segment> &segments, const std::string &where) {
    std::vector<bool> is_template;
    for (const Segment &s : segments) is_template.insert(is_template.end(), s.text.size(), s.is_template);
    const std::string text = joined(segments);
    size_t marks = 0;
    for (size_t at = text.find(kMark); at != std::string::npos; at = text.find(kMark, at + 1), ++marks) {
        for (size_t i = at; i < at + kMark.size(); ++i) {
            if (!is_template[i]) continue;
            ADD_FAILURE() << where << ": text of the user counts as the template's, after '"
                          << text.substr(at < 60 ? 0 : at - 60, at < 60 ? at : 60) << "'";
            return marks;
        }
    }
    return marks;
}

// How many names of control tokens that no user wrote a rendering has; each must lie in one segment of the template.
size_t count_controls(const std::vector<Segment> &segments, const std::string &user_text, const std::string &where) {
    std::string text;
    std::vector<size_t> segment_of;
    for (size_t i = 0; i < segments.size(); ++i) {
        segment_of.insert(segment_of.end(), segments[i].text.size(), i);
        text += segments[i].text;
    }
    size_t controls = 0;
    for (size_t at = text.find("<|"); at != std::string::npos; at = text.find("<|", at + 1)) {
        const size_t end = text.find_first_of("<> \n", at + 1);
        if (end == std::string::npos || text[end] != '>' || text[end - 1] != '|') continue;
        const std::string name = text.substr(at, end + 1 - at);
        if (user_text.find(name) != std::string::npos || name.find(kMark) != std::string::npos) continue;
        if (name == "<|narrator|>" || name == "<|critic|>") continue;  // a role that nobody knows is the user's text
        ++controls;
        EXPECT_TRUE(segments[segment_of[at]].is_template && segment_of[at] == segment_of[end])
            << where << ": " << name << " is not the template's alone";
    }
    return controls;
}

TEST(Templates, WhatUsersWriteIsNeverTheTemplates) {
    const std::vector<Conversation> all = conversations();
    size_t templates = 0, renderings = 0, marks = 0, controls = 0;
    for (const Reference &r : references()) {
        const auto source = template_text(r.name);
        if (!source) continue;
        ++templates;
        const ChatTemplate t(*source, kNames, r.name);
        size_t marks_here = 0;
        for (const Conversation &c : all) {
            ChatOptions options;
            options.tools = marked(c.tools);
            options.documents = marked(c.documents);
            options.variables = marked(c.variables);
            options.now = kNow;
            const Json messages = marked(c.messages);
            for (const bool generation : c.generation) {
                options.add_generation_prompt = generation;
                std::vector<Segment> segments;
                try {
                    segments = t.render(messages, options);
                } catch (const Error &) {
                    continue;  // refused: nothing reaches the model
                }
                const std::string where = r.name + " " + c.name;
                ++renderings;
                marks_here += count_marks(segments, where);
                controls += count_controls(segments, messages.dump() + options.tools.dump(), where);
            }
        }
        EXPECT_GT(marks_here, 0u) << r.name;
        marks += marks_here;
    }
    fmt::print("{} templates, {} renderings: {} marks in text of users, {} control tokens in text of templates\n",
               templates, renderings, marks, controls);
    EXPECT_GT(marks, 1000u);
    EXPECT_GT(controls, 1000u);
}

}  // namespace
}  // namespace ridge::text
