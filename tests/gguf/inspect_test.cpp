// ridge inspect: what it says of a file, as text and as JSON; nothing of a hostile file reaches the terminal raw.
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "support.h"

namespace ridge {
void add_inspect(CLI::App &app);
}

namespace ridge::gguf::test {
namespace {

std::string inspect(std::vector<std::string> arguments) {
    CLI::App app;
    add_inspect(app);
    std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them last first
    arguments.push_back("inspect");
    testing::internal::CaptureStdout();
    try {
        app.parse(arguments);
    } catch (...) {
        testing::internal::GetCapturedStdout();
        throw;
    }
    std::fflush(stdout);
    return testing::internal::GetCapturedStdout();
}

RawFile model() {
    RawFile f = valid_file();
    f.keys.push_back({"general.name", kString, str("Tiny"), {}});
    f.keys.push_back({"llama.embedding_length", kU32, le<uint32_t>(64), {}});
    f.keys.push_back({"llama.attention.head_count", kU32, le<uint32_t>(4), {}});
    f.keys.push_back({"llama.attention.head_count_kv", kU32, le<uint32_t>(2), {}});
    return f;
}

TEST(GgufInspect, Text) {
    const TempDir dir;
    const std::string path = dir.put("m.gguf", model().build().bytes).string();
    const std::string out = inspect({path});
    // 128 weights in 72 bytes, 24 in 96, 256 in 144; the cache: 2 layers x 2 heads x (16 + 16) x 2 bytes x 1024 tokens.
    for (const char *w :
         {"m.gguf", "version 3", "llama", "Tiny", "408 in 3 tensors", "6.118", "312 B", "256.00 KiB for keys",
          "15 metadata entries", "tokenizer.tokens (array of string) = [\"a\", \"\", \"bc\"]", "Q4_K", "46.15%",
          "some.i64 (i64) = -7"})
        EXPECT_NE(out.find(w), std::string::npos) << "no '" << w << "' in\n" << out;
    EXPECT_EQ(out.find("b.weight"), std::string::npos);
    const std::string list = inspect({path, "--tensors"});
    EXPECT_NE(list.find("b.weight"), std::string::npos) << list;
    EXPECT_NE(list.find("4 x 3 x 2 x 1"), std::string::npos) << list;
}

TEST(GgufInspect, Json) {
    const TempDir dir;
    const Built b = model().build();
    const std::string path = dir.put("m.gguf", b.bytes).string();
    const auto j = nlohmann::json::parse(inspect({path, "--json", "--tensors"}));
    EXPECT_EQ(j["architecture"], "llama");
    EXPECT_EQ(j["files"][0], path);
    EXPECT_EQ(j["parameters"], 408);
    EXPECT_EQ(j["weight_bytes"], 312);
    EXPECT_EQ(j["kv_f16_bytes_per_1024_tokens"], 2 * 2 * 32 * 2 * 1024);
    EXPECT_EQ(j["metadata"].size(), 15u);
    EXPECT_EQ(j["metadata"][2]["value"], 2);
    EXPECT_EQ(j["metadata"][5]["count"], 3);
    EXPECT_EQ(j["formats"].size(), 3u);
    EXPECT_EQ(j["formats"][0]["format"], "Q4_K");
    EXPECT_EQ(j["tensors"][1]["shape"], nlohmann::json({4, 3, 2, 1}));
    EXPECT_EQ(j["tensors"][1]["offset"], b.at("data") + 96);
    EXPECT_FALSE(nlohmann::json::parse(inspect({path, "--json"})).contains("tensors"));
}

TEST(GgufInspect, KvPerLayerAndExplicitHeadSizes) {
    const TempDir dir;
    RawFile f = model();
    f.keys.back() = {"llama.attention.head_count_kv", kArray, array(kI32, 2, le(1) + le(3)), {}};
    f.keys.push_back({"llama.attention.key_length", kU32, le<uint32_t>(8), {}});
    f.keys.push_back({"llama.attention.value_length", kU32, le<uint32_t>(4), {}});
    const auto j = nlohmann::json::parse(inspect({dir.put("m.gguf", f.build().bytes).string(), "--json"}));
    EXPECT_EQ(j["kv_f16_bytes_per_1024_tokens"], 4 * 12 * 2 * 1024);
}

TEST(GgufInspect, OddMetadataIsShownAndNothingCrashes) {
    const TempDir dir;
    const std::vector<RawKey> odd = {
        {"llama.block_count", kU64, le(~uint64_t{0}), {}},
        {"llama.block_count", kString, str("two"), {}},
        {"llama.block_count", kF64, le(0.0 / 0.0), {}},
        {"llama.block_count", kArray, array(kArray, 1, array(kU8, 0, "")), {}},
        {"llama.attention.head_count", kU32, le(0), {}},
        {"llama.attention.head_count_kv", kArray, array(kU64, 2, le(~0ull) + le(~0ull)), {}},
        {"llama.attention.head_count_kv", kArray, array(kU8, 1, "\1"), {}},
        {"llama.attention.head_count_kv", kI8, "\xff", {}},
        {"general.architecture", kU8, "\1", {}},
        {"general.architecture", kArray, array(kString, 1, str("x")), {}},
        {"general.name", kBool, "\1", {}}};
    for (const RawKey &k : odd) {
        RawFile f = model();
        for (RawKey &old : f.keys)
            if (old.key == k.key) old = k;
        const std::string path = dir.put("odd.gguf", f.build().bytes).string();
        EXPECT_NE(inspect({path, "--tensors"}).find("312 B for the weights"), std::string::npos);
        const auto j = nlohmann::json::parse(inspect({path, "--json", "--tensors"}));
        EXPECT_EQ(j["kv_f16_bytes_per_1024_tokens"].is_null(), k.key != "general.name") << k.key;
    }
    const std::string empty = dir.put("none.gguf", RawFile().build().bytes).string();
    EXPECT_NE(inspect({empty}).find("0 in 0 tensors"), std::string::npos);
    EXPECT_EQ(nlohmann::json::parse(inspect({empty, "--json"}))["bits_per_weight"], 0.0);
}

TEST(GgufInspect, NoControlCharacterPasses) {
    const TempDir dir;
    const std::string evil =
        "\x1b]0;x\a\r\n\x7f\xc2\x9b"
        "31m\xe2\x80\xae\xff";
    RawFile f = model();
    f.keys.push_back({"evil" + evil.substr(0, evil.size() - 1), kString, str(evil), {}});
    f.keys.push_back({"list", kArray, array(kString, 2, str(evil) + str(evil)), {}});
    f.keys[0].value = str(evil);
    f.tensors[0].name = evil.substr(0, evil.size() - 1);
    const std::string path = dir.put("evil.gguf", f.build().bytes).string();
    for (const std::vector<std::string> &arguments :
         std::vector<std::vector<std::string>>{{path, "--tensors"}, {path, "--tensors", "--json"}}) {
        const std::string out = inspect(arguments);
        EXPECT_NE(out.find("]0;x"), std::string::npos);
        for (char c : out) {
            const auto u = static_cast<unsigned char>(c);
            EXPECT_TRUE(u == '\n' || (u >= 0x20 && u < 0x7f)) << "byte " << unsigned{u} << " in\n" << out;
        }
    }
}

TEST(GgufInspect, SplitSetsNameEveryPart) {
    const TempDir dir;
    for (uint16_t i = 0; i < 2; i++) {
        RawFile f;
        f.keys = {{"split.no", kU16, le(i), {}},
                  {"split.count", kU16, le<uint16_t>(2), {}},
                  {"split.tensors.count", kI32, le<int32_t>(2), {}}};
        f.tensors = {{fmt::format("t{}", i), {32}, kTensorF32, 0, {}, {}}};
        f.data = std::string(128, 'x');
        dir.put(fmt::format("m-{:05}-of-00002.gguf", i + 1), f.build().bytes);
    }
    const auto j = nlohmann::json::parse(inspect({(dir / "m-00002-of-00002.gguf").string(), "--json", "--tensors"}));
    EXPECT_EQ(j["files"].size(), 2u);
    EXPECT_EQ(j["parameters"], 64);
    EXPECT_EQ(j["tensors"][1]["part"], 2);
}

TEST(GgufInspect, Errors) {
    const TempDir dir;
    expect_words(error_of([&] { inspect({(dir / "absent.gguf").string()}); }), {"absent.gguf", "No such file"});
    EXPECT_THROW(inspect({}), CLI::RequiredError);
}

}  // namespace
}  // namespace ridge::gguf::test
