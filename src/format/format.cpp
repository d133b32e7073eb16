#include "format/format.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <iterator>

#include "core/error.h"

namespace ridge {
namespace {

constexpr FormatInfo kFormats[] = {
#define FORMAT(NAME, prefix, id, block, bytes, group, bias) {Format::NAME, #NAME, block, bytes, group, bias != 0},
#define FORMAT_FLOAT(NAME, prefix, id, bytes) {Format::NAME, #NAME, 1, bytes, 0, false},
#include "format/formats.def"
};

// Place in kFormats by the number that files carry: kernels ask for it per tile.
constexpr size_t kNumbers = 64;  // FormatSet has as many bits
constexpr std::array<int8_t, kNumbers> kPlace = [] {
    std::array<int8_t, kNumbers> place{};
    place.fill(-1);
    for (size_t i = 0; i < std::size(kFormats); i++)
        place[static_cast<size_t>(kFormats[i].id)] = static_cast<int8_t>(i);
    return place;
}();

}  // namespace

std::span<const FormatInfo> all_formats() { return kFormats; }

const FormatInfo *find_format(uint32_t ggml_type) {
    return ggml_type < kNumbers && kPlace[ggml_type] >= 0 ? &kFormats[kPlace[ggml_type]] : nullptr;
}

const FormatInfo *find_format(std::string_view name) {
    auto same = [](char a, char b) {
        return std::toupper(static_cast<unsigned char>(a)) == std::toupper(static_cast<unsigned char>(b));
    };
    for (const FormatInfo &f : kFormats)
        if (std::equal(f.name.begin(), f.name.end(), name.begin(), name.end(), same)) return &f;
    return nullptr;
}

std::string format_names(std::string_view separator) {
    std::string names;
    for (const FormatInfo &f : kFormats) names.append(names.empty() ? "" : separator).append(f.name);
    return names;
}

const FormatInfo &info(Format f) {
    const FormatInfo *found = find_format(static_cast<uint32_t>(f));
    RIDGE_ASSERT(found != nullptr);
    return *found;
}

}  // namespace ridge
