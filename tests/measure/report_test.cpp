// The page: what it says, and that it is whole by itself.
#include "measure/report.h"

#include <gtest/gtest.h>

#include <regex>

namespace ridge::report {
namespace {

Page page() {
    Page p;
    p.title = "a <b> & \"c\"";
    p.device = "two cores", p.model = "model.gguf", p.date = "2026-11-30", p.command = "ridge report -m model.gguf";
    p.roof = {50e9, {{"int8", 1e12}, {"f32", 2.5e11}}};
    p.phases = {{"decode", "bandwidth-roofline", 0.05, {{"contract Q4_K", 0.03}, {"attention", 0.01}}}};
    p.points = {{"contract Q4_K", "decode", 1.5e9, 2.6e9, 0.03}, {"attention", "decode", 3e6, 1e6, 0.002}};
    p.comparisons = {{"qkv", "tg64", 1.021, 1.012, 1.03, 1.025, 0.004, "helps"},
                     {"int8_dot", "pp512", 2.5, 2.4, 2.6, 0, 0.004, "helps"}};
    p.sizes = {{1e5, 5e9}, {1e6, 20e9}, {1e8, 45e9}};
    return p;
}

size_t count(const std::string &text, const std::string &what) {
    size_t n = 0;
    for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += what.size()) n++;
    return n;
}

TEST(Report, EverySectionHasItsFigures) {
    const std::string s = html(page());
    EXPECT_EQ(count(s, "<svg"), 4U);
    EXPECT_EQ(count(s, "<svg"), count(s, "</svg>"));
    EXPECT_EQ(count(s, "<table>"), count(s, "</table>"));
    EXPECT_EQ(count(s, "<tr>"), count(s, "</tr>"));
    for (const char *words :
         {"20.0 tokens per second", "60.0%", "20.0%", "outside of launches", "10.0 ms", "int8 1.00 T/s", "50.0 GB/s",
          "+2.10%", "+1.20% to +3.00%", "+2.50%", "+150% &rarr;", "ridge report -m"})
        EXPECT_NE(s.find(words), std::string::npos) << words;
}

TEST(Report, WhatWasNotMeasuredIsLeftOut) {
    Page p = page();
    p.comparisons.clear(), p.sizes.clear(), p.roof = {};
    const std::string s = html(p);
    EXPECT_EQ(count(s, "<svg"), 1U);
    EXPECT_EQ(s.find("Roofline"), std::string::npos);
    EXPECT_EQ(s.find("Levers"), std::string::npos);
    p.phases.clear();
    EXPECT_EQ(count(html(p), "<svg"), 0U);
}

// Names come from files.
TEST(Report, TextIsEscapedAndNothingIsFetched) {
    Page p = page();
    p.model = "<script>alert(1)</script>", p.phases[0].classes[0].name = "\"><img src=x>";
    const std::string s = html(p);
    EXPECT_EQ(s.find("<script"), std::string::npos);
    EXPECT_EQ(s.find("<img"), std::string::npos);
    EXPECT_NE(s.find("a &lt;b&gt; &amp; &quot;c&quot;"), std::string::npos);
    EXPECT_FALSE(std::regex_search(s, std::regex("(src|href|url)\\s*[=(]\\s*[\"']?(http|//)")));
}

TEST(Report, OddNumbersLeaveItWhole) {
    Page p = page();
    p.phases.push_back({"nothing", "", 0, {}});
    p.points.push_back({"no bytes", "decode", 0, 1, 1});
    p.comparisons.push_back({"extreme", "tg1", 1e6, 1e-6, 1e9, 0.5, 0, "flat"});
    const std::string s = html(p);
    EXPECT_EQ(s.find("nan"), std::string::npos);
    EXPECT_EQ(s.find("inf"), std::string::npos);
}

}  // namespace
}  // namespace ridge::report
