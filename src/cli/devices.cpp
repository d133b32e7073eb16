// ridge devices: what this build can run on, and what it was built without.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "backend/backends.h"
#include "cli/flags.h"

namespace ridge {
namespace {

nlohmann::ordered_json describe(const BackendRow &row) {
    if (!row.open) return {{"name", row.name}, {"absent", row.absent}};
    const auto device = row.open({});
    const DeviceInfo i = device->info();
    size_t runnable = 0;
    for (const Kernel &k : device->kernels()) runnable += (k.needs & ~device->features()) == 0 ? 1 : 0;
    return {{"name", i.name},
            {"description", i.description},
            {"features", device->feature_names(device->features())},
            {"memory_total", i.memory_total},
            {"memory_free", i.memory_free},
            {"rows", device->kernels().size()},
            {"rows_runnable", runnable}};
}

void print_devices(bool json) {
    nlohmann::ordered_json all = nlohmann::ordered_json::array();
    for (const BackendRow &row : backends()) all.push_back(describe(row));
    if (json) {
        fmt::print("{}\n", all.dump(2));
        return;
    }
    for (const auto &d : all) {
        const auto name = d.at("name").get<std::string>();
        if (d.contains("absent")) {
            fmt::print("{:8} absent: {}\n", name, d.at("absent").get<std::string>());
            continue;
        }
        const auto gib = [&](const char *key) { return d.at(key).get<double>() / (1 << 30); };
        fmt::print("{:8} {}\n{:8} memory {:.1f} GiB, {:.1f} GiB free; {} of {} kernel rows can run here\n", name,
                   d.at("description").get<std::string>(), "", gib("memory_total"), gib("memory_free"),
                   d.at("rows_runnable").get<size_t>(), d.at("rows").get<size_t>());
    }
}

}  // namespace

void add_devices(CLI::App &app) {
    CLI::App *cmd =
        app.add_subcommand("devices", "List the devices that models can run on, and backends that are absent");
    auto json = std::make_shared<bool>(false);
    cmd->add_flag("--json", *json, "Print as JSON");
    cmd->callback([json] { print_devices(*json); });
}

}  // namespace ridge
