// ridge: one program, one subcommand per file of this folder.
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <system_error>

#include <unistd.h>

#include "cli/flags.h"
#include "cli/terminal.h"
#include "core/error.h"
#include "core/version.h"

namespace {

// What the parser of the command line refuses, in the form of every other error.
[[noreturn]] void fail_usage(const CLI::App &app, const CLI::ParseError &e) {
    const auto chosen = app.get_subcommands();
    const std::string command = chosen.empty() ? "ridge" : "ridge " + chosen[0]->get_name();
    ridge::fail(ridge::ErrorKind::usage, "{}; `{} --help` lists the flags", ridge::printable(e.what()), command);
}

int run(int argc, char **argv) {
    CLI::App app{"ridge runs quantized language models (GGUF) and says why they run as fast as they do."};
    app.set_version_flag("--version", "ridge " + std::string(ridge::version()));
    app.require_subcommand(1);
    app.fallthrough(false);
    app.footer(
        "Exit codes: 0 done, 1 a gate failed, 2 usage, 3 bad file, 4 unsupported, 5 a limit, 6 a device, 130 "
        "interrupted.");
    ridge::add_run(app);
    ridge::add_inspect(app);
    ridge::add_template(app);
    ridge::add_tokenize(app);
    ridge::add_levers(app);
    ridge::add_devices(app);
    ridge::add_gate(app);
    ridge::add_bench(app);
    ridge::add_ab(app);
    ridge::add_ladder(app);
    ridge::add_explain(app);
    ridge::add_report(app);
    ridge::add_synth(app);
    try {
        app.parse(argc, argv);
    } catch (const CLI::Success &e) {  // --help, --version
        return app.exit(e);
    } catch (const CLI::RuntimeError &e) {  // a callback's own exit code
        return e.get_exit_code();
    } catch (const CLI::RequiredError &e) {
        // CLI11 does not name a first word that is no subcommand.
        if (argc > 1 && argv[1][0] != '-' && app.get_subcommands().empty())
            ridge::fail(ridge::ErrorKind::usage, "there is no command '{}'; `ridge --help` lists them",
                        ridge::printable(argv[1]));
        fail_usage(app, e);
    } catch (const CLI::ParseError &e) {
        fail_usage(app, e);
    }
    return 0;
}

// A page of a mapped file that cannot be read: it was cut short, or its disk failed.
extern "C" void on_bus_error(int) {
    constexpr char kText[] = "ridge: a model file became shorter or unreadable while it was in use\n";
    if (write(STDERR_FILENO, kText, sizeof kText - 1) < 0) _exit(70);
    _exit(static_cast<int>(ridge::ErrorKind::file));
}

// What was printed must have arrived: a full disk is an error, a reader that left (`| head`) is not.
int checked_output(int code) {
    const int error = ridge::output_error();
    if (error == 0 || error == EPIPE || code != 0) return code;
    std::fprintf(stderr, "ridge: the output could not be written: %s\n", std::strerror(error));
    return static_cast<int>(ridge::ErrorKind::file);
}

}  // namespace

int main(int argc, char **argv) {
    // A closed pipe ends a write with an error, not the program with a signal.
    std::signal(SIGPIPE, SIG_IGN);
    std::signal(SIGBUS, on_bus_error);
    try {
        return checked_output(run(argc, argv));
    } catch (const ridge::Error &e) {
        std::fprintf(stderr, "ridge: %s\n", e.what());
        return e.exit_code();
    } catch (const std::system_error &e) {  // fmt::print, where the output cannot be written
        if (e.code().value() == EPIPE) return 0;
        std::fprintf(stderr, "ridge: the output could not be written: %s\n", std::strerror(e.code().value()));
        return static_cast<int>(ridge::ErrorKind::file);
    } catch (const std::bad_alloc &) {
        std::fprintf(stderr, "ridge: out of memory\n");
        return static_cast<int>(ridge::ErrorKind::limit);
    } catch (const std::exception &e) {
        std::fprintf(stderr, "ridge: bug: %s. Please report this with the command you ran.\n", e.what());
        return 70;
    }
}
