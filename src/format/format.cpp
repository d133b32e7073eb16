#include "format/format.h"

#include <algorithm>
#include <cctype>

#include "core/error.h"

namespace ridge {
namespace {

constexpr FormatInfo kFormats[] = {
#define FORMAT(NAME, prefix, id, block, bytes, group, bias) {Format::NAME, #NAME, block, bytes, group, bias != 0},
#define FORMAT_FLOAT(NAME, prefix, id, bytes) {Format::NAME, #NAME, 1, bytes, 0, false},
#include "format/formats.def"
};

}  // namespace

std::span<const FormatInfo> all_formats() { return kFormats; }

const FormatInfo *find_format(uint32_t ggml_type) {
    for (const FormatInfo &f : kFormats)
        if (static_cast<uint32_t>(f.id) == ggml_type) return &f;
    return nullptr;
}

const FormatInfo *find_format(std::string_view name) {
    auto same = [](char a, char b) {
        return std::toupper(static_cast<unsigned char>(a)) == std::toupper(static_cast<unsigned char>(b));
    };
    for (const FormatInfo &f : kFormats)
        if (std::equal(f.name.begin(), f.name.end(), name.begin(), name.end(), same)) return &f;
    return nullptr;
}

const FormatInfo &info(Format f) {
    const FormatInfo *found = find_format(static_cast<uint32_t>(f));
    RIDGE_ASSERT(found != nullptr);
    return *found;
}

}  // namespace ridge
