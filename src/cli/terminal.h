// What the command line knows about the terminal: whether there is one, progress on it, Ctrl-C, safe output.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace ridge {

bool stdin_is_terminal();
bool stdout_is_terminal();
bool stderr_is_terminal();

// While one lives, Ctrl-C (SIGINT) sets a flag instead of ending the program. Another one while the flag has been
// up for a second ends it, so a hang can always be left.
class InterruptGuard {
  public:
    InterruptGuard();
    ~InterruptGuard();
    InterruptGuard(const InterruptGuard &) = delete;
    InterruptGuard &operator=(const InterruptGuard &) = delete;
    static bool raised();
    static void clear();
};

// A line on stderr that is redrawn in place: "loading  41% 210/512 MB". Shows nothing where stderr is no terminal or
// the work is done within half a second.
class Progress {
  public:
    Progress(std::string label, std::string unit, double scale);
    ~Progress();  // wipes the line
    Progress(const Progress &) = delete;
    Progress &operator=(const Progress &) = delete;
    void show(uint64_t done, uint64_t total);

  private:
    std::string label_, unit_;
    double scale_;
    std::chrono::steady_clock::time_point start_, last_{};
    bool drawn_ = false;
};

// Text of a model as a terminal may show it: control characters other than newline and tab become visible symbols, so
// that no model can move the cursor, set titles or the like.
std::string printable(std::string_view utf8);

// Writes to stdout and flushes; on a terminal through `printable`. False where that failed (nobody reads any more, the
// disk is full): output_error() then says why.
bool write_out(std::string_view text);

// What is left of `in`. Throws Error{file} naming `what` where reading fails.
std::string read_all(std::FILE *in, std::string_view what);

// For figures and notes beside the result: that nobody can see them is no error.
void write_note(std::string_view text);

// The note on bytes of a text that were left out for want of a token; nothing where there are none.
void note_without_token(size_t bytes);

// Flushes stdout. The errno of the first failed write to it, 0 where everything arrived.
int output_error();

}  // namespace ridge
