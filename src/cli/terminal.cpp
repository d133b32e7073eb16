#include "cli/terminal.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <utility>

#include "core/error.h"
#include "gguf/printable.h"

namespace ridge {
namespace {

std::atomic<bool> g_interrupted{false};
struct sigaction g_previous;
int g_output_error = 0;

// Milliseconds of a clock that a signal handler may read.
int64_t milliseconds() {
    timespec t{};
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}
std::atomic<int64_t> g_interrupted_at{0};

extern "C" void on_interrupt(int) {
    const int64_t now = milliseconds();
    if (!g_interrupted.exchange(true)) {
        g_interrupted_at = now;
    } else if (now - g_interrupted_at > 1000) {
        // The first one was not heard for a second: end as an unhandled SIGINT would.
        std::signal(SIGINT, SIG_DFL);
        std::raise(SIGINT);
    }
}

int terminal_columns() {
    winsize w{};
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 0 ? w.ws_col : 80;
}

}  // namespace

bool stdin_is_terminal() { return isatty(STDIN_FILENO) != 0; }
bool stdout_is_terminal() { return isatty(STDOUT_FILENO) != 0; }
bool stderr_is_terminal() { return isatty(STDERR_FILENO) != 0; }

InterruptGuard::InterruptGuard() {
    struct sigaction action {};
    action.sa_handler = on_interrupt;  // without SA_RESTART: a blocked read returns
    sigaction(SIGINT, &action, &g_previous);
}

InterruptGuard::~InterruptGuard() { sigaction(SIGINT, &g_previous, nullptr); }
bool InterruptGuard::raised() { return g_interrupted.load(); }
void InterruptGuard::clear() { g_interrupted = false; }

Progress::Progress(std::string label, std::string unit, double scale)
    : label_(std::move(label)), unit_(std::move(unit)), scale_(scale), start_(std::chrono::steady_clock::now()) {}

Progress::~Progress() {
    if (drawn_) std::fputs("\r\x1b[K", stderr);
}

void Progress::show(uint64_t done, uint64_t total) {
    using namespace std::chrono_literals;
    const auto now = std::chrono::steady_clock::now();
    if (!stderr_is_terminal() || now - start_ < 500ms || now - last_ < 50ms) return;
    last_ = now;
    drawn_ = true;
    const double share = total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 1;
    std::string line = fmt::format("{} {:3.0f}%  {:.0f}/{:.0f} {}", label_, 100 * share,
                                   static_cast<double>(done) / scale_, static_cast<double>(total) / scale_, unit_);
    // Never wider than the terminal: a wrapped line could not be redrawn.
    const auto room = static_cast<size_t>(terminal_columns() - 1);
    if (line.size() > room) line = fmt::format("{:3.0f}%", 100 * share).substr(0, room);
    std::fprintf(stderr, "\r\x1b[K%s", line.c_str());
    std::fflush(stderr);
}

std::string printable(std::string_view utf8) {
    std::string out;
    for (size_t i = 0; i < utf8.size(); i++) {
        const auto c = static_cast<unsigned char>(utf8[i]);
        const bool c1 = c == 0xC2 && i + 1 < utf8.size() && static_cast<unsigned char>(utf8[i + 1]) < 0xA0;
        if (c1) {
            out += "\xEF\xBF\xBD";  // U+FFFD
            i++;
        } else if (c == 0x7F) {
            out += "\xE2\x90\xA1";  // U+2421, symbol for delete
        } else if (c < 0x20 && c != '\n' && c != '\t') {
            out += {'\xE2', '\x90', static_cast<char>(0x80 + c)};  // U+2400 + c, symbols for the control characters
        } else {
            out += static_cast<char>(c);
        }
    }
    return out;
}

bool write_out(std::string_view text) {
    const std::string safe = stdout_is_terminal() ? printable(text) : std::string(text);
    if (std::fwrite(safe.data(), 1, safe.size(), stdout) == safe.size() && std::fflush(stdout) == 0) return true;
    if (g_output_error == 0) g_output_error = errno;
    return false;
}

std::string read_all(std::FILE *in, std::string_view what) {
    std::string text;
    char block[65536];
    size_t n;
    while ((n = std::fread(block, 1, sizeof block, in)) > 0) text.append(block, n);
    if (std::ferror(in) != 0) fail(ErrorKind::file, "cannot read {}: {}", gguf::printable(what), std::strerror(errno));
    return text;
}

void write_note(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stderr); }

void note_without_token(size_t bytes) {
    if (bytes == 0) return;
    write_note(
        fmt::format("ridge: left out {} byte{} that the vocabulary has no token for\n", bytes, bytes == 1 ? "" : "s"));
}

int output_error() {
    if (std::fflush(stdout) != 0 && g_output_error == 0) g_output_error = errno;
    if (std::ferror(stdout) != 0 && g_output_error == 0) g_output_error = EIO;  // lost earlier, and errno with it
    return g_output_error;
}

}  // namespace ridge
