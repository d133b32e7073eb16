// GGUF files: read through mmap, write, split sets.
//
// Layout (little-endian): "GGUF" | version u32 | n_tensors u64 | n_metadata u64 | metadata: key, type u32, value ...
// | tensor infos: name, n_dims u32, dims u64[n_dims], type u32, offset u64 ... | padding to general.alignment | data.
// Offsets count from the start of the data section and are multiples of the alignment. Versions 2 and 3.
//
// Everything in a file is hostile until checked. After `File::open` returns, every name, value and tensor lies inside
// the mapping, and shapes, formats and sizes agree; nothing was allocated that the file's own size does not justify.
// What a mapping cannot guard against: a file that another process shortens while it is open (SIGBUS).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "format/format.h"

namespace ridge::gguf {

enum class Type : uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };
std::string_view type_name(Type t);

// One metadata value, a view into the mapping.
class Value {
  public:
    Type type = Type::u8;             // Type::array for arrays
    Type element = Type::u8;          // element type of an array
    uint64_t count = 1;               // elements of an array
    const std::byte *data = nullptr;  // first byte of the value (of the first element); not aligned
    size_t bytes = 0;                 // of the whole value; strings inside include their u64 lengths

    // Each is empty where the stored type does not hold such a value (a negative integer is no as_u64).
    std::optional<uint64_t> as_u64() const;  // any integer type or bool
    std::optional<int64_t> as_i64() const;   // any integer type or bool
    std::optional<double> as_f64() const;    // f32, f64 or any integer type
    std::optional<bool> as_bool() const;
    std::optional<std::string_view> as_string() const;
    std::optional<std::vector<std::string_view>> as_strings() const;  // array of string; views into the mapping
    std::optional<std::vector<float>> as_floats() const;              // array of f32 / f64
    std::optional<std::vector<int64_t>> as_ints() const;              // array of any integer type or bool
};

// "u32", "string", "array of f32".
std::string type_text(const Value &v);
// The value on one line that is safe to print: strings quoted, escaped and cut, arrays by their first elements.
std::string preview(const Value &v, size_t max_elements = 6);

struct Tensor {
    std::string_view name;
    uint32_t type = 0;                   // ggml_type as stored
    const FormatInfo *format = nullptr;  // nullptr for the plain integer and f64 types, which hold no weights
    std::string_view format_name;        // "Q4_K", "I32": also where there is no FormatInfo
    uint32_t n_dims = 1;
    std::array<uint64_t, 4> shape{1, 1, 1, 1};  // shape[0] varies fastest: a (n, k) matrix has shape {k, n}
    const std::byte *data = nullptr;            // in the mapping
    size_t bytes = 0;
    uint32_t file = 0;    // index into File::paths()
    uint64_t offset = 0;  // of the data, from the start of that file
    uint64_t elements() const { return shape[0] * shape[1] * shape[2] * shape[3]; }
};

// Which memory the weights lie in.
enum class Pages : uint8_t {
    file,       // the file's pages, as the system reads them
    file_huge,  // the file's, asking for pages of 2 MiB; see Mapping::prefer_huge_pages
    own_huge,   // a copy in pages of 2 MiB: memory of this process beside the file's pages; see Mapping::copy
};

// Tensor data on its way into memory. Ends early when destroyed.
class Prefetch {
  public:
    Prefetch(Prefetch &&) noexcept;
    Prefetch &operator=(Prefetch &&) noexcept;
    ~Prefetch();

    uint64_t bytes() const;  // of all that is wanted

    // Returns when all is there. `progress(done, total)` in bytes, called on this thread piece by piece; where it
    // answers false, wait returns false (unless all is there) and the rest may stay away. Throws what Mapping::load
    // throws.
    bool wait(const std::function<bool(uint64_t done, uint64_t total)> &progress);

