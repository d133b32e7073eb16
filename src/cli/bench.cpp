// ridge bench: speed of kernel rows in isolation, and of whole models.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/backends.h"
#include "backend/cpu/ceilings.h"
#include "backend/cpu/topology.h"
#include "cli/bench_output.h"
#include "cli/flags.h"
#include "cli/load.h"
#include "cli/terminal.h"
#include "cli/trace_output.h"
#include "core/error.h"
#include "gguf/printable.h"
#include "measure/quiet.h"

namespace ridge {
namespace {

struct Options {
    bench::KernelOptions kernel;
    bench::ModelBenchOptions model;
    std::vector<std::string> formats{"all"}, models, lever_texts;
    std::vector<LeverSet> levers;
    std::vector<uint32_t> depths;
    std::string op, kv = "f16", trace;
    unsigned threads = 0;
    uint32_t rotate_mb = 0;
    bool json = false, jsonl = false, csv = false, force = false;
    DeviceFlags device;
    std::string experts;  // a number of them for kernels, --experts of `ridge run` for models

    DeviceChoice devices() const {
        DeviceChoice c = device.choice();
        c.options.threads = threads;
        return c;
    }
    BenchForm form() const {
        return json ? BenchForm::json : jsonl ? BenchForm::jsonl : csv ? BenchForm::csv : BenchForm::table;
    }
    bench::WhenBusy when_busy() const { return force ? bench::WhenBusy::mark : bench::WhenBusy::refuse; }
};

void resolve(Options &o) {
    if (o.threads == 0) o.threads = cpu::read_topology().default_threads();
    if (o.op.empty() == o.models.empty())
        fail(ErrorKind::usage, "either --op OP measures kernel rows, or -m FILE a whole model");
    if (!o.op.empty() && !o.trace.empty()) fail(ErrorKind::usage, "--trace is for models (-m), not for kernel rows");
    o.kernel.when_busy = o.model.when_busy = o.when_busy();
    o.kernel.kv = kv_type_of(o.kv);
    if (!o.depths.empty()) o.kernel.depths = o.model.depths = o.depths;

    if (!o.op.empty() && !o.experts.empty()) {
        const auto [end, error] =
            std::from_chars(o.experts.data(), o.experts.data() + o.experts.size(), o.kernel.experts);
        if (error != std::errc{} || end != o.experts.data() + o.experts.size())
            fail(ErrorKind::usage, "--experts {}: of kernels it is a number of matrices", gguf::printable(o.experts));
    }
    if (o.op.empty()) o.device.experts = o.experts;
    if (!o.op.empty() && !o.device.place.empty())
        fail(ErrorKind::usage, "--place is for models (-m); --device says where kernel rows are measured");

    o.kernel.op = o.op;
    for (const std::string &name : o.formats) {
        if (name == "all") {
            for (const FormatInfo &f : all_formats()) o.kernel.formats.push_back(f.id);
            continue;
        }
        const FormatInfo *f = find_format(std::string_view(name));
        if (!f) fail(ErrorKind::usage, "--format {}: there is no such format; there are all, {}", name, format_names());
        o.kernel.formats.push_back(f->id);
    }
    for (const std::string &l : o.lever_texts) o.levers.push_back(LeverSet::from_environment().edited(l, "--lever"));
    if (o.levers.empty()) o.levers = {LeverSet::from_environment()};
    if (!o.op.empty() && o.levers.size() > 1)
        fail(ErrorKind::usage, "kernel rows are measured under one set of levers; several are for models");
    o.kernel.levers = o.levers[0];
}

CeilingFigures figures_of(const cpu::Ceilings &c) {
    CeilingFigures f;
    f.instructions = c.isa;
    const auto add = [&](const char *name, const char *unit, const cpu::Ceiling &x) {
        f.list.push_back({name, unit, x.all, 0, 0});
        f.list.push_back({name, unit, x.one, 1, 0});
    };
    add("read", "B/s", c.read), add("int8", "MAC/s", c.int8), add("f32", "MAC/s", c.f32), add("bf16", "MAC/s", c.bf16);
    return f;
}

// Refuses a machine that is busy, or notes by what; then measures what it can do at most.
BenchHeader prepare(const Options &o, bool own_time) {
    BenchHeader h;
    const Contention before = observe_quiet(o.force, "every row");
    h.busy = before.reason();
    h.clock_before = before.clock_before;
    const std::unique_ptr<Backend> device = open_one(o.devices());
    const BackendRow &row = row_of(*device);
    h.device = device->info().description;
    h.clock = own_time ? "processor time of the thread" : "wall time";
    // Not those that `ridge devices` keeps: shares are of what the machine can do in this very minute, since clocks and
    // the neighbours of a virtual machine change, and a bench takes longer than the second that it costs.
    h.threads = o.threads;
    if (!row.is_gpu())
        h.ceilings = figures_of(cpu::measure_ceilings({.threads = o.threads}));
    else if (row.measure)
        h.ceilings = row.measure(*device);
    return h;
}

bench::Roof roof_of(const CeilingFigures &c) { return {c.get("read"), c.get("int8"), c.get("f32"), c.get("bf16")}; }

void bench_kernels(Options &o) {
    bench::KernelOptions &k = o.kernel;
    const std::unique_ptr<Backend> device = open_one(o.devices());
    k.own_time = o.threads == 1 && !row_of(*device).is_gpu();
    BenchHeader header = prepare(o, k.own_time);
    const double cache = header.ceilings.get("cache");  // of a GPU
    k.rotate_bytes = o.rotate_mb > 0 ? size_t{o.rotate_mb} * 1000000
                     : cache > 0     ? 16 * static_cast<size_t>(cache)
                                     : cpu::beyond_caches();
    const bench::Roof roof = roof_of(header.ceilings);
    KernelTable table(o.form(), std::move(header), k, roof);
    bench::bench_kernels(*device, k, [&](const bench::KernelResult &r) { table.add(r); });
    table.finish();
}

void bench_models(Options &o) {
    std::optional<TraceFile> trace;
    if (!o.trace.empty()) trace.emplace(o.trace);
    BenchHeader header = prepare(o, false);
    const bench::Roof roof = roof_of(header.ceilings);
    ModelTable table(o.form(), std::move(header), roof);
    for (const std::string &path : o.models) {
        OpenOptions open{.kv_type = o.kernel.kv, .threads = o.threads, .devices = o.devices(), .tokenizer = false};
        open.sessions_like = {.context = o.model.context(), .batch = o.model.batch, .levers = o.levers[0]};
        open.sessions = static_cast<unsigned>(o.levers.size());
        Loads loads(path, open);
        o.model.sides.clear();
        for (const LeverSet &l : o.levers) o.model.sides.push_back({&loads.for_levers(l), l});
        note_placement(*o.model.sides[0].model);
        table.begin_model(*o.model.sides[0].model, path, loads.seconds());
        if (trace)
            o.model.trace = [&](const bench::ModelResult &r, const Engine &engine, const TraceKeeper &kept) {
                const std::string title = fmt::format("{} {}, levers {}", path, r.test(), r.levers.to_string());
                trace->add("ridge bench " + title, engine.program(), device_names(engine), kept.steps());
                write_note(fmt::format("{}\n{}", title, trace_tables(engine.program(), kept)));
            };
        bench::bench_model(o.model, [&](const bench::ModelResult &r) { table.add(r); });
    }
    table.finish();
    if (trace) trace->finish();
}

void add_kernel_flags(CLI::App &cmd, bench::KernelOptions &k, Options &o) {
    const std::string group = "Kernels";
    const auto size = [&](const char *flag, uint32_t &value, const char *text) {
        cmd.add_option(flag, value, text)->check(positive_number())->group(group)->capture_default_str();
    };
    cmd.add_option("--op", o.op, "Measure the rows of an operation: contract, gate_up or attention")->group(group);
    cmd.add_option("--format", o.formats, "Formats of the weights, or all")->delimiter(',')->group(group);
    cmd.add_option("--m", k.tokens, "Token counts")
        ->capture_default_str()
        ->delimiter(',')
        ->check(positive_number())
        ->group(group);
    size("--n", k.n, "Rows of the matrix");
    size("--k", k.k, "Length of a row");
    cmd.add_option("--experts", o.experts,
                   "Of kernels: matrices, of which each token uses --slots. Of models: cpu or cpu:N, as in `ridge run`")
        ->group(group);
    cmd.add_option("--slots", k.slots, "Experts that a token uses")->group(group);
    cmd.add_option("--row", k.row, "Only rows whose name matches (* is any text) or contains this")->group(group);
    cmd.add_flag("--every-input", k.every_input, "Rows that read f32 too, where others read int8")->group(group);
    cmd.add_option("--rotate", o.rotate_mb, "MB of weights or state in turn (default: 16 times the last-level cache)")
        ->check(positive_number())
        ->group(group);
    cmd.add_flag("--small-pages", k.small_pages, "Weights on pages of 4 KiB")->group(group);
    cmd.add_option("--seconds", k.seconds, "For each row and point")->group(group)->capture_default_str();
    size("--heads", k.heads, "Of attention");
    size("--kv-heads", k.kv_heads, "Of attention");
    size("--head-dim", k.head_dim, "Of attention");
}

void add_model_bench_flags(CLI::App &cmd, bench::ModelBenchOptions &m, Options &o) {
    const std::string group = "Models";
    cmd.add_option("-m,--model", o.models, "GGUF file; may be given again")->allow_extra_args(false)->group(group);
    cmd.add_option("-p,--prompt", m.prompts, "Tokens of a prompt")->capture_default_str()->delimiter(',')->group(group);
    cmd.add_option("-n,--answer", m.answers, "Tokens generated one by one")
        ->capture_default_str()
        ->delimiter(',')
        ->group(group);
    cmd.add_option("-r,--repeats", m.repeats, "Times that each is measured")
        ->check(positive_number())
        ->group(group)
        ->capture_default_str();
    cmd.add_option("-b,--batch", m.batch, "Most tokens in one step")
        ->check(positive_number())
        ->group(group)
        ->capture_default_str();
    cmd.add_option("--trace", o.trace,
                   "After each measurement run it once more, write when each launch ran to a file for ui.perfetto.dev, "
                   "and print what they add up to")
        ->type_name("FILE")
        ->group(group);
}

}  // namespace

void add_bench(CLI::App &app) {
    auto o = std::make_shared<Options>();
    CLI::App *cmd = app.add_subcommand("bench", "Measure kernel rows in isolation (--op) or whole models (-m)");
    add_kernel_flags(*cmd, o->kernel, *o);
    add_model_bench_flags(*cmd, o->model, *o);
    cmd->add_option("-d,--depth", o->depths,
                    "Positions before the first token (default: 512 of attention, 0 of models)")
        ->delimiter(',');
    cmd->add_option("--kv", o->kv, "Type of the KV state")
        ->check(CLI::IsMember({"f16", "f32", "q8_0"}))
        ->capture_default_str();
    add_device_flags(*cmd, o->device, "Devices", false);
    cmd->add_option("-t,--threads", o->threads, "CPU threads (default: what affinity and cgroup grant)")
        ->check(positive_number());
    cmd->add_option("--lever", o->lever_texts,
                    "A set of levers, as in `ridge run`; of models several may be given, and take turns")
        ->allow_extra_args(false)
        ->type_name("LIST");
    CLI::Option *json = cmd->add_flag("--json", o->json, "Print as JSON");
    CLI::Option *jsonl =
        cmd->add_flag("--jsonl", o->jsonl, "Print a line of JSON for each result, as it comes")->excludes(json);
    cmd->add_flag("--csv", o->csv, "Print as CSV")->excludes(json)->excludes(jsonl);
    cmd->add_flag("--force", o->force, "Measure a busy machine too, and mark what is measured");
    cmd->callback([o] {
        resolve(*o);
        if (o->models.empty())
            bench_kernels(*o);
        else
            bench_models(*o);
    });
}

}  // namespace ridge
