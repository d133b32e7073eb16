#include "measure/gate.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "format/decode.h"
#include "measure/gate_format.h"
#include "measure/gate_problems.h"

namespace ridge {

GateRow GateReport::total() const {
    GateRow t;
    t.name = "total";
    for (const GateRow &r : rows) {
        if (!r.not_run.empty()) continue;
        t.formats = t.formats | r.formats;
        t.cases += r.cases;
        t.worst = std::max(t.worst, r.worst);
        t.result.checked += r.result.checked;
        t.result.nbad += r.result.nbad;
        if (t.result.first_bad.empty()) t.result.first_bad = r.result.first_bad;
    }
    for (const FormatInfo &f : all_formats()) t.n_formats += t.formats.has(f.id);
    return t;
}

size_t GateReport::not_run() const {
    return static_cast<size_t>(std::count_if(rows.begin(), rows.end(), [](auto &r) { return !r.not_run.empty(); }));
}

bool GateReport::ok() const {
    return not_run() < rows.size() && std::all_of(rows.begin(), rows.end(), [](auto &r) { return r.ok(); });
}

void GateReport::append(GateReport other) { std::move(other.rows.begin(), other.rows.end(), std::back_inserter(rows)); }

GateReport gate_rows(Backend &backend, const GateOptions &options) {
    using namespace gate;
    Trial trial(backend, options);
    for (const auto attempt : {try_embed, try_rmsnorm, try_add_rmsnorm, try_quantize, try_elementwise, try_softmax,
                               try_top_k, try_arg_max, try_moe_route, try_moe_combine, try_sample, try_rope_table,
                               try_rope, try_kv_write, try_qk_norm_rope, try_attention})
        attempt(trial);
    try_contract(trial);
    try_gate_up(trial);
    return trial.report();
}

GateReport gate_formats(const GateOptions &options) {
    GateReport report;
    if (!options.op.empty() && options.op != "format") return report;
    for (const FormatInfo &f : all_formats()) {
        GateRow row;
        row.name = fmt::format("format.{}", f.name);
        if (row.name.find(options.row) == std::string::npos) continue;
        if (options.format && *options.format != f.id) continue;
        const size_t weights = options.quick ? 16'000 : 128'000;
        row.result = gate_format(decoder(f.id), f.id, random_blocks(f.id, weights / f.block, 1));
        row.formats = {f.id}, row.n_formats = 1, row.cases = 1;
        report.rows.push_back(std::move(row));
    }
    return report;
}

std::string to_string(const GateRow &r) {
    if (!r.not_run.empty()) return fmt::format("{:<36} not run: {}\n", r.name, r.not_run);
    std::string text =
        fmt::format("{:<36} {:>3} formats {:>6} cases  nbad={}/{}{}{}{}\n", r.name, r.n_formats, r.cases, r.result.nbad,
                    r.result.checked, r.worst > 0 ? fmt::format("  worst {:.2f} of its bound", r.worst) : "",
                    r.note.empty() ? "" : "  " + r.note, r.result.checked == 0 ? "  nothing was checked" : "");
    for (size_t at = 0; at < r.result.first_bad.size();) {
        const size_t end = std::min(r.result.first_bad.find('\n', at), r.result.first_bad.size());
        text += fmt::format("    {}\n", r.result.first_bad.substr(at, end - at));
        at = end + 1;
    }
    return text;
}

std::string totals_of(const GateReport &report) {
    const GateRow t = report.total();
    const size_t not_run = report.not_run();
    std::string text =
        fmt::format("rows={} formats={} cases={} elements={} nbad={}{}\n", report.rows.size() - not_run, t.n_formats,
                    t.cases, t.result.checked, t.result.nbad, not_run > 0 ? fmt::format(" not_run={}", not_run) : "");
    if (!report.ok()) text += t.result.nbad > 0 ? "FAILED\n" : "FAILED: a row, or all of them, checked nothing\n";
    return text;
}

std::string to_string(const GateReport &report) {
    std::string text;
    for (const GateRow &r : report.rows) text += to_string(r);
    return text + totals_of(report);
}

}  // namespace ridge
