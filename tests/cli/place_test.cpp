// --device, --place and --experts as a user gives them, with GPUs of the stand-in driver: what is chosen, printed,
// refused, and that the text is that of one device.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/support.h"
#include "runtime/tiny_model.h"

namespace ridge::test {
namespace {

using Args = std::vector<std::string>;
using Json = nlohmann::json;

void expect_words(const std::string &text, const std::vector<std::string> &words) {
    for (const std::string &w : words) EXPECT_NE(text.find(w), std::string::npos) << "no '" << w << "' in: " << text;
}

std::string standin(const char *name) { return std::string(RIDGE_STANDIN_DIR "/") + name + ".so"; }

// Runs a command with emulated NVIDIA GPUs: `settings` as RIDGE_STANDIN takes them.
Result with_gpus(Args args, const std::string &settings = "devices=1", const char *library = "standin_mma") {
    args.insert(args.end(), {"--driver", standin(library)});
    return ridge(args, {.env = {{"RIDGE_STANDIN", settings}}, .timeout = Seconds(300)});
}

Args answer_of(const std::string &model, Args more) {
    Args a{"run", "-m", model, "-t", "1", "-p", "ab", "--raw", "--temp", "0", "--ignore-end"};
    a.insert(a.end(), {"-n", "3", "-c", "64", "-b", "8"});
    a.insert(a.end(), more.begin(), more.end());
    return a;
}

Args answer(const std::string &like, Args more) { return answer_of(tiny_file(like).string(), std::move(more)); }

TEST(Devices, ListsEveryGpuAndSaysWhyABackendIsAbsent) {
    const Result r = with_gpus({"devices"}, "devices=2");
    ASSERT_EQ(r.code, 0) << r.err;
    expect_words(r.out, {"cpu ", "cuda:0 ", "cuda:1 ", "GiB free", "kernel rows can run here", "vulkan ", "absent: "});
    expect_words(with_gpus({"devices"}, "devices=0").out, {"cuda ", "absent: "});
    expect_words(with_gpus({"devices"}, "devices=1 driver_version=11000").out, {"cuda ", "absent: "});
    expect_words(with_gpus({"devices"}, "devices=1", "no_such_library").out, {"cuda ", "absent: ", "no_such_library"});
    // In JSON too.
    const Json j = Json::parse(with_gpus({"devices", "--json"}, "devices=2").out);
    const auto named = [&](const char *name) {
        return std::any_of(j.begin(), j.end(),
                           [&](const Json &d) { return d["name"] == name && !d.contains("absent"); });
    };
    EXPECT_TRUE(named("cpu") && named("cuda:0") && named("cuda:1"));
}

TEST(Place, WithoutFlagsTheGpuIsTakenAndPrinted) {
    const Result r = with_gpus(answer("tiny-llama", {}));
    ASSERT_EQ(r.code, 0) << r.err;
    expect_words(r.err, {"device map: cuda:0 layers 0-", " + embedding + output (", "GiB free); --place 0:"});
    // And without one the CPU, which is printed as well.
    const Result cpu = with_gpus(answer("tiny-llama", {}), "devices=0");
    ASSERT_EQ(cpu.code, 0) << cpu.err;
    expect_words(cpu.err, {"device map: cpu layers 0-", "--place cpu:"});
}

TEST(Place, APrintedMapIsTakenAgain) {
    // So little memory that a part of its eight layers must go elsewhere.
    const TempDir dir;
    const std::string deep = (dir.path / "deep.gguf").string(), small = "devices=1 memory=10000000";
    write_synthetic(deep, {.like = "tiny-qwen3moe", .quant = "Q4_K_M", .layers = 8, .seed = 7, .threads = 1});
    const Result first = with_gpus(answer_of(deep, {"--json"}), small);
    ASSERT_EQ(first.code, 0) << first.err;
    const Json a = Json::parse(first.out);
    const auto flags = a.at("placement").get<std::string>();
    expect_words(flags, {"--place ", "cpu"});
    Args more{"--json"};
    for (size_t at = 0, end; at < flags.size(); at = end + 1) {
        end = std::min(flags.find(' ', at), flags.size());
        more.push_back(flags.substr(at, end - at));
    }
    const Result again = with_gpus(answer_of(deep, more), small);
    ASSERT_EQ(again.code, 0) << again.err;
    const Json b = Json::parse(again.out);
    EXPECT_EQ(b.at("placement"), flags);
    EXPECT_EQ(b.at("tokens"), a.at("tokens"));
}

TEST(Place, LayersAndExpertsOnSeveralDevicesGiveTheSameText) {
    for (const char *like : {"tiny-llama", "tiny-qwen3moe"}) {
        const auto tokens = [&](Args more, const std::string &settings) {
            more.emplace_back("--json");
            const Result r = with_gpus(answer(like, more), settings);
            EXPECT_EQ(r.code, 0) << r.err;
            return r.code == 0 ? Json::parse(r.out).at("tokens") : Json();
        };
        const Json want = tokens({"--device", "cpu"}, "devices=2");
        EXPECT_EQ(tokens({"--device", "cuda:1"}, "devices=2"), want) << like;
        EXPECT_EQ(tokens({"--place", "0:1,1"}, "devices=2"), want) << like;
        EXPECT_EQ(tokens({"--place", "0:1,cpu"}, "devices=1"), want) << like;
        if (std::string_view(like) == "tiny-qwen3moe") {
            EXPECT_EQ(tokens({"--experts", "cpu"}, "devices=1 integrated=1"), want) << like;
        }
    }
}

TEST(Place, WhatIsWrongIsTold) {
    const auto refused = [](Args more, int code, const std::vector<std::string> &words,
                            const std::string &settings = "devices=2") {
        const Result r = with_gpus(answer("tiny-llama", std::move(more)), settings);
        EXPECT_EQ(r.code, code) << r.err;
        EXPECT_EQ(r.out, "");
        expect_words(r.err, words);
        EXPECT_EQ(r.err.find("bug"), std::string::npos) << r.err;
    };
    refused({"--device", "cuda:2"}, 4, {"cuda:2", "cuda:0 to cuda:1"});
    refused({"--device", "cuda:x"}, 2, {"'x' is no number"});
    refused({"--device", "vulkan"}, 4, {"no vulkan backend"});
    refused({"--device", "gpu"}, 2, {"no device 'gpu'", "cpu", "cuda"});
    refused({"--device", "cuda:0,hip:0"}, 2, {"one backend"});
    refused({"--place", "0:100"}, 2, {"100 layers", "the model has"});
    refused({"--place", "0:1,2"}, 4, {"cuda:2"});
    refused({"--place", "x"}, 2, {"'x' is no device", "0:20,1:20,cpu:8"});
    refused({"--place", "0:1", "--device", "cuda:1"}, 2, {"--device"});
    refused({"--experts", "cpu"}, 2, {"no experts"});
    refused({"--place", "0:1"}, 4, {"number of a GPU", "--place cpu"}, "devices=0");
    refused({"--device", "cuda"}, 4, {"NVIDIA driver sees no device"}, "devices=0");
    // Refused before anything is loaded, with what would do.
    refused({"--device", "cuda:0"}, 5, {"does not fit", "--device cuda:0,cpu would place it"},
            "devices=1 memory=1000000");
    refused({"--place", "0"}, 5, {"does not fit", "cuda:0 would take", "would fit"}, "devices=1 memory=1000000");
}

TEST(Place, EveryCommandThatRunsAModelTakesTheFlags) {
    for (const char *command : {"run", "bench", "ab", "explain", "report"}) {
        const Result r = ridge({command, "--help"});
        expect_words(r.out, {"--device NAME", "--place MAP", "--experts"});
        EXPECT_EQ(r.out.find("--driver"), std::string::npos) << command;
    }
    const std::string model = tiny_file("tiny-llama").string();
    const Result ab = with_gpus({"ab", "--aa", "-m", model, "--pp", "0", "--tg", "1", "--seconds", "0.01", "-b", "8",
                                 "--force", "--json", "--place", "0:1", "-t", "1"});
    ASSERT_EQ(ab.code, 0) << ab.err;
    expect_words(ab.err, {"device map: cuda:0 layer 0 + embedding", "cpu layer"});
    expect_words(Json::parse(ab.out).at("command").get<std::string>(), {"--place 0:1"});
}

}  // namespace
}  // namespace ridge::test
