#include "text/unigram.h"

#include <algorithm>
#include <limits>
#include <string>

#include "core/error.h"
#include "core/utf8.h"

namespace ridge::text {

namespace {

constexpr float kUnknownPenalty = 10;
constexpr int32_t kUnknown = -1;

Trie pieces_of(const Vocabulary &v) {
    std::vector<Trie::Entry> entries;
    for (size_t id = 0; id < v.tokens.size(); ++id) {
        const bool is_piece = v.types[id] == TokenType::normal || v.types[id] == TokenType::user_defined;
        if (is_piece && !v.tokens[id].empty()) entries.push_back({v.tokens[id], static_cast<int32_t>(id)});
    }
    return Trie(std::move(entries));
}

}  // namespace

// How the best path reaches a place in the text: by the piece that starts at `start`.
struct Unigram::Step {
    float score = 0;
    uint32_t start = 0;
    int32_t id = kUnknown;
    bool reached = false;
};

Unigram::Unigram(const Vocabulary &v, Spaces absent)
    : normalizer_(v, absent), fallback_(v), pieces_(pieces_of(v)), scores_(v.scores.begin(), v.scores.end()) {
    float lowest = std::numeric_limits<float>::max();
    float highest = std::numeric_limits<float>::lowest();
    for (size_t id = 0; id < v.tokens.size(); ++id) {
        if (v.types[id] != TokenType::normal) continue;
        lowest = std::min(lowest, scores_[id]);
        highest = std::max(highest, scores_[id]);
    }
    unknown_score_ = lowest - kUnknownPenalty;
    // A user-defined piece beats whatever normal pieces could take its place.
    for (size_t id = 0; id < v.tokens.size(); ++id) {
        if (v.types[id] != TokenType::user_defined) continue;
        scores_[id] = static_cast<float>(v.tokens[id].size()) * highest - 0.1F;
    }
}

std::vector<Unigram::Step> Unigram::best_path(std::string_view text) const {
    std::vector<Step> best(text.size() + 1);
    best[0].reached = true;
    const auto offer = [&](size_t start, size_t end, int32_t id, float score) {
        if (best[end].reached && score <= best[end].score) return;
        best[end] = {score, static_cast<uint32_t>(start), id, true};
    };
    for (size_t start = 0; start < text.size();) {
        const size_t character = utf8_step(text.substr(start)).length;
        const float before = best[start].score;
        bool is_piece = false;
        uint32_t node = Trie::kRoot;
        for (size_t end = start; end < text.size();) {
            node = pieces_.child(node, static_cast<uint8_t>(text[end]));
            if (node == Trie::kNoNode) break;
            ++end;
            const int32_t id = pieces_.value(node);
            if (id < 0) continue;
            offer(start, end, id, before + scores_[id]);
            if (end - start == character) is_piece = true;
        }
        if (!is_piece) offer(start, start + character, kUnknown, before + unknown_score_);
        start += character;
    }
    std::vector<Step> path;
    for (size_t end = text.size(); end > 0; end = best[end].start) {
        path.push_back(best[end]);
    }
    std::ranges::reverse(path);
    return path;
}

size_t Unigram::encode(std::string_view text, std::vector<int32_t> &out) const {
    const std::string normalized = normalizer_.apply(text);
    if (normalized.size() >= std::numeric_limits<uint32_t>::max()) {
        fail(ErrorKind::limit, "a text of {} bytes is too long to tokenize", text.size());
    }
    const std::vector<Step> path = best_path(normalized);
    size_t without_token = 0;
    bool in_unknown = false;
    for (size_t i = 0; i < path.size(); ++i) {
        if (path[i].id != kUnknown) {
            out.push_back(path[i].id);
            in_unknown = false;
            continue;
        }
        const size_t end = i + 1 < path.size() ? path[i + 1].start : normalized.size();
        without_token +=
            fallback_.append(std::string_view(normalized).substr(path[i].start, end - path[i].start), out, in_unknown);
    }
    return without_token;
}

}  // namespace ridge::text
