// A whole model in double: the forward pass of a file of any architecture in shape.cpp, for the gates of the engine.
//
//   x = embedding
//   x += attention(norm(x)), x += feed_forward(norm(x))    in every layer; norms stand before, after, or both
//   logits = output(norm(x))
//
// It reads the file's metadata and tensors by itself and shares nothing with src/model, src/op, src/engine or a
// backend. Weights are the f32 values of their format (what a dequantising reader gets); everything after them, the
// keys and values included, is double and never rounded to less.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "gguf/gguf.h"
#include "oracle/ops.h"

namespace ridge::oracle {

struct Logits {
    size_t positions = 0, vocab = 0;
    Reals values;  // (positions, vocab)
    RealSpan at(size_t position) const { return RealSpan(values).subspan(position * vocab, vocab); }

    // Per position, the closest call of a router in any layer: the least gap between the probabilities of the last
    // expert taken and the best one left out. Infinite for models without experts.
    Reals route_margin;
};

class Model {
  public:
    // `file` must outlive the model. Decoded matrices are kept as f32, so a model takes 4 bytes per weight, once it
    // has run. Throws Error for what it cannot run.
    explicit Model(const gguf::File &file);
    ~Model();
    Model(Model &&) noexcept;

    size_t vocab() const;
    // Logits after each of tokens[0 .. i], positions counted from 0. Throws Error{usage} for a token out of range.
    // `context` is the number of positions that RoPE prepares for: one above the original context of a longrope model
    // has other frequencies from the first position on. 0 means as many as there are tokens.
    Logits forward(std::span<const int32_t> tokens, size_t context = 0);

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace ridge::oracle
