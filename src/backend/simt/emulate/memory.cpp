#include "backend/simt/emulate/memory.h"

#include <sys/mman.h>

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <vector>

#include "backend/simt/emulate/emulate.h"
#include "backend/simt/emulate/launch.h"

namespace ridge::emulate {

namespace {

constexpr uint64_t kPage = 4096, kWindow = uint64_t{16} << 30, kWindows = kMaxDevices + 1, kSpan = kWindow * kWindows;
// Drivers promise 256 bytes of alignment and no more.
constexpr uint64_t kLead = 256;
constexpr size_t kMaxAllocations = 1 << 16;

void *map(void *at, size_t bytes, int protection, int flags) {
    void *p = mmap(at, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
    if (p == MAP_FAILED) {
        std::fprintf(stderr, "emulator: mapping %zu bytes failed\n", bytes);
        std::abort();
    }
    return p;
}

struct Space {
    uint64_t base = 0;                  // of the addresses; the bytes of devices lie kSpan behind
    uint32_t *pages = nullptr;          // allocation of each page; 0: none
    Allocation *allocations = nullptr;  // [0] is none: it holds no byte
    uint32_t used = 1;
    std::vector<uint32_t> unused;
    std::map<uint64_t, uint32_t> by_address;  // first page of an allocation and its guard
    uint32_t peers[kMaxDevices] = {};         // devices that may touch the memory of each

    Space() {
        base = reinterpret_cast<uint64_t>(map(nullptr, 2 * kSpan, PROT_NONE, 0));
        pages = static_cast<uint32_t *>(map(nullptr, kSpan / kPage * sizeof(uint32_t), PROT_READ | PROT_WRITE, 0));
        allocations =
            static_cast<Allocation *>(map(nullptr, kMaxAllocations * sizeof(Allocation), PROT_READ | PROT_WRITE, 0));
        allocations[0] = {};
        for (int d = 0; d < kMaxDevices; ++d) peers[d] = 1u << d;
    }
};

// Constructed with the library, so that a check needs no look whether it is.
Space space;

struct Accesses {
    uint32_t device_bit = 0;
    std::vector<Allocation *> counted;
} accesses;

uint64_t pages_of(size_t bytes) { return (kLead + bytes + kPage - 1) / kPage + 1; }

// First page of a hole of the window, guard pages included; 0: none.
uint64_t find_hole(uint64_t window, uint64_t pages) {
    uint64_t at = window * (kWindow / kPage) + 1;
    const uint64_t end = (window + 1) * (kWindow / kPage);
    for (auto it = space.by_address.lower_bound(at); it != space.by_address.end() && it->first < end; ++it) {
        if (it->first - at >= pages) break;
        const Allocation &a = space.allocations[it->second];
        at = it->first + pages_of(a.end - a.begin);
    }
    return at + pages <= end ? at : 0;
}

uint64_t allocate(uint64_t window, size_t bytes, int64_t distance, uint32_t devices) {
    if (bytes == 0 || bytes >= kWindow) return 0;
    const uint64_t pages = pages_of(bytes), first = find_hole(window, pages);
    if (first == 0 || (space.unused.empty() && space.used == kMaxAllocations)) return 0;
    uint32_t id = space.used;
    if (space.unused.empty()) {
        space.used++;
    } else {
        id = space.unused.back();
        space.unused.pop_back();
    }
    const uint64_t begin = space.base + first * kPage + kLead;
    Allocation &a = space.allocations[id] = {};
    a.begin = begin;
    a.end = begin + bytes;
    a.distance = distance;
    a.devices = devices;
    a.owner = static_cast<int>(window);
    std::byte *at = bytes_of(a, begin - kLead);
    map(at, (pages - 1) * kPage, PROT_READ | PROT_WRITE, MAP_FIXED);
    std::memset(at, 0xff, kLead + bytes);
    for (uint64_t p = first; p + 1 < first + pages; ++p) space.pages[p] = id;
    space.by_address[first] = id;
    return begin;
}

void drop(std::map<uint64_t, uint32_t>::iterator it) {
    const uint64_t first = it->first;
    Allocation &a = space.allocations[it->second];
    const uint64_t pages = pages_of(a.end - a.begin);
    map(bytes_of(a, a.begin - kLead), (pages - 1) * kPage, PROT_NONE, MAP_FIXED);
    std::memset(space.pages + first, 0, (pages - 1) * sizeof(uint32_t));
    std::free(a.writers);
    a = {};
    space.unused.push_back(it->second);
    space.by_address.erase(it);
}

std::string hex(uint64_t v) {
    char text[32];
    std::snprintf(text, sizeof text, "0x%" PRIx64, v);
    return text;
}

[[noreturn]] void bad_access(const char *verb, uint64_t address, size_t bytes, const Allocation &a) {
    const std::string what = std::string(verb) + " " + std::to_string(bytes) + " bytes at " + hex(address) + ", which ";
    if (address < a.begin || address + bytes > a.end) fail(700, what + "lie in no allocation: " + nearest(address));
    if ((a.devices & accesses.device_bit) == 0)
        fail(700, what + "belong to device " + std::to_string(a.owner) + ": peer access is not enabled");
    fail(716, what + "are not aligned to their size: " + nearest(address));
}

inline Allocation &allocation_at(uint64_t address) {
    const uint64_t offset = address - space.base;
    return space.allocations[offset < kSpan ? space.pages[offset / kPage] : 0];
}

inline bool is_good(const Allocation &a, uint64_t address, size_t bytes) {
    return address >= a.begin && address + bytes <= a.end && (address & (bytes - 1)) == 0 &&
           (a.devices & accesses.device_bit) != 0;
}

void count(Allocation &a, uint64_t address, int write) {
    if (!launch_counts()) return;
    uint64_t *&bits = a.sectors[write];
    if (bits == nullptr) {
        if (a.sectors[1 - write] == nullptr) accesses.counted.push_back(&a);
        bits = static_cast<uint64_t *>(std::calloc((a.end - a.begin) / (32 * 64) + 1, 8));
    }
    const uint64_t sector = (address - a.begin) / 32;
    bits[sector / 64] |= uint64_t{1} << sector % 64;
}

// Of a thread whose accesses are counted, or that may not yet touch what earlier launches wrote.
[[gnu::noinline]] void careful(Allocation &a, uint64_t address, size_t bytes, int write) {
    count(a, address, write);
    if (may_precede_previous() && (write != 0 || a.written))
        fail(719, std::string(write != 0 ? "writes " : "reads ") + std::to_string(bytes) + " bytes at " + hex(address) +
                      ", which earlier launches may still use, before wait_for_previous()");
}

}  // namespace

const void *reading(const void *p, size_t bytes) {
    const auto address = reinterpret_cast<uint64_t>(p);
    Allocation &a = allocation_at(address);
    if (!is_good(a, address, bytes)) bad_access("reads", address, bytes, a);
    if (current->careful) careful(a, address, bytes, 0);
    return bytes_of(a, address);
}

void *writing(void *p, size_t bytes) {
    const auto address = reinterpret_cast<uint64_t>(p);
    Allocation &a = allocation_at(address);
    if (!is_good(a, address, bytes)) bad_access("writes", address, bytes, a);
    if (current->careful) careful(a, address, bytes, 1);
    if (!a.written) a.writers = static_cast<uint32_t *>(std::calloc((a.end - a.begin) / 64 + 1, sizeof(uint32_t)));
    a.written = true;
    a.writers[(address - a.begin) / 64] = launch_number();
    ++progress;
    return bytes_of(a, address);
}

const void *reading_settled(const void *p, size_t bytes) {
    const auto address = reinterpret_cast<uint64_t>(p);
    Allocation &a = allocation_at(address);
    if (!is_good(a, address, bytes)) bad_access("reads", address, bytes, a);
    count(a, address, 0);
    if (may_precede_previous()) {
        const std::string what = "reads " + std::to_string(bytes) + " bytes at " + hex(address) + " as settled, ";
        if (!front_waited()) fail(719, what + "but the launch in front let this one start before it had waited");
        if (a.written && front_number() != 0 && a.writers[(address - a.begin) / 64] >= front_number())
            fail(719, what + "but the launch in front wrote them");
    }
    return bytes_of(a, address);
}

uint64_t allocate_device(int device, size_t bytes) {
    return allocate(static_cast<uint64_t>(device), bytes, static_cast<int64_t>(kSpan), space.peers[device]);
}

void *allocate_host(size_t bytes) { return reinterpret_cast<void *>(allocate(kMaxDevices, bytes, 0, ~0u)); }

size_t release(uint64_t address, int owner) {
    const auto it = space.by_address.find((address - kLead - space.base) / kPage);
    if (address == 0 || it == space.by_address.end()) return 0;
    const Allocation &a = space.allocations[it->second];
    if (a.begin != address || (owner == kMaxDevices) != (a.owner == kMaxDevices)) return 0;
    const size_t bytes = a.end - a.begin;
    drop(it);
    return bytes;
}

void release_all() {
    while (!space.by_address.empty()) drop(space.by_address.begin());
    for (int d = 0; d < kMaxDevices; ++d) space.peers[d] = 1u << d;
}

Allocation *find(uint64_t address, size_t bytes) {
    Allocation &a = allocation_at(address);
    return a.begin != 0 && address >= a.begin && bytes <= a.end - address && address <= a.end ? &a : nullptr;
}

void allow_peer(int device, int peer) {
    space.peers[peer] |= 1u << device;
    for (const auto &[page, id] : space.by_address)
        if (space.allocations[id].owner == peer) space.allocations[id].devices |= 1u << device;
}

bool peer_allowed(int device, int peer) { return (space.peers[peer] >> device & 1) != 0; }

void begin_accesses(int device) { accesses.device_bit = 1u << device; }

Sectors end_accesses() {
    Sectors sum;
    for (Allocation *a : accesses.counted) {
        for (int write = 0; write < 2; ++write) {
            uint64_t *bits = a->sectors[write];
            if (bits == nullptr) continue;
            for (uint64_t i = 0; i <= (a->end - a->begin) / (32 * 64); ++i)
                (write != 0 ? sum.written : sum.read) += static_cast<uint64_t>(__builtin_popcountll(bits[i]));
            std::free(bits);
            a->sectors[write] = nullptr;
        }
    }
    accesses.counted.clear();
    return sum;
}

std::string nearest(uint64_t address) {
    const Allocation *best = nullptr;
    uint64_t distance = ~uint64_t{0};
    for (const auto &[page, id] : space.by_address) {
        const Allocation &a = space.allocations[id];
        const uint64_t away = address < a.begin ? a.begin - address : address < a.end ? 0 : address - a.end;
        if (away >= distance) continue;
        best = &a;
        distance = away;
    }
    if (best == nullptr) return "there is no allocation";
    const std::string where = address < best->begin ? std::to_string(distance) + " bytes before the start"
                              : address < best->end ? "at byte " + std::to_string(address - best->begin)
                                                    : std::to_string(distance) + " bytes behind the end";
    return where + " of " + std::to_string(best->end - best->begin) + " bytes at " + hex(best->begin) + " of " +
           (best->owner == kMaxDevices ? "the host" : "device " + std::to_string(best->owner));
}

bool is_device_address(const void *p) { return reinterpret_cast<uint64_t>(p) - space.base < kSpan; }

size_t live_allocations(bool of_host) {
    size_t n = 0;
    for (const auto &[page, id] : space.by_address)
        n += (space.allocations[id].owner == kMaxDevices) == of_host ? 1 : 0;
    return n;
}

}  // namespace ridge::emulate
