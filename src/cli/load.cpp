#include "cli/load.h"

#include <chrono>

#include "cli/terminal.h"
#include "core/error.h"

namespace ridge {

std::unique_ptr<Model> open_loaded(const std::string &path, const OpenOptions &options, gguf::Pages pages) {
    std::unique_ptr<Model> model = Model::open(path, options);
    const uint64_t bytes = model->file().file_bytes(), free = model->devices()[0]->info().memory_free;
    if (bytes > free) return model;  // it would not stay in memory
    if (pages == gguf::Pages::own_huge && bytes > free / 2)
        fail(ErrorKind::limit,
             "{}: the lever huge_weights takes {:.1f} GB beside the file's own pages; {:.1f} GB are free", path,
             static_cast<double>(bytes) / 1e9, static_cast<double>(free) / 1e9);
    Progress progress("loading", "MB", 1e6);
    model->file().prefetch([&](uint64_t done, uint64_t total) { return progress.show(done, total), true; }, pages);
    return model;
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
