#include "backend/backends.h"

#include <string>

#include "backend/cpu/ceilings_device.h"
#include "backend/cpu/cpu.h"
#include "backend/simt/simt.h"
#include "core/error.h"

namespace ridge {
namespace {

std::unique_ptr<Backend> open_cpu(const BackendOptions &o) { return make_cpu_backend({.threads = o.threads}); }

std::unique_ptr<Backend> open_cuda(const BackendOptions &o) {
    return make_simt_backend({.cuda = true, .index = o.index, .driver = o.driver});
}
std::unique_ptr<Backend> open_hip(const BackendOptions &o) {
    return make_simt_backend({.cuda = false, .index = o.index, .driver = o.driver});
}

CeilingFigures measure_cpu(Backend &device) { return cpu::measure_device(device); }

const BackendRow kBackends[] = {
    {"cpu", open_cpu, "", measure_cpu},
    {"cuda", open_cuda, "", measure_simt},
    {"hip", open_hip, "", measure_simt},
    {"vulkan", nullptr, "not part of this version"},
    {"metal", nullptr, "not part of this version"},
};

}  // namespace

std::span<const BackendRow> backends() { return kBackends; }

std::unique_ptr<Backend> open_backend(std::string_view name, const BackendOptions &options) {
    std::string known;
    for (const BackendRow &b : kBackends) {
        if (b.name == name && b.open) return b.open(options);
        if (b.name == name) fail(ErrorKind::unsupported, "this build has no {} backend: {}", name, b.absent);
        if (b.open) known += (known.empty() ? "" : ", ") + std::string(b.name);
    }
    fail(ErrorKind::usage, "there is no device '{}'; there is {}", name, known);
}

}  // namespace ridge
