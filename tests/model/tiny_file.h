// Small model files for tests: synthetic ones as they are, and with keys and tensors changed, taken out or added.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "gguf/gguf.h"
#include "measure/synthetic.h"
#include "model/edited_file.h"

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

}  // namespace ridge::test
