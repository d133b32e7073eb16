// Weights from a mapped file into a GPU's memory, as fast as the disk or the bus.
//
// Several threads each take the next piece, copy it from the mapping (which is where the disk is read) into one of two
// pinned buffers of their own, and start its copy to the device, which goes on while the thread fills the other buffer.
// So reading, copying and sending overlap, and no buffer is written before its copy has ended.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "backend/simt/driver.h"

namespace ridge::simt {

struct Transfer {
    Address to = 0;
    std::span<const std::byte> from;
};

// Returns when all is there. `loaded` is told how many bytes more were read, by one thread at a time; where it answers
// false the rest is not read and load_to_device returns false. Throws Error{file} where the file cannot be read,
// Error{device} where the device fails. `threads`: 0 as many as make sense here.
bool load_to_device(const Driver &driver, int device, std::span<const Transfer> transfers,
                    const std::function<bool(uint64_t bytes)> &loaded, unsigned threads = 0);

}  // namespace ridge::simt
