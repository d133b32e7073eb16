// A template is hostile until it is rendered: nothing in it crashes, hangs or takes memory without bound.
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "core/error.h"
#include "support/errors.h"
#include "text/jinja/template.h"

namespace ridge::text::jinja {
namespace {

std::string repeated(std::string_view s, size_t n) {
    std::string out;
    for (size_t i = 0; i < n; ++i) out += s;
    return out;
}

RenderOptions small() {
    RenderOptions options;
    options.limits = {.steps = 1'000'000, .memory = 4u << 20, .output = 1u << 20, .depth = 500};
    return options;
}

void render(const std::string &source, const Json &variables = nullptr) {
    Template::parse(source, "test").render(variables, small());
}

struct Endless {
    std::string source;
    std::string_view text;
};

TEST(JinjaLimits, EveryWayToGrowEndsInAnError) {
    const Endless cases[] = {
        {"{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}", "steps"},
        {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "in one another"},
        {"{% macro f() %}{{ caller and 1 }}{% call f() %}{% endcall %}{% endmacro %}{{ f() }}", "in one another"},
        {"{% for x in [[]] recursive %}{{ loop([[]]) }}{% endfor %}", "in one another"},
        {"{{ 'x' * 9999999999 }}", "MiB"},
        {"{{ 'x' * 9223372036854775807 }}", "MiB"},
        {"{{ [0] * 9999999999 }}", "MiB"},
        {"{{ [[0] * 1000] * 9223372036854775807 }}", "MiB"},
        {"{% set ns = namespace(s='xx') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}", "MiB"},
        {"{% set ns = namespace(s='aa') %}{% for i in range(99) %}{% set ns.s = ns.s|replace('a', ns.s) %}{% endfor %}",
         "MiB"},
        {"{% set ns = namespace(s='aa') %}{% for i in range(99) %}{% set ns.s = ns.s|join(ns.s) %}{% endfor %}", "MiB"},
        {"{% set ns = namespace(l=[1]) %}{% for i in range(99) %}{% set ns.l = ns.l + ns.l %}{% endfor %}", "MiB"},
        {"{% set ns = namespace(l=[]) %}{% for i in range(999) %}{% set ns.l = [ns.l] %}{% endfor %}", "deep"},
        {"{% set ns = namespace(l={}) %}{% for i in range(999) %}{% set ns.l = {'a': ns.l} %}{% endfor %}", "deep"},
        {"{% set ns = namespace(l='x') %}{% for i in range(999) %}{% set ns.l = cycler(ns.l) %}{% endfor %}", "deep"},
        // 2^60 items of a list that takes little memory.
        {"{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}",
         "MiB"},
        {"{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}"
         "{{ ns.l|tojson }}",
         "steps"},
        {"{% set ns = namespace(l=[1], k=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}"
         "{% set ns.k = [ns.k, ns.k] %}{% endfor %}{{ ns.l == ns.k }}",
         "steps"},
        {"{% set ns = namespace(l=(1,), k=(1,)) %}{% for i in range(60) %}{% set ns.l = (ns.l, ns.l) %}"
         "{% endfor %}{{ {ns.l: 1} }}",
         "steps"},
        {"{{ 'x'.ljust(9999999999) }}", "MiB"},
        {"{{ 'x'|center(9223372036854775807) }}", "MiB"},
        {"{{ 'x'.zfill(9223372036854775807) }}", "MiB"},
        {"{{ '\t'.expandtabs(9223372036854775807) }}", "MiB"},
        {"{{ 'x\ny'|indent(9223372036854775807) }}", "MiB"},
        {"{{ '%999999999s' % 'x' }}", "MiB"},
        {"{{ '%*d' % (2147483647, 1) }}", "MiB"},
        {"{{ '{:>2147483647}'.format('x') }}", "MiB"},
        {"{{ '{:.2147483647f}'.format(1.5) }}", "precision"},
        {"{{ '%.2147483647f' % 1.5 }}", "precision"},
        {"{{ [1]|batch(9223372036854775807, 'x')|list }}", "MiB"},
        {"{{ [1]|slice(9223372036854775807)|list }}", "MiB"},
        {"{{ range(100001)|list }}", "range"},
        {"{{ range(-9223372036854775807, 9223372036854775807)|list }}", "range"},
        {"{{ [1]|tojson(indent=9223372036854775807) }}", "at most 1000"},
        {"{{ strftime_now('%Y' * 9999) }}", "1000 characters"},
        {"{% for i in range(9999) %}{{ '0123456789' * 20 }}{% endfor %}", "writes more than 1 MiB"},
        {"{% set ns = namespace() %}{% for i in range(99999) %}{% set ns.x = namespace(y=ns) %}{% endfor %}", "MiB"},
        {"{% set ns = namespace(f=1) %}{% for i in range(99999) %}{% macro f() %}{{ ns.f }}{% endmacro %}"
         "{% set ns.f = f %}{% endfor %}",
         "MiB"},
        {"{{ 9223372036854775807 + 1 }}", "64 bits"},
        {"{{ -9223372036854775807 - 2 }}", "64 bits"},
        {"{{ 9223372036854775807 * 2 }}", "64 bits"},
        {"{{ 10 ** 99 }}", "64 bits"},
        {"{{ (-9223372036854775807 - 1) // -1 }}", "64 bits"},
        {"{{ (-9223372036854775807 - 1)|abs }}", "64 bits"},
        {"{{ '99999999999999999999'|int }}", "64 bits"},
        {"{{ 1e300|int }}", "64 bits"},
        // Each of 200 filters inside one another would hold a list of its own.
        {"{% set l = ['map'] * 200 + ['default'] * 50000 %}{{ 'a'|map(*l)|list }}", "MiB"},
        {"{% set l = [1] * 30000 %}{% macro f() %}{% for x in l if f() %}{% endfor %}{% endmacro %}{{ f() }}", "MiB"},
        // A loop that holds a loop that holds a loop.
        {"{% set ns = namespace(l=0) %}{% for i in range(999) %}{% for x in [ns.l] %}{% set ns.l = loop %}"
         "{% endfor %}{% endfor %}",
         "deep"},
        {"{{ '{:02147483647,}'.format(1) }}", "MiB"},
        {"{% set s = 'x' * 1000000 %}{% for i in range(9999) %}{% set t = s.removeprefix('x') %}{% endfor %}", "steps"},
    };
    for (const Endless &c : cases) {
        const std::string what = test::error_of(ErrorKind::limit, [&] { render(c.source); });
        EXPECT_NE(what.find(c.text), std::string::npos) << c.source << '\n' << what;
        EXPECT_NE(what.find(", column "), std::string::npos) << what;
    }
}

TEST(JinjaLimits, NestingInTheSourceIsBounded) {
    constexpr size_t n = 15'000;
    const std::string cases[] = {
        "{{ " + repeated("(", n) + "1" + repeated(")", n) + " }}",
        "{{ " + repeated("[", n) + repeated("]", n) + " }}",
        "{{ " + repeated("{1:", n) + "1" + repeated("}", n) + " }}",
        "{{ " + repeated("-", n) + "1 }}",
        "{{ " + repeated("not ", n) + "1 }}",
        "{{ 1" + repeated(" + 1", n) + " }}",
        "{{ 1" + repeated(" or 1", n) + " }}",
        "{{ 1" + repeated("|abs", n) + " }}",
        "{{ x" + repeated(".x", n) + " }}",
        "{{ x" + repeated("[0", n) + repeated("]", n) + " }}",
        "{{ x" + repeated("(x", n) + repeated(")", n) + " }}",
        "{{ 1" + repeated(" if 1 else 1", n) + " }}",
        repeated("{% if 1 %}", n) + repeated("{% endif %}", n),
        repeated("{% for x in y %}", n) + repeated("{% endfor %}", n),
        "{% set " + repeated("(", n) + "x" + repeated(")", n) + " = 1 %}",
    };
    for (const std::string &source : cases) {
        const std::string what = test::error_of(ErrorKind::limit, [&] { Template::parse(source, "test"); });
        EXPECT_NE(what.find("levels"), std::string::npos) << what;
    }
    // Neither branches nor parts of ~ nest.
    render("{% if 0 %}" + repeated("{% elif 0 %}", n) + "{% endif %}");
    render("{{ 1" + repeated(" ~ 1", n) + " }}");
}

TEST(JinjaLimits, FiltersThatCallFiltersNest) {
    const auto render_maps = [](int n) {
        Template::parse("{{ 'a'|map(*(['map'] * n + ['upper']))|list }}", "test").render(Json{{"n", n}});
    };
    render_maps(150);
    const std::string deep = test::error_of(ErrorKind::limit, [&] { render_maps(1500); });
    EXPECT_NE(deep.find("in one another"), std::string::npos) << deep;
    const std::string large = test::error_of(ErrorKind::limit, [&] { render_maps(12'000); });
    EXPECT_NE(large.find("MiB"), std::string::npos) << large;
}

TEST(JinjaLimits, NamedArgumentsAndParametersAreCounted) {
    const auto names = [](size_t n, const char *between) {
        std::string out;
        for (size_t i = 0; i < n; ++i) out += (i > 0 ? ", x" : "x") + std::to_string(i) + between;
        return out;
    };
    render("{{ dict(" + names(255, "=1") + ") }}{% macro f(" + names(255, "") + ") %}{% endmacro %}");
    for (const std::string &source :
         {"{{\ndict(" + names(256, "=1") + ") }}", "{{\n1|default(" + names(256, "=1") + ") }}",
          "{%\nmacro f(" + names(256, "") + ") %}{% endmacro %}"}) {
        const std::string what = test::error_of(ErrorKind::limit, [&] { Template::parse(source, "test"); });
        EXPECT_NE(what.find("line 2, column "), std::string::npos) << what;
        EXPECT_NE(what.find("more than 255"), std::string::npos) << what;
    }
}

// The pattern is nowhere in the text, but nearly so everywhere.
TEST(JinjaLimits, SearchesTakeTimeLinearInTheText) {
    const auto start = std::chrono::steady_clock::now();
    const std::string source =
        "{% set s = 'a' * 3000000 %}{% set p = 'a' * 1500000 %}{% set last = p ~ 'b' %}{% set first = 'b' ~ p %}"
        "{{ s.find(last) }} {{ s.rfind(first) }} {{ last in s }} {{ s.count(last) }} {{ s.split(last)|length }} "
        "{{ s.rsplit(first)|length }} {{ s.partition(last)|length }} {{ s.rpartition(first)|length }} "
        "{{ s.replace(last, '')|length }} {{ s|replace(last, '')|length }} {{ s.index(p) }} {{ s.rindex(p) }}";
    std::string text;
    for (const Segment &s : Template::parse(source, "test").render(nullptr)) text += s.text;
    EXPECT_EQ(text, "-1 -1 False 0 1 1 3 3 3000000 3000000 0 1500000");
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

TEST(JinjaLimits, VariablesAreBoundedToo) {
    Json deep = 1;
    for (int i = 0; i < 300; ++i) deep = Json::array({deep});
    EXPECT_NE(test::error_of(ErrorKind::limit,
                             [&] {
                                 render("{{ x }}", Json{{"x", deep}});
                             })
                  .find("deep"),
              std::string::npos);
    const Json large = {{"x", std::string(5u << 20, 'x')}};
    EXPECT_NE(test::error_of(ErrorKind::limit, [&] { render("{{ x }}", large); }).find("MiB"), std::string::npos);
    render("{{ y }}", large);  // what no one names costs nothing
    const Json number = {{"x", UINT64_MAX}};
    EXPECT_NE(test::error_of(ErrorKind::limit, [&] { render("{{ x }}", number); }).find("too large"),
              std::string::npos);
}

TEST(JinjaLimits, ASourceHasABound) {
    Template::parse(std::string(kMaxSource, 'x'), "test");
    test::error_of(ErrorKind::limit, [] { Template::parse(std::string(kMaxSource + 1, 'x'), "test"); });
}

// Values that refer to themselves are freed at the end (the sanitizer's leak check sees it) and print.
TEST(JinjaLimits, CyclesAreFreed) {
    render("{% set ns = namespace() %}{% set ns.me = ns %}{% set ns.list = [ns] %}");
    render("{% macro f() %}{{ f }}{% endmacro %}{{ f() }}");
    render("{% set ns = namespace() %}{% for i in [1] %}{{ loop.changed(loop) }}{% set ns.l = loop %}{% endfor %}");
    test::error_of(ErrorKind::usage,
                   [] { render("{% set ns = namespace() %}{% set ns.me = [ns] %}{{ ns.me }}{{ 1 + 'x' }}"); });
}

// What took long or much once and is legal: a long conversation, a long message.
TEST(JinjaLimits, LongChatsFit) {
    Json messages = Json::array();
    for (int i = 0; i < 2000; ++i) messages.push_back({{"role", i % 2 ? "assistant" : "user"}, {"content", "text"}});
    messages.push_back({{"role", "user"}, {"content", std::string(20u << 20, 'x')}});
    const auto segments =
        Template::parse(
            "{% set ns = namespace(n=0) %}{% for m in messages[::-1] %}{% set ns.n = ns.n + 1 %}{% endfor %}"
            "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content|trim + '\n' }}{% endfor %}",
            "test")
            .render(Json{{"messages", messages}});
    size_t bytes = 0;
    for (const Segment &s : segments) bytes += s.text.size();
    EXPECT_GT(bytes, 20u << 20);
}

}  // namespace
}  // namespace ridge::text::jinja
