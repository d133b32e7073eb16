#include "cli/ceilings_output.h"

#include <fmt/format.h>

#include <set>

namespace ridge {

std::string figure_text(double value, std::string_view unit) {
    if (unit == "s")
        return value < 1e-3 ? fmt::format("{:.2f} us", value * 1e6) : fmt::format("{:.2f} ms", value * 1e3);
    if (unit == "B") return fmt::format("{:.0f} MiB", value / (1 << 20));
    return fmt::format("{:.1f} G{}", value / 1e9, unit);
}

std::string figures_text(const DeviceCeilings &c, std::string_view indent) {
    std::string text;
    std::set<std::string> said;
    for (const CeilingFigure &f : c.figures.list) {
        if (!said.insert(f.name).second) continue;
        text += fmt::format("{}{:<8}", indent, f.name);
        std::string separator;
        for (const CeilingFigure &g : c.figures.list) {
            if (g.name != f.name || (g.workers == 1 && c.key.workers == 1)) continue;
            std::string condition;
            if (g.workers > 0) condition += fmt::format(" with {} thread{}", g.workers, g.workers == 1 ? "" : "s");
            if (g.launch_bytes > 0) condition += fmt::format(" in launches of {} bytes", g.launch_bytes);
            text += fmt::format("{} {}{}", separator, figure_text(g.value, g.unit), condition);
            separator = ",";
        }
        text += "\n";
    }
    return text;
}

nlohmann::ordered_json as_json(const DeviceCeilings &c) {
    return {{"measured_at", c.measured_at},
            {"measured", when(c.measured_at, seconds_since_1970())},
            {"workers", c.key.workers},
            {"driver", c.key.driver},
            {"instructions", c.figures.instructions},
            {"contended", c.contended},
            {"figures", as_json(c.figures)}};
}

}  // namespace ridge
