// ridge tokenize, run in this process on a vocabulary written to a file.
#include <gtest/gtest.h>
#include <unistd.h>

#include <CLI/CLI.hpp>

#include "core/error.h"
#include "gguf/gguf.h"
#include "text/reference.h"

namespace ridge {
void add_tokenize(CLI::App &app);

namespace text {
namespace {

class TokenizeCommand : public ::testing::Test {
  protected:
    std::filesystem::path path_ =
        std::filesystem::temp_directory_path() / ("ridge_tokenize_" + std::to_string(getpid()) + ".gguf");

    TokenizeCommand() {
        const Vocabulary v = testing::small_vocabulary();
        std::vector<int32_t> types;
        for (const TokenType type : v.types) types.push_back(static_cast<int32_t>(type));
        gguf::Writer writer;
        writer.add_string("tokenizer.ggml.model", v.model);
        writer.add_string("tokenizer.ggml.pre", v.pre);
        writer.add_strings("tokenizer.ggml.tokens", v.tokens);
        writer.add_i32s("tokenizer.ggml.token_type", types);
        writer.add_strings("tokenizer.ggml.merges", v.merges);
        writer.write(path_, [](size_t, uint64_t, std::span<std::byte>) {});
    }
    ~TokenizeCommand() override { std::filesystem::remove(path_); }

    // What it prints to standard output.
    std::string run(std::vector<std::string> arguments) {
        CLI::App app;
        add_tokenize(app);
        arguments.insert(arguments.begin(), {"tokenize", "-m", path_.string()});
        std::reverse(arguments.begin(), arguments.end());  // as CLI11 takes a vector
        ::testing::internal::CaptureStdout();
        try {
            app.parse(arguments);
        } catch (...) {
            ::testing::internal::GetCapturedStdout();
            throw;
        }
        return ::testing::internal::GetCapturedStdout();
    }
};

TEST_F(TokenizeCommand, ShowsTokens) {
    const std::string shown = run({"a\n<|im_end|>"});
    EXPECT_NE(shown.find("'a'\n"), std::string::npos) << shown;
    EXPECT_NE(shown.find("'\\n'\n"), std::string::npos) << shown;
    EXPECT_EQ(shown.find("'<|im_end|>'"), std::string::npos) << shown;
    EXPECT_TRUE(run({"--special", "a\n<|im_end|>"}).ends_with("    698 '<|im_end|>'\n3 tokens\n"));
}

TEST_F(TokenizeCommand, IdsGoThereAndBack) {
    const std::string text = "Grüße, 👩🏿‍🚀! 12";
    std::vector<std::string> back{"--decode"};
    std::istringstream ids(run({"--ids", text}));
    for (std::string id; ids >> id;) back.push_back(id);
    EXPECT_GT(back.size(), 5u);
    EXPECT_EQ(run(back), text + "\n");
    EXPECT_EQ(run({"--decode", "698"}), "\n");
    EXPECT_EQ(run({"--special", "--decode", "698"}), "<|im_end|>\n");
}

TEST_F(TokenizeCommand, PrintsJson) {
    const auto json = nlohmann::json::parse(run({"--json", "--special", "👩<|im_end|>"}));
    EXPECT_EQ(json.at("count"), json.at("tokens").size());
    EXPECT_EQ(json.at("bytes_without_token"), 0);
    EXPECT_EQ(json.at("tokens").back().at("id"), 698);
    EXPECT_EQ(json.at("tokens").back().at("piece"), "<|im_end|>");
}

TEST_F(TokenizeCommand, RefusesWhatMakesNoSense) {
    EXPECT_THROW(run({}), Error);
    EXPECT_THROW(run({"text", "--decode", "1"}), Error);
    EXPECT_THROW(run({"--decode", "700"}), Error);
    EXPECT_THROW(run({"--decode", "x"}), CLI::ParseError);
    EXPECT_THROW(run({"--pre", "default", "text"}), Error);
    EXPECT_EQ(run({"--pre", "gpt-2", "--ids", "a"}), run({"--ids", "a"}));
}

}  // namespace
}  // namespace text
}  // namespace ridge
