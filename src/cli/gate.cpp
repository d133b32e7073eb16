// ridge gate: every decoder, kernel row and fused form of a device, and whole models, against the oracle.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "backend/backends.h"
#include "cli/flags.h"
#include "cli/terminal.h"
#include "core/error.h"
#include "measure/gate.h"
#include "measure/gate_model.h"
#include "measure/gate_replay.h"

namespace ridge {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
    GateOptions gate;
    std::string format, device = "cpu", driver;
    unsigned threads = 0;
    bool json = false, list = false;
};

// Operations that have a gate, and the gates that are not of operations.
std::string known_ops() {
    std::string names = "format, fusion, model, replay";
    for (OpKind k = 0; k < kOpKinds; k++)
        if (k != kind<Copy>()) names += fmt::format(", {}", op_name(k));
    return names;
}

bool is_op(const std::string &name) {
    if (name == "format" || name == "fusion" || name == "model" || name == "replay") return true;
    for (OpKind k = 0; k < kOpKinds; k++)
        if (k != kind<Copy>() && op_name(k) == name) return true;
    return false;
}

void resolve(Options &o) {
    if (!o.gate.op.empty() && !is_op(o.gate.op))
        fail(ErrorKind::usage, "--op {}: there is no such gate; there are {}", o.gate.op, known_ops());
    if (o.format.empty()) return;
    if (o.gate.op == "model")
        fail(ErrorKind::usage, "--op model has models of several formats; --row selects among them");
    const FormatInfo *f = find_format(std::string_view(o.format));
    if (!f) fail(ErrorKind::usage, "--format {}: there is no such format; there are {}", o.format, format_names());
    o.gate.format = f->id;
}

Json as_json(const GateReport &report) {
    auto json_of = [](const GateRow &r) {
        Json row{{"name", r.name}};
        if (!r.not_run.empty()) {
            row["not_run"] = r.not_run;
            return row;
        }
        row["formats"] = r.n_formats, row["cases"] = r.cases;
        row["elements"] = r.result.checked, row["nbad"] = r.result.nbad;
        row["worst"] = r.worst;
        if (!r.note.empty()) row["note"] = r.note;
        if (!r.result.first_bad.empty()) row["first_bad"] = r.result.first_bad;
        return row;
    };
    Json out{{"rows", Json::array()}};
    for (const GateRow &r : report.rows) out["rows"].push_back(json_of(r));
    out["total"] = json_of(report.total());
    out["total"]["rows"] = report.rows.size() - report.not_run();
    out["total"]["not_run"] = report.not_run();
    out["ok"] = report.ok();
    return out;
}

void list_rows(const Backend &device, const GateOptions &only) {
    for (const Kernel &k : device.kernels()) {
        if (!only.op.empty() && op_name(k.op) != only.op) continue;
        if (k.name.find(only.row) == std::string_view::npos || (only.format && !k.formats.has(*only.format))) continue;
        const Features lacking = k.needs & ~device.features();
        size_t formats = 0;
        for (const FormatInfo &f : all_formats()) formats += k.formats.has(f.id);
        fmt::print("{:<36} {:<14} {:>3} formats{}{}\n", k.name, op_name(k.op), formats,
                   k.lever == Lever::none ? "" : fmt::format(", lever {}", name(k.lever)),
                   lacking == 0 ? "" : ", needs " + device.feature_names(lacking));
    }
}

void run(Options &o) {
    resolve(o);
    const std::unique_ptr<Backend> device =
        open_backend(o.device, {.threads = o.threads, .index = 0, .driver = o.driver});
    if (o.list) return list_rows(*device, o.gate);
    // Lines come as they are known: it can take minutes, and a device that fails in the middle takes the rest with it.
    GateReport report;
    const auto add = [&](GateReport part) {
        for (const GateRow &row : part.rows)
            if (!o.json && !write_out(to_string(row))) return false;
        report.append(std::move(part));
        return true;
    };
    const auto all = [&] {
        if (!add(gate_formats(o.gate))) return false;
        for (OpKind k = 0; k < kOpKinds; k++) {
            GateOptions one = o.gate;
            one.op = op_name(k);
            if ((o.gate.op.empty() || o.gate.op == one.op) && !add(gate_rows(*device, one))) return false;
        }
        if (!add(gate_fusions(*device, o.gate))) return false;
        if (o.gate.format) return true;
        if ((o.gate.op.empty() || o.gate.op == "replay") && !add(gate_replay(*device, o.gate))) return false;
        if (!o.gate.op.empty() && o.gate.op != "model") return true;
        DeviceChoice devices{.names = {device->info().name}};
        devices.options.driver = o.driver;
        return add(gate_models(o.gate, o.threads, devices));
    };
    if (!all()) return;  // nobody reads any more; the command line says so
    write_out(o.json ? as_json(report).dump(2) + "\n" : totals_of(report));
    if (!report.ok()) throw CLI::RuntimeError(1);
}

}  // namespace

void add_gate(CLI::App &app) {
    auto options = std::make_shared<Options>();
    CLI::App *cmd =
        app.add_subcommand("gate", "Check every kernel row of a device, and whole models, against the oracle");
    cmd->add_option("--op", options->gate.op,
                    "Only this operation; format: the decoders, fusion: the fused forms, model: whole models, "
                    "replay: captured steps against the same launch by launch");
    cmd->add_option("--format", options->format, "Only this weight format")->type_name("NAME");
    cmd->add_option("--row", options->gate.row, "Only rows whose name contains this");
    cmd->add_option("--device", options->device, "Whose rows")->type_name("NAME")->capture_default_str();
    cmd->add_option("--driver", options->driver, "Library to open in place of the GPU's driver")->group("");
    cmd->add_option("-t,--threads", options->threads, "Threads of the CPU (default: all that may be used)");
    cmd->add_flag("--quick", options->gate.quick, "Fewer shapes and step sizes");
    cmd->add_flag("--json", options->json, "Print the same as JSON");
    cmd->add_flag("--list", options->list, "List the rows and check nothing");
    cmd->callback([options] { run(*options); });
}

}  // namespace ridge
