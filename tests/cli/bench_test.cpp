// `ridge bench` as a user runs it.
#include <gtest/gtest.h>

#include <atomic>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>
#include <vector>

#include "cli/support.h"

namespace ridge::test {
namespace {

using Json = nlohmann::json;

std::vector<std::string> quick_kernel() {
    return {"bench", "--op", "contract", "--format", "Q4_K,Q8_0", "--m",  "1,2", "--n", "64",
            "--k",   "256",  "--rotate", "1",        "--seconds", "0.01", "-t",  "1",   "--force"};
}

std::vector<std::string> with(std::vector<std::string> args, const std::vector<std::string> &more) {
    args.insert(args.end(), more.begin(), more.end());
    return args;
}

TEST(BenchCommand, KernelsAsJson) {
    const Result r = ridge(with(quick_kernel(), {"--json"}));
    ASSERT_EQ(r.code, 0) << r.err;
    const Json out = Json::parse(r.out);
    EXPECT_GT(out["ceilings"]["int8_multiply_adds_per_second"]["one"].get<double>(), 1e8);
    EXPECT_GT(out["ceilings"]["read_bytes_per_second"]["all"].get<double>(), 1e8);
    EXPECT_EQ(out["clock"], "processor time of the thread");
    size_t planned = 0;
    for (const Json &row : out["rows"]) {
        planned += row["planned"].get<bool>() ? 1 : 0;
        EXPECT_GT(row["seconds"].get<double>(), 0);
        EXPECT_LE(row["seconds_least"].get<double>(), row["seconds"].get<double>());
        EXPECT_EQ(row["multiply_adds"].get<double>(), 64.0 * 256 * row["m"].get<int>());
        EXPECT_EQ(row["bytes"].get<double>(), row["operand"] == "Q4_K" ? 64 * 144 : 64 * 272);
        EXPECT_EQ(row["samples"].size(), row["rounds"].get<size_t>());
    }
    EXPECT_EQ(planned, 4U) << "one for each format and number of tokens";
}

TEST(BenchCommand, KernelsAsTableAndCsv) {
    const Result table = ridge(quick_kernel());
    ASSERT_EQ(table.code, 0) << table.err;
    EXPECT_NE(table.out.find("ceilings ("), std::string::npos) << table.out;
    EXPECT_NE(table.out.find("| cpu.contract."), std::string::npos) << table.out;
    const Result csv = ridge(with(quick_kernel(), {"--csv", "--row", "portable"}));
    ASSERT_EQ(csv.code, 0) << csv.err;
    std::istringstream lines(csv.out);
    std::string line;
    std::getline(lines, line);
    EXPECT_EQ(line.substr(0, 12), "row,operand,");
    size_t rows = 0;
    for (; std::getline(lines, line); rows++) EXPECT_EQ(line.substr(0, 14), "\"cpu.contract.") << line;
    EXPECT_EQ(rows, 4U);
}

// Every line can be understood alone, and has what the whole has.
TEST(BenchCommand, LinesOfJson) {
    const Result r = ridge(with(quick_kernel(), {"--jsonl", "--row", "portable"}));
    ASSERT_EQ(r.code, 0) << r.err;
    std::istringstream lines(r.out);
    size_t rows = 0;
    for (std::string line; std::getline(lines, line); rows++) {
        const Json row = Json::parse(line);
        EXPECT_EQ(row["row"].get<std::string>().substr(0, 13), "cpu.contract.");
        EXPECT_GT(row["seconds"].get<double>(), 0);
        EXPECT_GT(row["ceilings"]["read_bytes_per_second"]["all"].get<double>(), 1e8);
        EXPECT_TRUE(row["clock_hz"].is_number());
        EXPECT_FALSE(row["device"].get<std::string>().empty());
    }
    EXPECT_EQ(rows, 4U);
    const Result model = ridge(
        {"bench", "-m", tiny_chat_model().string(), "-p", "8", "-n", "2", "-r", "1", "-t", "1", "--jsonl", "--force"});
    ASSERT_EQ(model.code, 0) << model.err;
    std::istringstream results(model.out);
    std::vector<std::string> tests;
    for (std::string line; std::getline(results, line);) tests.push_back(Json::parse(line)["test"]);
    EXPECT_EQ(tests, (std::vector<std::string>{"pp8", "tg2"}));
    EXPECT_EQ(ridge(with(quick_kernel(), {"--jsonl", "--csv"})).code, 2);
}

TEST(BenchCommand, ModelsAsLlamaBenchNamesThem) {
    const Result r = ridge({"bench", "-m", tiny_chat_model().string(), "-p", "8", "-n", "2", "-d", "0,70", "-r", "2",
                            "-t", "1", "--lever", "default", "--lever", "-gate_up", "--json", "--force"});
    ASSERT_EQ(r.code, 0) << r.err;
    const Json out = Json::parse(r.out);
    ASSERT_EQ(out["results"].size(), 8U);
    const Json &first = out["results"][0], &last = out["results"][7];
    EXPECT_EQ(first["test"], "pp8");
    EXPECT_EQ(first["levers"], "default");
    EXPECT_EQ(first["n_prompt"], 8);
    EXPECT_EQ(first["n_gen"], 0);
    EXPECT_EQ(first["samples_ts"].size(), 2U);
    EXPECT_EQ(last["test"], "tg2 @ d70");
    EXPECT_EQ(last["levers"], "-gate_up");
    EXPECT_EQ(last["n_depth"], 70);
    EXPECT_GT(last["bytes_per_token"].get<double>(), first["bytes_per_token"].get<double>());
    EXPECT_EQ(first["model_size"], last["model_size"]);
}

TEST(BenchCommand, WhatIsAskedForMustBeThere) {
    const auto usage = [](const std::vector<std::string> &args, const std::string &says) {
        const Result r = ridge(args);
        EXPECT_EQ(r.code, 2) << r.err;
        EXPECT_NE(r.err.find(says), std::string::npos) << r.err;
    };
    usage({"bench"}, "--op OP");
    usage({"bench", "--op", "contract", "-m", "x.gguf"}, "either");
    usage({"bench", "--op", "contract", "--format", "Q9", "--force"}, "Q4_K");
    usage({"bench", "--op", "softmax", "--force"}, "attention");
    EXPECT_EQ(ridge({"bench", "-m", "/nowhere.gguf", "--force"}).code, 3);
}

// Another process keeps every processor busy: bench refuses, or marks each row.
TEST(BenchCommand, ABusyMachineIsRefusedOrMarked) {
    std::atomic<bool> stop{false};
    std::vector<std::thread> others;
    for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); i++)
        others.emplace_back([&] {
            while (!stop.load(std::memory_order_relaxed)) {
            }
        });
    const std::vector<std::string> args = {"bench", "--op",      "contract", "--format", "Q8_0", "--m",
                                           "1",     "--n",       "64",       "--k",      "256",  "--rotate",
                                           "1",     "--seconds", "0.01",     "-t",       "1"};
    const Result refused = ridge(args);
    const Result marked = ridge(with(args, {"--force", "--json"}));
    stop = true;
    for (std::thread &t : others) t.join();
    EXPECT_EQ(refused.code, 5) << refused.out;
    EXPECT_NE(refused.err.find("the machine is not quiet: other processes used"), std::string::npos) << refused.err;
    EXPECT_EQ(refused.err.find("\n"), refused.err.size() - 1) << "one sentence: " << refused.err;
    ASSERT_EQ(marked.code, 0) << marked.err;
    const Json out = Json::parse(marked.out);
    ASSERT_FALSE(out["rows"].empty());
    for (const Json &row : out["rows"]) EXPECT_NE(row["contended"], "");
}

}  // namespace
}  // namespace ridge::test
