// ridge devices: what this build can run on, what it was built without, and what each device can do at most.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "backend/backends.h"
#include "cli/ceilings_output.h"
#include "cli/flags.h"
#include "cli/terminal.h"
#include "core/error.h"
#include "measure/ceilings_store.h"

namespace ridge {
namespace {

struct Options {
    bool json = false, measure = false, force = false;
    unsigned threads = 0;
    std::string driver;
};

struct Described {
    nlohmann::ordered_json json;
    std::optional<DeviceCeilings> ceilings;
    std::string not_kept;  // why what was measured is not in the store
};

Described describe(const BackendRow &row, const std::unique_ptr<Backend> &device, const Options &o,
                   const CeilingStore &store) {
    const DeviceInfo i = device->info();
    size_t runnable = 0;
    for (const Kernel &k : device->kernels()) runnable += (k.needs & ~device->features()) == 0 ? 1 : 0;
    Described d;
    d.json = {{"name", i.name},
              {"description", i.description},
              {"features", device->feature_names(device->features())},
              {"memory_total", i.memory_total},
              {"memory_free", i.memory_free},
              {"shares_host_memory", i.shares_host_memory},
              {"driver", i.driver},
              {"rows", device->kernels().size()},
              {"rows_runnable", runnable}};
    if (o.measure && row.measure != nullptr) {
        d.ceilings = measure_ceilings(row, *device, o.force ? WhenBusy::mark : WhenBusy::refuse);
        d.not_kept = store.keep(*d.ceilings);
    } else {
        d.ceilings = store.find(key_of(*device));
    }
    d.json["ceilings"] = d.ceilings ? as_json(*d.ceilings) : nlohmann::ordered_json();
    if (!d.not_kept.empty()) d.json["ceilings"]["not_kept"] = d.not_kept;
    return d;
}

std::string ceilings_text(const Described &d, const Options &o) {
    const std::string indent(9, ' ');
    if (!d.ceilings)
        return fmt::format("{}ceilings: not measured yet; `ridge devices --measure{}` does it, in 2 seconds\n", indent,
                           o.threads > 0 ? fmt::format(" -t {}", o.threads) : std::string());
    const DeviceCeilings &c = *d.ceilings;
    std::string text =
        fmt::format("{}ceilings, measured {} with {} thread{}{}{}:\n", indent,
                    when(c.measured_at, seconds_since_1970()), c.key.workers, c.key.workers == 1 ? "" : "s",
                    c.figures.instructions.empty() ? "" : " and ", c.figures.instructions);
    text += figures_text(c, indent + "  ");
    if (!c.contended.empty()) text += fmt::format("{}contended: {}\n", indent, c.contended);
    if (!d.not_kept.empty()) text += fmt::format("{}not kept for later: {}\n", indent, d.not_kept);
    return text;
}

// All devices of a backend, or the sentence why there is none.
std::vector<Described> describe_all(const BackendRow &row, const Options &o, const CeilingStore &store) {
    const auto absent = [](const std::string &name, std::string_view why) {
        return Described{{{"name", name}, {"absent", why}}, {}, {}};
    };
    const std::string name(row.name);
    if (!row.open) return {absent(name, row.absent)};
    BackendOptions options{.threads = o.threads, .index = 0, .driver = o.driver};
    unsigned n = 1;
    try {
        if (row.count) n = row.count(options);
    } catch (const Error &e) {
        return {absent(name, e.what())};
    }
    if (n == 0) return {absent(name, "there is a driver, but no device that it knows")};
    std::vector<Described> all;
    for (; options.index < n; options.index++) {
        std::unique_ptr<Backend> device;
        try {
            device = row.open(options);
        } catch (const Error &e) {
            if (!row.is_gpu()) throw;
            all.push_back(absent(device_name(row, options.index), e.what()));
            continue;
        }
        all.push_back(describe(row, device, o, store));
    }
    return all;
}

void print_devices(const Options &o) {
    const CeilingStore store;
    nlohmann::ordered_json all = nlohmann::ordered_json::array();
    std::string text;
    std::vector<Described> listed;
    for (const BackendRow &row : backends())
        for (Described &d : describe_all(row, o, store)) listed.push_back(std::move(d));
    for (const Described &d : listed) {
        all.push_back(d.json);
        const auto name = d.json.at("name").get<std::string>();
        if (d.json.contains("absent")) {
            text += fmt::format("{:8} absent: {}\n", name, d.json.at("absent").get<std::string>());
            continue;
        }
        const auto gib = [&](const char *key) { return d.json.at(key).get<double>() / (1 << 30); };
        text +=
            fmt::format("{:8} {}\n{:8} memory {:.1f} GiB, {:.1f} GiB free; {} of {} kernel rows can run here\n", name,
                        d.json.at("description").get<std::string>(), "", gib("memory_total"), gib("memory_free"),
                        d.json.at("rows_runnable").get<size_t>(), d.json.at("rows").get<size_t>());
        text += ceilings_text(d, o);
    }
    write_out(o.json ? all.dump(2) + "\n" : text);
}

}  // namespace

void add_devices(CLI::App &app) {
    CLI::App *cmd =
        app.add_subcommand("devices", "List the devices that models can run on, and backends that are absent");
    auto o = std::make_shared<Options>();
    CLI::Option *measure =
        cmd->add_flag("--measure", o->measure, "Measure what each can do at most, and keep the figures");
    cmd->add_flag("--force", o->force, "Measure a busy machine too, and mark what is measured")->needs(measure);
    cmd->add_option("-t,--threads", o->threads, "CPU threads (default: what affinity and cgroup grant)")
        ->check(positive_number());
    cmd->add_option("--driver", o->driver, "Library to open in place of the GPU's driver")->group("");
    cmd->add_flag("--json", o->json, "Print as JSON");
    cmd->callback([o] { print_devices(*o); });
}

}  // namespace ridge
