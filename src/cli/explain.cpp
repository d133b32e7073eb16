// ridge explain: why a model runs as fast as it does, and what would make it faster.
#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "backend/backends.h"
#include "cli/ceilings_output.h"
#include "cli/explain_output.h"
#include "cli/explain_phases.h"
#include "cli/load.h"
#include "cli/terminal.h"
#include "core/error.h"

namespace ridge {
namespace {

// Those that are kept, or measured now: figures of another day are good enough to tell regimes apart, whose margins are
// wide. Ratios of a few percent are what bench is for, which measures its own.
DeviceCeilings ceilings_of(Backend &device, const ExplainOptions &o) {
    const CeilingStore store;
    if (!o.measure)
        if (std::optional<DeviceCeilings> c = store.find(key_of(device))) return *c;
    DeviceCeilings c = measure_ceilings(row_of(device), device, o.force ? WhenBusy::mark : WhenBusy::refuse);
    store.keep(c);  // where that fails, the next run measures again
    return c;
}

}  // namespace

void add_explain_options(CLI::App &cmd, ExplainOptions &o) {
    cmd.add_option("-m,--model,model", o.model, "GGUF file; of a split set, any part")->required()->type_name("FILE");
    cmd.add_option("-t,--threads", o.threads, "CPU threads (default: what affinity and cgroup grant)")
        ->check(positive_number());
    add_device_flags(cmd, o.device);
    cmd.add_option("-p,--prompt", o.prompt, "Tokens of the prompt; 0: none")
        ->check(CLI::Range(0U, 1U << 30))
        ->capture_default_str();
    cmd.add_option("-n,--answer", o.answer, "Steps of one token; 0: none")
        ->check(CLI::Range(0U, 1U << 30))
        ->capture_default_str();
    cmd.add_option("-d,--depth", o.depth,
                   "Positions before the answer in the last phase; 0: leave it out (default: 4096, less where the "
                   "model's context is short)")
        ->check(CLI::Range(0U, 1U << 30));
    cmd.add_option("-b,--batch", o.batch, "Most tokens in one step")->check(positive_number())->capture_default_str();
    cmd.add_option("--kv", o.kv, "Type of the KV state")
        ->check(CLI::IsMember({"f16", "f32", "q8_0"}))
        ->capture_default_str();
    cmd.add_option("--lever", o.lever_texts, "Switch levers, as in `ridge run`")
        ->allow_extra_args(false)
        ->type_name("LIST");
    cmd.add_flag("--measure", o.measure, "Measure the device's ceilings again");
    cmd.add_flag("--force", o.force, "Measure a busy machine too, and mark what is measured");
}

Explained explain(const ExplainOptions &o, const std::function<void(const Explained &)> &begin,
                  const std::function<void(const Explained &, const Phase &)> &emit) {
    Explained e;
    e.levers = LeverSet::from_environment();
    for (const std::string &l : o.lever_texts) e.levers = e.levers.edited(l, "--lever");
    if (o.prompt == 0 && o.answer == 0) fail(ErrorKind::usage, "there is nothing to explain: -p and -n are 0");
    const std::string busy = observe_quiet(o.force, "every phase").reason();
    const uint32_t longest = std::max(o.prompt, o.answer);
    OpenOptions open{
        .kv_type = kv_type_of(o.kv), .threads = o.threads, .devices = o.device.choice(), .tokenizer = false};
    open.sessions_like = {
        .context = std::max(longest, o.depth.value_or(4096) + o.answer), .batch = o.batch, .levers = e.levers};
    e.model = open_loaded(o.model, open, pages_of(e.levers));
    e.ceilings = ceilings_of(*e.model->devices()[0], o);

    const uint32_t trained = e.model->hparams().context_length;
    uint32_t depth = o.depth.value_or(4096);
    if (!o.depth && trained < depth + o.answer) depth = trained > 2 * longest ? trained - longest : 0;
    bench::Side side(*e.model, e.levers, std::max(longest, depth + o.answer), o.batch);

    std::vector<PhaseOptions> wanted;
    const WhenBusy when_busy = o.force ? WhenBusy::mark : WhenBusy::refuse;
    if (o.prompt > 0) wanted.push_back({.prompt = o.prompt, .when_busy = when_busy});
    if (o.answer > 0) wanted.push_back({.answer = o.answer, .when_busy = when_busy});
    if (o.answer > 0 && depth > 0) wanted.push_back({.answer = o.answer, .depth = depth, .when_busy = when_busy});

    begin(e);
    for (const PhaseOptions &w : wanted) {
        if (w.depth > 0) side.fill(w.depth);
        Phase phase = explain_phase(side, e.ceilings.figures, w);
        if (phase.contended.empty()) phase.contended = busy;
        emit(e, phase);
    }
    return e;
}

namespace {

void print_explained(const ExplainOptions &o, bool json) {
    nlohmann::ordered_json out;
    const auto begin = [&](const Explained &e) {
        const std::string device = e.model->device_text();
        const std::string name = std::filesystem::path(o.model).filename().string();
        out = {{"model", name},
               {"model_filename", o.model},
               {"device", device},
               {"placement", e.model->placed().flags},
               {"levers", e.levers.to_string()},
               {"ceilings", as_json(e.ceilings)},
               {"phases", nlohmann::ordered_json::array()}};
        if (json) return;
        const std::string contended = e.ceilings.contended.empty() ? "" : ", contended: " + e.ceilings.contended;
        const bool is_split = e.model->devices().size() > 1;
        const std::string split =
            is_split ? wrapped("", fmt::format("split over {}; ceilings, and so the regimes, are those of {}",
                                               e.model->placed().text, e.model->devices()[0]->info().name))
                     : std::string();
        write_out(wrapped("", printable(name)) + wrapped("", device) + split +
                  wrapped("", fmt::format("levers: {}; ceilings measured {}{}", e.levers.to_string(),
                                          when(e.ceilings.measured_at, seconds_since_1970()), contended)));
    };
    explain(o, begin, [&](const Explained &e, const Phase &phase) {
        if (json)
            out["phases"].push_back(as_json(phase));
        else
            write_out("\n" + to_string(phase, e.ceilings));
    });
    if (json)
        write_out(out.dump(2) + "\n");
    else
        write_out(
            "\nn: launches a step; us, MB, GFLOP: of a step; f: share of the time; share: of the ceiling that\n"
            "binds; to ceiling, gone: times as fast a step could get if the class reached it, or took no time\n");
}

}  // namespace

void add_explain(CLI::App &app) {
    auto o = std::make_shared<ExplainOptions>();
    auto json = std::make_shared<bool>(false);
    CLI::App *cmd = app.add_subcommand("explain", "Say why a model runs as fast as it does, and what would help");
    add_explain_options(*cmd, *o);
    cmd->add_flag("--json", *json, "Print as JSON");
    cmd->callback([o, json] { print_explained(*o, *json); });
}

}  // namespace ridge
