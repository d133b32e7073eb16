// ridge levers: what can be switched, and what is on.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/flags.h"
#include "engine/levers.h"

namespace ridge {
namespace {

void print_levers(const LeverSet &set, bool json) {
    nlohmann::json list = nlohmann::json::array();
    if (!json) fmt::print("{:14} {:8} {:8} {}\n", "lever", "default", "now", "eliminates / surfaces in");
    for (const LeverInfo &l : all_levers()) {
        if (json)
            list.push_back({{"name", l.name},
                            {"default", l.on_by_default},
                            {"on", set.has(l.id)},
                            {"eliminates", l.eliminates},
                            {"surfaces_in", l.surfaces_in}});
        else
            fmt::print("{:14} {:8} {:8} {}\n{:32} surfaces in: {}\n", l.name, l.on_by_default ? "on" : "off",
                       set.has(l.id) ? "on" : "off", l.eliminates, "", l.surfaces_in);
    }
    if (json) fmt::print("{}\n", list.dump(2));
}

}  // namespace

void add_levers(CLI::App &app) {
    CLI::App *cmd =
        app.add_subcommand("levers", "List the levers: every optimisation that can be switched off by name");
    auto json = std::make_shared<bool>(false);
    auto edits = std::make_shared<std::vector<std::string>>();
    cmd->add_flag("--json", *json, "Print as JSON");
    cmd->add_option("--lever", *edits, "Show the state after this edit")->allow_extra_args(false)->type_name("LIST");
    cmd->footer("RIDGE_LEVERS in the environment edits the defaults, --lever on a command edits that.");
    cmd->callback([json, edits] {
        LeverSet set = LeverSet::from_environment();
        for (const std::string &e : *edits) set = set.edited(e, "--lever");
        print_levers(set, *json);
    });
}

}  // namespace ridge
