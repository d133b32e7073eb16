// Small models with random weights for tests of engine and runtime: written once per program, opened by name.
#pragma once

#include <unistd.h>

#include <bit>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "measure/synthetic.h"
#include "model/model.h"
#include "runtime/session.h"

namespace ridge::test {

class TempDir {
  public:
    TempDir() {
        std::string name = (std::filesystem::temp_directory_path() / "ridge-test-XXXXXX").string();
        if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
        path = name;
    }
    ~TempDir() {
        std::error_code ignored;
        std::filesystem::remove_all(path, ignored);
    }
    TempDir(const TempDir &) = delete;
    TempDir &operator=(const TempDir &) = delete;
    std::filesystem::path path;
};

// "tiny-qwen3" in Q4_K_M, say.
inline std::filesystem::path tiny_file(const std::string &like, const std::string &quant = "Q4_K_M") {
    static const TempDir dir;
    const std::filesystem::path path = dir.path / (like + "." + quant + ".gguf");
    if (!std::filesystem::exists(path)) write_synthetic(path, {.like = like, .quant = quant, .seed = 7, .threads = 1});
    return path;
}

struct TinyModel {
    gguf::File file;
    uint32_t context;
    Program program;  // unfused
};

inline const TinyModel &tiny_model(const std::string &like, DType kv = DType::f16,
                                   const std::string &quant = "Q4_K_M") {
    static std::map<std::string, std::unique_ptr<TinyModel>> opened;
    std::unique_ptr<TinyModel> &m = opened[like + quant + std::string(name(kv))];
    if (!m) {
        m = std::make_unique<TinyModel>(TinyModel{gguf::File::open(tiny_file(like, quant)), 0, {}});
        m->context = read_hparams(m->file).context_length;
        m->program = build_program(m->file, {.kv_type = kv});
    }
    return *m;
}

inline std::unique_ptr<Session> session_of(const TinyModel &m, std::vector<Backend *> devices, WeightStore &weights,
                                           const SessionOptions &options) {
    return std::make_unique<Session>(m.program, m.context, std::move(devices), weights, options);
}

// Any tokens of the tiny vocabularies.
inline std::vector<int32_t> some_tokens(size_t n, uint32_t salt = 1) {
    std::vector<int32_t> t(n);
    uint32_t x = 12345 + salt;
    for (int32_t &id : t) {
        x = x * 1664525 + 1013904223;
        id = static_cast<int32_t>((x >> 8) % 256);
    }
    return t;
}

inline std::vector<float> row(const Session &s, size_t r) {
    const std::span<const float> l = s.logits(r);
    return {l.begin(), l.end()};
}

// The logits of every one of `tokens`, fed as the session's batch cuts them.
inline std::vector<float> all_logits(Session &s, std::span<const int32_t> tokens) {
    s.evaluate(tokens, Want::all);
    std::vector<float> l;
    for (size_t i = 0; i < tokens.size(); i++) {
        const std::span<const float> r = s.logits(i);
        l.insert(l.end(), r.begin(), r.end());
    }
    return l;
}

// How many values differ in their bits, NaN included.
inline size_t differing_bits(std::span<const float> a, std::span<const float> b) {
    if (a.size() != b.size()) return a.size() + b.size();
    size_t n = 0;
    for (size_t i = 0; i < a.size(); i++) n += std::bit_cast<uint32_t>(a[i]) != std::bit_cast<uint32_t>(b[i]) ? 1 : 0;
    return n;
}

}  // namespace ridge::test
