#include "text/trie.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"

namespace ridge::text {

Trie::Trie(std::vector<Entry> entries) {
    size_t key_bytes = 0;
    for (const Entry &entry : entries) key_bytes += entry.key.size();
    if (key_bytes >= kNoNode) fail(ErrorKind::limit, "a vocabulary of {} bytes is too large to search", key_bytes);
    std::ranges::stable_sort(entries, {}, &Entry::key);

    // Node i stands for the entries [begin, end), which share their first `depth` bytes.
    struct Range {
        size_t begin, end, depth;
    };
    std::vector<Range> ranges{{0, entries.size(), 0}};
    nodes_.emplace_back();
    bytes_.push_back(0);
    for (uint32_t node = 0; node < nodes_.size(); ++node) {
        auto [begin, end, depth] = ranges[node];
        if (begin < end && entries[begin].key.size() == depth) {
            nodes_[node].value = entries[begin].value;
            while (begin < end && entries[begin].key.size() == depth) ++begin;
        }
        nodes_[node].first_child = static_cast<uint32_t>(nodes_.size());
        while (begin < end) {
            const char byte = entries[begin].key[depth];
            size_t same = begin + 1;
            while (same < end && entries[same].key[depth] == byte) ++same;
            ranges.push_back({begin, same, depth + 1});
            nodes_.emplace_back();
            bytes_.push_back(static_cast<uint8_t>(byte));
            ++nodes_[node].children;
            begin = same;
        }
    }
    root_children_.fill(kNoNode);
    for (uint32_t i = 0; i < nodes_[kRoot].children; ++i) {
        const uint32_t node = nodes_[kRoot].first_child + i;
        root_children_[bytes_[node]] = node;
    }
}

uint32_t Trie::child(uint32_t node, uint8_t byte) const {
    if (node == kRoot) return root_children_[byte];
    const Node &parent = nodes_[node];
    const uint8_t *first = bytes_.data() + parent.first_child;
    const void *found = std::memchr(first, byte, parent.children);
    if (found == nullptr) return kNoNode;
    return parent.first_child + static_cast<uint32_t>(static_cast<const uint8_t *>(found) - first);
}

Trie::Match Trie::longest(std::string_view text) const {
    Match match;
    uint32_t node = kRoot;
    for (size_t length = 0; length < text.size();) {
        node = child(node, static_cast<uint8_t>(text[length]));
        if (node == kNoNode) break;
        ++length;
        if (nodes_[node].value >= 0) match = {length, nodes_[node].value};
    }
    return match;
}

}  // namespace ridge::text
