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
    "  /system TEXT   set the system prompt and start over\n"
    "  /stats         figures after each answer on or off\n"
    "  /help          this\n"
    "  /quit          end (also Ctrl-D)\n"
    "Ctrl-C stops an answer. A line that ends in \\ goes on in the next.\n";

class Chat {
  public:
    explicit Chat(Run &run) : run_(run), template_(chat_template(*run.model)) {
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
            system_ = std::string(rest);
            reset();
            write_out("(the system prompt is set, the conversation starts over)\n");
        } else if (word == "/stats") {
            stats_ = !stats_;
            write_out(stats_ ? "(figures after each answer)\n" : "(no figures)\n");
        } else {
            write_out(fmt::format("there is no command {}; the commands are\n{}", word, kHelp));
        }
        return true;
    }

    void answer(const std::string &question) {
        messages_.push_back({"user", question});
        const std::vector<int32_t> prompt = text::encode_chat(run_.model->tokenizer(), template_, messages_, true);
        if (prompt.size() >= run_.session->context()) {
            messages_.pop_back();
            write_out(fmt::format(
                "(that would be {} tokens, but the context has {} positions; /reset, or start with a larger "
                "--context)\n",
                prompt.size(), run_.session->context()));
            return;
        }
        const Generation g = generate(*run_.session, run_.model->tokenizer(), run_.sampler, prompt, run_.flags.generate,
                                      terminal_callbacks(true));
        write_out("\n");
        InterruptGuard::clear();
        if (g.finish == Finish::cancelled && g.tokens.empty())
            messages_.pop_back();  // stopped before the first word: as if it had not been asked
        else
            messages_.push_back({"assistant", g.text});
        if (stats_ && !run_.flags.quiet) print_rates(run_, g);
    }

  private:
    void reset() {
        messages_.clear();
        if (system_) messages_.push_back({"system", *system_});
    }

    Run &run_;
    text::ChatTemplate template_;
    std::optional<std::string> system_;
    std::vector<text::Message> messages_;
    bool stats_ = true;
};

}  // namespace

void chat(Run &run) {
    Chat chat(run);
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
