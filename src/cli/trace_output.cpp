#include "cli/trace_output.h"

#include <fmt/format.h>

#include "cli/terminal.h"

namespace ridge {

std::vector<std::string> device_names(const Engine &engine) {
    std::vector<std::string> names;
    for (const Backend *d : engine.devices()) {
        const DeviceInfo info = d->info();
        names.push_back(info.name + ": " + info.description);
    }
    return names;
}

std::string trace_tables(const Program &p, const TraceKeeper &kept) {
    const TraceSummary s = summarize(p, kept.steps());
    std::string text = to_string(s.prompt, "prompt") + to_string(s.answer, "answer");
    if (kept.left_out() > 0)
        text += fmt::format("the last {} steps are left out: a trace holds no more\n", kept.left_out());
    return text;
}

void SessionTrace::finish(std::string_view title, const Engine &engine, bool quiet) {
    file_.add(title, engine.program(), device_names(engine), keeper_.steps());
    file_.finish();
    if (!quiet) write_note(trace_tables(engine.program(), keeper_));
}

}  // namespace ridge
