// Random weights as the bytes of any format, at the speed of memory.
//
// Codes, and scales inside a block, are random bytes as they come: every code occurs. Only the fields that set a
// block's size are overwritten, so that weights have the mean and standard deviation asked for.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "format/format.h"

namespace ridge {

class Filler {
  public:
    // `key` names the stream of random numbers. For the block formats `mean` must be 0.
    Filler(Format format, double mean, double sigma, uint64_t key);
    // The tensor's bytes from `offset` on, a multiple of a block. Any piece may be made by any thread, in any order.
    void operator()(uint64_t offset, std::span<std::byte> out) const;

  private:
    void blocks(std::span<std::byte> out) const;
    Format format_;
    double mean_, sigma_;
    uint64_t key_;
    // Block scales, spread evenly over d0/2 .. 3/2 d0, and the second scale that centres such a block on 0.
    std::array<uint16_t, 256> d_{}, m_{};
};

// Key of one tensor's stream.
uint64_t stream_key(uint64_t seed, std::string_view tensor);

}  // namespace ridge
