#include "cli/line_editor.h"

#include <histedit.h>
#include <langinfo.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <cwchar>
#include <string_view>

#include "cli/terminal.h"

namespace ridge {

struct LineEditor::Impl {
    EditLine *edit = nullptr;
    History *history = nullptr;
    std::string prompt;
    bool continuing = false;
    struct sigaction before_resume {
    }, before_resize{};
};

namespace {

std::atomic<bool> g_resumed{false}, g_resized{false};
extern "C" void on_resume(int) { g_resumed = true; }
extern "C" void on_resize(int) { g_resized = true; }

// Reads one character. SIGINT is blocked but for the wait itself, so a Ctrl-C at any moment is either seen before the
// wait or ends it: none is lost, and none is taken for a later line's.
int read_character(EditLine *edit, wchar_t *out) {
    std::mbstate_t state{};
    while (true) {
        // Back from Ctrl-Z the terminal has the shell's settings; in a window of another size lines wrap elsewhere.
        if (g_resumed.exchange(false)) {
            el_set(edit, EL_PREP_TERM, 0);
            el_set(edit, EL_PREP_TERM, 1);
            el_set(edit, EL_REFRESH);
        }
        if (g_resized.exchange(false)) el_resize(edit);
        sigset_t without_sigint;
        pthread_sigmask(SIG_SETMASK, nullptr, &without_sigint);
        sigdelset(&without_sigint, SIGINT);
        pollfd p{STDIN_FILENO, POLLIN, 0};
        if (ppoll(&p, 1, nullptr, &without_sigint) < 0) {
            if (errno == EINTR && !InterruptGuard::raised()) continue;  // another signal, such as a window's new size
            return -1;
        }
        char byte = 0;
        const ssize_t n = ::read(STDIN_FILENO, &byte, 1);
        if (n <= 0) return static_cast<int>(n);
        const size_t used = std::mbrtowc(out, &byte, 1, &state);
        if (used == static_cast<size_t>(-2)) continue;  // the middle of a character
        if (used == static_cast<size_t>(-1))
            state = {};  // no character: skipped
        else
            return 1;
    }
}

class BlockSigint {
  public:
    BlockSigint() {
        sigset_t sigint;
        sigemptyset(&sigint);
        sigaddset(&sigint, SIGINT);
        pthread_sigmask(SIG_BLOCK, &sigint, &before_);
    }
    ~BlockSigint() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    BlockSigint(const BlockSigint &) = delete;
    BlockSigint &operator=(const BlockSigint &) = delete;

  private:
    sigset_t before_{};
};

// libedit reads wide characters, so a locale that is not UTF-8 would garble what is typed.
void want_utf8() {
    std::setlocale(LC_CTYPE, "");
    if (std::strcmp(nl_langinfo(CODESET), "UTF-8") != 0) std::setlocale(LC_CTYPE, "C.UTF-8");
}

}  // namespace

LineEditor::LineEditor(const std::string &prompt) : impl_(std::make_unique<Impl>()) {
    want_utf8();
    impl_->prompt = prompt;
    struct sigaction action {};
    action.sa_handler = on_resume;
    sigaction(SIGCONT, &action, &impl_->before_resume);
    action.sa_handler = on_resize;
    sigaction(SIGWINCH, &action, &impl_->before_resize);
    impl_->edit = el_init("ridge", stdin, stdout, stderr);
    impl_->history = history_init();
    HistEvent event;
    history(impl_->history, &event, H_SETSIZE, 1000);
    history(impl_->history, &event, H_SETUNIQUE, 1);
    el_set(impl_->edit, EL_CLIENTDATA, impl_.get());
    el_set(
        impl_->edit, EL_PROMPT, +[](EditLine *e) -> char * {
            Impl *impl = nullptr;
            el_get(e, EL_CLIENTDATA, &impl);
            static char continuation[] = "... ";
            return impl->continuing ? continuation : impl->prompt.data();
        });
    el_set(impl_->edit, EL_GETCFN, read_character);
    el_set(impl_->edit, EL_EDITOR, "emacs");
    el_set(impl_->edit, EL_HIST, history, impl_->history);
    el_set(impl_->edit, EL_BIND, "^R", "em-inc-search-prev", nullptr);
}

LineEditor::~LineEditor() {
    sigaction(SIGCONT, &impl_->before_resume, nullptr);
    sigaction(SIGWINCH, &impl_->before_resize, nullptr);
    el_end(impl_->edit);
    history_end(impl_->history);
}

std::optional<std::string> LineEditor::read() {
    std::string text;
    impl_->continuing = false;
    const BlockSigint block;
    while (true) {
        int n = 0;
        // Before the prompt is drawn: a Ctrl-D that answers the prompt must not meet the terminal's own line editing,
        // which would swallow it.
        el_set(impl_->edit, EL_PREP_TERM, 1);
        const char *line = el_gets(impl_->edit, &n);
        if (InterruptGuard::raised()) {
            InterruptGuard::clear();
            el_reset(impl_->edit);
            std::fputs("\n", stdout);
            return std::string();
        }
        if (!line || n <= 0) return text.empty() ? std::nullopt : std::optional(text);
        std::string_view got(line, static_cast<size_t>(n));
        const bool had_newline = got.ends_with('\n');
        if (had_newline) got.remove_suffix(1);
        if (had_newline && got.ends_with('\\')) {
            got.remove_suffix(1);
            text += std::string(got) + "\n";
            impl_->continuing = true;
            continue;
        }
        text += got;
        if (text.find_first_not_of(" \t\n") != std::string::npos) {
            HistEvent event;
            history(impl_->history, &event, H_ENTER, text.c_str());
        }
        return text;
    }
}

}  // namespace ridge
