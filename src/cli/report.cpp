// ridge report: a page about how fast a model runs here and why: phases, roofline, levers, bandwidth by size.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>
#include <filesystem>
#include <fstream>

#include "cli/explain_phases.h"
#include "cli/flags.h"
#include "cli/terminal.h"
#include "core/error.h"
#include "measure/bench.h"
#include "measure/lever_catalog.h"
#include "measure/report.h"

namespace ridge {
namespace {

struct Options {
    ExplainOptions explain;
    std::string out;
    std::vector<std::string> ab_files;
};

report::Phase phase_of(const Phase &p) {
    report::Phase to;
    to.name = p.name;
    to.wall = p.times.wall / p.step_tokens;
    const RegimeVerdict &v = p.verdict;
    to.verdict = fmt::format(
        "{}{}. Reading would need {:.0f}% of the time at the ceiling, multiply-adds {:.0f}%; {:.0f}% passes "
        "outside of launches. {:.1f} tokens per second without tracing.",
        name(v.regime), v.close ? fmt::format(" (near: {})", name(v.second)) : "", 100 * v.read_share,
        100 * v.compute_share, 100 * v.outside, p.rate.median());
    for (const Advice &a : p.next)
        if (a.most > 0) {
            to.verdict += fmt::format(" Next: {} (up to {:.2f} times as fast).", a.what, a.most);
            break;
        }
    if (!p.contended.empty()) to.verdict += " CONTENDED: " + p.contended + ".";
    for (const LaunchClass &c : p.times.classes) to.classes.push_back({c.name, c.seconds / p.step_tokens});
    return to;
}

// One token's contraction with matrices of 2^16 to 2^28 bytes, each beyond the caches in turn.
std::vector<report::SizePoint> sizes_of(Backend &device, const LeverSet &levers, WhenBusy when_busy) {
    std::vector<report::SizePoint> points;
    constexpr uint32_t k = 2048;
    for (uint32_t n = 32; n <= 131072; n *= 4) {
        bench::KernelOptions o;
        o.op = "contract", o.formats = {Format::Q8_0}, o.tokens = {1}, o.n = n, o.k = k, o.levers = levers;
        o.planned_only = true, o.seconds = 0.2, o.when_busy = when_busy;
        bench::bench_kernels(device, o, [&](const bench::KernelResult &r) {
            points.push_back({r.bytes, r.bytes_per_second()});
        });
    }
    return points;
}

std::string command_of(const Options &o) {
    const auto file = [](const std::string &path) { return std::filesystem::path(path).filename().string(); };
    const ExplainOptions &x = o.explain;
    std::string c =
        fmt::format("ridge report -m {} -p {} -n {} -b {} --kv {}", file(x.model), x.prompt, x.answer, x.batch, x.kv);
    if (x.depth) c += fmt::format(" -d {}", *x.depth);
    c += x.device.text();
    if (x.threads > 0) c += fmt::format(" -t {}", x.threads);
    for (const std::string &l : x.lever_texts) c += " --lever " + l;
    if (x.force) c += " --force";
    for (const std::string &f : o.ab_files) c += " --ab " + file(f);
    return c + " -o " + file(o.out);
}

void write_report(const Options &o) {
    report::Page page;
    for (const std::string &path : o.ab_files)
        for (const bench::LeverResult &r : bench::read_results_file(path)) {
            page.comparisons.push_back({r.lever, r.test + ", " + std::filesystem::path(r.model).stem().string(),
                                        r.speedup, r.low, r.high, r.is_predicted && !r.at_most ? r.predicted : 0,
                                        r.noise, r.verdict});
            if (!r.contended.empty())
                page.notes.push_back(fmt::format("{}, {}: contended, {}", r.lever, r.test, r.contended));
        }
    // Before anything long is done for nothing; what was there stays until there is something to put in its place.
    const bool there = std::filesystem::exists(o.out);
    if (std::ofstream probe(o.out, std::ios::app); !probe) fail(ErrorKind::file, "{}: cannot be written", o.out);
    if (!there) std::filesystem::remove(o.out);
    const auto add_phase = [&](const Explained &, const Phase &p) {
        page.phases.push_back(phase_of(p));
        for (const LaunchClass &c : p.times.classes)
            page.points.push_back({c.name, p.name, c.bytes, c.multiply_adds(), c.seconds});
    };
    const Explained e = explain(
        o.explain, [](const Explained &) {}, add_phase);
    page.title = "ridge: " + std::filesystem::path(o.explain.model).filename().string();
    page.model = fmt::format("{}, {:.2f} GB, levers {}", e.model->hparams().architecture,
                             static_cast<double>(e.model->file().file_bytes()) / 1e9, e.levers.to_string());
    page.device = e.model->device_text();
    if (e.model->devices().size() > 1)
        page.notes.push_back(fmt::format("split over {}; ceilings are those of {}", e.model->placed().text,
                                         e.model->devices()[0]->info().name));
    page.date = fmt::format("{:%Y-%m-%d}; ceilings measured {}", fmt::gmtime(std::time(nullptr)),
                            when(e.ceilings.measured_at, seconds_since_1970()));
    page.command = command_of(o);
    if (!e.ceilings.contended.empty()) page.notes.push_back("ceilings contended: " + e.ceilings.contended);
    const CeilingFigures &f = e.ceilings.figures;
    page.roof.read = f.get("read");
    for (const char *rate : {"int8", "bf16", "f32"})
        if (f.get(rate) > 0) page.roof.rates.push_back({rate, f.get(rate)});
    page.sizes = sizes_of(*e.model->devices()[0], e.levers, o.explain.force ? WhenBusy::mark : WhenBusy::refuse);
    std::ofstream file(o.out, std::ios::binary | std::ios::trunc);
    file << report::html(page);
    if (!file.flush()) fail(ErrorKind::file, "{}: cannot be written", o.out);
    write_out(fmt::format("{}\n", o.out));
}

}  // namespace

void add_report(CLI::App &app) {
    auto o = std::make_shared<Options>();
    CLI::App *cmd = app.add_subcommand("report", "Write a page: why a model runs as fast as it does, in figures");
    add_explain_options(*cmd, o->explain);
    cmd->add_option("-o,--output", o->out, "The page, HTML")->required()->type_name("FILE");
    cmd->add_option("--ab", o->ab_files, "Show these comparisons too, as `ridge ab -o FILE` writes them")
        ->type_name("FILE");
    cmd->callback([o] { write_report(*o); });
}

}  // namespace ridge
