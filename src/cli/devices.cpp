// ridge devices: what this build can run on, and what it was built without.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "backend/cpu/cpu.h"
#include "cli/flags.h"

namespace ridge {
namespace {

// A backend that a build may lack, and what would add it.
struct Absent {
    std::string_view name, why;
};
constexpr Absent kAbsent[] = {
    {"cuda", "not part of this version"},
    {"hip", "not part of this version"},
    {"vulkan", "not part of this version"},
    {"metal", "not part of this version"},
};

void print_devices(bool json) {
    const auto cpu = make_cpu_backend();
    const DeviceInfo i = cpu->info();
    uint32_t runnable = 0;
    for (const Kernel &k : cpu->kernels()) runnable += (k.needs & ~cpu->features()) == 0 ? 1 : 0;
    if (json) {
        nlohmann::json out;
        out["devices"] = {{{"name", i.name},
                           {"description", i.description},
                           {"features", cpu->feature_names(cpu->features())},
                           {"memory_total", i.memory_total},
                           {"memory_free", i.memory_free},
                           {"rows", cpu->kernels().size()},
                           {"rows_runnable", runnable}}};
        for (const Absent &a : kAbsent) out["absent"].push_back({{"name", a.name}, {"why", a.why}});
        fmt::print("{}\n", out.dump(2));
        return;
    }
    fmt::print("{:8} {}\n", i.name, i.description);
    fmt::print("{:8} memory {:.1f} GiB, {:.1f} GiB free; {} of {} kernel rows can run here\n", "",
               static_cast<double>(i.memory_total) / (1 << 30), static_cast<double>(i.memory_free) / (1 << 30),
               runnable, cpu->kernels().size());
    for (const Absent &a : kAbsent) fmt::print("{:8} absent: {}\n", a.name, a.why);
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
