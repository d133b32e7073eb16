#include "cli/support.h"

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <thread>

#include "runtime/tiny_model.h"

namespace ridge::test {
namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point t) { return Seconds(Clock::now() - t).count(); }
int code_of(int status) { return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }

struct Pipe {
    int read = -1, write = -1;
    Pipe() {
        int fds[2];
        if (pipe2(fds, O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
        read = fds[0], write = fds[1];
    }
    ~Pipe() { close_read(), close_write(); }
    Pipe(const Pipe &) = delete;
    Pipe &operator=(const Pipe &) = delete;
    void close_read() { close_one(read); }
    void close_write() { close_one(write); }
    static void close_one(int &fd) {
        if (fd >= 0) ::close(fd);
        fd = -1;
    }
};

std::vector<char *> argv_of(const std::vector<std::string> &args) {
    std::vector<char *> argv{const_cast<char *>(RIDGE_BINARY)};
    for (const std::string &a : args) argv.push_back(const_cast<char *>(a.c_str()));
    argv.push_back(nullptr);
    return argv;
}

}  // namespace

Result ridge(const std::vector<std::string> &args, const RunOptions &o) {
    Pipe in, out, err;
    const std::vector<char *> argv = argv_of(args);
    const Clock::time_point start = Clock::now();
    const pid_t pid = fork();
    if (pid < 0) throw std::runtime_error("fork");
    if (pid == 0) {
        ::signal(SIGPIPE, SIG_DFL);
        for (const auto &[key, value] : o.env) setenv(key.c_str(), value.c_str(), 1);
        const int to = o.stdout_path.empty() ? out.write : open(o.stdout_path.c_str(), O_WRONLY);
        const int notes = o.stderr_path.empty() ? err.write : open(o.stderr_path.c_str(), O_WRONLY);
        dup2(in.read, 0), dup2(to, 1), dup2(notes, 2);
        execv(RIDGE_BINARY, argv.data());
        _exit(127);
    }
    in.close_read(), out.close_write(), err.close_write();

    // Input larger than a pipe is taken while output is read.
    ::signal(SIGPIPE, SIG_IGN);
    std::thread writer([&] {
        for (size_t at = 0; at < o.input.size();) {
            const ssize_t n = write(in.write, o.input.data() + at, o.input.size() - at);
            if (n <= 0) break;
            at += static_cast<size_t>(n);
        }
        in.close_write();
    });

    Result r;
    Clock::time_point signalled{};
    bool is_signalled = o.signal == 0;
    while (out.read >= 0 || err.read >= 0) {
        if (since(start) > o.timeout.count()) {
            r.timed_out = true;
            kill(pid, SIGKILL);
            break;
        }
        pollfd fds[2] = {{out.read, POLLIN, 0}, {err.read, POLLIN, 0}};
        poll(fds, 2, 50);
        for (int i = 0; i < 2; i++) {
            if ((fds[i].revents & (POLLIN | POLLHUP | POLLERR)) == 0) continue;
            char buffer[4096];
            const ssize_t n = read(fds[i].fd, buffer, sizeof buffer);
            if (n <= 0)
                i == 0 ? out.close_read() : err.close_read();
            else
                (i == 0 ? r.out : r.err).append(buffer, static_cast<size_t>(n));
        }
        if (o.close_stdout_after_first_byte && !r.out.empty()) out.close_read();
        if (!is_signalled && r.out.size() >= o.signal_after_bytes) {
            is_signalled = true, signalled = Clock::now();
            kill(pid, o.signal);
        }
    }
    int status = 0;
    waitpid(pid, &status, 0);
    r.code = code_of(status);
    r.seconds = since(start);
    if (o.signal != 0 && is_signalled) r.after_signal = since(signalled);
    writer.join();
    if (r.timed_out) ADD_FAILURE() << "ridge did not end within " << o.timeout.count() << " s; it said:\n" << r.err;
    return r;
}

Terminal::Terminal(const std::vector<std::string> &args, unsigned short columns, unsigned short rows) {
    const std::vector<char *> argv = argv_of(args);
    winsize size{rows, columns, 0, 0};
    pid_ = forkpty(&fd_, nullptr, nullptr, &size);
    if (pid_ < 0) throw std::runtime_error("forkpty");
    if (pid_ == 0) {
        setenv("TERM", "xterm", 1);
        ::signal(SIGINT, SIG_DFL);
        execv(RIDGE_BINARY, argv.data());
        _exit(127);
    }
    fcntl(fd_, F_SETFD, FD_CLOEXEC);
}

Terminal::~Terminal() {
    if (!ended()) {
        kill(pid_, SIGKILL);
        waitpid(pid_, nullptr, 0);
    }
    close(fd_);
}

void Terminal::type(const std::string &keys) {
    if (write(fd_, keys.data(), keys.size()) != static_cast<ssize_t>(keys.size())) ADD_FAILURE() << "cannot type";
}

bool Terminal::read_some(Seconds timeout) {
    pollfd p{fd_, POLLIN, 0};
    if (poll(&p, 1, static_cast<int>(timeout.count() * 1000)) <= 0) return false;
    char buffer[4096];
    const ssize_t n = read(fd_, buffer, sizeof buffer);
    if (n <= 0) return false;  // EIO: the other side has ended
    screen_.append(buffer, static_cast<size_t>(n));
    return true;
}

bool Terminal::expect(const std::string &text, Seconds timeout) {
    const Clock::time_point start = Clock::now();
    while (true) {
        const size_t at = screen_.find(text, seen_);
        if (at != std::string::npos) {
            seen_ = at + text.size();
            return true;
        }
        if (since(start) > timeout.count() || (ended() && !read_some(Seconds(0.05)))) {
            ADD_FAILURE() << "'" << text << "' did not appear; since the last match:\n" << screen_.substr(seen_);
            return false;
        }
        read_some(Seconds(0.05));
    }
}

std::string Terminal::read_for(Seconds time) {
    const size_t from = screen_.size();
    const Clock::time_point start = Clock::now();
    while (since(start) < time.count()) read_some(Seconds(0.02));
    return screen_.substr(from);
}

bool Terminal::ended() {
    if (code_) return true;
    int status = 0;
    if (waitpid(pid_, &status, WNOHANG) != pid_) return false;
    code_ = code_of(status);
    return true;
}

int Terminal::wait(Seconds timeout) {
    const Clock::time_point start = Clock::now();
    while (!ended() && since(start) < timeout.count()) read_some(Seconds(0.02));
    if (!code_) ADD_FAILURE() << "the program does not end; screen:\n" << screen_;
    return code_.value_or(-1);
}

InOwnFolder::InOwnFolder()
    : folder_(std::filesystem::temp_directory_path() / ("ridge_command_" + std::to_string(getpid()))) {
    std::filesystem::create_directories(folder_);
}
InOwnFolder::~InOwnFolder() { std::filesystem::remove_all(folder_); }
Result InOwnFolder::run(const std::vector<std::string> &args) {
    return ridge(args, {.env = {{"XDG_CACHE_HOME", folder_.string()}}});
}

std::filesystem::path tiny_chat_model() { return tiny_file("tiny-llama"); }

}  // namespace ridge::test
