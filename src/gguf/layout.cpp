#include "gguf/layout.h"

#include <fmt/format.h>

#include <limits>

namespace ridge::gguf {
namespace {

struct TypeFacts {
    std::string_view name;
    size_t bytes;
};

// By the numbers of Type, which are the file's.
constexpr TypeFacts kTypeFacts[kTypes] = {{"u8", 1},  {"i8", 1},  {"u16", 2},  {"i16", 2},    {"u32", 4},
                                          {"i32", 4}, {"f32", 4}, {"bool", 1}, {"string", 0}, {"array", 0},
                                          {"u64", 8}, {"i64", 8}, {"f64", 8}};

struct PlainType {
    uint32_t id;
    Storage storage;
};

constexpr PlainType kPlain[] = {{24, {"I8", 1, 1, nullptr}},
                                {25, {"I16", 1, 2, nullptr}},
                                {26, {"I32", 1, 4, nullptr}},
                                {27, {"I64", 1, 8, nullptr}},
                                {28, {"F64", 1, 8, nullptr}}};

struct Refused {
    uint32_t id;
    std::string_view name;
    std::string_view why;
};

// Numbers that ggml has given to types which no file for this program can use.
constexpr std::string_view kRemoved = "a type that was removed from ggml in 2023";
constexpr std::string_view kRepacked =
    "a repacked type that was removed from ggml in 2024 (weights are repacked after loading instead)";
constexpr std::string_view kInternal = "a type for intermediate results, which files do not hold";
constexpr Refused kRefused[] = {{4, "Q4_2", kRemoved},         {5, "Q4_3", kRemoved},
                                {9, "Q8_1", kInternal},        {15, "Q8_K", kInternal},
                                {31, "Q4_0_4_4", kRepacked},   {32, "Q4_0_4_8", kRepacked},
                                {33, "Q4_0_8_8", kRepacked},   {36, "IQ4_NL_4_4", kRepacked},
                                {37, "IQ4_NL_4_8", kRepacked}, {38, "IQ4_NL_8_8", kRepacked}};

std::string known_types() {
    std::string out = format_names(" ");
    for (const PlainType &p : kPlain) out += fmt::format(" {}", p.storage.name);
    return out;
}

}  // namespace

std::string_view type_name(Type t) {
    const auto i = static_cast<uint32_t>(t);
    return i < kTypes ? kTypeFacts[i].name : "unknown";
}

size_t scalar_bytes(Type t) { return kTypeFacts[static_cast<uint32_t>(t)].bytes; }

std::optional<Storage> find_storage(uint32_t ggml_type) {
    if (const FormatInfo *f = find_format(ggml_type)) return Storage{f->name, f->block, f->bytes, f};
    for (const PlainType &p : kPlain)
        if (p.id == ggml_type) return p.storage;
    return std::nullopt;
}

std::string why_not(uint32_t ggml_type) {
    for (const Refused &r : kRefused)
        if (r.id == ggml_type)
            return fmt::format("type {} is {}, {}; convert the model again to one of {}", ggml_type, r.name, r.why,
                               known_types());
    return fmt::format("type {} is unknown; known are {}", ggml_type, known_types());
}

std::optional<uint64_t> tensor_bytes(const Storage &storage, std::span<const uint64_t> shape) {
    uint64_t elements = 1, bytes = 0;
    for (uint64_t d : shape)
        if (__builtin_mul_overflow(elements, d, &elements)) return std::nullopt;
    if (__builtin_mul_overflow(elements / storage.block, storage.bytes, &bytes)) return std::nullopt;
    constexpr uint64_t kMost = std::numeric_limits<int64_t>::max();
    if (elements > kMost || bytes > kMost) return std::nullopt;
    return bytes;
}

}  // namespace ridge::gguf
