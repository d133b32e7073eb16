// `ridge devices` as a user runs it: what is measured is shown, kept, and found again.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/support.h"

namespace ridge::test {
namespace {

using Json = nlohmann::json;

class DevicesMeasured : public InOwnFolder {
  protected:
    Result devices(std::vector<std::string> args) {
        args.insert(args.begin(), "devices");
        return run(args);
    }
};

TEST_F(DevicesMeasured, NothingIsClaimedThatWasNotMeasured) {
    const Result r = devices({"-t", "1"});
    ASSERT_EQ(r.code, 0) << r.err;
    EXPECT_NE(r.out.find("not measured yet; `ridge devices --measure -t 1`"), std::string::npos) << r.out;
    EXPECT_TRUE(Json::parse(devices({"--json"}).out)[0]["ceilings"].is_null());
    EXPECT_EQ(devices({"--force"}).code, 2) << "nothing to force";
}

TEST_F(DevicesMeasured, WhatIsMeasuredIsKeptUnlessTheMachineIsBusy) {
    const Result measured = devices({"-t", "1", "--measure", "--force", "--json"});
    ASSERT_EQ(measured.code, 0) << measured.err;
    const Json ceilings = Json::parse(measured.out)[0]["ceilings"];
    EXPECT_EQ(ceilings["workers"], 1);
    size_t named = 0;
    for (const Json &f : ceilings["figures"]) {
        EXPECT_GT(f["value"].get<double>(), 0);
        for (const char *name : {"read", "int8", "f32", "barrier", "submit"}) named += f["name"] == name ? 1 : 0;
    }
    EXPECT_EQ(named, 8U) << "rates with one thread and with all";
    const Json later = Json::parse(devices({"-t", "1", "--json"}).out)[0]["ceilings"];
    if (ceilings["contended"] != "") {
        EXPECT_TRUE(later.is_null());
        EXPECT_EQ(ceilings["not_kept"], "the machine was busy");
        GTEST_SKIP() << "the machine is busy: " << ceilings["contended"];
    }
    EXPECT_EQ(later["figures"], ceilings["figures"]);
    EXPECT_EQ(later["measured_at"], ceilings["measured_at"]);
    const std::string text = devices({"-t", "1"}).out;
    EXPECT_NE(text.find("ceilings, measured 20"), std::string::npos) << text;
    EXPECT_NE(text.find("GB/s"), std::string::npos) << text;
    EXPECT_NE(devices({"-t", "2"}).out.find("not measured yet"), std::string::npos) << "other threads, other figures";
}

}  // namespace
}  // namespace ridge::test
