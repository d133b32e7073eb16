// Writer: the header is encoded in memory, the data is filled piece by piece and written in place by several threads.
#include <algorithm>

#include "core/error.h"
#include "gguf/gguf.h"
#include "gguf/layout.h"
#include "gguf/output.h"
#include "gguf/printable.h"

namespace ridge::gguf {
namespace {

constexpr size_t kMaxTensorName = 63;  // llama.cpp keeps names in 64 bytes with a NUL

template <class T>
void append(std::string &out, T v) {
    out.append(reinterpret_cast<const char *>(&v), sizeof v);
}

void append_string(std::string &out, std::string_view s) {
    append(out, uint64_t{s.size()});
    out += s;
}

void append_type(std::string &out, Type t) { append(out, static_cast<uint32_t>(t)); }

template <class T>
std::string scalar(Type t, T v) {
    std::string out;
    append_type(out, t);
    append(out, v);
    return out;
}

std::string array_head(Type element, uint64_t count) {
    std::string out;
    append_type(out, Type::array);
    append_type(out, element);
    append(out, count);
    return out;
}

template <class T>
std::string array_of(Type element, std::span<const T> v) {
    std::string out = array_head(element, v.size());
    out.append(reinterpret_cast<const char *>(v.data()), v.size_bytes());
    return out;
}

void check_name(std::string_view what, std::string_view name, size_t limit) {
    if (name.empty() || name.size() > limit || name.find('\0') != std::string_view::npos || !valid_utf8(name))
        fail(ErrorKind::usage, "{} '{}' ({} bytes): names are UTF-8 text without NUL of 1 to {} bytes", what,
             printable(name), name.size(), limit);
}

}  // namespace

Writer::Writer(uint64_t alignment) : alignment_(alignment) {
    if (!valid_alignment(alignment))
        fail(ErrorKind::usage, "alignment {}: it is a power of two from {} to {}", alignment, kMinAlignment,
             kMaxAlignment);
    if (alignment != kDefaultAlignment)
        metadata_.push_back({std::string(kAlignmentKey), scalar(Type::u32, static_cast<uint32_t>(alignment))});
}

void Writer::add(std::string_view key, std::string encoded) {
    check_name("metadata key", key, kMaxNameBytes);
    if (key == kAlignmentKey) fail(ErrorKind::usage, "metadata key '{}': the Writer's constructor sets it", key);
    if (!keys_.emplace(key).second) fail(ErrorKind::usage, "metadata key '{}' was added before", printable(key));
    metadata_.push_back({std::string(key), std::move(encoded)});
}

void Writer::add_u32(std::string_view key, uint32_t v) { add(key, scalar(Type::u32, v)); }
void Writer::add_u64(std::string_view key, uint64_t v) { add(key, scalar(Type::u64, v)); }
void Writer::add_i32(std::string_view key, int32_t v) { add(key, scalar(Type::i32, v)); }
void Writer::add_f32(std::string_view key, float v) { add(key, scalar(Type::f32, v)); }
void Writer::add_bool(std::string_view key, bool v) { add(key, scalar(Type::boolean, static_cast<uint8_t>(v))); }

void Writer::add_string(std::string_view key, std::string_view v) {
    std::string out;
    append_type(out, Type::string);
    append_string(out, v);
    add(key, std::move(out));
}

void Writer::add_strings(std::string_view key, std::span<const std::string> v) {
    std::string out = array_head(Type::string, v.size());
    for (const std::string &s : v) append_string(out, s);
    add(key, std::move(out));
}

void Writer::add_floats(std::string_view key, std::span<const float> v) { add(key, array_of(Type::f32, v)); }
void Writer::add_i32s(std::string_view key, std::span<const int32_t> v) { add(key, array_of(Type::i32, v)); }

void Writer::add_value(std::string_view key, const Value &v) {
    std::string out;
    if (v.type == Type::array)
        out = array_head(v.element, v.count);
    else
        append_type(out, v.type);
    out.append(reinterpret_cast<const char *>(v.data), v.bytes);
    add(key, std::move(out));
}

void Writer::add_tensor(std::string_view name, Format format, std::span<const uint64_t> shape) {
    check_name("tensor", name, kMaxTensorName);
    const std::string shown = printable(name);
    if (shape.empty() || shape.size() > kMaxDims)
        fail(ErrorKind::usage, "tensor '{}': {} dimensions; a tensor has 1 to {}", shown, shape.size(), kMaxDims);
    if (std::find(shape.begin(), shape.end(), uint64_t{0}) != shape.end())
        fail(ErrorKind::usage, "tensor '{}': shape {}: each dimension is at least 1", shown, fmt::join(shape, " x "));
    const Storage storage = *find_storage(static_cast<uint32_t>(format));
    if (shape[0] % storage.block != 0)
        fail(ErrorKind::usage, "tensor '{}': a row of {} is not a multiple of the {} weights of a {} block", shown,
             shape[0], storage.block, storage.name);
    const auto bytes = tensor_bytes(storage, shape);
    constexpr uint64_t kMost = uint64_t{1} << 60;  // sums of sizes and alignments stay far from wrapping
    if (!bytes || *bytes > kMost || data_end_ > kMost)
        fail(ErrorKind::usage, "tensor '{}': shape {} is too large for a file", shown, fmt::join(shape, " x "));
    if (!names_.emplace(name).second) fail(ErrorKind::usage, "tensor '{}' was added before", shown);
    tensors_.push_back({std::string(name), format, {shape.begin(), shape.end()}, *bytes, data_end_});
    data_end_ += align_up(*bytes, alignment_);
}

uint64_t Writer::data_bytes() const { return data_end_; }

std::string Writer::header() const {
    std::string out(kMagic);
    append(out, kVersion);
    append(out, uint64_t{tensors_.size()});
    append(out, uint64_t{metadata_.size()});
    for (const Entry &e : metadata_) {
        append_string(out, e.key);
        out += e.encoded;
    }
    for (const TensorEntry &t : tensors_) {
        append_string(out, t.name);
        append(out, static_cast<uint32_t>(t.shape.size()));
        for (uint64_t d : t.shape) append(out, d);
        append(out, static_cast<uint32_t>(t.format));
        append(out, t.offset);
    }
    out.resize(align_up(out.size(), alignment_), '\0');
    return out;
}

void Writer::write(const std::filesystem::path &path, const Fill &fill, unsigned threads,
                   const std::function<void(uint64_t done, uint64_t total)> &progress) const {
    const std::string head = header();
    std::vector<Extent> extents;
    for (const TensorEntry &t : tensors_)
        extents.push_back({&info(t.format), t.shape[0], t.bytes, head.size() + t.offset});
    Output out(path, head.size() + data_end_);
    out.put(head.data(), head.size(), 0);
    write_tensors(out, extents, fill, threads, progress);
    out.commit();
}

}  // namespace ridge::gguf
