// Chat on the terminal: lines in, answers out, Ctrl-C stops an answer, Ctrl-D ends.
#include <fmt/format.h>

#include "cli/line_editor.h"
#include "cli/run.h"
#include "cli/terminal.h"
#include "core/error.h"

namespace ridge {
namespace {

constexpr std::string_view kHelp =
    "  /reset         forget the conversation\n"
    "  /system TEXT   set the system prompt and start over; without TEXT there is none\n"
    "  /stats         figures after each answer on or off\n"
    "  /help          this\n"
    "  /quit          end (also Ctrl-D)\n"
    "Ctrl-C stops an answer. A line that ends in \\ goes on in the next.\n";

class Chat {
  public:
    Chat(Run &run, text::ChatTemplate format) : run_(run), template_(std::move(format)) {
        if (run.flags.has_system) system_ = run.flags.system;
        reset();
    }

    // False: the user wants to leave.
    bool command(std::string_view line) {
        const std::string_view word = line.substr(0, line.find(' '));
        const std::string_view rest = line.size() > word.size() ? line.substr(word.size() + 1) : std::string_view();
        if (word == "/quit" || word == "/exit") return false;
        if (word == "/help") {
            write_out(kHelp);
        } else if (word == "/reset") {
            reset();
            write_out("(the conversation is forgotten)\n");
        } else if (word == "/system") {
            const bool is_set = rest.find_first_not_of(" \t\n") != std::string_view::npos;
            system_ = is_set ? std::optional<std::string>(rest) : std::nullopt;
            reset();
            write_out(
                fmt::format("(the system prompt is {}, the conversation starts over)\n", is_set ? "set" : "removed"));
        } else if (word == "/stats") {
            stats_ = !stats_;
            write_out(stats_ ? "(figures after each answer)\n" : "(no figures)\n");
        } else {
            write_out(fmt::format("there is no command {}; the commands are\n{}", word, kHelp));
        }
        return true;
    }

    void answer(const std::string &question) {
        messages_.push_back(text::message("user", question));
        const std::optional<std::vector<int32_t>> prompt = encode();
        if (!prompt) return;
        if (prompt->size() >= run_.session->context()) {
            forget_last();
            write_out(fmt::format(
                "(that would be {} tokens, but the context has {} positions; /reset, or start with a larger "
                "--context)\n",
                prompt->size(), run_.session->context()));
            return;
        }
        const Generation g = generate(*run_.session, run_.model->tokenizer(), run_.sampler, *prompt,
                                      run_.flags.generate, terminal_callbacks(true));
        write_out("\n");
        InterruptGuard::clear();
        if (g.finish == Finish::cancelled && g.tokens.empty())
            forget_last();  // stopped before the first word: as if it had not been asked
        else
            messages_.push_back(text::message("assistant", g.text));
        if (stats_ && !run_.flags.quiet) print_rates(run_, g);
    }

  private:
    void reset() {
        messages_ = text::Json::array();
        if (system_) messages_.push_back(text::message("system", *system_));
    }

    void forget_last() { messages_.erase(messages_.size() - 1); }

    // None where the template refuses the messages: then it is told, and the last one is forgotten.
    std::optional<std::vector<int32_t>> encode() {
        try {
            size_t without_token = 0;
            std::vector<int32_t> ids =
                template_.encode(run_.model->tokenizer(), messages_, run_.flags.chat->options, &without_token);
            note_without_token(without_token);
            return ids;
        } catch (const Error &e) {
            write_out(fmt::format("({})\n", e.what()));
            if (system_ && renders_without_system())
                write_out("(the template refuses the system prompt; /system without a text removes it)\n");
            forget_last();
            return std::nullopt;
        }
    }

    bool renders_without_system() const {
        text::Json rest = messages_;
        rest.erase(0);
        try {
            template_.render(rest, run_.flags.chat->options);
            return true;
        } catch (const Error &) {
            return false;
        }
    }

    Run &run_;
    text::ChatTemplate template_;
    std::optional<std::string> system_;
    text::Json messages_;
    bool stats_ = true;
};

}  // namespace

void chat(Run &run, text::ChatTemplate format) {
    Chat chat(run, std::move(format));
    write_out(fmt::format("{}: {} layers, context {}. /help lists the commands, Ctrl-D ends.\n",
                          run.model->file().get_string("general.name", run.model->hparams().architecture),
                          run.model->hparams().n_layers, run.session->context()));
    LineEditor editor("> ");
    while (std::optional<std::string> line = editor.read()) {
        const size_t first = line->find_first_not_of(" \t\n");
        if (first == std::string::npos) continue;
        if ((*line)[first] == '/') {
            if (!chat.command(std::string_view(*line).substr(first))) break;
            continue;
        }
        chat.answer(*line);
    }
    write_out("\n");
}

}  // namespace ridge
