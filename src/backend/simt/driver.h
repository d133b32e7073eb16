// The driver of a GPU as one table of functions, filled at run time from libcuda or libamdhip64 (or from the stand-in
// that the tests drive instead): no GPU library is needed to build or to start the program.
//
// The functions are those of the two drivers, which differ in names, in how a device is chosen and in how a launch is
// described; driver_cuda.cpp and driver_hip.cpp even that out. Every function returns the driver's own code, 0 for
// success; check() in driver.cpp makes an Error of another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace ridge::simt {

using Handle = void *;  // a module, function, stream, event, graph or graph made ready
using Address = uint64_t;

struct LaunchShape {
    unsigned grid[3], threads, shared_bytes;
    bool early;  // may start before the launch in front of it has ended (kPdl)
};

struct DriverDevice {
    std::string name;          // "NVIDIA H200"
    int major = 0, minor = 0;  // compute capability of CUDA devices
    uint32_t processors = 0, wave = 32, shared_per_block = 0, threads_per_processor = 0, clock_khz = 0;
    uint64_t memory = 0, l2 = 0;
    bool integrated = false;  // its memory is the host's
};

struct Driver {
    std::string library;  // that it was filled from
    std::string name;     // "CUDA"
    std::string version;  // "13.0"
    bool is_cuda = true;
    int devices = 0;

    // Chooses the device for this thread's calls from now on.
    int (*use)(int device) = nullptr;
    int (*describe)(int device, DriverDevice &) = nullptr;
    int (*memory)(size_t *free, size_t *total) = nullptr;  // of the device in use

    int (*allocate)(Address *, size_t) = nullptr;
    int (*release)(Address) = nullptr;
    int (*allocate_host)(void **, size_t) = nullptr;  // pinned
    int (*release_host)(void *) = nullptr;
    int (*to_device)(Address, const void *, size_t, Handle stream) = nullptr;
    int (*to_host)(void *, Address, size_t, Handle stream) = nullptr;
    int (*fill)(Address, unsigned char, size_t, Handle stream) = nullptr;

    int (*load_module)(Handle *, const void *image) = nullptr;
    int (*unload_module)(Handle) = nullptr;
    int (*find_function)(Handle *, Handle module, const char *) = nullptr;
    int (*compiled_for)(int *capability, Handle function) = nullptr;  // of CUDA alone: 90 for 9.0
    int (*allow_shared)(Handle function, int bytes) = nullptr;        // more dynamic shared memory than the usual 48 KB
    int (*launch)(Handle function, const LaunchShape &, Handle stream, const void *args, size_t args_bytes) = nullptr;

    int (*create_stream)(Handle *) = nullptr;
    int (*destroy_stream)(Handle) = nullptr;
    int (*synchronize)(Handle stream) = nullptr;
    int (*create_event)(Handle *) = nullptr;
    int (*destroy_event)(Handle) = nullptr;
    int (*record)(Handle event, Handle stream) = nullptr;
    int (*synchronize_event)(Handle event) = nullptr;
    int (*elapsed)(float *milliseconds, Handle start, Handle end) = nullptr;

    int (*begin_capture)(Handle stream) = nullptr;
    int (*end_capture)(Handle stream, Handle *graph) = nullptr;
    int (*instantiate)(Handle *ready, Handle graph) = nullptr;
    int (*destroy_graph)(Handle graph) = nullptr;
    int (*launch_graph)(Handle ready, Handle stream) = nullptr;
    int (*destroy_ready)(Handle ready) = nullptr;

    std::string (*error)(int code) = nullptr;
    static constexpr int kOutOfMemory = 2;  // of both drivers
};

// Where a driver keeps what describe() tells of a device: its numbers of attributes.
struct DriverAttributes {
    int major, minor, processors, wave, shared_per_block, threads_per_processor, clock_khz, l2, integrated;
};
// Fills all but the name and the memory. `ask(value, attribute)` is the driver's call; the code is the last that
// failed.
template <class Ask>
int describe_by(const DriverAttributes &at, DriverDevice &out, Ask &&ask) {
    int code = 0;
    const auto read = [&](int attribute) {
        int value = 0;
        if (const int failed = ask(&value, attribute); failed != 0) code = failed;
        return value;
    };
    out.major = read(at.major), out.minor = read(at.minor);
    out.processors = static_cast<uint32_t>(read(at.processors));
    out.wave = static_cast<uint32_t>(read(at.wave));
    out.shared_per_block = static_cast<uint32_t>(read(at.shared_per_block));
    out.threads_per_processor = static_cast<uint32_t>(read(at.threads_per_processor));
    out.clock_khz = static_cast<uint32_t>(read(at.clock_khz));
    out.l2 = static_cast<uint64_t>(read(at.l2));
    out.integrated = read(at.integrated) != 0;
    return code;
}

// Codes of driver calls as an Error{device} that says what was tried. `what`: "copying to the device".
void check(const Driver &, int code, const char *what);

// Opens the driver library (`path` empty: the system's) and fills the table. Throws Error{unsupported} with a sentence
// that says what is missing and what would add it: no library, too old a driver, no device.
// The table lives until the process ends.
const Driver &open_cuda_driver(const std::string &path = {});
const Driver &open_hip_driver(const std::string &path = {});

}  // namespace ridge::simt
