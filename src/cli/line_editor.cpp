#include "cli/line_editor.h"

#include <histedit.h>
#include <langinfo.h>

#include <clocale>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "cli/terminal.h"

namespace ridge {

struct LineEditor::Impl {
    EditLine *edit = nullptr;
    History *history = nullptr;
    std::string prompt;
    bool continuing = false;
};

namespace {

// libedit reads wide characters, so a locale that is not UTF-8 would garble what is typed.
void want_utf8() {
    std::setlocale(LC_CTYPE, "");
    if (std::strcmp(nl_langinfo(CODESET), "UTF-8") != 0) std::setlocale(LC_CTYPE, "C.UTF-8");
}

}  // namespace

LineEditor::LineEditor(const std::string &prompt) : impl_(std::make_unique<Impl>()) {
    want_utf8();
    impl_->prompt = prompt;
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
    el_set(impl_->edit, EL_EDITOR, "emacs");
    el_set(impl_->edit, EL_HIST, history, impl_->history);
    el_set(impl_->edit, EL_BIND, "^R", "em-inc-search-prev", nullptr);
}

LineEditor::~LineEditor() {
    el_end(impl_->edit);
    history_end(impl_->history);
}

std::optional<std::string> LineEditor::read() {
    std::string text;
    impl_->continuing = false;
    while (true) {
        int n = 0;
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
