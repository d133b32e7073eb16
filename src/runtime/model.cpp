#include "runtime/model.h"

#include <algorithm>
#include <set>

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
    DeviceChoice choice = options.devices;
    choice.options.threads = options.threads;
    m->placed_ = place_model(choice, m->program_, m->hparams_.context_length, options.sessions_like, options.sessions,
                             gguf::printable(path.native(), std::string::npos));
    if (options.prefetch) {
        m->start_loading();
        m->start_prefetch(*options.prefetch);
    }
    if (options.tokenizer)
        m->tokenizer_ = text::Tokenizer::from(
            text::vocabulary_from_gguf(m->file_, options.pre_tokenizer, options.tokenizer_family));
    return m;
}

std::vector<Backend *> Model::backends() const {
    std::vector<Backend *> devices;
    for (const auto &d : placed_.devices) devices.push_back(d.get());
    return devices;
}

std::string Model::device_text() const {
    std::string text;
    for (const auto &d : placed_.devices) text += (text.empty() ? "" : " + ") + d->info().description;
    return text;
}

bool Model::copies_weights() const {
    return std::any_of(placed_.devices.begin(), placed_.devices.end(),
                       [](const auto &d) { return d->copies_weights(); });
}

void Model::start_loading() {
    if (!loaded_ && !loading_ && copies_weights())
        loading_ = std::make_unique<Loading>(program_, placed_.map, backends());
}

void Model::start_prefetch(gguf::Pages pages) {
    // What devices read where the file is mapped.
    struct Collect {
        const Program &p;
        std::vector<std::span<const std::byte>> &wanted;
        std::set<const std::byte *> &seen;
        uint64_t &bytes;
        void in(ValueId) {}
        void out(ValueId) {}
        void state(StateId) {}
        void weight(WeightId id) {
            const Weight &w = p.weight(id);
            if (!seen.insert(w.data).second) return;
            wanted.push_back({w.data, w.bytes()});
            bytes += w.bytes();
        }
    };
    std::vector<std::span<const std::byte>> wanted;
    std::set<const std::byte *> seen;
    uint64_t bytes = 0, free = 0;
    const std::vector<DeviceId> of_node = devices_of(program_, placed_.map);
    for (size_t d = 0; d < placed_.devices.size(); d++) {
        if (placed_.devices[d]->copies_weights()) continue;
        free = placed_.devices[d]->info().memory_free;
        for (size_t i = 0; i < of_node.size(); i++)
            if (static_cast<size_t>(of_node[i]) == d)
                visit_operands(program_.nodes[i].op, Collect{program_, wanted, seen, bytes});
    }
    if (wanted.empty() || bytes > free) return;  // larger weights would not stay there
    if (pages == gguf::Pages::own_huge && bytes > free / 2)
        fail(ErrorKind::limit,
             "{}: the lever huge_weights takes {:.1f} GB beside the file's own pages, and {:.1f} GB are free; switch "
             "it off",
             file_.paths()[0].string(), static_cast<double>(bytes) / 1e9, static_cast<double>(free) / 1e9);
    if (!copies_weights()) wanted.clear();  // all of the file
    prefetch_.emplace(file_.start_prefetch(pages, wanted));
}

bool Model::wait_for_weights(const std::function<bool(uint64_t done, uint64_t total)> &progress) {
    // First the devices' own, then those that are read from the file: one bar over both.
    const uint64_t copied = loading_ ? loading_->bytes() : 0, mapped = prefetch_ ? prefetch_->bytes() : 0;
    const auto show = [&](uint64_t done) { return !progress || progress(done, copied + mapped); };
    if (loading_) {
        loaded_ = loading_->wait(weights_, show);
        loading_.reset();
        if (!loaded_) return false;
    }
    const bool complete = !prefetch_ || prefetch_->wait([&](uint64_t done, uint64_t) { return show(copied + done); });
    prefetch_.reset();
    return complete;
}

std::unique_ptr<Session> Model::session(SessionOptions options) {
    start_loading();
    if (loading_) {
        loaded_ = loading_->wait(weights_, {});
        loading_.reset();
    }
    if (options.map.layer.empty() && options.map.experts.empty()) options.map = placed_.map;
    return std::make_unique<Session>(program_, hparams_.context_length, backends(), weights_, options);
}

}  // namespace ridge
