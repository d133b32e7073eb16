// A model file opened for use: mapped weights, the plain program, the tokenizer, the devices it runs on.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "engine/engine.h"
#include "gguf/gguf.h"
#include "model/model.h"
#include "runtime/session.h"
#include "text/tokenizer.h"

namespace ridge {

struct OpenOptions {
    DType kv_type = DType::f16;
    unsigned threads = 0;          // 0: what the machine grants
    std::string pre_tokenizer;     // overrides tokenizer.ggml.pre
    std::string tokenizer_family;  // overrides tokenizer.ggml.model
    bool tokenizer = true;         // false: weights only, for benches on synthetic files
    // Weights are read into such pages from the moment at which the file is known to be good, while the rest is made
    // ready; wait_for_weights() waits for them. Not where they are larger than the free memory.
    std::optional<gguf::Pages> prefetch;
};

// Which pages the levers huge_pages and huge_weights ask for.
gguf::Pages pages_of(const LeverSet &levers);

class Model {
  public:
    // Throws Error{file} for a malformed file, Error{unsupported} for an architecture or tokenizer that is not known,
    // Error{usage} for a kv_type that does not fit the model.
    static std::unique_ptr<Model> open(const std::filesystem::path &path, const OpenOptions &options);

    const gguf::File &file() const { return file_; }
    const Hparams &hparams() const { return hparams_; }
    const Program &program() const { return program_; }
    // Precondition: opened with a tokenizer.
    const text::Tokenizer &tokenizer() const { return *tokenizer_; }
    std::span<const std::unique_ptr<Backend>> devices() const { return devices_; }

    std::unique_ptr<Session> session(const SessionOptions &options);

    // See OpenOptions::prefetch and gguf::Prefetch::wait. True where nothing is awaited.
    bool wait_for_weights(const std::function<bool(uint64_t done, uint64_t total)> &progress);

  private:
    explicit Model(gguf::File file) : file_(std::move(file)) {}
    void start_prefetch(gguf::Pages pages);
    gguf::File file_;
    Hparams hparams_;
    Program program_;
    std::unique_ptr<text::Tokenizer> tokenizer_;
    std::vector<std::unique_ptr<Backend>> devices_;
    WeightStore weights_;
    std::optional<gguf::Prefetch> prefetch_;
};

}  // namespace ridge
