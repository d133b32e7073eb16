#include "backend/backends.h"

#include <charconv>

#include "backend/cpu/ceilings_device.h"
#include "backend/cpu/cpu.h"
#include "backend/simt/simt.h"
#include "core/error.h"
#include "gguf/printable.h"

namespace ridge {
namespace {

std::unique_ptr<Backend> open_cpu(const BackendOptions &o) { return make_cpu_backend({.threads = o.threads}); }

std::unique_ptr<Backend> open_cuda(const BackendOptions &o) {
    return make_simt_backend({.cuda = true, .index = o.index, .driver = o.driver});
}
std::unique_ptr<Backend> open_hip(const BackendOptions &o) {
    return make_simt_backend({.cuda = false, .index = o.index, .driver = o.driver});
}

unsigned count_cuda(const BackendOptions &o) {
    return count_simt_devices({.cuda = true, .index = 0, .driver = o.driver});
}
unsigned count_hip(const BackendOptions &o) {
    return count_simt_devices({.cuda = false, .index = 0, .driver = o.driver});
}

CeilingFigures measure_cpu(Backend &device) { return cpu::measure_device(device); }

const BackendRow kBackends[] = {
    {"cpu", open_cpu, "", measure_cpu},
    {"cuda", open_cuda, "", measure_simt, count_cuda},
    {"hip", open_hip, "", measure_simt, count_hip},
    {"vulkan", nullptr, "not part of this version"},
    {"metal", nullptr, "not part of this version"},
};

}  // namespace

std::span<const BackendRow> backends() { return kBackends; }

DeviceName parse_device(std::string_view text, std::span<const BackendRow> rows) {
    const std::string_view name = text.substr(0, text.find(':'));
    std::string known;
    for (const BackendRow &b : rows) {
        if (b.open) known += (known.empty() ? "" : ", ") + std::string(b.name);
        if (b.name != name) continue;
        if (!b.open) fail(ErrorKind::unsupported, "this build has no {} backend: {}", name, b.absent);
        if (name.size() == text.size()) return {&b, std::nullopt};
        const std::string_view digits = text.substr(name.size() + 1);
        unsigned index = 0;
        const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
        if (error != std::errc{} || end != digits.data() + digits.size())
            fail(ErrorKind::usage, "device '{}': '{}' is no number; devices are numbered from 0, as in {}:0",
                 gguf::printable(text), gguf::printable(digits), name);
        if (!b.is_gpu())
            fail(ErrorKind::usage, "device '{}': {} is one device, without a number", gguf::printable(text), name);
        return {&b, index};
    }
    fail(ErrorKind::usage, "there is no device '{}'; there is {}", gguf::printable(text), known);
}

std::string device_name(const BackendRow &row, unsigned index) {
    return row.is_gpu() ? fmt::format("{}:{}", row.name, index) : std::string(row.name);
}

std::unique_ptr<Backend> open_device(const BackendRow &row, unsigned index, BackendOptions options) {
    if (row.count)
        if (const unsigned n = row.count(options); index >= n)
            fail(ErrorKind::unsupported, "there is no device {}:{}; {}", row.name, index,
                 n == 0   ? fmt::format("{} finds no device on this machine", row.name)
                 : n == 1 ? fmt::format("the only one is {}:0", row.name)
                          : fmt::format("there are {0}:0 to {0}:{1}", row.name, n - 1));
    options.index = index;
    return row.open(options);
}

std::unique_ptr<Backend> open_backend(std::string_view name, const BackendOptions &options) {
    const DeviceName d = parse_device(name);
    return open_device(*d.row, d.index.value_or(options.index), options);
}

const BackendRow &row_of(const Backend &device) {
    const std::string name = device.info().name;
    for (const BackendRow &b : kBackends)
        if (b.name == std::string_view(name).substr(0, name.find(':'))) return b;
    fail(ErrorKind::unsupported, "{} is none of the backends", name);
}

}  // namespace ridge
