// Small model files for tests: synthetic ones as they are, and with keys and tensors changed, taken out or added.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gguf/gguf.h"
#include "measure/synthetic.h"

namespace ridge::test {

// A path of this process that is removed at the end.
class TempFile {
  public:
    explicit TempFile(const std::string &name)
        : path_(std::filesystem::temp_directory_path() / fmt::format("ridge_{}_{}", ::getpid(), name)) {}
    ~TempFile() {
        std::error_code ignored;
        std::filesystem::remove(path_, ignored);
    }
    TempFile(const TempFile &) = delete;
    TempFile &operator=(const TempFile &) = delete;
    const std::filesystem::path &path() const { return path_; }

  private:
    std::filesystem::path path_;
};

// A synthetic model, written and opened.
struct TinyModel {
    explicit TinyModel(SynthOptions options)
        : temp(options.like + options.quant + ".gguf"),
          plan(write_synthetic(temp.path(), options)),
          file(gguf::File::open(temp.path())) {}
    TempFile temp;
    SynthPlan plan;
    gguf::File file;
};

// Differences to a file.
struct Edit {
    std::set<std::string> without;                                            // keys and tensors
    std::map<std::string, std::function<void(gguf::Writer &)>> keys;          // each adds the key it is listed under
    std::map<std::string, std::pair<Format, std::vector<uint64_t>>> tensors;  // replaced or added; filled with zeros
};

// `base` with `edit`, at `path`. Tensors that are not edited keep their bytes.
inline void write_edited(const gguf::File &base, const Edit &edit, const std::filesystem::path &path) {
    gguf::Writer w;
    for (const auto &[key, value] : base.metadata())
        if (!edit.without.contains(std::string(key)) && !edit.keys.contains(std::string(key))) w.add_value(key, value);
    for (const auto &[key, add] : edit.keys) add(w);
    std::vector<const gguf::Tensor *> sources;  // nullptr: zeros
    for (const gguf::Tensor &t : base.tensors()) {
        const std::string name(t.name);
        if (edit.without.contains(name) || edit.tensors.contains(name)) continue;
        w.add_tensor(name, t.format->id, std::span(t.shape.data(), t.n_dims));
        sources.push_back(&t);
    }
    for (const auto &[name, what] : edit.tensors) {
        w.add_tensor(name, what.first, what.second);
        sources.push_back(nullptr);
    }
    w.write(path, [&](size_t index, uint64_t offset, std::span<std::byte> out) {
        if (sources[index])
            std::memcpy(out.data(), sources[index]->data + offset, out.size());
        else
            std::fill(out.begin(), out.end(), std::byte{0});
    });
}

}  // namespace ridge::test
