#include "cli/load.h"

#include <fmt/format.h>

#include <chrono>

#include "cli/terminal.h"
#include "core/error.h"

namespace ridge {

std::unique_ptr<Model> open_loaded(const std::string &path, const OpenOptions &options, gguf::Pages pages) {
    OpenOptions o = options;
    o.prefetch = pages;
    std::unique_ptr<Model> model = Model::open(path, o);
    Progress progress("loading", "MB", 1e6);
    model->wait_for_weights([&](uint64_t done, uint64_t total) { return progress.show(done, total), true; });
    return model;
}

std::string placement_note(const PlacedDevices &placed) {
    return fmt::format("device map: {}; {}{}{}\n", placed.text, placed.flags, placed.notes.empty() ? "" : "; ",
                       placed.notes);
}

void note_placement(const Model &model) {
    const bool only_cpu = model.devices().size() == 1 && !row_of(*model.devices()[0]).is_gpu();
    if (!only_cpu || !model.placed().notes.empty()) write_note(placement_note(model.placed()));
}

Contention observe_quiet(bool force, std::string_view marks) {
    Contention c = observe(0.3);
    if (const std::string busy = c.reason(); !busy.empty() && !force)
        fail(ErrorKind::limit, "the machine is not quiet: {}; --force measures all the same and marks {}", busy, marks);
    return c;
}

Model &Loads::for_levers(const LeverSet &levers) {
    const gguf::Pages pages = pages_of(levers);
    std::unique_ptr<Model> &model = loaded_[pages];
    if (!model) {
        const auto start = std::chrono::steady_clock::now();
        model = open_loaded(path_, options_, pages);
        seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }
    return *model;
}

}  // namespace ridge
