// `--trace` as a user meets it: a file that parses, a table, the same tokens, and paths that cannot be written.
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/support.h"

namespace ridge::test {
namespace {

using Json = nlohmann::json;

struct TraceCommand : testing::Test {
    std::string path = (tiny_chat_model().parent_path() / "trace.json").string();
    void TearDown() override { std::filesystem::remove(path); }

    // Steps of each section by what they are, and its launches.
    struct Section {
        std::string name;
        std::map<std::string, size_t> steps;
        size_t launches = 0, declared = 0;  // those that are there, those that the steps say
    };
    std::map<int, Section> sections() const {
        std::ifstream in(path);
        std::map<int, Section> all;
        const Json file = Json::parse(in);
        for (const Json &e : file.at("traceEvents")) {
            Section &s = all[e.at("pid")];
            if (e.at("name") == "process_name") s.name = e.at("args").at("name");
            if (e.at("ph") != "X") continue;
            if (e.at("cat") == "step") {
                s.steps[e.at("name")]++;
                s.declared += e.at("args").at("launches").get<size_t>();
            }
            s.launches += e.at("args").contains("row") ? 1 : 0;
        }
        return all;
    }
};

TEST_F(TraceCommand, OfARun) {
    const std::vector<std::string> args{
        "run",    "-m",          tiny_chat_model().string(), "-p", "hello", "-n", "6", "-t", "2", "--temp", "0",
        "--json", "--ignore-end"};
    std::vector<std::string> traced = args;
    traced.insert(traced.end(), {"--trace", path});
    const Result plain = ridge(args), r = ridge(traced);
    ASSERT_EQ(r.code, 0) << r.err;
    EXPECT_EQ(Json::parse(r.out).at("tokens"), Json::parse(plain.out).at("tokens"));
    for (const char *words :
         {"prompt: ", "answer: 5 tokens in 5 steps", "gaps", "barriers", "contract", "GB/s", "tracing itself"})
        EXPECT_NE(r.err.find(words), std::string::npos) << words << " in\n" << r.err;
    const auto found = sections();
    ASSERT_EQ(found.size(), 1U);
    const Section &s = found.begin()->second;
    EXPECT_EQ(s.steps, (std::map<std::string, size_t>{{"prompt", 1}, {"token", 5}}));
    EXPECT_EQ(s.launches, s.declared);
    EXPECT_GT(s.launches, 6U * 10);
    EXPECT_NE(s.name.find("levers default"), std::string::npos) << s.name;

    traced.push_back("-q");
    EXPECT_EQ(ridge(traced).err, "");
}

TEST_F(TraceCommand, OfABench) {
    const Result r = ridge({"bench", "-m", tiny_chat_model().string(), "-p", "8", "-n", "3", "-r", "1", "-t", "1",
                            "--lever", "default", "--lever", "-gate_up", "--json", "--force", "--trace", path});
    ASSERT_EQ(r.code, 0) << r.err;
    EXPECT_EQ(Json::parse(r.out).at("results").size(), 4U) << "what is traced is not among what is measured";
    const auto found = sections();
    ASSERT_EQ(found.size(), 4U);
    std::set<std::string> tests;
    for (const auto &[id, s] : found) {
        tests.insert(s.name.substr(s.name.find(".gguf") + 6));
        EXPECT_EQ(s.launches, s.declared);
        const bool is_prompt = s.name.find("pp8") != std::string::npos;
        EXPECT_EQ(s.steps, is_prompt ? (std::map<std::string, size_t>{{"prompt", 1}})
                                     : (std::map<std::string, size_t>{{"token", 3}}));
    }
    EXPECT_EQ(tests, (std::set<std::string>{"pp8, levers default", "pp8, levers -gate_up", "tg3, levers default",
                                            "tg3, levers -gate_up"}));
    EXPECT_NE(r.err.find("answer: 3 tokens in 3 steps"), std::string::npos) << r.err;
}

TEST_F(TraceCommand, WhereItCannotBe) {
    const std::string model = tiny_chat_model().string();
    for (const std::vector<std::string> &args :
         {std::vector<std::string>{"run", "-m", model, "-p", "hi", "-n", "1", "--trace", "/nowhere/t.json"},
          {"bench", "-m", model, "-p", "1", "-n", "0", "--force", "--trace", "/nowhere/t.json"}}) {
        const Result r = ridge(args);
        EXPECT_EQ(r.code, 3) << r.err;
        EXPECT_EQ(r.out, "");
        EXPECT_NE(r.err.find("cannot write the trace /nowhere/t.json: No such file"), std::string::npos) << r.err;
    }
    if (std::filesystem::exists("/dev/full")) {
        const Result r = ridge({"run", "-m", model, "-p", "hi", "-n", "1", "-t", "1", "--trace", "/dev/full"});
        EXPECT_EQ(r.code, 3) << r.err;
        EXPECT_NE(r.err.find("cannot write the trace"), std::string::npos) << r.err;
    }
    EXPECT_EQ(ridge({"run", "-m", model, "--explain-plan", "--trace", path}).code, 2);
    EXPECT_EQ(ridge({"bench", "--op", "contract", "--force", "--trace", path}).code, 2);
    EXPECT_FALSE(std::filesystem::exists(path)) << "what is refused leaves nothing";
}

}  // namespace
}  // namespace ridge::test
