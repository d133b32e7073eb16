#include "text/normalizer.h"

#include <algorithm>

#include "core/error.h"
#include "core/utf8.h"

namespace ridge::text {

namespace {

constexpr std::string_view kKey = "tokenizer.ggml.precompiled_charsmap";

constexpr uint32_t kIsValue = 1u << 31;
bool has_value(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t label(uint32_t unit) { return unit & (kIsValue | 0xFF); }
uint32_t offset(uint32_t unit) { return (unit >> 10 & 0x1FFFFF) << ((unit & 1u << 9) >> 6); }

uint32_t u32_at(std::string_view bytes, size_t at) {
    uint32_t value = 0;
    for (unsigned i = 0; i < 4; ++i) value |= uint32_t{static_cast<uint8_t>(bytes[at + i])} << (8 * i);
    return value;
}

}  // namespace

CharsMap::CharsMap(std::string_view blob, std::string_view origin) {
    if (blob.empty()) return;
    if (blob.size() > kLargest) {
        fail(ErrorKind::limit, "{}: {} has {} bytes; {} are supported", origin, kKey, blob.size(), kLargest);
    }
    const size_t trie_bytes = blob.size() >= 4 ? u32_at(blob, 0) : 0;
    if (trie_bytes == 0 || trie_bytes % 4 != 0 || trie_bytes > blob.size() - 4) {
        fail(ErrorKind::file, "{}: {} has {} bytes, which do not hold the trie of {} bytes that it begins with", origin,
             kKey, blob.size(), trie_bytes);
    }
    units_.resize(trie_bytes / 4);
    for (size_t i = 0; i < units_.size(); ++i) units_[i] = u32_at(blob, 4 + 4 * i);
    replacements_ = blob.substr(4 + trie_bytes);
    if (!replacements_.empty() && replacements_.back() != '\0') {
        fail(ErrorKind::file, "{}: the last replacement in {} does not end", origin, kKey);
    }
    // A replacement makes the text grow, and so what encoding it takes.
    for (size_t start = 0; start < replacements_.size();) {
        const size_t end = replacements_.find('\0', start);
        if (end - start > kLongestReplacement) {
            fail(ErrorKind::limit, "{}: a replacement in {} has {} bytes; {} are supported", origin, kKey, end - start,
                 kLongestReplacement);
        }
        start = end + 1;
    }
    check(origin);
}

// Visits every unit that a look-up can reach.
void CharsMap::check(std::string_view origin) const {
    std::vector<bool> reached(units_.size());
    std::vector<uint32_t> nodes{offset(units_[0])};
    while (!nodes.empty()) {
        const uint32_t node = nodes.back();
        nodes.pop_back();
        for (uint32_t byte = 1; byte < 256; ++byte) {
            const uint32_t at = node ^ byte;
            if (at >= units_.size() || reached[at] || label(units_[at]) != byte) continue;
            reached[at] = true;
            const uint32_t next = at ^ offset(units_[at]);
            if (has_value(units_[at])) {
                const uint32_t start = next < units_.size() ? units_[next] & ~kIsValue : kIsValue;
                if (start >= replacements_.size()) {
                    fail(ErrorKind::file, "{}: unit {} of {} names a replacement past the end", origin, at, kKey);
                }
            }
            nodes.push_back(next);
        }
    }
}

CharsMap::Match CharsMap::longest(std::string_view text) const {
    if (units_.empty()) return {};
    Match match;
    uint32_t node = offset(units_[0]);
    for (size_t i = 0; i < std::min(text.size(), kLongestKey); ++i) {
        const auto byte = static_cast<uint8_t>(text[i]);
        const uint32_t at = node ^ byte;
        if (byte == 0 || at >= units_.size() || label(units_[at]) != byte) break;
        node = at ^ offset(units_[at]);
        if (has_value(units_[at])) {
            match = {i + 1, std::string_view(replacements_).substr(units_[node] & ~kIsValue)};
        }
    }
    match.replacement = match.replacement.substr(0, match.replacement.find('\0'));
    return match;
}

Normalizer::Normalizer(const Vocabulary &v, Spaces absent)
    : map_(v.charsmap, v.origin),
      spaces_{v.add_space_prefix.value_or(absent.add_prefix), v.remove_extra_spaces.value_or(absent.remove_extra)} {}

std::string Normalizer::apply(std::string_view text) const {
    std::string out;
    out.reserve(text.size() + text.size() / 2 + kSpaceSymbol.size());
    bool prefix_due = spaces_.add_prefix;
    bool after_space = true;  // at the start as well
    while (!text.empty()) {
        auto [length, piece] = map_.longest(text);
        if (length == 0) {
            length = utf8_step(text).length;
            piece = text.substr(0, length);
        }
        text.remove_prefix(length);
        if (spaces_.remove_extra && after_space)
            piece.remove_prefix(std::min(piece.find_first_not_of(' '), piece.size()));
        if (prefix_due && !(spaces_.remove_extra && piece.empty())) {
            out += kSpaceSymbol;
            prefix_due = false;
        }
        if (piece.empty()) continue;
        for (const char byte : piece) {
            if (byte == ' ') {
                out += kSpaceSymbol;
            } else {
                out += byte;
            }
        }
        after_space = piece.back() == ' ';
    }
    while (spaces_.remove_extra && out.ends_with(kSpaceSymbol)) out.resize(out.size() - kSpaceSymbol.size());
    return out;
}

std::string with_spaces(std::string_view stored) {
    std::string text;
    text.reserve(stored.size());
    for (size_t at = 0; at < stored.size();) {
        const bool space = stored.substr(at).starts_with(kSpaceSymbol);
        text += space ? ' ' : stored[at];
        at += space ? kSpaceSymbol.size() : 1;
    }
    return text;
}

}  // namespace ridge::text
