// The memories of the emulated devices and of the host as the driver allocates it.
//
// Device addresses are numbers only: a range of the process in which nothing is mapped, so that a kernel or the host
// that dereferences one faults. The bytes lie at a fixed distance from it, to which reading() and writing() lead. Every
// page of the range knows its allocation, so a check is two loads. Pinned memory of the host has an address of its own
// in the same range, where its bytes lie too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace ridge::emulate {

constexpr int kMaxDevices = 8;

struct Allocation {
    uint64_t begin = 0, end = 0;
    int64_t distance = 0;                       // from an address to where its byte lies
    uint32_t devices = 0;                       // bits of the devices that may touch it
    int owner = 0;                              // device; kMaxDevices: the host
    bool written = false;                       // by a kernel, ever
    uint32_t *writers = nullptr;                // for every 64 bytes the number of the launch that wrote there last
    uint64_t *sectors[2] = {nullptr, nullptr};  // bits of the 32-byte sectors read, written by the launch that counts
};

// Poisoned: every byte 0xff. 0: the window of this device is full.
uint64_t allocate_device(int device, size_t bytes);
void *allocate_host(size_t bytes);
// The number of bytes released; 0: no allocation begins there.
size_t release(uint64_t address, int owner);
void release_all();

// The allocation that holds [address, address + bytes), or nullptr.
Allocation *find(uint64_t address, size_t bytes);
inline std::byte *bytes_of(const Allocation &a, uint64_t address) {
    return reinterpret_cast<std::byte *>(address + static_cast<uint64_t>(a.distance));
}
// `device` may touch all memory of `peer` from now on.
void allow_peer(int device, int peer);
bool peer_allowed(int device, int peer);

// Between the two, accesses are made by `device`.
void begin_accesses(int device);
struct Sectors {
    uint64_t read = 0, written = 0;  // distinct ones of 32 bytes
};
Sectors end_accesses();

// "4096 bytes behind the end of an allocation of 1024 bytes at 0x..." for messages.
std::string nearest(uint64_t address);
bool is_device_address(const void *p);
size_t live_allocations(bool of_host);

}  // namespace ridge::emulate
