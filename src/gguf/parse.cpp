#include "gguf/parse.h"

#include <algorithm>
#include <numeric>

#include "gguf/cursor.h"
#include "gguf/layout.h"
#include "gguf/names.h"

namespace ridge::gguf {
namespace {

struct Counts {
    uint64_t tensors;
    uint64_t metadata;
};

// What a file that is not GGUF looks like, as the end of a sentence.
std::string looks_like(std::span<const std::byte> bytes) {
    const std::string_view head(reinterpret_cast<const char *>(bytes.data()), std::min<size_t>(bytes.size(), 64));
    struct Known {
        std::string_view start, what;
    };
    static constexpr Known kKnown[] = {
        {"lmgg", "it looks like a GGML file from before GGUF (2023); convert the model again"},
        {"fmgg", "it looks like a GGMF file from before GGUF (2023); convert the model again"},
        {"tjgg", "it looks like a GGJT file from before GGUF (2023); convert the model again"},
        {"algg", "it looks like a GGLA adapter from before GGUF (2023); convert it again"},
        {"FUGG", "it looks like a big-endian GGUF file; get or convert the little-endian one"},
        {"PK\x03\x04", "it looks like a zip archive or a PyTorch checkpoint; convert it to GGUF"},
        {"\x80\x02", "it looks like a PyTorch checkpoint (pickle); convert it to GGUF"},
        {"\x1f\x8b", "it looks like a gzip archive; unpack it first"},
        {"\x28\xb5\x2f\xfd", "it looks like a zstd archive; unpack it first"},
        {"version https://git-lfs", "it is a Git LFS pointer, not the model itself; fetch it with git lfs pull"},
        {"<", "it looks like a web page; the download went wrong"},
        {std::string_view("\0\0\0\0", 4), "it begins with zeros: the download is not complete"},
    };
    for (const Known &k : kKnown)
        if (head.starts_with(k.start)) return std::string(k.what);
    if (head.size() > 8 && head[8] == '{')
        return "it looks like a safetensors file; convert it to GGUF (convert_hf_to_gguf.py of llama.cpp does that)";
    return fmt::format("it begins with '{}'", printable(head.substr(0, 16)));
}

uint32_t byte_swapped(uint32_t v) { return v >> 24 | (v >> 8 & 0xFF00) | (v << 8 & 0xFF0000) | v << 24; }

Counts read_header(Cursor &c, std::span<const std::byte> bytes, uint32_t &version) {
    const std::string_view magic(reinterpret_cast<const char *>(bytes.data()), std::min(bytes.size(), kMagic.size()));
    if (magic != kMagic.substr(0, magic.size())) c.refuse(0, "magic", "not a GGUF file: {}", looks_like(bytes));
    if (bytes.size() < kHeaderBytes)
        c.refuse(0, "size",
                 "the file has {} bytes and is truncated: the header alone has {}; download or copy it again",
                 bytes.size(), kHeaderBytes);
    c.skip(kMagic.size(), "magic");
    version = c.number<uint32_t>("version");
    if (version == 1)
        c.refuse(4, "version",
                 "version 1 is from August 2023 and lays out counts differently; versions 2 and 3 are read: "
                 "convert the model again");
    if (const uint32_t swapped = byte_swapped(version); swapped >= 1 && swapped <= kVersion)
        c.refuse(4, "version",
                 "the file is big-endian (version {} with its bytes swapped); get or convert the "
                 "little-endian one",
                 swapped);
    if (version < kOldestVersion || version > kVersion)
        c.refuse(4, "version", "version {} is unknown; versions 2 and 3 are read", version);

    Counts n{};
    n.tensors = c.number<uint64_t>("n_tensors");
    n.metadata = c.number<uint64_t>("n_metadata");
    if (n.tensors > c.left() / kMinTensorBytes)
        c.refuse(8, "n_tensors", "{} tensors cannot be: the file's {} bytes have room for {} at most", n.tensors,
                 c.size(), c.left() / kMinTensorBytes);
    if (n.metadata > c.left() / kMinMetadataBytes)
        c.refuse(16, "n_metadata", "{} entries cannot be: the file's {} bytes have room for {} at most", n.metadata,
                 c.size(), c.left() / kMinMetadataBytes);
    return n;
}

// The name of a metadata entry or tensor: what other programs read to its first NUL must be what is read here.
std::string_view read_name(Cursor &c, std::string_view field) {
    const size_t start = c.at();
    const std::string_view name = c.string(field);
    if (name.empty()) c.refuse(start, field, "is empty; it needs a name of 1 to {} bytes", kMaxNameBytes);
    if (name.size() > kMaxNameBytes)
        c.refuse(start, field, "has {} bytes; {} are the limit ('{}')", name.size(), kMaxNameBytes, printable(name));
    if (name.find('\0') != std::string_view::npos)
        c.refuse(start, field, "contains a NUL byte ('{}'); a name is UTF-8 text without NUL", printable(name));
    if (!valid_utf8(name)) c.refuse(start, field, "is not UTF-8 ('{}')", printable(name));
    c.call(name);
    return name;
}

Type read_type(Cursor &c, std::string_view field) {
    const size_t start = c.at();
    const auto t = c.number<uint32_t>(field);
    if (t >= kTypes) c.refuse(start, field, "type {} is unknown; value types are 0 (u8) to {} (f64)", t, kTypes - 1);
    return static_cast<Type>(t);
}

void skip_bools(Cursor &c, uint64_t count) {
    const size_t start = c.at();
    const std::byte *b = c.data();
    c.skip(count, "bool");
    for (uint64_t i = 0; i < count; i++)
        if (std::to_integer<unsigned>(b[i]) > 1)
            c.refuse(start + i, "bool", "is {}; a bool is 0 or 1", std::to_integer<unsigned>(b[i]));
}

struct ArrayHead {
    Type element;
    uint64_t count;
};

// The head of an array and a check that its elements can be in the file at all.
ArrayHead read_array_head(Cursor &c) {
    ArrayHead a{};
    a.element = read_type(c, "array element type");
    const size_t start = c.at();
    a.count = c.number<uint64_t>("array length");
    const size_t least = a.element == Type::string ? 8 : a.element == Type::array ? 12 : scalar_bytes(a.element);
    if (a.count > c.left() / least)
        c.refuse(start, "array length",
                 "{} elements of {} cannot be: at {} bytes or more each, the {} bytes left in the "
                 "file have room for {} at most",
                 a.count, type_name(a.element), least, c.left(), c.left() / least);
    return a;
}

// Walks over `count` values of type t, building nothing: vocabularies have 150,000 strings.
void skip_values(Cursor &c, Type t, uint64_t count, unsigned depth) {
    if (t == Type::string) {
        for (uint64_t i = 0; i < count; i++) c.string(depth == 0 ? "string" : "string in array");
    } else if (t == Type::array) {
        if (depth >= kMaxArrayDepth) c.refuse(c.at(), "array", "arrays are nested more than {} deep", kMaxArrayDepth);
        for (uint64_t i = 0; i < count; i++) {
            const ArrayHead a = read_array_head(c);
            skip_values(c, a.element, a.count, depth + 1);
        }
    } else if (t == Type::boolean) {
        skip_bools(c, count);
    } else {
        c.skip(count * scalar_bytes(t),
               "value");  // no overflow: for arrays, read_array_head compared count with the file
    }
}

Value read_value(Cursor &c) {
    Value v;
    v.type = read_type(c, "value type");
    v.element = v.type;
    if (v.type == Type::array) {
        const ArrayHead a = read_array_head(c);
        v.element = a.element;
        v.count = a.count;
    }
    v.data = c.data();
    const size_t start = c.at();
    skip_values(c, v.element, v.count, v.type == Type::array ? 1 : 0);
    v.bytes = c.at() - start;
    return v;
}

uint64_t read_alignment(Cursor &c, const Part &part) {
    for (const auto &[key, v] : part.metadata) {
        if (key != kAlignmentKey) continue;
        const size_t offset = c.offset_of(v.data);
        c.enter("metadata", Cursor::kNoIndex);
        c.call(key);
        if (v.type != Type::u32) c.refuse(offset, "value", "is of type {}; the alignment is a u32", type_text(v));
        const uint64_t a = *v.as_u64();
        if (!valid_alignment(a))
            c.refuse(offset, "value", "{} is no alignment; it is a power of two from {} to {}", a, kMinAlignment,
                     kMaxAlignment);
        return a;
    }
    return kDefaultAlignment;
}

void read_metadata(Cursor &c, uint64_t count, Part &part) {
    for (uint64_t i = 0; i < count; i++) {
        c.enter("metadata", i);
        const std::string_view key = read_name(c, "key");
        part.metadata.emplace_back(key, read_value(c));
    }
    auto key_at = [&](size_t i) { return part.metadata[i].first; };
    if (auto d = NameIndex(part.metadata.size(), key_at).duplicate(key_at)) {
        c.enter("metadata", d->second);
        c.call(key_at(d->second));
        c.refuse(c.offset_of(key_at(d->second)), "key", "is a duplicate of entry {}; every key stands once", d->first);
    }
    part.alignment = read_alignment(c, part);
}

void read_shape(Cursor &c, Tensor &t) {
    const size_t start = c.at();
    t.n_dims = c.number<uint32_t>("n_dims");
    if (t.n_dims < 1 || t.n_dims > kMaxDims)
        c.refuse(start, "n_dims", "{} dimensions; a tensor has 1 to {}", t.n_dims, kMaxDims);
    for (uint32_t d = 0; d < t.n_dims; d++) {
        t.shape[d] = c.number<uint64_t>("dims");
        if (t.shape[d] == 0) c.refuse(c.at() - 8, "dims", "dimension {} is 0; each is at least 1", d);
    }
}

// One tensor info. Its offset is relative here: where the data starts is known after the last info only.
Tensor read_tensor(Cursor &c, uint64_t alignment) {
    Tensor t;
    t.name = read_name(c, "name");
    const size_t dims = c.at() + 4;
    read_shape(c, t);
    const size_t type_at = c.at();
    t.type = c.number<uint32_t>("type");
    const std::optional<Storage> storage = find_storage(t.type);
    if (!storage) c.refuse(type_at, "type", "{}", why_not(t.type));
    t.format = storage->format;
    t.format_name = storage->name;
    if (t.shape[0] % storage->block != 0)
        c.refuse(dims, "dims", "a row of {} elements is not a multiple of the {} elements of a {} block", t.shape[0],
                 storage->block, storage->name);
    const std::optional<uint64_t> bytes = tensor_bytes(*storage, t.shape);
    if (!bytes)
        c.refuse(dims, "dims", "the elements or bytes of {} x {} overflow a 64-bit number; no tensor is that large",
                 fmt::join(t.shape.begin(), t.shape.begin() + t.n_dims, " x "), storage->name);
    t.bytes = *bytes;
    const size_t offset_at = c.at();
    t.offset = c.number<uint64_t>("offset");
    if (t.offset % alignment != 0)
        c.refuse(offset_at, "offset", "{} is not a multiple of the alignment {}", t.offset, alignment);
    return t;
}

// Makes the offset of tensor `index` absolute and points it at its data. `info_end`: the byte after its info.
void place_tensor(Cursor &c, Tensor &t, uint64_t index, size_t info_end, uint64_t data_start) {
    uint64_t begin = 0, end = 0;
    if (__builtin_add_overflow(data_start, t.offset, &begin) || __builtin_add_overflow(begin, t.bytes, &end) ||
        end > c.size()) {
        c.enter("tensor", index);
        c.call(t.name);
        c.refuse(info_end - 8, "offset",
                 "its {} bytes at {} after the start of the data ({}) end beyond the file's {} bytes: "
                 "the file is truncated or damaged; download or copy it again",
                 t.bytes, t.offset, data_start, c.size());
    }
    t.offset = begin;
}

void refuse_overlap(Cursor &c, const Part &part) {
    std::vector<size_t> order(part.tensors.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
        const Tensor &x = part.tensors[a], &y = part.tensors[b];
        return x.offset != y.offset ? x.offset < y.offset : a < b;
    });
    for (size_t i = 1; i < order.size(); i++) {
        const Tensor &a = part.tensors[order[i - 1]], &b = part.tensors[order[i]];
        if (a.offset + a.bytes <= b.offset) continue;
        c.enter("tensor", order[i]);
        c.call(b.name);
        c.refuse(b.offset, "data", "overlaps tensor {} '{}', which has the bytes {} to {} of the file", order[i - 1],
                 printable(a.name), a.offset, a.offset + a.bytes);
    }
}

void read_tensors(Cursor &c, std::span<const std::byte> bytes, uint64_t count, Part &part) {
    std::vector<size_t> info_end;
    for (uint64_t i = 0; i < count; i++) {
        c.enter("tensor", i);
        part.tensors.push_back(read_tensor(c, part.alignment));
        info_end.push_back(c.at());
    }
    auto name_at = [&](size_t i) { return part.tensors[i].name; };
    if (auto d = NameIndex(part.tensors.size(), name_at).duplicate(name_at)) {
        c.enter("tensor", d->second);
        c.call(name_at(d->second));
        c.refuse(c.offset_of(name_at(d->second)), "name", "is a duplicate of tensor {}; every name stands once",
                 d->first);
    }
    part.data_start = align_up(c.at(), part.alignment);
    for (size_t i = 0; i < part.tensors.size(); i++) {
        place_tensor(c, part.tensors[i], i, info_end[i], part.data_start);
        part.tensors[i].data = bytes.data() + part.tensors[i].offset;
    }
    refuse_overlap(c, part);
}

}  // namespace

Part parse(std::span<const std::byte> bytes, const std::string &file) {
    Cursor c(bytes, file);
    Part part;
    const Counts n = read_header(c, bytes, part.version);
    read_metadata(c, n.metadata, part);
    read_tensors(c, bytes, n.tensors, part);
    return part;
}

}  // namespace ridge::gguf
