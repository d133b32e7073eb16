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
#include "runtime/devices.h"
#include "runtime/loading.h"
#include "runtime/session.h"
#include "text/tokenizer.h"

namespace ridge {

struct OpenOptions {
    DType kv_type = DType::f16;
    unsigned threads = 0;  // of the CPU; 0: what the machine grants
    DeviceChoice devices{.names = {"cpu"}};
    // What sessions will be like, and how many there will be at a time: automatic placement leaves room for them.
    SessionOptions sessions_like;
    unsigned sessions = 1;
    std::string pre_tokenizer;     // overrides tokenizer.ggml.pre
    std::string tokenizer_family;  // overrides tokenizer.ggml.model
    bool tokenizer = true;         // false: weights only, for benches on synthetic files
    // Weights are on their way to where they belong from the moment at which the file is known to be good, while the
    // rest is made ready; wait_for_weights() waits for them. Those of the CPU into such pages, where they are not
    // larger than the free memory.
    std::optional<gguf::Pages> prefetch;
};

// Which pages the levers huge_pages and huge_weights ask for.
gguf::Pages pages_of(const LeverSet &levers);

class Model {
  public:
    // Throws Error{file} for a malformed file, Error{unsupported} for an architecture or tokenizer that is not known or
    // a device that is not there, Error{usage} for a kv_type that does not fit the model, Error{limit} where the model
    // does not fit the devices.
    static std::unique_ptr<Model> open(const std::filesystem::path &path, const OpenOptions &options);

    const gguf::File &file() const { return file_; }
    const Hparams &hparams() const { return hparams_; }
    const Program &program() const { return program_; }
    // Precondition: opened with a tokenizer.
    const text::Tokenizer &tokenizer() const { return *tokenizer_; }
    // Those that the model is placed on, and how.
    std::span<const std::unique_ptr<Backend>> devices() const { return placed_.devices; }
    const PlacedDevices &placed() const { return placed_; }
    std::string device_text() const;  // descriptions of all devices: "NVIDIA H200, ... + AMD EPYC, ..."
    // Whether a device keeps copies of weights; session() waits for those.
    bool copies_weights() const;

    // Placed as the model is, where the options have no map of their own.
    std::unique_ptr<Session> session(SessionOptions options);

    // See OpenOptions::prefetch and gguf::Prefetch::wait. True where nothing is awaited.
    bool wait_for_weights(const std::function<bool(uint64_t done, uint64_t total)> &progress);

  private:
    explicit Model(gguf::File file) : file_(std::move(file)) {}
    std::vector<Backend *> backends() const;
    void start_loading();
    void start_prefetch(gguf::Pages pages);
    gguf::File file_;
    Hparams hparams_;
    Program program_;
    std::unique_ptr<text::Tokenizer> tokenizer_;
    PlacedDevices placed_;
    WeightStore weights_;
    std::unique_ptr<Loading> loading_;  // null before it has begun and when all is there
    bool loaded_ = false;
    std::optional<gguf::Prefetch> prefetch_;
};

}  // namespace ridge
