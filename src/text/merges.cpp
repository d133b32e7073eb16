#include "text/merges.h"

#include <algorithm>
#include <limits>
#include <string>
#include <tuple>
#include <utility>

#include "core/error.h"
#include "gguf/printable.h"

namespace ridge::text {

namespace {

constexpr int32_t kGone = -1;
constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();

// For std::push_heap, whose top is the largest: the most urgent candidate, the leftmost of equals.
constexpr auto kLessUrgent = [](const auto &a, const auto &b) {
    return std::tie(a.rank, a.at) > std::tie(b.rank, b.at);
};

}  // namespace

Merges::Merges(std::vector<Merge> merges, size_t n_symbols) {
    if (merges.size() >= kNone) fail(ErrorKind::limit, "a vocabulary with {} merges is too large", merges.size());
    // By left symbol first, by counting; then each range by itself.
    std::vector<uint32_t> ends(n_symbols + 1, 0);
    for (const Merge &merge : merges) ++ends[merge.left + 1];
    for (size_t id = 0; id < n_symbols; ++id) ends[id + 1] += ends[id];
    merges_.resize(merges.size());
    for (const Merge &merge : merges) merges_[ends[merge.left]++] = merge;

    first_merge_.assign(n_symbols + 1, 0);
    uint32_t kept = 0;
    uint32_t begin = 0;
    for (size_t left = 0; left < n_symbols; ++left) {
        const std::span<Merge> range = std::span(merges_).subspan(begin, ends[left] - begin);
        begin = ends[left];
        std::ranges::sort(range, [](const Merge &a, const Merge &b) {
            return std::tie(a.right, a.rank) < std::tie(b.right, b.rank);
        });
        for (const Merge &merge : range) {
            const bool repeated = kept > first_merge_[left] && merges_[kept - 1].right == merge.right;
            if (!repeated) merges_[kept++] = merge;
        }
        first_merge_[left + 1] = kept;
    }
    merges_.resize(kept);
}

// A sorted table instead of a hash: it is as fast here, and no choice of merges can make it slow.
const Merges::Merge *Merges::find(int32_t left, int32_t right) const {
    const Merge *begin = merges_.data() + first_merge_[left];
    const Merge *end = merges_.data() + first_merge_[left + 1];
    const Merge *merge = std::lower_bound(begin, end, right, [](const Merge &m, int32_t r) { return m.right < r; });
    return merge != end && merge->right == right ? merge : nullptr;
}

// Adds the pair of symbol `at` and its right neighbour to the heap, where a merge joins them.
void Merges::propose(Work &work, uint32_t at) const {
    if (at == kNone || work.symbols[at].next == kNone) return;
    const int32_t left = work.symbols[at].id;
    const int32_t right = work.symbols[work.symbols[at].next].id;
    if (const Merge *merge = find(left, right)) {
        work.heap.push_back({merge->rank, at, left, right, merge->result});
        std::ranges::push_heap(work.heap, kLessUrgent);
    }
}

void Merges::apply(std::span<const int32_t> symbols_in, Work &work, std::vector<int32_t> &out) const {
    if (symbols_in.empty()) return;
    auto &symbols = work.symbols;
    symbols.clear();
    for (const int32_t id : symbols_in) {
        const auto at = static_cast<uint32_t>(symbols.size());
        symbols.push_back({id, at - 1, at + 1});  // the first one's `previous` wraps around to kNone
    }
    symbols.back().next = kNone;

    work.heap.clear();
    for (uint32_t at = 0; at + 1 < symbols.size(); ++at) propose(work, at);
    while (!work.heap.empty()) {
        std::ranges::pop_heap(work.heap, kLessUrgent);
        const Work::Candidate best = work.heap.back();
        work.heap.pop_back();
        Work::Symbol &left = symbols[best.at];
        // Earlier merges may have taken either symbol. Symbols only grow, so equal ids mean the same symbols.
        if (left.id != best.left || left.next == kNone || symbols[left.next].id != best.right) continue;
        Work::Symbol &right = symbols[left.next];
        left.id = best.result;
        left.next = right.next;
        right.id = kGone;
        if (left.next != kNone) symbols[left.next].previous = best.at;
        propose(work, left.previous);
        propose(work, best.at);
    }
    for (uint32_t at = 0; at != kNone; at = symbols[at].next) out.push_back(symbols[at].id);
}

namespace {

// Why text must not become the token, or nullptr where it may.
const char *kind_out_of_reach(const Vocabulary &v, int32_t id) {
    if (v.types.empty()) return nullptr;
    switch (v.types[id]) {
        case TokenType::control:
        case TokenType::unknown:
            return "control";
        case TokenType::byte:
            return "byte";
        case TokenType::unused:
            return "unused";
        default:
            return nullptr;
    }
}

}  // namespace

std::vector<Merges::Merge> listed_merges(const Vocabulary &v,
                                         const std::unordered_map<std::string_view, int32_t> &ids) {
    constexpr std::string_view kKey = "tokenizer.ggml.merges";
    if (v.merges.empty()) {
        fail(ErrorKind::file, "{}: {} is missing or empty; a tokenizer of the family '{}' cannot work without",
             v.origin, kKey, gguf::printable(v.model));
    }
    const auto token = [&](size_t rank, std::string_view text) {
        const auto found = ids.find(text);
        if (found == ids.end()) {
            fail(ErrorKind::file, "{}: {}[{}] is '{}', but '{}' is not in tokenizer.ggml.tokens", v.origin, kKey, rank,
                 gguf::printable(v.merges[rank]), gguf::printable(text));
        }
        return found->second;
    };
    std::vector<Merges::Merge> merges;
    merges.reserve(v.merges.size());
    std::string joined;
    for (size_t rank = 0; rank < v.merges.size(); ++rank) {
        const std::string_view merge = v.merges[rank];
        const size_t space = merge.find(' ');
        if (space == std::string_view::npos || space == 0 || space + 1 == merge.size() ||
            merge.find(' ', space + 1) != std::string_view::npos) {
            fail(ErrorKind::file, "{}: {}[{}] is '{}'; it must be two tokens with one space between", v.origin, kKey,
                 rank, gguf::printable(merge));
        }
        const std::string_view left = merge.substr(0, space);
        const std::string_view right = merge.substr(space + 1);
        joined.assign(left).append(right);
        const int32_t result = token(rank, joined);
        if (const char *kind = kind_out_of_reach(v, result)) {
            fail(ErrorKind::file, "{}: {}[{}] makes the {} token '{}', so that plain text could become it", v.origin,
                 kKey, rank, kind, gguf::printable(joined));
        }
        merges.push_back({token(rank, left), token(rank, right), static_cast<uint32_t>(rank), result});
    }
    return merges;
}

}  // namespace ridge::text
