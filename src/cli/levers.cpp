// ridge levers: what can be switched, what is on, and what it was measured to do.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "backend/cpu/topology.h"
#include "cli/ab_output.h"
#include "cli/flags.h"
#include "cli/lever_results.h"
#include "cli/terminal.h"
#include "core/error.h"
#include "engine/levers.h"
#include "measure/lever_catalog.h"

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

using bench::Catalog;
using bench::LeverResult;

Catalog read_catalog(const std::vector<std::string> &files) {
    std::vector<LeverResult> all;
    const auto add = [&](std::vector<LeverResult> some) {
        for (LeverResult &r : some) all.push_back(std::move(r));
    };
    for (const CommittedResult &c : committed_results()) add(bench::read_results(c.json, c.path));
    for (const std::string &path : files) add(bench::read_results_file(path));
    return bench::make_catalog(std::move(all));
}

std::string predicted_text(const LeverResult &r) {
    return r.is_predicted ? (r.at_most ? "<= " : "") + percent(r.predicted) : "-";
}

std::string place_text(const LeverResult &r) {
    return fmt::format("{}, {} of {}", r.machine, r.test, std::filesystem::path(r.model).stem().string());
}

void print_table(const Catalog &c, const std::vector<LeverInfo> &levers, const std::string &machine) {
    for (const LeverInfo &l : levers) {
        write_out(fmt::format("\n{} ({} by default): eliminates {}\n  should surface: {}\n", l.name,
                              l.on_by_default ? "on" : "off", l.eliminates, l.surfaces_in));
        const std::vector<const LeverResult *> rows = c.of(l.name);
        if (rows.empty()) {
            write_out("  not measured yet\n");
            continue;
        }
        write_out(fmt::format("  {:1} {:<6} {:>9} {:>9} {:>19} {:>7}  {:<10}  {}\n", "", "", "predicted", "measured",
                              "95%", "noise", "date", "where"));
        for (const LeverResult *r : rows)
            write_out(fmt::format("  {:1} {:<6} {:>9} {:>9} {:>19} {:>6.2f}%  {:<10}  {}\n",
                                  r->machine == machine ? "*" : "", r->verdict, predicted_text(*r), percent(r->speedup),
                                  percent(r->low) + " to " + percent(r->high), 100 * r->noise, r->date,
                                  printable(place_text(*r))));
    }
}

OrderedJson as_json(const LeverResult &r, const std::string &machine) {
    return {{"lever", r.lever},
            {"verdict", r.verdict},
            {"predicted", r.is_predicted ? OrderedJson(r.predicted) : OrderedJson(nullptr)},
            {"at_most", r.at_most},
            {"speedup", r.speedup},
            {"low", r.low},
            {"high", r.high},
            {"noise_floor", r.noise},
            {"phase", r.phase},
            {"test", r.test},
            {"model", r.model},
            {"machine", r.machine},
            {"device", r.device},
            {"this_machine", r.machine == machine},
            {"date", r.date},
            {"command", r.command}};
}

void print_catalog(const std::vector<std::string> &files, bool json) {
    const Catalog c = read_catalog(files);
    const std::string machine = cpu::read_topology().model;
    const std::vector<bench::RegimeFlip> flips = bench::regime_flips(c);
    if (json) {
        const auto table = [&](const std::vector<LeverInfo> &levers) {
            OrderedJson list = OrderedJson::array();
            for (const LeverInfo &l : levers) {
                OrderedJson row = {{"name", l.name},
                                   {"default", l.on_by_default},
                                   {"eliminates", l.eliminates},
                                   {"surfaces_in", l.surfaces_in},
                                   {"results", OrderedJson::array()}};
                for (const LeverResult *r : c.of(l.name)) row["results"].push_back(as_json(*r, machine));
                list.push_back(std::move(row));
            }
            return list;
        };
        OrderedJson doc = {{"machine", machine},
                           {"kept", table(c.kept)},
                           {"dead_ends", table(c.dead_ends)},
                           {"unmeasured", table(c.unmeasured)},
                           {"regime_flips", OrderedJson::array()}};
        for (const bench::RegimeFlip &f : flips)
            doc["regime_flips"].push_back({{"lever", f.helps->lever},
                                           {"differs", f.differs},
                                           {"helps", as_json(*f.helps, machine)},
                                           {"not", as_json(*f.not_so, machine)}});
        write_out(doc.dump(2) + "\n");
        return;
    }
    write_out(
        fmt::format("This machine: {}; its rows are marked *. Changes are those of tokens per second.\n", machine));
    write_out("\n== Kept levers\n");
    print_table(c, c.kept, machine);
    write_out("\n== Dead ends: correct, off, and no help wherever they were measured\n");
    print_table(c, c.dead_ends, machine);
    if (!c.unmeasured.empty()) write_out("\n== Off and not measured yet\n");
    print_table(c, c.unmeasured, machine);
    if (flips.empty()) return;
    write_out("\n== Regime flips: the same lever helps in one place and not in the other\n");
    for (const bench::RegimeFlip &f : flips)
        write_out(fmt::format("\n{}, where the {} differs\n  helps  {:>7}  {}\n  {:<5}  {:>7}  {}\n", f.helps->lever,
                              f.differs, percent(f.helps->speedup), printable(place_text(*f.helps)), f.not_so->verdict,
                              percent(f.not_so->speedup), printable(place_text(*f.not_so))));
}

}  // namespace

void add_levers(CLI::App &app) {
    CLI::App *cmd =
        app.add_subcommand("levers", "List the levers: every optimisation that can be switched off by name");
    auto json = std::make_shared<bool>(false);
    auto edits = std::make_shared<std::vector<std::string>>();
    cmd->add_flag("--json", *json, "Print as JSON");
    cmd->add_option("--lever", *edits, "Show the state after this edit")->allow_extra_args(false)->type_name("LIST");
    auto catalog = std::make_shared<bool>(false);
    auto results = std::make_shared<std::vector<std::string>>();
    CLI::Option *shown =
        cmd->add_flag("--catalog", *catalog, "Show what each was measured to do: kept levers, dead ends");
    cmd->add_option("--results", *results, "Results of `ridge ab -o FILE` beside the built-in ones")
        ->needs(shown)
        ->allow_extra_args(false)
        ->type_name("FILE");
    cmd->footer("RIDGE_LEVERS in the environment edits the defaults, --lever on a command edits that.");
    cmd->callback([json, edits, catalog, results] {
        if (*catalog) return print_catalog(*results, *json);
        LeverSet set = LeverSet::from_environment();
        for (const std::string &e : *edits) set = set.edited(e, "--lever");
        print_levers(set, *json);
    });
}

}  // namespace ridge
