// Reads tests/data/*_reference.bin: logits of a real model computed by code that is not ours.
//
// The layout stands at the top of tools/make_model_reference.py, which writes the files. Every count is checked
// against what is left of the file before anything is allocated, and the file must end where its contents do.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/error.h"

namespace ridge::model_reference {

struct Position {
    uint32_t position = 0;      // logits after tokens[0..position]
    double logsumexp = 0;       // of all n_vocab logits
    std::vector<uint32_t> ids;  // (n_top) of the largest logits, descending; equal ones by ascending id
    std::vector<float> logits;  // (n_top)
    std::vector<float> full;    // (n_vocab) by token id, or empty
};

struct Sequence {
    std::string name;
    std::string text;  // the source of tokens[0..n_prompt), control tokens spelled out
    uint32_t n_prompt = 0;
    std::vector<uint32_t> tokens;     // the prompt, then the greedy continuation
    std::vector<float> margins;       // (tokens.size() - n_prompt) of each greedy step: largest logit minus the second
    std::vector<Position> positions;  // ascending
};

struct Reference {
    std::string model_sha256;  // of the GGUF file, 64 lower-case hexadecimal digits
    std::string provenance;
    double floor_mean_kl = 0;  // KL(an f64 pass || this reference): how exact the reference itself is
    double floor_max_kl = 0;
    uint32_t n_vocab = 0;
    uint32_t n_top = 0;
    std::vector<Sequence> sequences;
};

// A cursor over the file's bytes. For little-endian hosts, like the file.
class ReferenceReader {
  public:
    // `tool` writes the file: a script in tools/.
    ReferenceReader(const std::filesystem::path &path, std::string_view tool) : path_(path.string()) {
        std::ifstream in(path, std::ios::binary);
        if (!in) fail(ErrorKind::file, "{}: cannot be opened; tools/{} writes it", path_, tool);
        bytes_.assign(std::istreambuf_iterator<char>(in), {});
    }
    size_t left() const { return bytes_.size() - at_; }

    // A quantity whose values are checked: `what` names it in the error.
    void require(bool ok, std::string_view what) const {
        if (!ok) fail(ErrorKind::file, "{}: offset {}: {} is not valid", path_, at_, what);
    }
    template <class T>
    std::vector<T> array(size_t count, std::string_view what) {
        static_assert(std::is_trivially_copyable_v<T>);
        if (count > left() / sizeof(T))
            fail(ErrorKind::file, "{}: offset {}: {} items of {} bytes for {}, but {} bytes are left", path_, at_,
                 count, sizeof(T), what, left());
        std::vector<T> out(count);
        if (count) std::memcpy(out.data(), bytes_.data() + at_, count * sizeof(T));
        at_ += count * sizeof(T);
        return out;
    }
    template <class T>
    T scalar(std::string_view what) {
        return array<T>(1, what)[0];
    }
    std::string string(std::string_view what) {
        const std::vector<char> chars = array<char>(scalar<uint32_t>(what), what);
        return {chars.begin(), chars.end()};
    }

