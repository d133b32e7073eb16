#include "cli/load.h"

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

}  // namespace ridge
