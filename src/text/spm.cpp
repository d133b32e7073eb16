#include "text/spm.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>
#include <utility>

#include "core/error.h"
#include "core/utf8.h"

namespace ridge::text {

namespace {

constexpr int32_t kNoSymbol = -1;
constexpr size_t kNone = std::numeric_limits<size_t>::max();

bool is_piece(const Vocabulary &v, size_t id) {
    const TokenType type = v.types[id];
    const std::string_view text = v.tokens[id];
    return (type == TokenType::normal || type == TokenType::user_defined) && !text.empty() &&
           utf8_valid_prefix(text) == text.size();
}

std::string_view first_character(std::string_view text) { return text.substr(0, utf8_step(text).length); }

std::string_view last_character(std::string_view text) {
    size_t at = text.size() - 1;
    while ((static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) --at;
    return text.substr(at);
}

// The indices of `texts` in the order of the texts. Most comparisons are decided by the first eight bytes, which are
// kept at hand as a number.
std::vector<size_t> sorted(const std::vector<std::string> &texts) {
    struct Entry {
        uint64_t head;
        size_t index;
    };
    std::vector<Entry> entries;
    entries.reserve(texts.size());
    for (size_t i = 0; i < texts.size(); ++i) {
        uint64_t head = 0;
        for (size_t at = 0; at < 8; ++at)
            head = head << 8 | (at < texts[i].size() ? static_cast<uint8_t>(texts[i][at]) : 0);
        entries.push_back({head, i});
    }
    std::ranges::sort(entries, [&](const Entry &a, const Entry &b) {
        return a.head != b.head ? a.head < b.head : texts[a.index] < texts[b.index];
    });
    std::vector<size_t> order;
    order.reserve(entries.size());
    for (const Entry &entry : entries) order.push_back(entry.index);
    return order;
}

// By index: that of the longest other text that this one starts with, or kNone. Sorted, a text comes after its
// prefixes, so those of the last one are a chain.
std::vector<size_t> longest_prefixes(const std::vector<std::string> &texts) {
    std::vector<size_t> prefixes(texts.size(), kNone);
    size_t last = kNone;
    for (const size_t i : sorted(texts)) {
        while (last != kNone && !texts[i].starts_with(texts[last])) last = prefixes[last];
        prefixes[i] = last;
        last = i;
    }
    return prefixes;
}

// Equal scores have equal ranks, so that of equals the leftmost merges first.
std::vector<uint32_t> ranks_by_score(const Vocabulary &v) {
    std::vector<size_t> order(v.tokens.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::sort(order, [&](size_t a, size_t b) { return v.scores[a] > v.scores[b]; });
    std::vector<uint32_t> ranks(v.tokens.size());
    for (size_t i = 1; i < order.size(); ++i) {
        ranks[order[i]] = ranks[order[i - 1]] + (v.scores[order[i]] < v.scores[order[i - 1]] ? 1 : 0);
    }
    return ranks;
}

// Every way to put two symbols together to a piece. Their number is at most that of the bytes in the vocabulary, and so
// is the time, but for the sorting.
std::vector<Merges::Merge> merges_by_score(const Vocabulary &v, const SentencePieceBpe::Characters &characters) {
    std::vector<std::string> texts;
    std::vector<int32_t> symbols;  // by index into texts
    for (size_t id = 0; id < v.tokens.size(); ++id) {
        if (!is_piece(v, id)) continue;
        texts.push_back(v.tokens[id]);
        symbols.push_back(static_cast<int32_t>(id));
    }
    const size_t pieces = texts.size();
    for (const std::string &character : characters.partial()) {
        symbols.push_back(static_cast<int32_t>(v.tokens.size() + texts.size() - pieces));
        texts.push_back(character);
    }
    const std::vector<size_t> prefixes = longest_prefixes(texts);
    std::vector<std::string> reversed = texts;
    for (std::string &text : reversed) std::ranges::reverse(text);
    const std::vector<size_t> suffixes = longest_prefixes(reversed);
    const std::vector<uint32_t> ranks = ranks_by_score(v);

    std::vector<Merges::Merge> merges;
    std::vector<size_t> rights;
    for (size_t i = 0; i < pieces; ++i) {
        rights.clear();
        for (size_t right = suffixes[i]; right != kNone; right = suffixes[right]) rights.push_back(right);
        // Down from the longest left part, up from the shortest right part.
        for (size_t left = prefixes[i]; left != kNone && !rights.empty(); left = prefixes[left]) {
            const size_t rest = texts[i].size() - texts[left].size();
            while (!rights.empty() && texts[rights.back()].size() < rest) rights.pop_back();
            if (rights.empty() || texts[rights.back()].size() != rest) continue;
            merges.push_back({symbols[left], symbols[rights.back()], ranks[symbols[i]], symbols[i]});
        }
    }
    return merges;
}

}  // namespace

SentencePieceBpe::Characters::Characters(const Vocabulary &v)
    : pages_(0x110000 / kPageSize), symbols_(kPageSize, kNoSymbol) {
    for (size_t id = 0; id < v.tokens.size(); ++id) {
        if (!is_piece(v, id) || first_character(v.tokens[id]).size() != v.tokens[id].size()) continue;
        at(utf8_code(v.tokens[id])) = static_cast<int32_t>(id);
    }
    for (size_t id = 0; id < v.tokens.size(); ++id) {
        if (!is_piece(v, id)) continue;
        for (const std::string_view character : {first_character(v.tokens[id]), last_character(v.tokens[id])}) {
            int32_t &symbol = at(utf8_code(character));
            if (symbol != kNoSymbol) continue;
            symbol = static_cast<int32_t>(v.tokens.size() + partial_.size());
            partial_.emplace_back(character);
        }
    }
}

int32_t &SentencePieceBpe::Characters::at(char32_t code) {
    uint16_t &page = pages_[code / kPageSize];
    if (page == 0) {
        page = static_cast<uint16_t>(symbols_.size() / kPageSize);
        symbols_.resize(symbols_.size() + kPageSize, kNoSymbol);
    }
    return symbols_[page * kPageSize + code % kPageSize];
}

int32_t SentencePieceBpe::Characters::find(char32_t code) const {
    return symbols_[pages_[code / kPageSize] * kPageSize + code % kPageSize];
}

// Sixteen bits for every pair, so that few places are kept together by chance; 1 MiB at most, to stay in a cache.
SentencePieceBpe::Joints::Joints(const Vocabulary &v) {
    std::vector<std::pair<char32_t, char32_t>> pairs;
    for (size_t id = 0; id < v.tokens.size(); ++id) {
        if (!is_piece(v, id)) continue;
        std::string_view text = v.tokens[id];
        char32_t left = 0;
        for (bool first = true; !text.empty(); first = false) {
            const std::string_view character = first_character(text);
            const char32_t right = utf8_code(character);
            if (!first) pairs.emplace_back(left, right);
            left = right;
            text.remove_prefix(character.size());
        }
    }
    const size_t n_bits = std::clamp<size_t>(std::bit_ceil(pairs.size() * 16), 64, size_t{1} << 23);
    shift_ = 64 - static_cast<unsigned>(std::countr_zero(n_bits));
    bits_.resize(n_bits / 64);
    for (const auto &[left, right] : pairs) {
        const uint64_t bit = bit_of(left, right);
        bits_[bit / 64] |= uint64_t{1} << bit % 64;
    }
}

uint64_t SentencePieceBpe::Joints::bit_of(char32_t left, char32_t right) const {
    return (uint64_t{left} << 32 | right) * 0x9E3779B97F4A7C15u >> shift_;
}

bool SentencePieceBpe::Joints::contains(char32_t left, char32_t right) const {
    const uint64_t bit = bit_of(left, right);
    return (bits_[bit / 64] >> bit % 64 & 1) != 0;
}

struct SentencePieceBpe::Work {
    std::vector<int32_t> symbols, merged;
    Merges::Work merges;
    bool in_unknown = false;
};

SentencePieceBpe::SentencePieceBpe(const Vocabulary &v, const std::unordered_map<std::string_view, int32_t> &ids,
                                   Order order, Spaces absent)
    : normalizer_(v, absent),
      fallback_(v),
      characters_(v),
      joints_(v),
      merges_(order == Order::by_score ? merges_by_score(v, characters_) : listed_merges(v, ids),
              v.tokens.size() + characters_.partial().size()),
      n_tokens_(static_cast<int32_t>(v.tokens.size())) {}

size_t SentencePieceBpe::merge(Work &work, std::vector<int32_t> &out) const {
    work.merged.clear();
    merges_.apply(work.symbols, work.merges, work.merged);
    work.symbols.clear();
    size_t without_token = 0;
    for (const int32_t symbol : work.merged) {
        if (symbol < n_tokens_) {
            out.push_back(symbol);
            work.in_unknown = false;
        } else {
            without_token += fallback_.append(characters_.partial()[symbol - n_tokens_], out, work.in_unknown);
        }
    }
    return without_token;
}

size_t SentencePieceBpe::encode(std::string_view text, std::vector<int32_t> &out) const {
    const std::string normalized = normalizer_.apply(text);
    if (normalized.size() >= std::numeric_limits<uint32_t>::max()) {
        fail(ErrorKind::limit, "a text of {} bytes is too long to tokenize", text.size());
    }
    Work work;
    size_t without_token = 0;
    char32_t previous = 0;
    for (std::string_view rest = normalized; !rest.empty();) {
        const Utf8Step step = utf8_step(rest);
        const std::string_view bytes = rest.substr(0, step.length);
        rest.remove_prefix(step.length);
        const char32_t code = step.kind == Utf8::valid ? utf8_code(bytes) : 0;
        const int32_t symbol = step.kind == Utf8::valid ? characters_.find(code) : kNoSymbol;
        if (!work.symbols.empty() && (symbol == kNoSymbol || !joints_.contains(previous, code))) {
            without_token += merge(work, out);
        }
        if (symbol == kNoSymbol) {
            without_token += fallback_.append(bytes, out, work.in_unknown);
        } else {
            work.symbols.push_back(symbol);
            previous = code;
        }
    }
    return without_token + merge(work, out);
}

}  // namespace ridge::text
