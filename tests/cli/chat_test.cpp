// Chat on a terminal.
#include <cstdlib>

#include "cli/support.h"
#include "support/real_models.h"

namespace ridge::test {
namespace {

// The tiny model talks nonsense; -n keeps it short.
class Chat : public testing::Test {
  protected:
    static std::vector<std::string> args(std::vector<std::string> more = {}) {
        std::vector<std::string> a{"run", "-m", tiny_chat_model().string(), "-t", "1", "-n", "6", "--seed", "1"};
        a.insert(a.end(), more.begin(), more.end());
        return a;
    }
};

TEST_F(Chat, CommandsAnswersAndTheEnd) {
    Terminal t(args({"--ignore-end"}));
    t.expect("/help lists the commands");
    t.expect("> ");
    t.type("/help\n");
    t.expect("forget the conversation");
    t.expect("Ctrl-C stops an answer");
    t.type("hello there\n");
    t.expect("answer 6 tokens");
    t.type("and again\n");
    t.expect("kept)");  // the conversation so far was not evaluated again
    t.expect("answer 6 tokens");
    t.type("/reset\n");
    t.expect("(the conversation is forgotten)");
    t.type("/system You are a cat.\n");
    t.expect("(the system prompt is set");
    t.type("/stats\n");
    t.expect("(no figures)");
    t.type("/nonsense\n");
    t.expect("there is no command /nonsense");
    t.expect("> ");
    t.type("   \n");
    t.expect("> ");  // before it, Ctrl-D would be the terminal's
    t.type("\x04");
    EXPECT_EQ(t.wait(), 0);
}

TEST_F(Chat, QuitEnds) {
    Terminal t(args());
    t.expect("> ");
    t.type("/quit\n");
    EXPECT_EQ(t.wait(), 0);
}

TEST_F(Chat, ALineThatEndsInABackslashGoesOn) {
    Terminal t(args({"--ignore-end"}));
    t.expect("> ");
    t.type("one\\\n");
    t.expect("... ");
    t.type("two\n");
    t.expect("answer 6 tokens");
    t.expect("> ");  // before it, Ctrl-D would be the terminal's
    t.type("\x04");
    EXPECT_EQ(t.wait(), 0);
}

TEST_F(Chat, CtrlCAtThePromptDropsTheLineAndNothingElse) {
    Terminal t(args({"--ignore-end"}));
    t.expect("> ");
    for (int i = 0; i < 3; i++) {
        t.type("half a question");
        t.expect("question");
        t.type("\x03");
        t.read_for(Seconds(0.2));
        ASSERT_FALSE(t.ended()) << "Ctrl-C number " << i + 1 << " ended the program";
    }
    // What is typed next stands alone and is heard at once.
    t.type("/help\n");
    t.expect("forget the conversation", Seconds(10));
    t.expect("> ");  // before it, Ctrl-D would be the terminal's
    t.type("\x04");
    EXPECT_EQ(t.wait(), 0);
}

TEST_F(Chat, ATooLongQuestionIsToldAndTheChatGoesOn) {
    Terminal t(args({"-c", "80", "--ignore-end"}));
    t.expect("> ");
    t.type(std::string(200, 'x') + "\n");
    t.expect("but the context has 80 positions");
    t.type("/help\n");
    t.expect("forget the conversation");
    t.expect("> ");  // before it, Ctrl-D would be the terminal's
    t.type("\x04");
    EXPECT_EQ(t.wait(), 0);
}

TEST_F(Chat, ATinyWindowIsEnough) {
    Terminal t(args({"--ignore-end"}), 10, 2);
    t.expect("> ");
    t.type("a question that is much wider than the window\n");
    t.expect("answer 6 tokens");
    t.type("/help\n");
    t.expect("forget the conversation");
    t.expect("> ");  // before it, Ctrl-D would be the terminal's
    t.type("\x04");
    EXPECT_EQ(t.wait(), 0);
}

TEST_F(Chat, APromptOnATerminalIsAnsweredAndThatIsAll) {
    Terminal t({"run", "-m", tiny_chat_model().string(), "-p", "x", "-n", "3", "--ignore-end", "-q"});
    EXPECT_EQ(t.wait(), 0);
}

TEST_F(Chat, NoModelMovesTheCursor) {
    // Random bytes, control characters among them: none but newline and tab reach the terminal as such.
    Terminal t({"run",
                "-m",
                tiny_chat_model().string(),
                "-t",
                "1",
                "-p",
                "x",
                "-n",
                "600",
                "--ignore-end",
                "-q",
                "--temp",
                "50",
                "--top-k",
                "0",
                "--top-p",
                "1",
                "--min-p",
                "0",
                "--seed",
                "3"});
    EXPECT_EQ(t.wait(), 0);
    ASSERT_GT(t.screen().size(), 500U);
    for (char c : t.screen()) {
        const auto u = static_cast<unsigned char>(c);
        EXPECT_TRUE(u >= 0x20 || c == '\n' || c == '\r' || c == '\t') << "control character " << int{u};
        EXPECT_NE(u, 0x7F);
    }
}

TEST(ChatSmallModel, CtrlCStopsTheAnswerNotTheProgram) {
    const std::filesystem::path path = real_model(kSmolLm2);
    RIDGE_NEEDS_MODEL(path);
    Terminal t({"run", "-m", path.string(), "--ignore-end", "--temp", "0"});
    t.expect("> ");
    for (int i = 0; i < 2; i++) {
        t.type("Tell me a long story.\n");
        t.expect("story.");
        t.expect("\n");
        t.read_for(Seconds(0.7));
        t.type("\x03");
        t.expect("; stopped; levers", Seconds(5));
        ASSERT_FALSE(t.ended());
    }
    t.type("/help\n");
    t.expect("forget the conversation", Seconds(5));
    t.expect("> ");  // before it, Ctrl-D would be the terminal's
    t.type("\x04");
    EXPECT_EQ(t.wait(), 0);
}

TEST(ChatSmallModel, RemembersTheConversation) {
    const std::filesystem::path path = real_model(kSmolLm2);
    RIDGE_NEEDS_MODEL(path);
    Terminal t({"run", "-m", path.string(), "--temp", "0", "-n", "24", "--lever", "-int8_dot"});
    t.expect("> ");
    t.type("What is the capital of France?\n");
    t.expect("Paris");
    t.expect("levers");
    t.expect("> ");  // before it, Ctrl-D would be the terminal's
    t.type("\x04");
    EXPECT_EQ(t.wait(), 0);
}

}  // namespace
}  // namespace ridge::test
