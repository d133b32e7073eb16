// Who wrote what: every byte of a rendering is the template's or the data's, whatever was done to it on the way.
#include <gtest/gtest.h>

#include <string>

#include "text/jinja/template.h"

namespace ridge::text::jinja {
namespace {

// The rendering with data in (round brackets).
std::string marked(std::string_view source, const Json &variables = {{"s", "data"}},
                   const RenderOptions &options = {}) {
    std::string out;
    for (const Segment &s : Template::parse(source, "test").render(variables, options)) {
        EXPECT_FALSE(s.text.empty());
        out += s.is_template ? s.text : "(" + s.text + ")";
    }
    return out;
}

TEST(JinjaSegments, EveryOperationKeepsTheWriter) {
    const Json v =
        Json::parse(R"({"s": "Data", "l": ["p", "q"], "d": {"k": "v"}, "n": 7, "t": " x y ", "m": "a\nb\n"})");
    const std::pair<std::string_view, std::string_view> cases[] = {
        {"<{{ s }}>", "<(Data)>"},
        {"{{ '<' + s + '>' }}{{ '<' ~ s ~ '>' }}", "<(Data)><(Data)>"},
        {"{{ ('<' + s + '>')[2:5] }}", "(ata)"},
        {"{{ ('<' + s + '>')[::-1] }}", ">(ataD)<"},
        {"{{ ('<' + s + '>')|upper }}{{ ('<' + s)|lower }}{{ (s + 'X')|title }}{{ ('b' + s)|capitalize }}",
         "<(DATA)><(dataData)xB(data)"},
        {"{{ ('< ' + t)|trim }}{{ t.strip() }}{{ (' ' ~ t ~ ' ').split()[0] }}", "< ( x yx yx)"},
        {"{{ s.replace('a', '_') }}{{ 'a_b'.replace('_', s) }}{{ s|replace('D', 'T') }}", "(D)_(t)_a(Data)bT(ata)"},
        {"{{ l|join('-') }}{{ '-'.join(l) }}{{ l|map('upper')|join }}", "(p)-(qp)-(qPQ)"},
        {"{{ '[%s|%5s]' % (s, 'x') }}{{ '<%s>'|format(s) }}", "[(Data)|    x]<(Data)>"},
        {"{{ '<{}|{x:>6}>'.format(s, x=s) }}", "<(Data)|  (Data)>"},
        {"{{ s|list|join('.') }}{% for c in s %}{{ c }}{% endfor %}", "(D).(a).(t).(aData)"},
        {"{{ s|first ~ 'x' }}{{ s|last }}{{ s|reverse }}{{ s[1] }}", "(D)x(aataDa)"},
        {"{{ s|e }}{{ ('<' ~ s)|e }}{{ s|safe }}", "(Data)&lt;(DataData)"},
        {"{{ ('x\n' ~ m)|indent(2) }}", "x\n  (a)\n  (b)\n"},
        {"{{ s|truncate(3, true, '!', 0) }}{{ s.center(8, '*') }}{{ s.zfill(6) }}", "(Da)!**(Data)**00(Data)"},
        {"{{ s|tojson }}{{ 'x'|tojson }}{{ [s, 'x']|tojson }}{{ d|tojson }}{{ {'a': 1}|tojson }}",
         R"#(("Data")"x"(["Data", "x"]{"k": "v"}){"a": 1})#"},
        {"{{ d|string }}{{ l }}", "({'k': 'v'}['p', 'q'])"},
        {"{% for k, x in d.items() %}{{ k }}={{ x }}{% endfor %}", "(k)=(v)"},
        {"{{ n }}{{ n + 1 }}{{ n|string }}{{ true }}{{ none }}", "787TrueNone"},
        {"{% set x %}<{{ s }}>{% endset %}{{ x|upper }}", "<(DATA)>"},
        {"{% macro m(a) %}<{{ a }}{{ caller() }}>{% endmacro %}{% call m(s) %}:{{ s }}{% endcall %}",
         "<(Data):(Data)>"},
        {"{% filter upper %}x{{ s }}{% endfilter %}", "X(DATA)"},
        {"{% set ns = namespace(x='') %}{% for i in l %}{% set ns.x = ns.x ~ i ~ ',' %}{% endfor %}{{ ns.x }}",
         "(p),(q),"},
        {"{{ s|default('x') }}{{ nope|default(s) }}{{ s or 'x' }}{{ s if n else 'x' }}", "(DataDataDataData)"},
        {"{{ s|urlencode }}{{ '%s' % l }}{{ l|sort|join }}{{ s.partition('a')[2] }}", "(Data['p', 'q']pqta)"},
        {"{{ 'Data' if s == 'Data' }}{{ {'Data': 'x'}[s] }}", "Datax"},
    };
    for (const auto &[source, expected] : cases) EXPECT_EQ(marked(source, v), expected) << source;
}

TEST(JinjaSegments, TrustedVariablesAreTheTemplates) {
    RenderOptions options;
    options.trusted = {{"bos_token", "<s>"}};
    EXPECT_EQ(marked("{{ bos_token + s }}", {{"s", "data"}}, options), "<s>(data)");
    EXPECT_EQ(marked("{{ bos_token + s }}", {{"s", "data"}, {"bos_token", "<s>"}}, options), "(<s>data)");

    options.is_trusted = [](std::string_view key, std::string_view value) { return key == "role" && value == "user"; };
    const Json v = {{"m", {{"role", "user"}, {"content", "user"}}}, {"o", {{"role", "<|x|>"}}}};
    EXPECT_EQ(marked("<|{{ m.role }}|>{{ m.content }}{{ o.role }}", v, options), "<|user|>(user<|x|>)");
}

// Pieces of a control token from two sides do not become one.
TEST(JinjaSegments, NeighboursOfOneWriterAreOneSegment) {
    const auto segments = Template::parse("{{ '<|' }}{{ 'a' }}|>{{ s }}{{ s }}", "test").render(Json{{"s", "x"}});
    ASSERT_EQ(segments.size(), 2u);
    EXPECT_EQ(segments[0].text, "<|a|>");
    EXPECT_TRUE(segments[0].is_template);
    EXPECT_EQ(segments[1].text, "xx");
    EXPECT_FALSE(segments[1].is_template);
}

}  // namespace
}  // namespace ridge::text::jinja
