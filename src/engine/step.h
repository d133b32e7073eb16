// The step buffer: everything that changes from token to token, in one block of int32 refreshed in place.
//
// A launch never carries such a value, so any step can be captured and replayed. Layout for limits (T tokens, O
// outputs, S sequences, P pages per sequence):
//   header[4]: tokens, outputs, 0, 0 | token[T] | position[T] | sequence[T] | output[O] | length[S] |
//   page[S][P] | draw[O][6]: temperature, top_p, min_p (bits of f32), top_k, uniform (bits of f64, low word first)
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ridge {

constexpr uint32_t kPageTokens = 64;  // positions per page of per-token state

// How Sample (op/op.h) makes a token of a row of logits; as it is here it takes the largest.
struct Draw {
    float temperature = 0;       // 0: the largest, whatever the rest says
    float top_p = 1, min_p = 0;  // 1 and 0: off
    uint32_t top_k = 1;          // 1 .. sampling::kMostCandidates
    double uniform = 0;          // in [0, 1)
};
constexpr uint32_t kDrawWords = 6;

struct StepLimits {
    uint32_t tokens = 1;   // most tokens in one step
    uint32_t outputs = 1;  // most rows whose logits are wanted in one step
    uint32_t sequences = 1;
    uint32_t pages = 1;  // most pages of one sequence
    size_t words() const {
        return 4 + 3 * size_t{tokens} + outputs + sequences + size_t{sequences} * pages + size_t{kDrawWords} * outputs;
    }
};

// Reads a step buffer; the same offsets hold on every device.
struct StepView {
    const int32_t *base;
    StepLimits limits;

    uint32_t tokens() const { return static_cast<uint32_t>(base[0]); }
    uint32_t outputs() const { return static_cast<uint32_t>(base[1]); }
    const int32_t *token() const { return base + 4; }
    const int32_t *position() const { return token() + limits.tokens; }
    const int32_t *sequence() const { return position() + limits.tokens; }
    const int32_t *output() const { return sequence() + limits.tokens; }
    const int32_t *length() const { return output() + limits.outputs; }
    const int32_t *pages(uint32_t seq) const { return length() + limits.sequences + size_t{seq} * limits.pages; }

    const int32_t *draws() const { return pages(limits.sequences); }
    Draw draw(uint32_t output) const;

    // Row of per-token state that holds `position` of sequence `seq`.
    size_t slot(uint32_t seq, uint32_t pos) const {
        return static_cast<size_t>(pages(seq)[pos / kPageTokens]) * kPageTokens + pos % kPageTokens;
    }
};

// Owns and fills a step buffer on the host.
class StepBuffer {
  public:
    explicit StepBuffer(StepLimits limits) : limits_(limits), words_(limits.words(), 0) {}
    StepView view() const { return {words_.data(), limits_}; }
    std::span<const int32_t> words() const { return words_; }
    const StepLimits &limits() const { return limits_; }

    void begin() { words_[0] = words_[1] = 0; }
    // Adds one token; `wanted` asks for its logits, of which the largest would be drawn. Precondition: limits hold and
    // the page of `position` is set.
    void add(int32_t token, uint32_t position, uint32_t sequence, bool wanted);
    void set_page(uint32_t sequence, uint32_t index, uint32_t page);
    // Precondition: so many outputs were added.
    void set_draw(uint32_t output, const Draw &draw);

  private:
    StepLimits limits_;
    std::vector<int32_t> words_;
};

}  // namespace ridge
