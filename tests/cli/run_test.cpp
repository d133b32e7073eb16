// The command line without a terminal: help, exit codes, prompts from everywhere, JSON, signals, a full disk.
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/support.h"
#include "support/real_models.h"

namespace ridge::test {
namespace {

void expect_words(const std::string &text, const std::vector<std::string> &words) {
    for (const std::string &w : words) EXPECT_NE(text.find(w), std::string::npos) << "no '" << w << "' in: " << text;
}

using Args = std::vector<std::string>;

// A model with random weights that knows a chat format: enough for everything but sense.
Args run_tiny(Args more) {
    Args a{"run", "-m", tiny_chat_model().string(), "-t", "1"};
    a.insert(a.end(), more.begin(), more.end());
    return a;
}

TEST(Help, SaysWhatThereIs) {
    const Result r = ridge({"--help"});
    EXPECT_EQ(r.code, 0);
    expect_words(r.out,
                 {"run", "inspect", "template", "tokenize", "levers", "devices", "gate", "synth", "Exit codes", "130"});
    EXPECT_EQ(r.err, "");
    for (const char *command : {"run", "inspect", "template", "tokenize", "levers", "devices", "gate", "synth"}) {
        const Result h = ridge({command, "--help"});
        EXPECT_EQ(h.code, 0) << command;
        EXPECT_GT(h.out.size(), 100U) << command;
    }
    expect_words(ridge({"run", "--help"}).out, {"--model", "--prompt", "--tokens", "--temp", "--top-k", "--seed",
                                                "--lever", "--context", "--threads", "--json", "--explain-plan"});
}

TEST(Help, Version) {
    const Result r = ridge({"--version"});
    EXPECT_EQ(r.code, 0);
    EXPECT_EQ(r.out.rfind("ridge ", 0), 0U) << r.out;
    EXPECT_NE(r.out.find('.'), std::string::npos);
}

// Stand for the model and its folder, which are there only once a test runs.
constexpr const char *kTiny = "<tiny>", *kFolder = "<folder>";

struct Refusal {
    const char *name;
    Args args;
    int code;
    std::vector<std::string> words;  // of the message
};

class Refusals : public testing::TestWithParam<Refusal> {};

TEST_P(Refusals, AreToldWithTheirCode) {
    Args args = GetParam().args;
    for (std::string &a : args) {
        if (a == kTiny) a = tiny_chat_model().string();
        if (a == kFolder) a = tiny_chat_model().parent_path().string();
    }
    const Result r = ridge(args);
    EXPECT_EQ(r.code, GetParam().code) << r.err;
    EXPECT_EQ(r.out, "");
    expect_words(r.err, GetParam().words);
    EXPECT_EQ(r.err.find("bug"), std::string::npos) << r.err;
}

std::vector<Refusal> refusals() {
    const auto tiny_with = [](Args more) {
        Args a{"run", "-m", kTiny, "-p", "hi"};
        a.insert(a.end(), more.begin(), more.end());
        return a;
    };
    return {
        {"NoCommand", {}, 2, {"subcommand"}},
        {"UnknownCommand", {"fly"}, 2, {"--help"}},
        {"UnknownFlag", {"run", "--warp"}, 2, {}},
        {"UnknownFlagWithModel", tiny_with({"--warp"}), 2, {"--warp"}},
        {"NoModel", {"run", "-p", "hi"}, 2, {"--model"}},
        {"MissingFile", {"run", "-m", "/no/such.gguf", "-p", "hi"}, 3, {"/no/such.gguf"}},
        {"Folder", {"run", "-m", kFolder, "-p", "hi"}, 3, {"ridge-test-"}},
        {"TextFile", {"run", "-m", RIDGE_SOURCE_DIR "/README.md", "-p", "hi"}, 3, {"README.md", "GGUF"}},
        {"Device", {"run", "-m", "/dev/null", "-p", "hi"}, 3, {"/dev/null"}},
        {"UnknownLever", tiny_with({"--lever", "-warp"}), 2, {"--lever", "'warp'", "gate_up", "int8_dot"}},
        {"PromptTwice", tiny_with({"--file", "x"}), 2, {"--file"}},
        {"PromptFileMissing", {"run", "-m", kTiny, "--file", "/no/such.txt"}, 3, {"/no/such.txt"}},
        {"Temperature", tiny_with({"--temp", "-1"}), 2, {"temperature", "-1", "between 0 and 100"}},
        {"TemperatureNan", tiny_with({"--temp", "nan"}), 2, {"temperature"}},
        {"TemperatureText", tiny_with({"--temp", "warm"}), 2, {"--temp"}},
        {"TopP", tiny_with({"--top-p", "0"}), 2, {"top-p"}},
        {"TopK", tiny_with({"--top-k", "-3"}), 2, {"--top-k"}},
        {"Seed", tiny_with({"--seed", "x"}), 2, {"--seed"}},
        {"LogitBias", tiny_with({"--logit-bias", "17"}), 2, {"--logit-bias 17", "ID=BIAS"}},
        {"LogitBiasNan", tiny_with({"--logit-bias", "17=nan"}), 2, {"logit bias of token 17"}},
        {"LogitBiasOutside", tiny_with({"--logit-bias", "300=1"}), 2, {"300"}},
        {"NoThreads", tiny_with({"-t", "0"}), 2, {"--threads"}},
        {"TooManyThreads", tiny_with({"-t", "100000"}), 2, {"100000"}},
        {"NoContext", tiny_with({"-c", "0"}), 2, {"--context"}},
        {"ContextBeyondTheModel", tiny_with({"-c", "1025"}), 2, {"1025", "1024"}},
        {"NoBatch", tiny_with({"-b", "0"}), 2, {"--batch"}},
        {"NoTokens", tiny_with({"-n", "0"}), 2, {"--tokens"}},
        {"KvType", tiny_with({"--kv", "q8"}), 2, {"--kv"}},
        {"KvOfOddHeads",
         {"run", "-m", RIDGE_TEST_DATA "/arch/llama.gguf", "-p", "hi", "--kv", "q8_0"},
         2,
         {"q8_0", "heads of 16", "use --kv f16"}},
        {"RawWithSystem", tiny_with({"--raw", "--system", "x"}), 2, {"--system"}},
        {"SpecialWithoutRaw", tiny_with({"--special"}), 2, {"--raw"}},
        {"EmptyStop", tiny_with({"--stop", ""}), 2, {"stop"}},
        {"PreTokenizer", tiny_with({"--pre", "nonsense"}), 4, {"nonsense"}},
        {"TokenizerFamily", tiny_with({"--tokenizer", "nonsense"}), 4, {"'nonsense'", "--tokenizer FAMILY"}},
        {"TokenizerFamilyOfTokenize",
         {"tokenize", "-m", kTiny, "x", "--tokenizer", "nonsense"},
         4,
         {"'nonsense'", "--tokenizer FAMILY"}},
        {"EmptyRawPrompt", {"run", "-m", kTiny, "--raw", "-p", ""}, 2, {"prompt is empty"}},
        {"InspectNothing", {"inspect"}, 2, {}},
        {"InspectMissing", {"inspect", "/no/such.gguf"}, 3, {"/no/such.gguf"}},
        {"LeversUnknown", {"levers", "--lever", "warp"}, 2, {"'warp'"}},
    };
}

INSTANTIATE_TEST_SUITE_P(Each, Refusals, testing::ValuesIn(refusals()),
                         [](const auto &tested) { return tested.param.name; });

TEST(Levers, AreListedWithWhatTheEnvironmentAndTheFlagsSay) {
    const Result r =
        ridge({"levers", "--json", "--lever", "+gate_up,-avx2"}, {.env = {{"RIDGE_LEVERS", "-gate_up,-qkv"}}});
    ASSERT_EQ(r.code, 0) << r.err;
    std::map<std::string, bool> on;
    for (const auto &l : nlohmann::json::parse(r.out)) on[l.at("name")] = l.at("on");
    EXPECT_TRUE(on.at("gate_up"));
    EXPECT_FALSE(on.at("qkv"));
    EXPECT_FALSE(on.at("avx2"));
    const Result bad = ridge({"levers"}, {.env = {{"RIDGE_LEVERS", "-warp"}}});
    EXPECT_EQ(bad.code, 2);
    expect_words(bad.err, {"RIDGE_LEVERS", "'warp'"});
    expect_words(ridge({"levers"}).out, {"gate_up", "int8_dot", "surfaces in"});
}

TEST(Devices, AreListed) {
    const Result r = ridge({"devices"});
    EXPECT_EQ(r.code, 0) << r.err;
    expect_words(r.out, {"cpu"});
}

TEST(Run, JsonHasTheFigures) {
    const Result r =
        ridge(run_tiny({"-p", "hello", "-n", "12", "--temp", "0", "--ignore-end", "--json", "--lever", "-gate_up"}));
    ASSERT_EQ(r.code, 0) << r.err;
    EXPECT_EQ(r.err, "");
    const nlohmann::json j = nlohmann::json::parse(r.out);
    EXPECT_EQ(j.at("tokens").size(), 12U);
    EXPECT_EQ(j.at("finish"), "length");
    EXPECT_TRUE(j.at("text").is_string());
    EXPECT_GT(j.at("prompt_tokens"), 5);
    EXPECT_EQ(j.at("bytes_without_token"), 0);
    EXPECT_GT(j.at("prompt_seconds"), 0);
    EXPECT_GT(j.at("prompt_tokens_per_second"), 0);
    EXPECT_GT(j.at("answer_seconds"), 0);
    EXPECT_GT(j.at("answer_tokens_per_second"), 0);
    EXPECT_GE(j.at("load_seconds"), 0);
    EXPECT_EQ(j.at("context"), 1024);
    EXPECT_EQ(j.at("levers"), "-gate_up");
    EXPECT_TRUE(j.at("seed").is_number_unsigned());
    EXPECT_TRUE(j.at("device").is_string());
    EXPECT_EQ(j.at("model"), tiny_chat_model().string());
}

std::vector<int> tokens_of(const Result &r) {
    EXPECT_EQ(r.code, 0) << r.err;
    if (r.code != 0) return {};
    return nlohmann::json::parse(r.out).at("tokens").get<std::vector<int>>();
}

TEST(Run, ThePromptComesFromAFlagAFileOrAPipe) {
    const Args rest{"-n", "10", "--temp", "3", "--top-k", "0", "--min-p", "0", "--seed", "3", "--ignore-end", "--json"};
    const auto with = [&](Args a) {
        a.insert(a.end(), rest.begin(), rest.end());
        return run_tiny(a);
    };
    const std::string prompt = "two lines\nof a prompt";
    const std::vector<int> expected = tokens_of(ridge(with({"-p", prompt})));
    EXPECT_EQ(tokens_of(ridge(with({}), {.input = prompt})), expected);
    EXPECT_EQ(tokens_of(ridge(with({"-p", "-"}), {.input = prompt})), expected);
    const std::filesystem::path file = tiny_chat_model().parent_path() / "prompt.txt";
    std::ofstream(file) << prompt;
    EXPECT_EQ(tokens_of(ridge(with({"--file", file.string()}))), expected);
    // A flag wins over a pipe, and other words answer differently.
    EXPECT_EQ(tokens_of(ridge(with({"-p", prompt}), {.input = "something else"})), expected);
    EXPECT_NE(tokens_of(ridge(with({"-p", "one line"}))), expected);
    // Words that look like flags are words.
    EXPECT_FALSE(tokens_of(ridge(with({"-p", "--help"}))).empty());
}

TEST(Run, AnEmptyPromptIsAskedWhereItIsMeant) {
    EXPECT_EQ(tokens_of(ridge(run_tiny({"-p", "", "-n", "4", "--ignore-end", "--temp", "0", "--json"}))).size(), 4U);
    const Result pipe = ridge(run_tiny({"-n", "4"}));  // nobody meant anything: a cron job, a script
    EXPECT_EQ(pipe.code, 2);
    expect_words(pipe.err, {"the standard input is empty", "-p"});
}

TEST(Run, AFolderIsNoPrompt) {
    const Result r = ridge(run_tiny({"--file", tiny_chat_model().parent_path().string()}));
    EXPECT_EQ(r.code, 3);
    expect_words(r.err, {"cannot read ", "ridge-test-", "directory"});
}

TEST(Run, ALostNoteIsNoError) {
    const Result r = ridge(run_tiny({"-p", "x", "-n", "3"}), {.stderr_path = "/dev/full"});
    EXPECT_EQ(r.code, 0);
}

TEST(Run, APipeThatIsNoTextIsStillAPrompt) {
    std::string bytes;
    for (int i = 0; i < 256; i++) bytes += static_cast<char>(i);
    EXPECT_EQ(ridge(run_tiny({"-n", "4"}), {.input = bytes}).code, 0);
}

TEST(Run, SeedsRepeatAndAreRandomOtherwise) {
    const auto with = [&](Args a) {
        a.insert(a.end(), {"-p", "hello", "-n", "24", "--temp", "5", "--top-k", "0", "--top-p", "1", "--min-p", "0",
                           "--ignore-end", "--json"});
        return ridge(run_tiny(a));
    };
    const std::vector<int> seven = tokens_of(with({"--seed", "7"}));
    EXPECT_EQ(tokens_of(with({"--seed", "7"})), seven);
    EXPECT_EQ(tokens_of(with({"--seed", "7", "-b", "1"})), seven);
    EXPECT_NE(tokens_of(with({"--seed", "8"})), seven);
    EXPECT_NE(tokens_of(with({})), tokens_of(with({})));
    // The seed that was drawn is told, and repeats the answer.
    const Result drawn = with({});
    const nlohmann::json j = nlohmann::json::parse(drawn.out);
    EXPECT_EQ(tokens_of(with({"--seed", std::to_string(j.at("seed").get<uint64_t>())})), tokens_of(drawn));
}

TEST(Run, KeysAndValuesOfEachType) {
    const auto with = [](const char *type, const char *batch) {
        return ridge(run_tiny({"-p", "hello", "-n", "24", "--seed", "7", "--temp", "5", "--top-k", "0", "--min-p", "0",
                               "--ignore-end", "--json", "--kv", type, "-b", batch}));
    };
    for (const char *type : {"f16", "f32", "q8_0"}) {
        const std::vector<int> tokens = tokens_of(with(type, "512"));
        EXPECT_EQ(tokens.size(), 24U) << type;
        EXPECT_EQ(tokens_of(with(type, "1")), tokens) << type;
    }
}

TEST(Run, FiguresGoToStderrAndQuietLeavesThemOut) {
    const Result loud = ridge(run_tiny({"-p", "x", "-n", "6", "--temp", "0", "--ignore-end"}));
    expect_words(loud.err, {"prompt", "answer 6 tokens", "ended by -n", "levers default"});
    const Result quiet = ridge(run_tiny({"-p", "x", "-n", "6", "--temp", "0", "--ignore-end", "-q"}));
    EXPECT_EQ(quiet.err, "");
    EXPECT_EQ(quiet.out, loud.out);
    EXPECT_TRUE(loud.out.ends_with('\n'));
}

TEST(Run, APromptLongerThanTheContextIsALimit) {
    std::string text;
    for (int i = 0; i < 300; i++) text += "word ";
    const Result r = ridge(run_tiny({"-q", "-c", "100", "-p", text}));
    EXPECT_EQ(r.code, 5);
    EXPECT_EQ(r.out, "");
    expect_words(r.err, {"ridge: ", "context has 100 positions", "--context"});
    EXPECT_EQ(std::count(r.err.begin(), r.err.end(), '\n'), 1) << r.err;
    // A context that is filled by the answer is no error, and said.
    const Result full = ridge(run_tiny({"-c", "100", "-p", "x", "--ignore-end"}));
    EXPECT_EQ(full.code, 0);
    expect_words(full.err, {"ended by the context of 100 positions"});
}

TEST(Run, ExplainsThePlan) {
    const Result r = ridge(run_tiny({"--explain-plan", "--lever", "-avx512"}));
    EXPECT_EQ(r.code, 0) << r.err;
    expect_words(r.out, {"plan for 1 token,", " tokens, levers: ", "levers: -avx512", "cpu.contract.", "attention",
                         "its lever avx512 is off", "memory: weights", "state"});
}

TEST(Run, AFullDiskOrAClosedPipeEndsIt) {
    for (const Args &args :
         {run_tiny({"-p", "x", "-n", "400", "--ignore-end"}), run_tiny({"-p", "x", "-n", "4", "--json"}),
          run_tiny({"--explain-plan"}), Args{"levers"}, Args{"devices"}, Args{"--help"}}) {
        const Result full = ridge(args, {.stdout_path = "/dev/full", .timeout = Seconds(20)});
        EXPECT_EQ(full.code, 3) << full.err;
        expect_words(full.err, {"could not be written", "No space left"});
        const Result closed = ridge(args, {.close_stdout_after_first_byte = true, .timeout = Seconds(20)});
        EXPECT_LT(closed.code, 70) << "crashed: " << closed.err;
    }
}

// ---- the small real model

TEST(SmallModel, GreedyTextDoesNotDependOnThreads) {
    const std::filesystem::path path = real_model(kSmolLm2);
    RIDGE_NEEDS_MODEL(path);
    const auto with = [&](const char *threads) {
        return ridge({"run", "-m", path.string(), "-p", "What is the capital of France?", "--temp", "0", "-n", "16",
                      "-q", "-t", threads});
    };
    const Result one = with("1"), two = with("2");
    EXPECT_EQ(one.code, 0) << one.err;
    EXPECT_EQ(one.out, two.out);
    EXPECT_GT(one.out.size(), 20U);
}

TEST(SmallModel, AnInterruptEndsTheAnswerWithin130) {
    const std::filesystem::path path = real_model(kSmolLm2);
    RIDGE_NEEDS_MODEL(path);
    const Result r = ridge({"run", "-m", path.string(), "-p", "Tell me a long story.", "--ignore-end", "-n", "4000"},
                           {.signal = SIGINT, .signal_after_bytes = 20});
    EXPECT_EQ(r.code, 130);
    EXPECT_LT(r.after_signal, 1.0);
    EXPECT_GE(r.out.size(), 20U);
    EXPECT_TRUE(r.out.ends_with('\n'));
    expect_words(r.err, {"stopped"});
}

}  // namespace
}  // namespace ridge::test
