// What device.h asks of the emulator: a block's threads are fibers, of which one runs at a time until it comes to a
// switch point (a barrier, a shuffle, an acquiring load, an atomic).
#pragma once

#include <cstddef>
#include <cstdint>

namespace ridge::emulate {

// A kernel made known by KERNEL when the stand-in library is loaded.
struct Registered {
    Registered(const char *name, void (*entry)(const void *args), size_t args_bytes, uint32_t threads);
};

// Of the thread that runs. Kernels ask for it all the time, so it is no call.
struct Here {
    uint32_t thread, block[3];
    std::byte *shared;
};
extern Here here;

inline uint32_t thread_index() { return here.thread; }
inline uint32_t block_index(unsigned axis) { return here.block[axis]; }
inline std::byte *shared_memory() { return here.shared; }
void barrier();
void wave_barrier();
// The value that lane `from` of this wave gave to the same call.
uint32_t shuffle(uint32_t v, uint32_t from);
uint32_t atomic_add(uint32_t *p, uint32_t v);
uint32_t load_acquire(const uint32_t *p);
void wait_for_previous();
void let_next_start();
// The copy is made by the wait that is for it; until then its destination is poisoned.
void copy_async16(void *to, const void *from);
void copy_async_commit();
void copy_async_wait(unsigned latest);
// A bulk copy is made when a thread waits at its barrier and nothing else is missing.
void barrier_init(uint64_t *barrier, uint32_t arrivals);
void barrier_arrive(uint64_t *barrier, uint32_t bytes);
void barrier_wait(uint64_t *barrier, uint32_t parity);
void copy_bulk(void *to, const void *from, uint32_t bytes, uint64_t *barrier);

// Checks that the bytes lie in an allocation of the device (else the launch fails as an illegal address does), counts
// them, and gives them as they lie in the host's memory.
const void *reading(const void *p, size_t bytes);
void *writing(void *p, size_t bytes);
// The same where wait_for_previous() may not have been called yet: fails where the launch in front wrote the bytes, or
// may have let this one start before it had waited itself.
const void *reading_settled(const void *p, size_t bytes);

}  // namespace ridge::emulate
