#include "measure/repetition.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

namespace ridge {
namespace {

constexpr size_t kLast = 32, kLongestPeriod = 16, kLongestFrame = 4, kRun = 4;

// How many tokens at the end follow period p.
size_t covered_by(std::span<const int32_t> t, size_t p) {
    size_t n = p;
    while (n < t.size() && t[t.size() - 1 - n] == t[t.size() - 1 - n + p]) n++;
    return n;
}

// The same for a token that comes back at every distance p while the others need not: the best of the p places.
size_t framed_by(std::span<const int32_t> t, size_t p) {
    size_t best = 0;
    for (size_t last = t.size() - 1; last + p >= t.size(); last--) {
        size_t at = last;
        while (at >= p && t[at - p] == t[last]) at -= p;
        best = std::max(best, last - at + p);
    }
    return std::min(best, t.size());
}

double fresh_runs(std::span<const int32_t> t) {
    std::set<std::array<int32_t, kRun>> seen;
    for (size_t i = 0; i + kRun <= t.size(); i++) seen.insert({t[i], t[i + 1], t[i + 2], t[i + 3]});
    return static_cast<double>(seen.size()) / static_cast<double>(t.size() - kRun + 1);
}

}  // namespace

Repetition find_repetition(std::span<const int32_t> tokens) {
    Repetition r;
    if (tokens.size() < kLast) return r;
    r.fresh = fresh_runs(tokens);
    const auto found = [&](RepetitionKind kind, size_t period, size_t covered) {
        r.kind = kind, r.period = static_cast<uint32_t>(period), r.covered = static_cast<uint32_t>(covered);
        return r;
    };
    for (size_t p = 1; p <= kLongestPeriod; p++)
        if (const size_t n = covered_by(tokens, p); n >= kLast) return found(RepetitionKind::period, p, n);
    if (r.fresh < 0.5) return found(RepetitionKind::loops, 0, tokens.size());
    for (size_t p = 2; p <= kLongestFrame; p++)
        if (const size_t n = framed_by(tokens, p); n >= kLast) return found(RepetitionKind::frame, p, n);
    return r;
}

std::string to_string(const Repetition &r) {
    switch (r.kind) {
        case RepetitionKind::period:
            return fmt::format("repeats {} token{} over the last {}", r.period, r.period == 1 ? "" : "s", r.covered);
        case RepetitionKind::loops:
            return fmt::format("says little new: {:.0f}% of its runs of four tokens", 100 * r.fresh);
        case RepetitionKind::frame:
            return fmt::format("has the same token at every {}. place of the last {}", r.period, r.covered);
        case RepetitionKind::none:
            break;
    }
    return {};
}

}  // namespace ridge
