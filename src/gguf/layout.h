// Facts of the GGUF format that reader and writer share: limits, sizes of value types, the tensor types by number.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "gguf/gguf.h"

namespace ridge::gguf {

static_assert(std::endian::native == std::endian::little, "values are read as they lie in the file");

inline constexpr uint32_t kOldestVersion = 2;
inline constexpr uint32_t kVersion = 3;
inline constexpr size_t kHeaderBytes = 24;  // magic, version, n_tensors, n_metadata
inline constexpr std::string_view kMagic = "GGUF";
inline constexpr std::string_view kAlignmentKey = "general.alignment";
inline constexpr uint64_t kDefaultAlignment = 32;
inline constexpr uint64_t kMinAlignment = 8;
inline constexpr uint64_t kMaxAlignment = uint64_t{1} << 20;  // ours: more than any page or device asks for
inline constexpr size_t kMaxNameBytes = 65535;                // the format's limit for keys; used for tensor names too
inline constexpr unsigned kMaxArrayDepth = 4;                 // ours: arrays of arrays exist, deeper ones than 2 hardly
inline constexpr uint32_t kMaxDims = 4;
// The fewest bytes one entry can take: what a count in the header is checked against.
inline constexpr size_t kMinMetadataBytes = 8 + 1 + 4 + 1;        // key of one byte, type, u8
inline constexpr size_t kMinTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;  // name of one byte, n_dims, dim, type, offset

inline bool valid_alignment(uint64_t a) { return a >= kMinAlignment && a <= kMaxAlignment && std::has_single_bit(a); }
// Precondition: `alignment` is a power of two and n + alignment does not wrap.
inline uint64_t align_up(uint64_t n, uint64_t alignment) { return (n + alignment - 1) & ~(alignment - 1); }

inline constexpr uint32_t kTypes = 13;  // Type counts from 0
// Bytes of one value; 0 for string and array.
size_t scalar_bytes(Type t);

// How the elements of a tensor are stored.
struct Storage {
    std::string_view name;
    uint64_t block;            // elements
    uint64_t bytes;            // per block
    const FormatInfo *format;  // nullptr for the plain types
};
// Empty where this build does not know the type: then why_not() says what it is and what would do.
std::optional<Storage> find_storage(uint32_t ggml_type);
std::string why_not(uint32_t ggml_type);

// Bytes of a tensor. Empty where the number of elements or of bytes exceeds what an i64 holds.
// Precondition: no dimension is 0 and shape[0] is a multiple of the block.
std::optional<uint64_t> tensor_bytes(const Storage &storage, std::span<const uint64_t> shape);

}  // namespace ridge::gguf
