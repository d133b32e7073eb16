#include "text/bpe.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "core/error.h"
#include "gguf/printable.h"
#include "text/byte_level.h"

namespace ridge::text {

namespace {

constexpr int32_t kGone = -1;
constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();

bool is_control(const Vocabulary &v, int32_t id) {
    return !v.types.empty() && (v.types[id] == TokenType::control || v.types[id] == TokenType::unknown);
}

}  // namespace

Bpe::Bpe(const Vocabulary &v, const std::unordered_map<std::string_view, int32_t> &ids) : pre_(v.pre, v.origin) {
    for (unsigned byte = 0; byte < 256; ++byte) {
        const auto found = ids.find(byte_level_symbol(static_cast<uint8_t>(byte)));
        const bool usable = found != ids.end() && !is_control(v, found->second);
        byte_tokens_[byte] = usable ? found->second : kGone;
    }
    add_merges(v, ids);
    if (pre_.row().whole_pieces_first) {
        for (size_t id = 0; id < v.tokens.size(); ++id) {
            if (v.types.empty() || v.types[id] == TokenType::normal) {
                whole_pieces_.try_emplace(byte_level_decode(v.tokens[id]), static_cast<int32_t>(id));
            }
        }
    }
}

void Bpe::add_merges(const Vocabulary &v, const std::unordered_map<std::string_view, int32_t> &ids) {
    constexpr std::string_view kKey = "tokenizer.ggml.merges";
    if (v.merges.empty()) {
        fail(ErrorKind::file, "{}: {} is missing or empty; a byte-level BPE cannot work without", v.origin, kKey);
    }
    const auto token = [&](size_t rank, std::string_view text) {
        const auto found = ids.find(text);
        if (found == ids.end()) {
            fail(ErrorKind::file, "{}: {}[{}] is '{}', but '{}' is not in tokenizer.ggml.tokens", v.origin, kKey, rank,
                 gguf::printable(v.merges[rank]), gguf::printable(text));
        }
        return found->second;
    };
    merges_.reserve(v.merges.size());
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
        if (is_control(v, result)) {
            fail(ErrorKind::file, "{}: {}[{}] makes the control token '{}', so that plain text could become it",
                 v.origin, kKey, rank, gguf::printable(joined));
        }
        merges_.push_back({token(rank, left), token(rank, right), static_cast<uint32_t>(rank), result});
    }
    std::ranges::sort(merges_, [](const Merge &a, const Merge &b) {
        return std::tie(a.left, a.right, a.rank) < std::tie(b.left, b.right, b.rank);
    });
    // Where a pair is listed twice its first rank counts.
    const auto repeated = std::ranges::unique(
        merges_, [](const Merge &a, const Merge &b) { return a.left == b.left && a.right == b.right; });
    merges_.erase(repeated.begin(), repeated.end());
    first_merge_.assign(v.tokens.size() + 1, 0);
    for (const Merge &merge : merges_) ++first_merge_[merge.left + 1];
    for (size_t id = 0; id < v.tokens.size(); ++id) first_merge_[id + 1] += first_merge_[id];
}

// A sorted table instead of a hash: it is as fast here, and no choice of merges can make it slow.
const Bpe::Merge *Bpe::find(int32_t left, int32_t right) const {
    const Merge *begin = merges_.data() + first_merge_[left];
    const Merge *end = merges_.data() + first_merge_[left + 1];
    const Merge *merge = std::lower_bound(begin, end, right, [](const Merge &m, int32_t r) { return m.right < r; });
    return merge != end && merge->right == right ? merge : nullptr;
}

namespace {
// For std::push_heap, whose top is the largest: the most urgent candidate, the leftmost of equals.
constexpr auto kLessUrgent = [](const auto &a, const auto &b) {
    return std::tie(a.rank, a.at) > std::tie(b.rank, b.at);
};
}  // namespace

// Adds the pair of symbol `at` and its right neighbour to the heap, where a merge joins them.
void Bpe::propose(Work &work, uint32_t at) const {
    if (at == kNone || work.symbols[at].next == kNone) return;
    const int32_t left = work.symbols[at].token;
    const int32_t right = work.symbols[work.symbols[at].next].token;
    if (const Merge *merge = find(left, right)) {
        work.heap.push_back({merge->rank, at, left, right, merge->result});
        std::ranges::push_heap(work.heap, kLessUrgent);
    }
}

size_t Bpe::encode_piece(std::string_view piece, Work &work, std::vector<int32_t> &out) const {
    if (const auto whole = whole_pieces_.find(piece); whole != whole_pieces_.end()) {
        out.push_back(whole->second);
        return 0;
    }
    auto &symbols = work.symbols;
    symbols.clear();
    for (const char byte : piece) {
        const int32_t token = byte_tokens_[static_cast<uint8_t>(byte)];
        if (token == kGone) continue;
        const auto at = static_cast<uint32_t>(symbols.size());
        symbols.push_back({token, at - 1, at + 1});  // the first one's `previous` wraps around to kNone
    }
    if (symbols.empty()) return piece.size();
    symbols.back().next = kNone;

    work.heap.clear();
    for (uint32_t at = 0; at + 1 < symbols.size(); ++at) propose(work, at);
    while (!work.heap.empty()) {
        std::ranges::pop_heap(work.heap, kLessUrgent);
        const Candidate best = work.heap.back();
        work.heap.pop_back();
        Symbol &left = symbols[best.at];
        // Earlier merges may have taken either symbol. Tokens only grow, so equal ids mean the same symbols.
        if (left.token != best.left || left.next == kNone || symbols[left.next].token != best.right) continue;
        Symbol &right = symbols[left.next];
        left.token = best.result;
        left.next = right.next;
        right.token = kGone;
        if (left.next != kNone) symbols[left.next].previous = best.at;
        propose(work, left.previous);
        propose(work, best.at);
    }
    for (uint32_t at = 0; at != kNone; at = symbols[at].next) out.push_back(symbols[at].token);
    return piece.size() - symbols.size();
}

size_t Bpe::encode(std::string_view text, std::vector<int32_t> &out) const {
    if (text.size() >= kNone) fail(ErrorKind::limit, "a text of {} bytes is too long to tokenize", text.size());
    Work work;
    pre_.split(text, work.pieces);
    size_t without_token = 0;
    for (const std::string_view piece : work.pieces) without_token += encode_piece(piece, work, out);
    return without_token;
}

}  // namespace ridge::text
