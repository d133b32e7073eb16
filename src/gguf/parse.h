// The structure of one GGUF file, checked. No file system here, so that tests can hand in bytes on the heap, where
// AddressSanitizer sees a read past the end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gguf/gguf.h"

namespace ridge::gguf {

struct Part {
    uint32_t version = 0;
    uint64_t alignment = 0;
    uint64_t data_start = 0;  // beyond the end of the file only where there is no tensor
    std::vector<std::pair<std::string_view, Value>> metadata;  // in file order
    std::vector<Tensor> tensors;                               // in file order; Tensor::file is 0
};

// Views in the result point into `bytes`. `file` is the name that messages start with. Throws Error{file}.
// Time is linear in the size of the header but for sorting names; memory is a small multiple of it.
Part parse(std::span<const std::byte> bytes, const std::string &file);

}  // namespace ridge::gguf
