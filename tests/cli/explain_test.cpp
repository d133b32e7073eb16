// `ridge explain` as a user runs it.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/support.h"

namespace ridge::test {
namespace {

using Json = nlohmann::json;

class Explain : public InOwnFolder {
  protected:
    Result explain(std::vector<std::string> args) {
        args.insert(args.begin(), {"explain", "-m", tiny_chat_model().string(), "-t", "1", "--force"});
        return run(args);
    }
};

TEST_F(Explain, FiguresAddUp) {
    const Result r = explain({"-p", "16", "-n", "4", "-d", "70", "--json"});
    ASSERT_EQ(r.code, 0) << r.err;
    const Json out = Json::parse(r.out);
    ASSERT_EQ(out["phases"].size(), 3U);
    EXPECT_EQ(out["phases"][0]["phase"], "prefill pp16");
    EXPECT_EQ(out["phases"][1]["phase"], "decode tg4");
    EXPECT_EQ(out["phases"][2]["phase"], "decode tg4 @ d70");
    for (const Json &p : out["phases"]) {
        SCOPED_TRACE(p["phase"]);
        double time = 0, f = 0, launches = 0;
        for (const Json &share : p["time"]) time += share.get<double>();
        EXPECT_NEAR(time, 1, 1e-6);
        for (const Json &c : p["classes"]) {
            f += c["f"].get<double>(), launches += c["launches"].get<double>();
            EXPECT_LE(c["share_of_bound"].get<double>(), 1);
            EXPECT_NEAR(c["most_if_gone"].get<double>() * (1 - c["f"].get<double>()), 1, 1e-6);
            EXPECT_LE(c["most_at_ceiling"].get<double>(), c["most_if_gone"].get<double>() + 1e-9);
            EXPECT_GT(c["bytes"].get<double>(), 0) << c["class"];
            EXPECT_NE(c["rows"], "");
        }
        EXPECT_NEAR(f + p["outside_launches"].get<double>(), 1, 1e-6);
        EXPECT_DOUBLE_EQ(launches, p["launches"].get<double>());
        EXPECT_GT(p["median_ts"].get<double>(), 1);
    }
    // Attention reads more of the state at a depth.
    const auto state = [&](size_t phase) {
        for (const Json &c : out["phases"][phase]["classes"])
            if (c["class"] == "attention") return c["bytes_from_memory"].get<double>();
        return 0.0;
    };
    EXPECT_GT(state(2), 10 * state(1));
    EXPECT_GT(state(1), 0);
}

TEST_F(Explain, WordsFitTheTerminal) {
    const Result r = explain({"-p", "16", "-n", "4", "-d", "0"});
    ASSERT_EQ(r.code, 0) << r.err;
    std::istringstream lines(r.out);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100U) << line;
    for (const char *part : {"prefill pp16: ", "decode tg4: ", "-bound: ", "  time: ", "  memory: ", "  host: ",
                             "contract ", "(outside launches)", "  not worth it: "})
        EXPECT_NE(r.out.find(part), std::string::npos) << part << "\n" << r.out;
    EXPECT_EQ(r.out.find(" @ d"), std::string::npos) << r.out;
}

TEST_F(Explain, WhatCannotBeIsAnError) {
    EXPECT_EQ(explain({"-p", "0", "-n", "0"}).code, 2);
    EXPECT_EQ(explain({"-d", "100000000"}).code, 2);
    EXPECT_EQ(explain({"--lever", "-nothing"}).code, 2);
    EXPECT_EQ(ridge({"explain"}).code, 2);
    EXPECT_EQ(ridge({"explain", "-m", "/nowhere.gguf", "--force"}).code, 3);
}

}  // namespace
}  // namespace ridge::test
