// Templates against jinja2: tests/data/jinja_cases.json (tools/make_jinja_cases.py).
#include <gtest/gtest.h>

#include <ctime>

#include "core/error.h"
#include "support/errors.h"
#include "text/jinja/template.h"
#include "text/reference.h"

namespace ridge::text::jinja {
namespace {

std::string joined(const std::vector<Segment> &segments) {
    std::string text;
    for (const Segment &s : segments) text += s.text;
    return text;
}

std::string rendered(std::string_view source, const Json &variables = nullptr, const RenderOptions &options = {}) {
    return joined(Template::parse(source, "test").render(variables, options));
}

RenderOptions on_5_july_2026() {
    std::tm now{};
    now.tm_year = 126;
    now.tm_mon = 6;
    now.tm_mday = 5;
    now.tm_yday = 185;
    now.tm_hour = 13;
    now.tm_min = 4;
    now.tm_sec = 9;
    RenderOptions options;
    options.now = now;
    return options;
}

TEST(Jinja, RendersAsJinja2Does) {
    const Json reference = Json::parse(testing::read_data("jinja_cases.json"));
    const RenderOptions options = on_5_july_2026();
    size_t same = 0, errors = 0;
    for (const Json &c : reference.at("cases")) {
        const auto source = c.at(0).get<std::string>();
        std::optional<std::string> text;
        try {
            text = rendered(source, reference.at("variables"), options);
        } catch (const Error &e) {
            EXPECT_TRUE(c.at(1).is_null()) << source << '\n' << e.what();
            ++errors;
            continue;
        }
        EXPECT_EQ(Json(*text), c.at(1)) << source;
        ++same;
    }
    EXPECT_GE(same, 700u);
    EXPECT_GE(errors, 100u);
}

// Where python has a result that templates cannot have here, there is none rather than another.
TEST(Jinja, WhatIsNotSupportedRaises) {
    for (const std::string_view source :
         {"{{ (1).real }}", "{{ true.numerator }}", "{{ 1.5.hex }}", "{{ (255).bit_length() }}",
          "{{ 1.5['is_integer'] }}", "{{ [1]|map(attribute='imag')|list }}", "{{ 'x'.casefold }}",
          "{{ 'x'.encode is defined }}", "{{ range(3).stop }}", "{{ '%c' % 65 }}", "{{ '{:#}'.format(1e20) }}"}) {
        test::error_of(ErrorKind::usage, [&] { rendered(source); });
    }
}

TEST(Jinja, WidthsAndRemaindersOfTheLeastInteger) {
    const std::string least = "(-9223372036854775807 - 1)";
    for (const std::string &source : {"{{ 'xxx'.ljust(" + least + ") }}", "{{ 'xxx'.rjust(" + least + ") }}",
                                      "{{ 'xxx'.zfill(" + least + ") }}", "{{ 'xxx'|center(" + least + ") }}"}) {
        EXPECT_EQ(rendered(source), "xxx") << source;
    }
    EXPECT_EQ(rendered("{{ [1, 2]|batch(" + least + ", 0)|list }}"), "[[1, 2]]");
    EXPECT_EQ(rendered("{{ " + least + " % 3 }} {{ " + least + " % -3 }} {{ " + least + " % -1 }}"), "1 -2 0");
}

// What the reference cannot hold: bytes that are no UTF-8.
TEST(Jinja, BytesThatAreNoTextPassThrough) {
    const std::string bytes("a\xff\xc3(\xe2\x82z\0b", 9);
    const auto with = [&](std::string_view source) { return rendered(source, Json{{"s", bytes}}); };
    EXPECT_EQ(with("{{ s }}"), bytes);
    EXPECT_EQ(with("{{ s|upper }}"), std::string("A\xff\xc3(\xe2\x82Z\0B", 9));
    EXPECT_EQ(with("{{ s|length }}"), "8");  // what breaks off counts once
    EXPECT_EQ(with("{{ s[1] }}"), "\xff");
    EXPECT_EQ(with("{{ s[::-1][::-1] == s }}"), "True");
    EXPECT_EQ(with("{{ s|list|join }}"), bytes);
    EXPECT_EQ(with("{{ s.split('(')[0] }}"), "a\xff\xc3");
    EXPECT_EQ(with("{{ s|tojson }}"), std::string("\"a\xff\xc3(\xe2\x82z\\u0000b\""));
    EXPECT_EQ(rendered("\xff{{ 1 }}\xfe"),
              "\xff"
              "1\xfe");
}

TEST(Jinja, JsonKeepsTheOrderOfKeysAndTheKindsOfNumbers) {
    const Json v = Json::parse(R"({"x": {"z": 1, "a": 1.0, "m": [-0.0, 1e2, 12345678901234567]}})");
    EXPECT_EQ(rendered("{{ x|tojson }}", v), R"({"z": 1, "a": 1.0, "m": [-0.0, 100.0, 12345678901234567]})");
}

TEST(Jinja, VariablesStandBeforeTrustedOnesAndThoseBeforeFunctions) {
    RenderOptions options;
    options.trusted = {{"a", "trusted"}, {"range", "trusted"}};
    EXPECT_EQ(rendered("{{ a }} {{ range }}", Json{{"a", "given"}}, options), "given trusted");
}

struct BadSource {
    std::string_view source, place, text;
};

TEST(Jinja, SyntaxErrorsSayWhereAndWhatWasExpected) {
    constexpr BadSource kCases[] = {
        {"ab {{ 1 + }}", "line 1, column 11", "an expression was expected, but '}}' stands here"},
        {"\n\n  {% if x %}", "line 3, column 13", "'{% endif %}' was expected"},
        {"{% for x l %}", "line 1, column 10", "'in' was expected, but 'l' stands here"},
        {"{{ [1, 2 }}", "line 1, column 10", "']' was expected, but '}' stands here"},
        {"\u00e9\u00e9{{ x", "line 1, column 3", "'}}' was expected"},
        {"a\r\nb {% nope %}", "line 2, column 6", "there is no statement 'nope'"},
        {"{{ x|nope }}", "line 1, column 6", "there is no filter 'nope'; there are abs, attr, "},
        {"{{ x is nope }}", "line 1, column 6", "there is no test 'nope'; there are "},
        {"{{ 'abc }}", "line 1, column 4", "this string has no end"},
        {"{{ '\\ud800' }}", "line 1, column 7", "U+D800 is no character"},
        {"{{ '\\xzz' }}", "line 1, column 7", "2 hexadecimal digits were expected"},
        {"{# x", "line 1, column 1", "'#}' was expected"},
        {"{% raw %} x", "line 1, column 1", "'{% endraw %}' was expected"},
        {"{{ a ? b }}", "line 1, column 6", "'?' begins nothing"},
        {"{% break %}", "line 1, column 4", "outside a loop"},
        {"{% set true = 1 %}", "line 1, column 8", "nothing can be assigned to 'true'"},
        {"{% macro m(a, a) %}{% endmacro %}", "line 1, column 15", "stands twice"},
        {"{% macro m(a=1, b) %}{% endmacro %}", "line 1, column 17", "without a default value"},
        {"{% call 5 %}{% endcall %}", "line 1, column 9", "a call was expected"},
        {"{{ f(a=1, 2) }}", "line 1, column 5", "by position, by name"},
        {"{{ 9223372036854775808 }}", "line 1, column 4", "64 bits"},
        {"{{ x.9223372036854775808 }}", "line 1, column 6", "64 bits"},
        {"{% include 'x' %}", "line 1, column 4", "there is no statement 'include'"},
    };
    for (const BadSource &c : kCases) {
        const std::string what =
            test::error_of(ErrorKind::unsupported, [&] { Template::parse(c.source, "model.gguf"); });
        EXPECT_TRUE(what.starts_with("model.gguf: chat template, " + std::string(c.place) + ": ")) << what;
        EXPECT_NE(what.find(c.text), std::string::npos) << what;
    }
}

TEST(Jinja, ErrorsOfTheRunSayWhere) {
    constexpr BadSource kCases[] = {
        {"\n {{ raise_exception('no <tools> here') }}", "line 2, column 20", "no <tools> here"},
        {"{{ a.b.c }}", "line 1, column 5", "'a' is undefined"},
        {"{{ d.b.c }}", "line 1, column 7", "'dict object' has no attribute 'b'"},
        {"{{ d.x + 'y' }}", "line 1, column 4", "'+' is not possible between 'int' and 'str'"},
        {"{{ 1 < 'a' }}", "line 1, column 4", "'<' not supported between 'int' and 'str'"},
        {"{{ d.pop('x') }}", "line 1, column 9", "would change it"},
        {"{{ [].append(1) }}", "line 1, column 13", "would change it"},
        {"{% set d.x = 1 %}", "line 1, column 4", "only attributes of a namespace can be set"},
        {"{% for a, b in [1] %}{% endfor %}", "line 1, column 4", "'int' object is not iterable"},
        {"{{ 1 // 0 }}", "line 1, column 4", "zero"},
        {"{{ 5() }}", "line 1, column 5", "'int' object is not callable"},
        {"{% if 1 %}{{ 1|nope }}{% endif %}", "line 1, column 16", "there is no filter 'nope'"},
        {"{{ 'a'|replace('b') }}", "line 1, column 8", "replace needs its argument 'new'"},
        {"{{ 'a'.split(x=1) }}", "line 1, column 13", "split takes no argument named 'x'"},
        {"{{ 1|tojson|int(2, 3, 4) }}", "line 1, column 13", "int takes at most 2 argument(s), not 3"},
        {"{{ [d]|map('nope')|list }}", "line 1, column 8", "there is no filter 'nope'"},
    };
    for (const BadSource &c : kCases) {
        const std::string what =
            test::error_of(ErrorKind::usage, [&] { rendered(c.source, Json::parse(R"({"d": {"x": 1}})")); });
        EXPECT_TRUE(what.starts_with("test: chat template, " + std::string(c.place) + ": ")) << what;
        EXPECT_NE(what.find(c.text), std::string::npos) << what;
    }
    const std::string what = test::error_of(ErrorKind::usage, [] { rendered("{{ 1 }}", Json::array()); });
    EXPECT_NE(what.find("JSON object, not array"), std::string::npos) << what;
}

// A message of a template goes to a terminal.
TEST(Jinja, ErrorsAreSafeToPrint) {
    const std::string what = test::error_of(ErrorKind::usage, [] {
        rendered("{{ raise_exception('\\x1b[2J' ~ s) }}", Json{{"s", "\x9b\n"}});
    });
    EXPECT_EQ(what.find_first_of("\x1b\n"), std::string::npos) << what;
}

}  // namespace
}  // namespace ridge::text::jinja
