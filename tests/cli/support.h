// Runs the built program as a user does: with arguments, pipes, signals, and on a terminal.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ridge::test {

using Seconds = std::chrono::duration<double>;

struct Result {
    int code = -1;  // exit code; 128 + signal where one ended it, as a shell reports
    bool timed_out = false;
    std::string out, err;
    double seconds = 0;       // until the end
    double after_signal = 0;  // from the signal to the end
};

struct RunOptions {
    std::string input;                                     // through a pipe
    std::vector<std::pair<std::string, std::string>> env;  // added to this program's
    std::string stdout_path;                               // instead of a pipe: "/dev/full"
    std::string stderr_path;
    bool close_stdout_after_first_byte = false;  // like `| head -c 1`
    int signal = 0;                              // sent once
    size_t signal_after_bytes = 1;               // of the output
    Seconds timeout{60};
};

// Runs `ridge args...` to its end. A run that takes longer than the timeout is killed and a failure.
Result ridge(const std::vector<std::string> &args, const RunOptions &options = {});

// `ridge args...` on a terminal of its own.
class Terminal {
  public:
    Terminal(const std::vector<std::string> &args, unsigned short columns = 100, unsigned short rows = 30);
    ~Terminal();
    Terminal(const Terminal &) = delete;
    Terminal &operator=(const Terminal &) = delete;

    void type(const std::string &keys);  // "\n" is Enter, "\x03" Ctrl-C, "\x04" Ctrl-D
    // Reads until `text` has appeared since the last expect. A failure where it does not.
    bool expect(const std::string &text, Seconds timeout = Seconds(60));
    // Reads on for a while.
    std::string read_for(Seconds time);
    // Waits for the end; as Result::code.
    int wait(Seconds timeout = Seconds(60));
    bool ended();
    const std::string &screen() const { return screen_; }

  private:
    bool read_some(Seconds timeout);
    int fd_ = -1;
    int pid_ = -1;
    std::optional<int> code_;
    std::string screen_;  // everything so far
    size_t seen_ = 0;
};

// Runs ridge with a cache folder of the test's own, which may hold other files too.
class InOwnFolder : public testing::Test {
  protected:
    InOwnFolder();
    ~InOwnFolder() override;
    Result run(const std::vector<std::string> &args);
    const std::filesystem::path folder_;
};

// A small model with random weights and ChatML: enough for everything but sense.
std::filesystem::path tiny_chat_model();

}  // namespace ridge::test
