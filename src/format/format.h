// The quantization formats as a table: what the bytes of a GGUF tensor are called and how they are shaped.
//
// The meaning of the bytes is in one header per format beside this file, written in the dialect (dialect.h);
// formats.def lists them all. The numbers in `Format` are the ones GGUF files carry.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace ridge {

enum class Format : uint8_t {
#define FORMAT(NAME, prefix, id, block, bytes, group, bias) NAME = id,
#define FORMAT_FLOAT(NAME, prefix, id, bytes) NAME = id,
#include "format/formats.def"
};

struct FormatInfo {
    Format id;
    std::string_view name;  // as GGUF tools print it: "Q4_K"
    uint32_t block;         // weights per block (1 for F32, F16, BF16)
    uint32_t bytes;         // bytes per block
    uint32_t group;         // weights per scale (and per bias); 0 for the float formats
    bool has_bias;          // value = scale[g] * code + bias[g]
    bool is_float() const { return group == 0; }
    double bits_per_weight() const { return 8.0 * bytes / block; }
};

// All formats, in the order of formats.def.
std::span<const FormatInfo> all_formats();

// Precondition: `f` is one of the enumerators.
const FormatInfo &info(Format f);

// nullptr where `ggml_type` is not a format this build knows.
const FormatInfo *find_format(uint32_t ggml_type);
// Case-insensitive: "q4_k" finds Q4_K.
const FormatInfo *find_format(std::string_view name);

// "F32, F16, ...": what a message lists where a name was none of them.
std::string format_names(std::string_view separator = ", ");

// Bytes of one row of k weights. Precondition: k is a multiple of the block.
inline size_t row_bytes(Format f, size_t k) {
    const FormatInfo &i = info(f);
    return k / i.block * i.bytes;
}

// A set of formats; the empty set marks operations that read no weights.
class FormatSet {
  public:
    constexpr FormatSet() = default;
    constexpr FormatSet(std::initializer_list<Format> list) {
        for (Format f : list) bits_ |= bit(f);
    }
    constexpr bool has(Format f) const { return (bits_ & bit(f)) != 0; }
    constexpr bool empty() const { return bits_ == 0; }
    constexpr FormatSet operator|(FormatSet o) const { return FormatSet(bits_ | o.bits_); }
    constexpr bool operator==(const FormatSet &) const = default;
    static constexpr FormatSet all();
    static constexpr FormatSet quantized();  // the block formats
    static constexpr FormatSet floats();     // F32, F16, BF16

  private:
    constexpr explicit FormatSet(uint64_t bits) : bits_(bits) {}
    static constexpr uint64_t bit(Format f) { return uint64_t{1} << static_cast<unsigned>(f); }
    uint64_t bits_ = 0;
};

constexpr FormatSet FormatSet::quantized() {
    return {
#define FORMAT(NAME, prefix, id, block, bytes, group, bias) Format::NAME,
#include "format/formats.def"
    };
}
constexpr FormatSet FormatSet::floats() {
    return {
#define FORMAT_FLOAT(NAME, prefix, id, bytes) Format::NAME,
#include "format/formats.def"
    };
}
constexpr FormatSet FormatSet::all() { return quantized() | floats(); }

}  // namespace ridge
