// Weights fetched ahead: a worker that waits for others reads what its next tiles will need into its second-level
// cache.
//
// Between two contractions of a step lie norms, rotations and the attention of one token, which leave the memory idle
// and most workers too. Weights are the one input that no launch writes, so nothing has to be waited for. Only the
// executor knows when a worker waits; which weights a tile reads is the rows' business (contract.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/backend.h"

namespace ridge::cpu {

class Ahead {
  public:
    // How much a worker fetches for one launch; half of a small second-level cache. Tokens per second gain 1 to 4% on a
    // model of 135M weights, 0 to 2% on one of 0.5B (two cores, Zen 5), the same from 64 to 768 KiB.
    static constexpr size_t kMost = size_t{128} << 10;
    // With more tokens a contraction computes for longer than its weights take to come.
    static constexpr uint32_t kMostTokens = 8;

    // Whether the weights that the launch's tiles read are known before it runs.
    static bool knows(const Launch &launch, const Op &op);

    // From now on the tiles first .. end-1 of the launch are fetched for, in this order.
    void aim(const LaunchView &view, uint32_t first, uint32_t end);

    // Asks for the next eight lines; false where no more are wanted. `view` is that of aim.
    bool step(const LaunchView &view);

  private:
    bool next_tile(const LaunchView &view);
    uint32_t tile_ = 0, end_ = 0;
    std::array<std::span<const std::byte>, 2> spans_;  // what is left of the tile before tile_
    size_t left_ = 0;                                  // bytes until kMost
};

}  // namespace ridge::cpu
