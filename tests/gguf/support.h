// For the tests of GGUF files: raw files built byte by byte (sharing no code with the Writer), a folder that goes away,
// and a meter of allocations.
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "gguf/gguf.h"
#include "gguf/parse.h"

namespace ridge::gguf::test {

// The numbers of the format, written again.
enum RawType : uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kArray, kU64, kI64, kF64 };
enum RawTensorType : uint32_t { kTensorF32 = 0, kTensorQ4_0 = 2, kTensorQ4_K = 12, kTensorI32 = 26, kTensorF64 = 28 };

template <class T>
std::string le(T v) {
    return std::string(reinterpret_cast<const char *>(&v), sizeof v);
}
inline std::string str(std::string_view s) { return le<uint64_t>(s.size()) + std::string(s); }
inline std::string array(uint32_t element, uint64_t count, const std::string &elements) {
    return le<uint32_t>(element) + le<uint64_t>(count) + elements;
}

struct RawKey {
    std::string key;
    uint32_t type;
    std::string value;
    std::optional<uint64_t> key_length;  // lie
};

struct RawTensor {
    std::string name;
    std::vector<uint64_t> dims;
    uint32_t type;
    uint64_t offset;
    std::optional<uint32_t> n_dims;       // lie
    std::optional<uint64_t> name_length;  // lie
};

struct Built {
    std::string bytes;
    std::map<std::string, size_t> fields;  // "key 2", "value 2", "tensor 0 dims", "data" ...: where each begins
    size_t at(const std::string &field) const { return fields.at(field); }
};

struct RawFile {
    std::string magic = "GGUF";
    uint32_t version = 3;
    std::optional<uint64_t> n_tensors, n_metadata;  // lies
    std::vector<RawKey> keys;
    std::vector<RawTensor> tensors;
    uint64_t alignment = 32;  // of the data; the key general.alignment is the caller's
    std::string data;

    Built build() const {
        Built b;
        auto mark = [&](const std::string &field) { b.fields[field] = b.bytes.size(); };
        b.bytes = magic;
        mark("version");
        b.bytes += le(version);
        mark("n_tensors");
        b.bytes += le<uint64_t>(n_tensors.value_or(tensors.size()));
        mark("n_metadata");
        b.bytes += le<uint64_t>(n_metadata.value_or(keys.size()));
        for (size_t i = 0; i < keys.size(); i++) {
            mark(fmt::format("key {}", i));
            b.bytes += le<uint64_t>(keys[i].key_length.value_or(keys[i].key.size())) + keys[i].key;
            mark(fmt::format("type {}", i));
            b.bytes += le(keys[i].type);
            mark(fmt::format("value {}", i));
            b.bytes += keys[i].value;
        }
        for (size_t i = 0; i < tensors.size(); i++) {
            const RawTensor &t = tensors[i];
            mark(fmt::format("tensor {} name", i));
            b.bytes += le<uint64_t>(t.name_length.value_or(t.name.size())) + t.name;
            mark(fmt::format("tensor {} n_dims", i));
            b.bytes += le<uint32_t>(t.n_dims.value_or(static_cast<uint32_t>(t.dims.size())));
            mark(fmt::format("tensor {} dims", i));
            for (uint64_t d : t.dims) b.bytes += le(d);
            mark(fmt::format("tensor {} type", i));
            b.bytes += le(t.type);
            mark(fmt::format("tensor {} offset", i));
            b.bytes += le(t.offset);
        }
        b.bytes.resize((b.bytes.size() + alignment - 1) / alignment * alignment, '\0');
        mark("data");
        b.bytes += data;
        mark("end");
        return b;
    }
};

// A small file that is right in everything and ends with the last byte of its last tensor.
inline RawFile valid_file() {
    RawFile f;
    f.keys = {{"general.architecture", kString, str("llama"), {}},
              {"general.alignment", kU32, le<uint32_t>(32), {}},
              {"llama.block_count", kU32, le<uint32_t>(2), {}},
              {"llama.rope.freq_base", kF32, le<float>(10000), {}},
              {"tokenizer.add_bos", kBool, std::string(1, '\1'), {}},
              {"tokenizer.tokens", kArray, array(kString, 3, str("a") + str("") + str("bc")), {}},
              {"some.floats", kArray, array(kF32, 2, le(1.5f) + le(-2.0f)), {}},
              {"some.flags", kArray, array(kBool, 3, std::string("\0\1\0", 3)), {}},
              {"some.nested", kArray, array(kArray, 2, array(kU8, 2, "ab") + array(kString, 1, str("x"))), {}},
              {"some.f64", kF64, le(0.25), {}},
              {"some.i64", kI64, le<int64_t>(-7), {}}};
    f.tensors = {{"a.weight", {64, 2}, kTensorQ4_0, 0, {}, {}},       // 2 rows of 36 bytes
                 {"b.weight", {4, 3, 2, 1}, kTensorF32, 96, {}, {}},  // 96 bytes
                 {"c.weight", {256}, kTensorQ4_K, 192, {}, {}}};      // 144 bytes
    for (int i = 0; i < 192 + 144; i++) f.data += static_cast<char>(i * 7);
    return f;
}

class TempDir {
  public:
    TempDir() {
        std::string name = (std::filesystem::temp_directory_path() / "ridge-gguf-XXXXXX").string();
        if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
        path_ = name;
    }
    ~TempDir() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    TempDir(const TempDir &) = delete;
    TempDir &operator=(const TempDir &) = delete;
    const std::filesystem::path &path() const { return path_; }
    std::filesystem::path operator/(const std::string &name) const { return path_ / name; }
    std::filesystem::path put(const std::string &name, const std::string &bytes) const {
        std::ofstream(path_ / name, std::ios::binary) << bytes;
        return path_ / name;
    }
    size_t files() const { return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(path_), {})); }

  private:
    std::filesystem::path path_;
};

inline std::string read_file(const std::filesystem::path &path) {
    std::ifstream in(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
}

// Reads every value in every way and every byte of the data, so that a sanitizer sees what lies outside.
uint64_t touch(std::span<const std::pair<std::string_view, Value>> metadata, std::span<const Tensor> tensors);

// The message of the Error that `f` throws, which is of kind `kind`; reports a failure where it does not throw one.
template <class F>
std::string error_of(F f, ErrorKind kind = ErrorKind::file);

// Bytes allocated with operator new since the last call, the largest sum alive at one time.
void start_allocation_meter();
size_t peak_allocation();

// With RIDGE_PRINT_ERRORS=1, a line "| input | message |" for the table of bad inputs.
void report(const std::string &input, std::string message, const std::filesystem::path &folder);

void expect_words(const std::string &message, const std::vector<std::string> &words);
// Message of a thrown Error, empty where none was thrown; kind in *kind.
std::string caught(const std::function<void()> &f, ErrorKind *kind);

template <class F>
std::string error_of(F f, ErrorKind kind) {
    ErrorKind got = kind;
    const std::string message = caught([&] { f(); }, &got);
    if (got != kind) throw std::logic_error("an error of another kind: " + message);
    return message;
}

}  // namespace ridge::gguf::test
