// Reads tests/data/arch/reference.bin: what transformers computes in f64 with the tiny models beside it.
//
// The layout stands at the top of tools/make_architecture_reference.py, which writes the folder. As in
// model_reference.h, counts are checked against what is left of the file before anything is allocated.
#pragma once

#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "model/model_reference.h"
#include "oracle/ops.h"

namespace ridge::arch_reference {

struct Case {
    std::string name;
    std::filesystem::path file;
    uint32_t context = 0;  // positions a session must have room for
    uint32_t n_vocab = 0;
    uint32_t first = 0;           // the first position with logits
    double f32_error = 0;         // of transformers in f32, over the rms of a position's logits
    std::vector<int32_t> tokens;  // (n_tokens)
    std::vector<double> logits;   // (n_tokens - first, n_vocab)

    size_t positions() const { return tokens.size(); }
    // Precondition: first <= position < positions()
    oracle::RealSpan at(size_t position) const {
        return oracle::RealSpan(logits).subspan((position - first) * n_vocab, n_vocab);
    }
};

inline Case read_case(model_reference::ReferenceReader &in, const std::filesystem::path &folder) {
    Case c;
    c.name = in.string("name");
    const std::string file = in.string("file");
    in.require(!file.empty() && file.find('/') == std::string::npos, "file");
    c.file = folder / file;
    c.context = in.scalar<uint32_t>("context");
    c.n_vocab = in.scalar<uint32_t>("n_vocab");
    const uint32_t n_tokens = in.scalar<uint32_t>("n_tokens");
    in.require(n_tokens <= c.context, "n_tokens");
    c.first = in.scalar<uint32_t>("first");
    in.require(c.first < n_tokens && c.n_vocab <= in.left() / sizeof(double) / (n_tokens - c.first), "first");
    c.f32_error = in.scalar<double>("f32_error");
    for (uint32_t id : in.array<uint32_t>(n_tokens, "tokens")) {
        in.require(id < c.n_vocab, "a token id");
        c.tokens.push_back(static_cast<int32_t>(id));
    }
    c.logits = in.array<double>(size_t{n_tokens - c.first} * c.n_vocab, "logits");
    for (double l : c.logits) in.require(std::isfinite(l), "a logit");
    return c;
}

inline std::vector<Case> load(const std::filesystem::path &folder) {
    model_reference::ReferenceReader in(folder / "reference.bin", "make_architecture_reference.py");
    const std::vector<char> magic = in.array<char>(8, "magic");
    in.require(std::string_view(magic.data(), magic.size()) == "RDGARC01", "magic");
    in.string("provenance");
    const uint32_t n_cases = in.scalar<uint32_t>("n_cases");
    std::vector<Case> cases;
    for (uint32_t i = 0; i < n_cases; i++) cases.push_back(read_case(in, folder));
    in.require(in.left() == 0, "the end of the file");
    return cases;
}

}  // namespace ridge::arch_reference