  private:
    friend class File;
    struct Impl;
    explicit Prefetch(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

class File {
  public:
    // Opens `path`, and every other part where the name is that of a split set (NAME-00001-of-00003.gguf, any part may
    // be named). Throws Error{file} naming file, byte offset and field.
    static File open(const std::filesystem::path &path);

    File(File &&) noexcept;
    File &operator=(File &&) noexcept;
    ~File();

    uint32_t version() const;
    uint64_t alignment() const;
    const std::vector<std::filesystem::path> &paths() const;
    uint64_t file_bytes() const;  // all parts

    // Metadata in file order (of the first part).
    std::span<const std::pair<std::string_view, Value>> metadata() const;
    const Value *find(std::string_view key) const;  // nullptr where absent

    // Typed look-ups. `get_*` throw Error{file} where the key is absent or of another type, naming file, key, the type
    // found and the type wanted; the forms with a default throw only for another type.
    uint64_t get_u64(std::string_view key) const;
    uint64_t get_u64(std::string_view key, uint64_t absent) const;
    double get_f64(std::string_view key) const;
    double get_f64(std::string_view key, double absent) const;
    bool get_bool(std::string_view key, bool absent) const;
    std::string_view get_string(std::string_view key) const;
    std::string_view get_string(std::string_view key, std::string_view absent) const;

    std::span<const Tensor> tensors() const;
    const Tensor *find_tensor(std::string_view name) const;  // nullptr where absent

    // Begins to bring the tensor data into memory, in threads of its own; only pages that hold some of `wanted` where
    // that is not empty. The file must outlive it.
    Prefetch start_prefetch(Pages pages = Pages::file_huge,
                            std::span<const std::span<const std::byte>> wanted = {}) const;
    // The same, and waits for it.
    void prefetch(const std::function<bool(uint64_t done, uint64_t total)> &progress,
                  Pages pages = Pages::file_huge) const;

  private:
    struct Impl;
    explicit File(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

// Writes one file. Metadata and tensors keep the order of the calls; data is streamed, never held whole.
// The bytes follow the rules of llama.cpp's reader, which are tighter than the format's: tensors lie in order without
// gaps beyond the alignment, the last one is padded too, and names have at most 63 bytes.
class Writer {
  public:
    // The key general.alignment is written where `alignment` is not the default. Throws Error{usage} where it is not a
    // power of two from 8 to 1 MiB.
    explicit Writer(uint64_t alignment = 32);
    void add_u32(std::string_view key, uint32_t v);
    void add_u64(std::string_view key, uint64_t v);
    void add_i32(std::string_view key, int32_t v);
    void add_f32(std::string_view key, float v);
    void add_bool(std::string_view key, bool v);
    void add_string(std::string_view key, std::string_view v);
    void add_strings(std::string_view key, std::span<const std::string> v);
    void add_floats(std::string_view key, std::span<const float> v);
    void add_i32s(std::string_view key, std::span<const int32_t> v);
    // A value of any type, copied from an open file.
    void add_value(std::string_view key, const Value &v);
    // `shape` as in Tensor (fastest first). Throws Error{usage} for a row that is not a multiple of the block,
    // for duplicate names and keys.
    void add_tensor(std::string_view name, Format format, std::span<const uint64_t> shape);
    uint64_t data_bytes() const;  // all tensors with their padding

    // Fills the bytes [offset, offset + out.size()) of tensor `index`; must fill all of `out`. Pieces come in ascending
    // order where there is one thread, and in any order otherwise.
    using Fill = std::function<void(size_t index, uint64_t offset, std::span<std::byte> out)>;
    // Writes to a temporary name beside `path` and renames it when it is complete and on the disk: no half file is left
    // behind. A piece is a number of whole rows, or where a row is larger than a piece, a part of one row that starts
    // at a multiple of 256 weights. `fill` is called from `threads` threads, the caller's among them; `progress`, in
    // bytes of data, from one at a time. An exception from either ends the write and is passed on. Throws Error{file}.
    void write(const std::filesystem::path &path, const Fill &fill, unsigned threads = 1,
               const std::function<void(uint64_t done, uint64_t total)> &progress = {}) const;

  private:
    struct Entry {
        std::string key;
        std::string encoded;  // type and value as stored
    };
    struct TensorEntry {
        std::string name;
        Format format;
        std::vector<uint64_t> shape;
        uint64_t bytes;
        uint64_t offset;
    };
    void add(std::string_view key, std::string encoded);
    std::string header() const;
    uint64_t alignment_;
    uint64_t data_end_ = 0;
    std::vector<Entry> metadata_;
    std::vector<TensorEntry> tensors_;
    std::unordered_set<std::string> keys_;
    std::unordered_set<std::string> names_;
};

}  // namespace ridge::gguf
