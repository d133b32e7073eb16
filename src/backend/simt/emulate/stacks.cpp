#include "backend/simt/emulate/stacks.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

namespace ridge::emulate {

namespace {

// Pieces of one size behind a guard page each, mapped by the chunk.
class Pieces {
  public:
    Pieces(size_t bytes, size_t per_chunk, bool guard_below)
        : bytes_(bytes), per_chunk_(per_chunk), guard_below_(guard_below) {}

    std::byte *begin(size_t i) {
        while (i >= chunks_.size() * per_chunk_) add();
        return chunks_[i / per_chunk_] + i % per_chunk_ * stride() + (guard_below_ ? kGuardBytes : 0);
    }
    bool has(const std::byte *p) const {
        for (const std::byte *c : chunks_)
            if (p >= c && p < c + per_chunk_ * stride()) return true;
        return false;
    }

  private:
    size_t stride() const { return bytes_ + kGuardBytes; }
    void add() {
        void *p = mmap(nullptr, per_chunk_ * stride(), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED) {
            std::fputs("emulator: no memory for the stacks of threads\n", stderr);
            std::abort();
        }
        auto *chunk = static_cast<std::byte *>(p);
        for (size_t i = 0; i < per_chunk_; ++i)
            mprotect(chunk + i * stride() + (guard_below_ ? 0 : bytes_), kGuardBytes, PROT_NONE);
        chunks_.push_back(chunk);
    }

    size_t bytes_, per_chunk_;
    bool guard_below_;
    std::vector<std::byte *> chunks_;
};

Pieces &stacks() {
    static auto *pieces = new Pieces(kStackBytes, 64, true);
    return *pieces;
}
Pieces &shared() {
    static auto *pieces = new Pieces(kSharedBytes, 1, false);
    return *pieces;
}

}  // namespace

std::byte *stack_top(size_t i) { return stacks().begin(i) + kStackBytes - i % 13 * 320; }

std::byte *shared_end(size_t i) { return shared().begin(i) + kSharedBytes; }

const char *fiber_memory_at(const void *p) {
    const auto *at = static_cast<const std::byte *>(p);
    if (stacks().has(at)) return "its thread's stack is full";
    if (shared().has(at)) return "an access behind the block's shared memory";
    return nullptr;
}

}  // namespace ridge::emulate
