// The GGUF reader. The input is a file, byte for byte.
//
// What opens must hold what gguf.h promises: every name, value and tensor inside the file, shapes, formats and sizes
// that agree, tensors aligned and apart, names once. What does not open must say where. In both cases the heap stays
// within a multiple of the file's size, and the mapped file is read as the bytes are.
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <vector>

#include "fuzz/support.h"
#include "gguf/gguf.h"
#include "gguf/layout.h"
#include "gguf/parse.h"
#include "gguf/printable.h"

namespace {

using namespace ridge;
using namespace ridge::gguf;

const std::string kName = "fuzz.gguf";

bool inside(std::span<const std::byte> bytes, const void *at, size_t n) {
    const auto *p = static_cast<const std::byte *>(at);
    return p >= bytes.data() && n <= bytes.size() && static_cast<size_t>(p - bytes.data()) <= bytes.size() - n;
}

void check_value(std::span<const std::byte> bytes, const Value &v) {
    FUZZ_REQUIRE(inside(bytes, v.data, v.bytes), "a value outside the file");
    const auto strings = v.as_strings();
    if (strings) {
        FUZZ_REQUIRE(strings->size() == v.count, "{} strings of {}", strings->size(), v.count);
        for (std::string_view s : *strings)
            FUZZ_REQUIRE(inside(bytes, s.data(), s.size()), "a string in an array outside the file");
    }
    if (const auto s = v.as_string()) FUZZ_REQUIRE(inside(bytes, s->data(), s->size()), "a string outside the file");
    const auto floats = v.as_floats();
    const auto ints = v.as_ints();
    FUZZ_REQUIRE(!floats || floats->size() == v.count, "floats");
    FUZZ_REQUIRE(!ints || ints->size() == v.count, "ints");
    FUZZ_REQUIRE(int{strings.has_value()} + floats.has_value() + ints.has_value() <= (v.type == Type::array), "kinds");
    // An integer is the same number in every way that it can be asked for.
    const auto u = v.as_u64();
    const auto i = v.as_i64();
    if (u && i) FUZZ_REQUIRE(static_cast<uint64_t>(*i) == *u, "{} and {}", *i, *u);
    if (i && *i >= 0) FUZZ_REQUIRE(u.has_value(), "{} is no u64", *i);
    FUZZ_REQUIRE(fuzz::is_printable(preview(v)), "a preview would drive a terminal: {}", printable(preview(v)));
    FUZZ_REQUIRE(preview(v).size() < 4096, "a preview of {} bytes", preview(v).size());
    FUZZ_REQUIRE(fuzz::is_printable(type_text(v)), "type");
}

void check_tensor(std::span<const std::byte> bytes, const Tensor &t, const Part &part) {
    FUZZ_REQUIRE(inside(bytes, t.data, t.bytes), "the data of {} outside the file", t.name);
    FUZZ_REQUIRE(t.data == bytes.data() + t.offset, "offset and data differ");
    FUZZ_REQUIRE(t.offset >= part.data_start && (t.offset - part.data_start) % part.alignment == 0, "alignment");
    FUZZ_REQUIRE(t.n_dims >= 1 && t.n_dims <= 4, "{} dimensions", t.n_dims);
    unsigned __int128 elements = 1;
    for (uint32_t d = 0; d < 4; d++) {
        FUZZ_REQUIRE(t.shape[d] >= 1 && (d < t.n_dims || t.shape[d] == 1), "shape {}", fmt::join(t.shape, "x"));
        elements *= t.shape[d];
        FUZZ_REQUIRE(elements < (static_cast<unsigned __int128>(1) << 63), "shape {}", fmt::join(t.shape, "x"));
    }
    const auto storage = find_storage(t.type);
    FUZZ_REQUIRE(storage.has_value(), "type {}", t.type);
    FUZZ_REQUIRE(t.shape[0] % storage->block == 0, "a row of {} in blocks of {}", t.shape[0], storage->block);
    FUZZ_REQUIRE(elements / storage->block * storage->bytes == t.bytes, "{} bytes", t.bytes);
}

uint64_t touched = 0;  // so that reads are not optimised away

void check_part(std::span<const std::byte> bytes, const Part &part) {
    FUZZ_REQUIRE(part.version == 2 || part.version == 3, "version {}", part.version);
    FUZZ_REQUIRE(part.alignment >= 8 && (part.alignment & (part.alignment - 1)) == 0, "alignment {}", part.alignment);
    std::set<std::string_view> names;
    for (const auto &[key, v] : part.metadata) {
        FUZZ_REQUIRE(inside(bytes, key.data(), key.size()), "a key outside the file");
        FUZZ_REQUIRE(names.insert(key).second, "key {} twice", key);
        check_value(bytes, v);
    }
    names.clear();
    std::vector<std::pair<uint64_t, uint64_t>> extents;
    for (const Tensor &t : part.tensors) {
        FUZZ_REQUIRE(inside(bytes, t.name.data(), t.name.size()), "a tensor's name outside the file");
        FUZZ_REQUIRE(names.insert(t.name).second, "tensor {} twice", t.name);
        check_tensor(bytes, t, part);
        extents.emplace_back(t.offset, t.offset + t.bytes);
        for (size_t i = 0; i < t.bytes; i++) touched += std::to_integer<unsigned>(t.data[i]);
    }
    std::sort(extents.begin(), extents.end());
    for (size_t i = 1; i < extents.size(); i++) FUZZ_REQUIRE(extents[i - 1].second <= extents[i].first, "overlap");
}

// The mapped file says what the bytes on the heap said.
void check_mapped(std::span<const std::byte> bytes, const Part *part, const std::optional<fuzz::Refusal> &refused) {
    const fuzz::MemoryFile memory(bytes);
    const std::string path = memory.path().string();
    const auto again = fuzz::refusal_of([&] {
        const File file = File::open(memory.path());
        FUZZ_REQUIRE(part != nullptr, "the mapped file opens, the bytes do not");
        FUZZ_REQUIRE(file.metadata().size() == part->metadata.size(), "metadata");
        FUZZ_REQUIRE(file.tensors().size() == part->tensors.size(), "tensors");
        for (const auto &[key, v] : part->metadata) {
            const Value *found = file.find(key);
            FUZZ_REQUIRE(found != nullptr && found->bytes == v.bytes, "key {}", key);
            FUZZ_REQUIRE(v.bytes == 0 || std::memcmp(found->data, v.data, v.bytes) == 0, "key {}", key);
        }
        for (const Tensor &t : part->tensors) {
            const Tensor *found = file.find_tensor(t.name);
            FUZZ_REQUIRE(found != nullptr && found->offset == t.offset && found->bytes == t.bytes, "{}", t.name);
        }
    });
    if (!again) return;
    if (!refused) {  // a part of a split set, by its keys
        FUZZ_REQUIRE(again->message.find("split.") != std::string::npos, "{}", again->message);
        return;
    }
    FUZZ_REQUIRE(again->message == path + refused->message.substr(kName.size()), "{}\n{}", again->message,
                 refused->message);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;  // an empty file never comes to the parser
    const fuzz::Stopwatch stopwatch;
    // Exactly `size` bytes on the heap: a read past their end is seen.
    const std::vector<std::byte> bytes(reinterpret_cast<const std::byte *>(data),
                                       reinterpret_cast<const std::byte *>(data) + size);
    Part part;
    fuzz::start_allocation_meter();
    const auto refused = fuzz::refusal_of([&] { part = parse(bytes, kName); });
    FUZZ_REQUIRE(fuzz::peak_allocation() <= 16384 + 16 * size, "{} bytes of heap for a file of {}",
                 fuzz::peak_allocation(), size);
    if (refused) {
        FUZZ_REQUIRE(refused->kind == ErrorKind::file, "kind {}", static_cast<int>(refused->kind));
        FUZZ_REQUIRE(refused->message.starts_with(kName + ": byte "), "{}", refused->message);
    } else {
        check_part(bytes, part);
    }
    check_mapped(bytes, refused ? nullptr : &part, refused);
    return 0;
}
