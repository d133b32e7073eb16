#include "runtime/model.h"

#include "backend/backends.h"
#include "core/error.h"
#include "gguf/printable.h"
#include "text/vocabulary.h"

namespace ridge {

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
    if (options.tokenizer)
        m->tokenizer_ = text::Tokenizer::from(
            text::vocabulary_from_gguf(m->file_, options.pre_tokenizer, options.tokenizer_family));
    m->devices_.push_back(open_backend("cpu", {.threads = options.threads}));
    return m;
}

std::unique_ptr<Session> Model::session(const SessionOptions &options) {
    std::vector<Backend *> devices;
    for (const auto &d : devices_) devices.push_back(d.get());
    return std::make_unique<Session>(program_, hparams_.context_length, std::move(devices), weights_, options);
}

}  // namespace ridge
