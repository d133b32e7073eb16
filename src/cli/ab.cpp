// ridge ab: one lever on against off, in one process, beside the noise; all of them with --all.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "backend/cpu/topology.h"
#include "cli/ab_output.h"
#include "cli/flags.h"
#include "cli/load.h"
#include "core/error.h"
#include "measure/quiet.h"

namespace ridge {
namespace {

struct Options {
    bench::AbOptions ab;
    std::vector<std::string> lever_texts;
    std::string model, kv = "f16", out;
    unsigned threads = 0;
    DeviceFlags device;
    bool all = false, same = false, json = false, csv = false, force = false;

    std::vector<Lever> levers;  // to compare
    LeverSet base = LeverSet::none();
    BenchForm form() const { return json ? BenchForm::json : csv ? BenchForm::csv : BenchForm::table; }
};

void resolve(Options &o) {
    o.base = LeverSet::from_environment();
    if (o.threads == 0) o.threads = cpu::read_topology().default_threads();
    for (const std::string &text : o.lever_texts) {
        // A bare name is a lever to compare; edits hold for both sides.
        if (const std::optional<Lever> l = find_lever(text))
            o.levers.push_back(*l);
        else
            o.base = o.base.edited(text, "--lever");
    }
    const int asked = (o.levers.empty() ? 0 : 1) + (o.all ? 1 : 0) + (o.same ? 1 : 0);
    if (asked != 1)
        fail(ErrorKind::usage,
             "what is to be compared? --lever NAME a lever, --all all of them, or --aa two engines of the same; "
             "`ridge levers` lists the names");
    if (o.ab.phases().empty()) fail(ErrorKind::usage, "there is nothing to compare: --pp and --tg are 0");
    if (!o.out.empty() && !std::ofstream(o.out, std::ios::app))
        fail(ErrorKind::file, "{}: cannot be written", o.out);  // now, and not after a long measurement
    if (o.all)
        for (const LeverInfo &l : all_levers()) o.levers.push_back(l.id);
    if (o.same) o.levers = {Lever::none};
    o.ab.when_busy = o.force ? bench::WhenBusy::mark : bench::WhenBusy::refuse;
}

std::string command_of(const Options &o) {
    std::string c = "ridge ab";
    if (o.all) c += " --all";
    if (o.same) c += " --aa";
    for (const std::string &l : o.lever_texts) c += " --lever " + l;
    c += fmt::format(" -m {} --pp {} --tg {}", std::filesystem::path(o.model).filename().string(), o.ab.prompt,
                     o.ab.answer);
    if (o.ab.depth > 0) c += fmt::format(" -d {}", o.ab.depth);
    if (o.kv != "f16") c += " --kv " + o.kv;
    c += o.device.text();
    return c +
           fmt::format(" -b {} -t {} --seconds {}{}", o.ab.batch, o.threads, o.ab.seconds, o.force ? " --force" : "");
}

void run(const Options &o) {
    AbHeader header;
    header.busy = observe_quiet(o.force, "every row").reason();
    OpenOptions open{
        .kv_type = kv_type_of(o.kv), .threads = o.threads, .devices = o.device.choice(), .tokenizer = false};
    open.sessions_like = {.context = o.ab.context(), .batch = o.ab.batch, .levers = o.base};
    open.sessions = 3;
    Loads loads(o.model, open);
    Model &model = loads.for_levers(o.base);
    note_placement(model);
    header.device = model.device_text();
    header.machine = row_of(*model.devices()[0]).is_gpu() ? header.device.substr(0, header.device.find(','))
                                                          : cpu::read_topology().model;
    header.date = fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::time(nullptr)));
    header.command = command_of(o);
    header.model = std::filesystem::path(o.model).filename().string();
    header.architecture = model.hparams().architecture;
    header.model_bytes = model.file().file_bytes();
    header.threads = o.threads;

    AbTable table(o.form(), std::move(header));
    for (const Lever l : o.levers) {
        const LeverSet off = l == Lever::none ? o.base : o.base.without(l), on = o.base.with(l);
        if (l != Lever::none)
            if (std::string why = bench::not_applicable(o.ab, l, o.base, model, o.threads); !why.empty()) {
                table.not_applicable(std::string(name(l)), std::move(why));
                continue;
            }
        bench::ab(
            o.ab, l, {&loads.for_levers(off), off}, {&loads.for_levers(on), on},
            [&](const bench::AbResult &r) { table.predicted(r); },
            [&](const bench::AbResult &r) { table.measured(r); });
    }
    table.finish();
    if (o.out.empty()) return;
    std::ofstream file(o.out);
    file << table.json().dump(2) << "\n";
    if (!file.flush()) fail(ErrorKind::file, "{}: cannot be written", o.out);
}

}  // namespace

void add_ab(CLI::App &app) {
    auto o = std::make_shared<Options>();
    CLI::App *cmd =
        app.add_subcommand("ab", "Compare a lever on with the lever off: predicted, measured, noise, verdict");
    cmd->add_option(
           "--lever", o->lever_texts,
           "A bare NAME is a lever to compare; +NAME and -NAME switch others for both sides. May be given again")
        ->allow_extra_args(false)
        ->type_name("LIST");
    cmd->add_flag("--all", o->all, "Every lever that changes anything here");
    cmd->add_flag("--aa", o->same, "No lever: two engines of the same, which should be flat");
    cmd->add_option("-m,--model", o->model, "GGUF file")->required()->type_name("FILE");
    cmd->add_option("--pp", o->ab.prompt, "Tokens of a prompt; 0: none")->capture_default_str();
    cmd->add_option("--tg", o->ab.answer, "Tokens generated one by one, of a block; 0: none")->capture_default_str();
    cmd->add_option("-d,--depth", o->ab.depth, "Positions before the first token")->capture_default_str();
    cmd->add_option("-b,--batch", o->ab.batch, "Most tokens in one step")
        ->check(positive_number())
        ->capture_default_str();
    cmd->add_option("--kv", o->kv, "Type of the KV state")
        ->check(CLI::IsMember({"f16", "f32", "q8_0"}))
        ->capture_default_str();
    add_device_flags(*cmd, o->device);
    cmd->add_option("-t,--threads", o->threads, "CPU threads (default: what affinity and cgroup grant)")
        ->check(positive_number());
    cmd->add_option("--seconds", o->ab.seconds, "Of blocks, for each lever and phase")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    CLI::Option *json = cmd->add_flag("--json", o->json, "Print as JSON");
    cmd->add_flag("--csv", o->csv, "Print as CSV")->excludes(json);
    cmd->add_option("-o,--output", o->out, "Write the JSON to this file too")->type_name("FILE");
    cmd->add_flag("--force", o->force, "Measure a busy machine too, and mark what is measured");
    cmd->callback([o] {
        resolve(*o);
        run(*o);
    });
}

}  // namespace ridge