  private:
    std::string path_;
    std::vector<char> bytes_;
    size_t at_ = 0;
};

inline Position read_position(ReferenceReader &in, const Reference &r, const Sequence &s) {
    Position p;
    p.position = in.scalar<uint32_t>("position");
    in.require(p.position < s.tokens.size() && (s.positions.empty() || s.positions.back().position < p.position),
               "position");
    const uint32_t has_full = in.scalar<uint32_t>("has_full");
    in.require(has_full <= 1, "has_full");
    p.logsumexp = in.scalar<double>("logsumexp");
    in.require(std::isfinite(p.logsumexp), "logsumexp");
    p.ids = in.array<uint32_t>(r.n_top, "ids");
    p.logits = in.array<float>(r.n_top, "logits");
    for (size_t i = 0; i < p.ids.size(); ++i)
        in.require(p.ids[i] < r.n_vocab && std::isfinite(p.logits[i]) && (i == 0 || p.logits[i] <= p.logits[i - 1]),
                   "a top logit");
    if (has_full) p.full = in.array<float>(r.n_vocab, "full logits");
    return p;
}

inline Sequence read_sequence(ReferenceReader &in, const Reference &r) {
    Sequence s;
    s.name = in.string("name");
    s.text = in.string("text");
    s.n_prompt = in.scalar<uint32_t>("n_prompt");
    const uint32_t n_tokens = in.scalar<uint32_t>("n_tokens");
    in.require(s.n_prompt >= 1 && s.n_prompt <= n_tokens, "n_prompt");
    s.tokens = in.array<uint32_t>(n_tokens, "tokens");
    for (uint32_t id : s.tokens) in.require(id < r.n_vocab, "a token id");
    s.margins = in.array<float>(n_tokens - s.n_prompt, "margins");
    const uint32_t n_positions = in.scalar<uint32_t>("n_positions");
    in.require(n_positions <= n_tokens, "n_positions");
    for (uint32_t i = 0; i < n_positions; ++i) s.positions.push_back(read_position(in, r, s));
    return s;
}

inline Reference load_reference(const std::filesystem::path &path) {
    ReferenceReader in(path, "make_model_reference.py");
    Reference r;
    const std::vector<char> magic = in.array<char>(8, "magic");
    in.require(std::string_view(magic.data(), magic.size()) == "RDGREF01", "magic");
    for (uint8_t byte : in.array<uint8_t>(32, "model_sha256")) r.model_sha256 += fmt::format("{:02x}", byte);
    r.provenance = in.string("provenance");
    r.floor_mean_kl = in.scalar<double>("floor_mean_kl");
    r.floor_max_kl = in.scalar<double>("floor_max_kl");
    r.n_vocab = in.scalar<uint32_t>("n_vocab");
    r.n_top = in.scalar<uint32_t>("n_top");
    in.require(r.n_top >= 2 && r.n_top < r.n_vocab, "n_top");
    const uint32_t n_sequences = in.scalar<uint32_t>("n_sequences");
    for (uint32_t i = 0; i < n_sequences; ++i) r.sequences.push_back(read_sequence(in, r));
    in.require(in.left() == 0, "the end of the file");
    return r;
}

inline double log_sum_exp(std::span<const float> logits) {
    const double top = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (float x : logits) sum += std::exp(x - top);
    return top + std::log(sum);
}

// KL(reference || q) in nats, q the softmax of `logits` (n_vocab). Over the whole vocabulary where the position has it;
// else over the n_top tokens and "any other", which never exceeds that. A NaN among the logits gives NaN, so compare
// as `kl <= bound`, never as `!(kl > bound)`.
inline double kl_divergence(const Position &p, std::span<const float> logits) {
    const double q_lse = log_sum_exp(logits);
    double sum = 0;
    if (!p.full.empty()) {
        RIDGE_ASSERT(logits.size() == p.full.size());
        for (size_t i = 0; i < logits.size(); ++i) {
            const double log_p = p.full[i] - p.logsumexp;
            sum += std::exp(log_p) * (log_p - (logits[i] - q_lse));
        }
        return sum;
    }
    // The rest of q is added up, not taken as 1 - top: it may be smaller than the rounding of the top's sum.
    std::vector<char> in_top(logits.size(), 0);
    double p_top = 0, q_rest = 0;
    for (size_t i = 0; i < p.ids.size(); ++i) {
        const double log_p = p.logits[i] - p.logsumexp;
        RIDGE_ASSERT(p.ids[i] < logits.size());
        in_top[p.ids[i]] = 1;
        p_top += std::exp(log_p);
        sum += std::exp(log_p) * (log_p - (logits[p.ids[i]] - q_lse));
    }
    for (size_t i = 0; i < logits.size(); ++i)
        if (!in_top[i]) q_rest += std::exp(logits[i] - q_lse);
    // Here 1 - p_top is all that is known; what rounding can make of it, about 1e-13, is no mass.
    const double p_rest = 1 - p_top;
    if (p_rest > 1e-12) sum += p_rest * (std::log(p_rest) - std::log(q_rest));
    return sum;
}

}  // namespace ridge::model_reference
