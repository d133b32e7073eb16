// ridge run: one answer, or a chat.
#include "cli/run.h"

#include <fmt/format.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "cli/load.h"
#include "cli/terminal.h"
#include "cli/trace_output.h"
#include "core/error.h"
#include "gguf/printable.h"

namespace ridge {
namespace {

constexpr int kInterrupted = 130;  // as a shell reports a program ended by SIGINT

// The prompt from -p, --file or a pipe; empty optional: chat.
std::optional<std::string> find_prompt(const RunFlags &f) {
    if (f.has_prompt) return f.prompt == "-" ? read_all(stdin, "the standard input") : f.prompt;
    if (!f.prompt_file.empty()) {
        const std::unique_ptr<std::FILE, int (*)(std::FILE *)> in(std::fopen(f.prompt_file.c_str(), "rb"), std::fclose);
        if (!in)
            fail(ErrorKind::file, "cannot open the prompt file {}: {}", gguf::printable(f.prompt_file),
                 std::strerror(errno));
        return read_all(in.get(), f.prompt_file);
    }
    if (!stdin_is_terminal()) {
        std::string text = read_all(stdin, "the standard input");
        if (text.empty())
            fail(ErrorKind::usage, "the standard input is empty; give a prompt with -p, --file or a pipe");
        return text;
    }
    if (!stdout_is_terminal())
        fail(ErrorKind::usage, "a chat needs a terminal, but the output goes elsewhere; give the prompt with -p");
    return std::nullopt;
}

// Weights have been on their way since the file was opened.
void wait_for_weights(Model &model) {
    Progress progress("loading", "MB", 1e6);
    model.wait_for_weights([&](uint64_t done, uint64_t total) {
        progress.show(done, total);
        return !InterruptGuard::raised();
    });
}

struct Prompt {
    std::vector<int32_t> tokens;
    size_t without_token = 0;  // bytes
};

Prompt encode_prompt(const Run &run, const std::string &prompt) {
    const RunFlags &f = run.flags;
    const text::Tokenizer &t = run.model->tokenizer();
    Prompt out;
    if (f.raw) {
        out.tokens = t.encode(prompt, {.parse_special = f.special}, &out.without_token);
        return out;
    }
    text::Json messages = text::Json::array();
    if (f.has_system) messages.push_back(text::message("system", f.system));
    messages.push_back(text::message("user", prompt));
    out.tokens = chat_template(run).encode(t, messages, f.chat->options, &out.without_token);
    return out;
}

void print_json(const Run &run, const Prompt &prompt, const Generation &g) {
    nlohmann::json out = {
        {"model", run.flags.model->model},
        {"text", g.text},
        {"tokens", g.tokens},
        {"finish", name(g.finish)},
        {"prompt_tokens", g.prompt_tokens},
        {"bytes_without_token", prompt.without_token},
        {"prompt_seconds", g.prompt_seconds},
        {"prompt_tokens_per_second", g.prompt_rate()},
        {"answer_seconds", g.answer_seconds},
        {"answer_tokens_per_second", g.answer_rate()},
        {"load_seconds", run.load_seconds},
        {"seed", run.sampler.options().seed},
        {"context", run.session->context()},
        {"device", run.model->device_text()},
        {"placement", run.model->placed().flags},
        {"levers", run.session->engine().program().levers.to_string()},
    };
    write_out(out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

int one_shot(Run &run, const Prompt &prompt) {
    note_without_token(prompt.without_token);
    const Generation g = generate(*run.session, run.model->tokenizer(), run.sampler, prompt.tokens, run.flags.generate,
                                  terminal_callbacks(!run.flags.json));
    if (run.flags.json) {
        print_json(run, prompt, g);
    } else {
        write_out("\n");
        if (!run.flags.quiet) print_rates(run, g);
    }
    return g.finish == Finish::cancelled && InterruptGuard::raised() ? kInterrupted : 0;
}

void explain_plan(Run &run) {
    Engine &e = run.session->engine();
    const auto plan_for = [&](uint32_t tokens) { return make_plan(e.program(), e.devices(), tokens); };
    std::string text = explain(e.program(), plan_for(1), e.devices());
    if (e.options().limits.tokens > 1)
        text += "\n" + explain(e.program(), plan_for(e.options().limits.tokens), e.devices());
    text += fmt::format("memory: weights {:.1f} MB (mapped), activations {:.1f} MB, state {:.1f} MB for {} positions\n",
                        static_cast<double>(run.model->file().file_bytes()) / 1e6,
                        static_cast<double>(e.activation_bytes()) / 1e6, static_cast<double>(e.state_bytes()) / 1e6,
                        run.session->context());
    write_out(text);
}

int run_command(RunFlags &f) {
    f.model->resolve();
    f.sampler->resolve();
    // Files are read before the model is opened: a missing one should not wait for 20 GB.
    f.chat->resolve();
    const std::optional<std::string> prompt = f.explain_plan ? std::optional<std::string>("") : find_prompt(f);

    std::optional<SessionTrace> trace;
    if (!f.trace.empty()) trace.emplace(f.trace);

    f.model->session.chooses = chooses_for(f.sampler->options);
    if (!f.explain_plan) f.model->open.prefetch = pages_of(f.model->session.levers);
    const auto start = std::chrono::steady_clock::now();
    Run run{f, Model::open(f.model->model, f.model->open), nullptr, Sampler(f.sampler->options), 0};
    if (const PlacedDevices &placed = run.model->placed();
        !f.json && (!f.quiet || placed.devices.size() > 1 || !placed.notes.empty()))
        write_note(placement_note(placed));
    if (f.explain_plan) {
        run.session = run.model->session(f.model->session);
        explain_plan(run);
        return 0;
    }
    // What the template refuses is refused before memory is taken.
    std::optional<Prompt> encoded;
    std::optional<text::ChatTemplate> format;
    if (prompt)
        encoded = encode_prompt(run, *prompt);
    else
        format = chat_template(run);
    checked_context(f.model->session.context, run.model->hparams().context_length);  // before a long wait for weights
    InterruptGuard guard;
    if (run.model->copies_weights()) wait_for_weights(*run.model);  // a session needs those in their places
    if (InterruptGuard::raised()) return kInterrupted;
    run.session = run.model->session(f.model->session);
    wait_for_weights(*run.model);
    run.load_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (InterruptGuard::raised()) return kInterrupted;
    if (trace) run.session->trace_to(trace->sink());
    int code = 0;
    if (encoded)
        code = one_shot(run, *encoded);
    else
        chat(run, std::move(*format));
    if (trace) {
        const Engine &e = run.session->engine();
        trace->finish(fmt::format("ridge run {}, levers {}", f.model->model, e.program().levers.to_string()), e,
                      f.quiet);
    }
    return code;
}

}  // namespace

GenerateCallbacks terminal_callbacks(bool show_text) {
    auto progress =
        std::make_shared<std::unique_ptr<Progress>>(std::make_unique<Progress>("reading the prompt", "tokens", 1));
    GenerateCallbacks c;
    c.prompt = [progress](size_t done, size_t total) {
        (*progress)->show(done, total);
        if (done == total) *progress = std::make_unique<Progress>("", "", 1);  // wipes the line
        return !InterruptGuard::raised();
    };
    c.text = [show_text](std::string_view text) {
        return (!show_text || write_out(text)) && !InterruptGuard::raised();
    };
    return c;
}

void print_rates(const Run &run, const Generation &g) {
    std::string text = fmt::format("prompt {} tokens", g.prompt_tokens);
    if (g.cached_tokens > 0) text += fmt::format(" ({} kept)", g.cached_tokens);
    text += fmt::format(", {:.1f}/s; answer {} tokens, {:.1f}/s", g.prompt_rate(), g.tokens.size(), g.answer_rate());
    if (g.finish == Finish::length) text += "; ended by -n";
    if (g.finish == Finish::context)
        text += fmt::format("; ended by the context of {} positions (--context)", run.session->context());
    if (g.finish == Finish::cancelled) text += "; stopped";
    write_note(fmt::format("[{}; levers {}]\n", text, run.session->engine().program().levers.to_string()));
}

text::ChatTemplate chat_template(const Run &run) {
    const text::TemplateSource source = template_source(*run.flags.chat, run.model->file());
    note_unused_tools(*run.flags.chat, source);
    return text::ChatTemplate(source.text, run.model->tokenizer(), source.origin);
}

void add_run(CLI::App &app) {
    CLI::App *cmd = app.add_subcommand("run", "Answer a prompt (-p, --file or a pipe), or chat on the terminal");
    auto f = std::make_shared<RunFlags>();
    f->model = add_model_flags(*cmd);
    CLI::Option *prompt =
        cmd->add_option("-p,--prompt", f->prompt, "The prompt; - reads the standard input")->type_name("TEXT");
    prompt->each([flags = f.get()](const std::string &) { flags->has_prompt = true; });
    cmd->add_option("--file", f->prompt_file, "Read the prompt from a file")->type_name("FILE")->excludes(prompt);
    cmd->add_option("-n,--tokens", f->generate.max_tokens, "Most tokens to answer (default: until the model ends)")
        ->check(positive_number());
    CLI::Option *system =
        cmd->add_option("--system", f->system, "System prompt (default: the template's own)")->type_name("TEXT");
    system->each([flags = f.get()](const std::string &) { flags->has_system = true; });
    CLI::Option *raw = cmd->add_flag("--raw", f->raw, "Continue the prompt as it is, without a chat template");
    raw->excludes(system);
    f->chat = add_chat_flags(*cmd);
    for (const char *flag : {"--chat-template", "--tools", "--documents", "--template-vars"}) raw->excludes(flag);
    cmd->add_flag("--special", f->special, "With --raw: control tokens named in the prompt count as such")->needs(raw);
    cmd->add_option("--stop", f->generate.stop, "End the answer before this text; may be given again")
        ->allow_extra_args(false)
        ->type_name("TEXT");
    cmd->add_flag("--ignore-end", f->generate.ignore_end, "Go on past the model's end (for measuring)");
    cmd->add_flag("--json", f->json, "Print the answer and its figures as JSON");
    cmd->add_flag("-q,--quiet", f->quiet, "Print no figures at the end");
    CLI::Option *plan = cmd->add_flag("--explain-plan", f->explain_plan,
                                      "Print which kernel row runs each operation and why, then end");
    cmd->add_option("--trace", f->trace,
                    "Write when each launch ran to a file for ui.perfetto.dev, and print what they add up to")
        ->type_name("FILE")
        ->excludes(plan);
    f->sampler = add_sampler_flags(*cmd);
    cmd->callback([f] {
        if (const int code = run_command(*f); code != 0) throw CLI::RuntimeError(code);
    });
}

}  // namespace ridge
