// `ridge ladder` as a user runs it. The CPU's rows know none of its levers, so all rungs give the same bits there.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/support.h"
#include "measure/ladder.h"
#include "runtime/tiny_model.h"

namespace ridge::test {
namespace {

using Json = nlohmann::json;

std::vector<std::string> with(const std::vector<std::string> &more) {
    std::vector<std::string> args = {"ladder", "-m", tiny_chat_model().string(), "-t", "1", "--device", "cpu"};
    args.insert(args.end(), more.begin(), more.end());
    return args;
}

TEST(LadderCommand, EveryRungContinuesEveryPrompt) {
    const Result r = ridge(with({"-p", "ab", "-p", "b", "-n", "6", "--seed", "3,4", "--json"}));
    ASSERT_EQ(r.code, 0) << r.err;
    const Json out = Json::parse(r.out);
    ASSERT_EQ(out["results"].size(), 2 * ladder_rungs().size());
    size_t i = 0;
    for (const Rung &rung : ladder_rungs())
        for (const char *prompt : {"ab", "b"}) {
            const Json &row = out["results"][i++];
            EXPECT_EQ(row["rung"], rung.name);
            EXPECT_EQ(row["prompt"], prompt);
            EXPECT_EQ(row["kl"], 0);
            EXPECT_EQ(row["largest_difference"], 0);
            ASSERT_EQ(row["texts"].size(), 3U);
            EXPECT_EQ(row["texts"][0]["sampler"], "greedy");
            EXPECT_EQ(row["texts"][2]["sampler"], "seed 4");
            for (const Json &t : row["texts"]) {
                EXPECT_EQ(t["tokens"].size(), 6U);
                EXPECT_EQ(t["agrees"], 6);
                EXPECT_EQ(t["collapsed"], false) << "six tokens say nothing";
            }
        }
}

TEST(LadderCommand, AsATable) {
    const Result r = ridge(with({"-p", "ab", "-n", "40", "--seed", "3", "--texts"}));
    ASSERT_EQ(r.code, 0) << r.err;
    for (const Rung &rung : ladder_rungs()) EXPECT_NE(r.out.find(rung.name), std::string::npos) << rung.name;
    EXPECT_NE(r.out.find("of 2"), std::string::npos) << "collapsed texts of a rung are counted";
    EXPECT_NE(ridge(with({"-n", "0"})).code, 0);
}

}  // namespace
}  // namespace ridge::test
