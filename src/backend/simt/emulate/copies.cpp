#include "backend/simt/emulate/copies.h"

#include <cstring>
#include <string>

#include "backend/simt/emulate/emulate.h"
#include "backend/simt/emulate/launch.h"

namespace ridge::emulate {

namespace {

// A barrier: bytes awaited (32 bits) | arrivals awaited (15) | arrivals of a phase (15) | parity of the phase that goes
// on. Bytes may come before they are announced, so they count modulo 2^32.
constexpr int kAwaited = 32, kOfPhase = 47, kParity = 62;
constexpr uint64_t kCount = 0x7fff;

std::byte *checked(const char *verb, void *p, size_t bytes, size_t alignment) {
    size_t size = 0;
    std::byte *begin = shared_begin(&size);
    auto *at = static_cast<std::byte *>(p);
    if (at < begin || at + bytes > begin + size || (at - begin) % static_cast<std::ptrdiff_t>(alignment) != 0)
        fail(716, std::string(verb) + " " + std::to_string(bytes) + " bytes at byte " + std::to_string(at - begin) +
                      " of " + std::to_string(size) + " bytes of shared memory, aligned to " +
                      std::to_string(alignment));
    return at;
}

void change(uint64_t *barrier, uint32_t bytes, uint32_t arrivals) {
    checked("arrives at a barrier of", barrier, 8, 8);
    const uint64_t before = *barrier;
    if (arrivals > (before >> kAwaited & kCount)) fail(719, "arrives at a barrier that awaits nobody");
    uint64_t now = (before >> 32 << 32 | (static_cast<uint32_t>(before) + bytes)) - (uint64_t{arrivals} << kAwaited);
    if (static_cast<uint32_t>(now) == 0 && (now >> kAwaited & kCount) == 0)
        now = (now ^ uint64_t{1} << kParity) | (now >> kOfPhase & kCount) << kAwaited;
    *barrier = now;
    ++progress;
}

// The copies that arrive at `barrier`.
void arrive_bulk(uint64_t *barrier) {
    std::vector<BlockCopies::Bulk> others;
    std::vector<BlockCopies::Bulk> all;
    all.swap(running_copies().bulk);
    for (const BlockCopies::Bulk &b : all) {
        if (b.barrier != barrier) {
            others.push_back(b);
            continue;
        }
        std::memcpy(b.copy.to, b.copy.from, b.bytes);
        change(barrier, 0 - b.bytes, 0);
    }
    running_copies().bulk = std::move(others);
}

}  // namespace

void BlockCopies::begin(uint32_t threads) {
    if (used_) threads_.clear();
    threads_.resize(threads);
    bulk.clear();
    used_ = false;
}

BlockCopies::OfThread &BlockCopies::of_thread(uint32_t thread) {
    used_ = true;
    return threads_[thread];
}

void copy_async16(void *to, const void *from) {
    std::byte *at = checked("copies", to, 16, 16);
    running_copies().of_thread(here.thread).under_way.push_back({at, reading(from, 16)});
    std::memset(at, 0xff, 16);
}

void copy_async_commit() {
    BlockCopies::OfThread &c = running_copies().of_thread(here.thread);
    c.groups.push_back(c.under_way.size());
}

void copy_async_wait(unsigned latest) {
    BlockCopies::OfThread &c = running_copies().of_thread(here.thread);
    if (c.groups.size() <= latest) return;
    const size_t groups = c.groups.size() - latest, done = c.groups[groups - 1];
    for (size_t i = 0; i < done; ++i) std::memcpy(c.under_way[i].to, c.under_way[i].from, 16);
    c.under_way.erase(c.under_way.begin(), c.under_way.begin() + static_cast<std::ptrdiff_t>(done));
    c.groups.erase(c.groups.begin(), c.groups.begin() + static_cast<std::ptrdiff_t>(groups));
    for (size_t &end : c.groups) end -= done;
}

void barrier_init(uint64_t *barrier, uint32_t arrivals) {
    checked("makes a barrier of", barrier, 8, 8);
    if (arrivals == 0 || arrivals > kCount) fail(719, "makes a barrier for " + std::to_string(arrivals) + " arrivals");
    *barrier = uint64_t{arrivals} << kAwaited | uint64_t{arrivals} << kOfPhase;
}

void barrier_arrive(uint64_t *barrier, uint32_t bytes) { change(barrier, bytes, 1); }

void barrier_wait(uint64_t *barrier, uint32_t parity) {
    checked("waits at a barrier of", barrier, 8, 8);
    const volatile uint64_t *seen = barrier;
    while ((*seen >> kParity & 1) == parity) {
        if ((*seen >> kAwaited & kCount) == 0) arrive_bulk(barrier);
        if ((*seen >> kParity & 1) == parity) let_others_run();
    }
}

void copy_bulk(void *to, const void *from, uint32_t bytes, uint64_t *barrier) {
    std::byte *at = checked("copies", to, bytes, 16);
    checked("copies for a barrier of", barrier, 8, 8);
    if (bytes == 0 || bytes % 16 != 0) fail(716, "copies " + std::to_string(bytes) + " bytes, no multiple of 16");
    const void *first = reading(from, 16);
    for (uint32_t i = 16; i < bytes; i += 16) reading(static_cast<const std::byte *>(from) + i, 16);
    running_copies().bulk.push_back({{at, first}, bytes, barrier});
    std::memset(at, 0xff, bytes);
}

}  // namespace ridge::emulate
