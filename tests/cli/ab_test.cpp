// `ridge ab` and `ridge levers --catalog` as a user runs them.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "cli/support.h"
#include "engine/levers.h"
#include "runtime/tiny_model.h"

namespace ridge::test {
namespace {

using Json = nlohmann::json;

std::vector<std::string> quick(const std::vector<std::string> &more) {
    std::vector<std::string> args = {"ab", "-m", tiny_chat_model().string(), "-t", "1", "--seconds", "0.05", "--force"};
    const auto given = [&](const char *flag) { return std::find(more.begin(), more.end(), flag) != more.end(); };
    if (!given("--pp")) args.insert(args.end(), {"--pp", "8"});
    if (!given("--tg")) args.insert(args.end(), {"--tg", "2"});
    args.insert(args.end(), more.begin(), more.end());
    return args;
}

TEST(AbCommand, OneLeverAsJson) {
    const Result r = ridge(quick({"--lever", "qkv", "--lever", "-add_rmsnorm", "-d", "70", "--json"}));
    ASSERT_EQ(r.code, 0) << r.err;
    const Json out = Json::parse(r.out);
    for (const char *key : {"machine", "device", "date", "command", "model"}) EXPECT_NE(out.at(key), "") << key;
    EXPECT_EQ(out["threads"], 1);
    EXPECT_EQ(out["command"].get<std::string>().find('/'), std::string::npos) << "no folders of this machine";
    ASSERT_EQ(out["results"].size(), 2U);
    for (const Json &row : out["results"]) {
        EXPECT_EQ(row["lever"], "qkv");
        EXPECT_EQ(row["levers_off"], "-qkv,-add_rmsnorm");
        EXPECT_EQ(row["levers_on"], "-add_rmsnorm");
        EXPECT_EQ(row["n_depth"], 70);
        const Json &m = row["measured"], &n = row["noise"], &p = row["predicted"];
        EXPECT_GE(m["rounds"].get<int>(), 6);
        EXPECT_LE(m["low"].get<double>(), m["speedup"].get<double>());
        EXPECT_GE(m["high"].get<double>(), m["speedup"].get<double>());
        EXPECT_NEAR(m["speedup"].get<double>() * m["time_ratio"].get<double>(), 1, 1e-9);
        EXPECT_EQ(n["rounds"], m["rounds"]);
        EXPECT_GT(row["noise_floor"].get<double>(), 0);
        EXPECT_TRUE(row["verdict"] == "helps" || row["verdict"] == "flat" || row["verdict"] == "hurts");
        EXPECT_TRUE(p["known"].get<bool>()) << p["why_not"];
        EXPECT_GT(p["f"].get<double>(), 0);
        EXPECT_LT(p["f"].get<double>(), 1);
        EXPECT_GT(p["k"].get<double>(), 0.1);
        EXPECT_EQ(p["launches_off"].get<int>(), 3 * p["launches_on"].get<int>());
        EXPECT_EQ(row["logits"]["same_bits"], row["logits"]["positions"]);
        EXPECT_GT(row["tokens_per_second_on"].get<double>(), 1);
    }
    EXPECT_EQ(out["results"][0]["test"], "pp8 @ d70");
    EXPECT_EQ(out["results"][0]["phase"], "prefill");
    EXPECT_EQ(out["results"][1]["test"], "tg2 @ d70");
    EXPECT_EQ(out["results"][1]["phase"], "decode at depth");
}

// All of them, into a file, and from there into the catalog.
TEST(AbCommand, AllLeversBecomeACatalog) {
    const TempDir dir;
    const std::string file = (dir.path / "all.json").string();
    const Result r = ridge(quick({"--all", "--pp", "0", "-o", file, "--csv"}));
    ASSERT_EQ(r.code, 0) << r.err;
    std::ifstream in(file);
    Json out = Json::parse(in);
    std::set<std::string> seen;
    for (const Json &row : out["results"]) seen.insert(row["lever"].get<std::string>());
    EXPECT_TRUE(seen.contains("int8_dot") && seen.contains("qkv") && seen.contains("gate_up"));
    for (const Json &row : out["not_applicable"]) {
        EXPECT_NE(row["why"], "");
        EXPECT_TRUE(seen.insert(row["lever"].get<std::string>()).second);
    }
    EXPECT_EQ(seen.size(), all_levers().size());
    EXPECT_TRUE(std::any_of(out["not_applicable"].begin(), out["not_applicable"].end(),
                            [](const Json &j) { return j["lever"] == "moe_route"; }));

    std::istringstream lines(r.out);
    std::string line;
    std::getline(lines, line);
    EXPECT_EQ(line.substr(0, 12), "model,lever,");
    const auto commas = std::count(line.begin(), line.end(), ',');
    EXPECT_GT(commas, 20);
    size_t rows = 0;
    while (std::getline(lines, line)) rows++;
    EXPECT_EQ(rows, out["results"].size());

    // Results of a busy machine are none; these are taken for quiet ones.
    out["contended"] = "";
    for (Json &row : out["results"]) row["contended"] = "";
    out["results"][0]["verdict"] = "helps";
    const std::string helped = out["results"][0]["lever"];
    std::ofstream(file) << out;
    const Result shown = ridge({"levers", "--catalog", "--json", "--results", file});
    ASSERT_EQ(shown.code, 0) << shown.err;
    const Json catalog = Json::parse(shown.out);
    bool found = false;
    for (const Json &l : catalog["kept"])
        for (const Json &row : l["results"])
            if (l["name"] == helped && row["command"] == out["command"])
                found = row["this_machine"].get<bool>() && row["verdict"] == "helps";
    EXPECT_TRUE(found) << shown.out;
    const Result text = ridge({"levers", "--catalog", "--results", file});
    ASSERT_EQ(text.code, 0) << text.err;
    EXPECT_NE(text.out.find("== Kept levers"), std::string::npos);
    EXPECT_NE(text.out.find("== Dead ends"), std::string::npos);
}

TEST(AbCommand, TheSameAgainstItselfInWords) {
    const Result r = ridge(quick({"--aa", "--pp", "0"}));
    ASSERT_EQ(r.code, 0) << r.err;
    for (const char *word : {"A/A", "measured", "noise", "verdict", "the same bits"})
        EXPECT_NE(r.out.find(word), std::string::npos) << word << "\n" << r.out;
    EXPECT_EQ(r.out.find("predicted"), std::string::npos) << r.out;
}

TEST(AbCommand, ThePredictionComesFirst) {
    const Result r = ridge(quick({"--lever", "int8_dot", "--tg", "0"}));
    ASSERT_EQ(r.code, 0) << r.err;
    const size_t predicted = r.out.find("predicted"), measured = r.out.find("measured");
    ASSERT_NE(predicted, std::string::npos) << r.out;
    ASSERT_NE(measured, std::string::npos) << r.out;
    EXPECT_LT(predicted, measured);
    EXPECT_NE(r.out.find("KL"), std::string::npos) << "another arithmetic: " << r.out;
}

TEST(AbCommand, WhatIsAskedForMustBeThere) {
    const auto usage = [](const std::vector<std::string> &args, const std::string &says) {
        const Result r = ridge(args);
        EXPECT_EQ(r.code, 2) << r.err;
        EXPECT_NE(r.err.find(says), std::string::npos) << r.err;
    };
    usage(quick({}), "--lever NAME");
    usage(quick({"--lever", "-qkv"}), "what is to be compared?");
    usage(quick({"--lever", "qkv", "--all"}), "what is to be compared?");
    usage(quick({"--lever", "no_such"}), "no lever is called 'no_such'");
    usage(quick({"--lever", "qkv", "--pp", "0", "--tg", "0"}), "--pp and --tg are 0");
    usage({"levers", "--results", "x.json"}, "--catalog");
    EXPECT_EQ(ridge({"levers", "--catalog", "--results", "/nowhere.json"}).code, 3);
}

}  // namespace
}  // namespace ridge::test
