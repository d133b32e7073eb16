// Memory of fibers: stacks and the shared memory of blocks, each with a page behind its end that may not be touched,
// kept for all launches.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ridge::emulate {

constexpr size_t kStackBytes = 64 << 10, kSharedBytes = 256 << 10, kGuardBytes = 4 << 10;

// The end of stack `i`. Stacks of neighbouring lanes end at different distances from a page's start: else the few lines
// that each uses would all want the same sets of the cache.
std::byte *stack_top(size_t i);
// The end of the shared memory of resident block `i`.
std::byte *shared_end(size_t i);

// What a bad address is, for the message of a fault; nullptr: nothing of ours.
const char *fiber_memory_at(const void *p);

}  // namespace ridge::emulate
