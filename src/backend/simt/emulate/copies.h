// Copies from global to shared memory that are under way. Until they are waited for, their destination holds poison:
// neither is what was there before still to be read, nor is what will come there yet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ridge::emulate {

class BlockCopies {
  public:
    void begin(uint32_t threads);

    struct Copy {
        std::byte *to;
        const void *from;
    };
    struct OfThread {
        std::vector<Copy> under_way;
        std::vector<size_t> groups;  // ends of the closed ones
    };
    struct Bulk {
        Copy copy;
        uint32_t bytes;
        uint64_t *barrier;
    };
    OfThread &of_thread(uint32_t thread);
    std::vector<Bulk> bulk;

  private:
    std::vector<OfThread> threads_;
    bool used_ = false;
};

}  // namespace ridge::emulate
