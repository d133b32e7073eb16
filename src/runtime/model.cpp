#include "runtime/model.h"

#include "backend/backends.h"
#include "core/error.h"
#include "gguf/printable.h"
#include "text/vocabulary.h"

namespace ridge {

gguf::Pages pages_of(const LeverSet &levers) {
    if (levers.has(Lever::huge_weights)) return gguf::Pages::own_huge;
    return levers.has(Lever::huge_pages) ? gguf::Pages::file_huge : gguf::Pages::file;
}

std::unique_ptr<Model> Model::open(const std::filesystem::path &path, const OpenOptions &options) {
    std::unique_ptr<Model> m(new Model(gguf::File::open(path)));
    m->hparams_ = read_hparams(m->file_);
    m->program_ = build_program(m->file_, {.kv_type = options.kv_type});
    // A tensor that nothing reads is a part of the model that would silently be left out.
    if (const auto unused = unused_tensors(m->file_, m->program_); !unused.empty())
        fail(ErrorKind::unsupported,
             "{}: {} of the file's tensors have no part in the forward pass of '{}', {} first; a variant of the "
             "architecture that is not supported, or another one under its name",
             path.string(), unused.size(), m->hparams_.architecture, gguf::printable(unused.front()));
    m->devices_.push_back(open_backend("cpu", {.threads = options.threads}));
    if (options.prefetch) m->start_prefetch(*options.prefetch);
    if (options.tokenizer)
        m->tokenizer_ = text::Tokenizer::from(
            text::vocabulary_from_gguf(m->file_, options.pre_tokenizer, options.tokenizer_family));
    return m;
}

void Model::start_prefetch(gguf::Pages pages) {
    const uint64_t bytes = file_.file_bytes(), free = devices_[0]->info().memory_free;
    if (bytes > free) return;  // they would not stay there
    if (pages == gguf::Pages::own_huge && bytes > free / 2)
        fail(ErrorKind::limit,
             "{}: the lever huge_weights takes {:.1f} GB beside the file's own pages, and {:.1f} GB are free; switch "
             "it off",
             file_.paths()[0].string(), static_cast<double>(bytes) / 1e9, static_cast<double>(free) / 1e9);
    prefetch_.emplace(file_.start_prefetch(pages));
}

bool Model::wait_for_weights(const std::function<bool(uint64_t done, uint64_t total)> &progress) {
    const bool complete = !prefetch_ || prefetch_->wait(progress);
    prefetch_.reset();
    return complete;
}

std::unique_ptr<Session> Model::session(const SessionOptions &options) {
    std::vector<Backend *> devices;
    for (const auto &d : devices_) devices.push_back(d.get());
    return std::make_unique<Session>(program_, hparams_.context_length, std::move(devices), weights_, options);
}

}  // namespace ridge
