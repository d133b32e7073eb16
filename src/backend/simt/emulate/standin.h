// What tests may set and ask of a stand-in driver library, found by dlsym beside the symbols of the two drivers.
//
// The library exports the C functions of libcuda and of libamdhip64 that driver_cuda.cpp and driver_hip.cpp call, over
// emulated devices. Work runs where it is submitted, or (setting "deferred") when something waits for it. A launch that
// goes wrong makes its device answer with that error from then on, as a GPU does; the sentence that says what went
// wrong is on stderr and in standin_message().
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

// clang-format off
// 0, or 1: there is no such setting. They hold from the next call of a driver function. RIDGE_STANDIN in the environment
// ("devices=2 memory=1000000") sets them too, when the library is first called.
//   reset                 (any value) everything as when the library was loaded, settings too. All handles but devices and
//                         contexts become invalid
//   devices               1 to 8; 1. With 0 there is none
//   memory                bytes of each device; 8 GiB, below 16 GiB
//   processors            4; a launch has processors * blocks_per_processor blocks resident
//   blocks_per_processor  1
//   integrated            1: the device's memory is the host's: its size and what is free are the host's
//   peer                  0: devices cannot reach each other's memory; 1
//   shared                bytes of shared memory for a block; what the library's shape has, 227 KiB (CUDA) or 64 KiB (HIP)
//   driver_version        as cuDriverGetVersion gives it; 13000
//   capability            CUDA's compute capability, 90; for HIP 10 * gfx major + minor of the library's shape
//   compiled_for          CUDA's compute capability that the code is for; that of the device
//   order_seed            other than 0: blocks, waves and lanes run in an order drawn from it
//   count_bytes           1: launches are logged for standin_counters()
//   deferred              1: work runs when something waits for it
//   latency               microseconds that every kernel takes longer
// clang-format on
int standin_configure(const char *name, uint64_t value);

// Of what is alive: allocations, host_allocations, used (bytes), modules, streams, events, graphs, ready_graphs;
// launches: kernels run. ~0: there is no such name.
uint64_t standin_state(const char *name);

struct StandinLaunch {
    char kernel[80];
    uint32_t grid[3], threads, shared_bytes, device, early;
    uint64_t bytes_read, bytes_written;  // distinct sectors of 32 bytes, in bytes
};
// The launches since the last call, oldest first, up to `capacity` of them (the others are lost); returns how many
// there were. Only those that ran while count_bytes was set.
size_t standin_counters(StandinLaunch *out, size_t capacity);

// What went wrong last; "": nothing since the reset.
const char *standin_message();
}
