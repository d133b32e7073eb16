// The symbols of libamdhip64 that driver_hip.cpp calls. Types and numbers as HIP documents them.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "backend/simt/emulate/driver.h"

using namespace ridge::standin;

namespace {

// Holds the driver's lock; a thread that chose no device has the first, and nothing needs hipInit.
class Entered {
  public:
    Entered() : hold_(driver().lock) {
        driver().initialized = driver().settings.devices != 0;
        if (current_device() == nullptr) choose_device(&driver().devices[0]);
    }

  private:
    std::lock_guard<std::mutex> hold_;
};

int device_number(int device) {
    if (driver().settings.devices == 0) return kNoDevice;
    return device >= 0 && device < static_cast<int>(driver().settings.devices) ? kSuccess : kInvalidDevice;
}

// HIP has no code for an address that is not aligned.
int hip(int code) { return code == kMisalignedAddress ? static_cast<int>(kLaunchFailed) : code; }

// hipDeviceAttribute_t of HIP 5 and later
int attribute(int id) {
    const Settings &s = driver().settings;
    switch (id) {
        case 5:
            return 2100000;  // clock, kHz
        case 16:
            return s.integrated != 0;  // integrated
        case 19:
            return 4 << 20;  // L2
        case 23:
            return static_cast<int>(capability() / 10);  // gfx major and minor
        case 61:
            return static_cast<int>(capability() % 10);
        case 26:
        case 56:
            return 1024;  // threads per block
        case 29:
            return 0x7fffffff;  // of a grid, x
        case 57:
            return 2048;  // threads per multiprocessor
        case 59:
            return 4096;  // width of the memory's bus
        case 60:
            return 2600000;  // memory clock, kHz
        case 63:
            return static_cast<int>(s.processors);  // multiprocessors
        case 74:
        case 75:
        case 76:
        case 10002:
            return static_cast<int>(shared_per_block());  // shared memory
        case 85:
            return 1;  // unified addressing
        case 87:
            return RIDGE_WAVE;  // lanes of a wave
        default:
            return 0;
    }
}

// HIP_LAUNCH_PARAM_...
constexpr uintptr_t kBufferPointer = 1, kBufferSize = 2, kEnd = 3;

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default"))) int

EXPORT hipInit(unsigned) {
    const Entered in;
    return driver().settings.devices == 0 ? kNoDevice : kSuccess;
}
EXPORT hipDriverGetVersion(int *version) {
    const Entered in;
    *version = driver().settings.driver_version == Settings().driver_version
                   ? 60443483
                   : static_cast<int>(driver().settings.driver_version);
    return kSuccess;
}
EXPORT hipGetDeviceCount(int *count) {
    const Entered in;
    *count = static_cast<int>(driver().settings.devices);
    return *count == 0 ? kNoDevice : kSuccess;
}
EXPORT hipSetDevice(int device) {
    const Entered in;
    if (const int code = device_number(device); code != 0) return code;
    choose_device(&driver().devices[device]);
    return kSuccess;
}
EXPORT hipDeviceGetName(char *name, int bytes, int device) {
    const Entered in;
    if (const int code = device_number(device); code != 0) return code;
    std::snprintf(name, static_cast<size_t>(bytes), "emulated GPU %d, wave %d", device, RIDGE_WAVE);
    return kSuccess;
}
EXPORT hipDeviceGetAttribute(int *value, int id, int device) {
    const Entered in;
    if (const int code = device_number(device); code != 0) return code;
    *value = attribute(id);
    return kSuccess;
}
EXPORT hipDeviceTotalMem(size_t *bytes, int device) {
    const Entered in;
    if (const int code = device_number(device); code != 0) return code;
    Device *before = current_device();
    choose_device(&driver().devices[device]);
    size_t free = 0;
    const int code = memory_info(&free, bytes);
    choose_device(before);
    return code;
}
EXPORT hipDeviceCanAccessPeer(int *can, int device, int peer) {
    const Entered in;
    if (device_number(device) != 0 || device_number(peer) != 0) return kInvalidDevice;
    *can = device != peer && driver().settings.peer != 0;
    return kSuccess;
}
EXPORT hipDeviceEnablePeerAccess(int peer, unsigned) {
    const Entered in;
    if (const int code = device_number(peer); code != 0) return code;
    return enable_peer(driver().devices[peer]);
}

EXPORT hipMemGetInfo(size_t *free, size_t *total) {
    const Entered in;
    return hip(memory_info(free, total));
}
EXPORT hipMalloc(void **p, size_t bytes) {
    const Entered in;
    uint64_t address = 0;
    const int code = allocate(&address, bytes);
    *p = reinterpret_cast<void *>(address);
    return hip(code);
}
EXPORT hipFree(void *p) {
    const Entered in;
    return p == nullptr ? kSuccess : hip(release(reinterpret_cast<uint64_t>(p)));
}
EXPORT hipHostMalloc(void **p, size_t bytes, unsigned) {
    const Entered in;
    return hip(allocate_pinned(p, bytes));
}
EXPORT hipHostFree(void *p) {
    const Entered in;
    return p == nullptr ? kSuccess : hip(release_pinned(p));
}
EXPORT hipMemcpyHtoDAsync(void *to, void *from, size_t bytes, void *stream) {
    const Entered in;
    return hip(to_device(reinterpret_cast<uint64_t>(to), from, bytes, stream));
}
EXPORT hipMemcpyDtoHAsync(void *to, void *from, size_t bytes, void *stream) {
    const Entered in;
    return hip(to_host(to, reinterpret_cast<uint64_t>(from), bytes, stream));
}
EXPORT hipMemcpyDtoDAsync(void *to, void *from, size_t bytes, void *stream) {
    const Entered in;
    return hip(on_device(reinterpret_cast<uint64_t>(to), reinterpret_cast<uint64_t>(from), bytes, stream));
}
EXPORT hipMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device, size_t bytes, void *stream) {
    const Entered in;
    return hip(to_peer(reinterpret_cast<uint64_t>(to), to_device, reinterpret_cast<uint64_t>(from), from_device, bytes,
                       stream));
}
EXPORT hipMemsetD8Async(void *to, unsigned char value, size_t bytes, void *stream) {
    const Entered in;
    return hip(fill(reinterpret_cast<uint64_t>(to), value, bytes, stream));
}

EXPORT hipModuleLoadData(void **module, const void *image) {
    const Entered in;
    return hip(load_module(module, image));
}
EXPORT hipModuleUnload(void *module) {
    const Entered in;
    return unload_module(module);
}
EXPORT hipModuleGetFunction(void **function, void *module, const char *name) {
    const Entered in;
    return find_function(function, module, name, shared_per_block());
}
EXPORT hipFuncSetAttribute(const void *function, int id, int value) {
    const Entered in;
    // 8: the largest dynamic shared memory. Others only advise.
    return id == 8 ? allow_shared(function, value) : kSuccess;
}
EXPORT hipModuleLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                             unsigned block_y, unsigned block_z, unsigned shared_bytes, void *stream, void **params,
                             void **extra) {
    const Entered in;
    const Shape shape = {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes, false};
    if (extra == nullptr) return hip(launch(function, shape, stream, params, nullptr, 0));
    const void *args = nullptr;
    size_t bytes = 0;
    for (void **p = extra; reinterpret_cast<uintptr_t>(*p) != kEnd; p += 2) {
        if (reinterpret_cast<uintptr_t>(p[0]) == kBufferPointer)
            args = p[1];
        else if (reinterpret_cast<uintptr_t>(p[0]) == kBufferSize)
            bytes = *static_cast<size_t *>(p[1]);
        else
            return kInvalidValue;
    }
    if (args == nullptr || params != nullptr) return kInvalidValue;
    return hip(launch(function, shape, stream, nullptr, args, bytes));
}

EXPORT hipStreamCreateWithFlags(void **stream, unsigned) {
    const Entered in;
    return create_stream(stream);
}
EXPORT hipStreamDestroy(void *stream) {
    const Entered in;
    return destroy_stream(stream);
}
EXPORT hipStreamSynchronize(void *stream) {
    const Entered in;
    return hip(synchronize(stream));
}
EXPORT hipStreamWaitEvent(void *stream, void *event, unsigned) {
    const Entered in;
    return hip(wait_event(stream, event));
}
EXPORT hipStreamBeginCapture(void *stream, int mode) {
    const Entered in;
    return hip(begin_capture(stream, mode));
}
EXPORT hipStreamEndCapture(void *stream, void **graph) {
    const Entered in;
    return hip(end_capture(stream, graph));
}
EXPORT hipGraphInstantiate(void **ready, void *graph, void **, char *, size_t) {
    const Entered in;
    return instantiate(ready, graph);
}
EXPORT hipGraphLaunch(void *ready, void *stream) {
    const Entered in;
    return hip(launch_graph(ready, stream));
}
EXPORT hipGraphExecDestroy(void *ready) {
    const Entered in;
    return destroy_ready(ready);
}
EXPORT hipGraphDestroy(void *graph) {
    const Entered in;
    return destroy_graph(graph);
}
EXPORT hipEventCreate(void **event) {
    const Entered in;
    return create_event(event);
}
EXPORT hipEventRecord(void *event, void *stream) {
    const Entered in;
    return hip(record(event, stream));
}
EXPORT hipEventSynchronize(void *event) {
    const Entered in;
    return hip(synchronize_event(event));
}
EXPORT hipEventElapsedTime(float *milliseconds, void *start, void *end) {
    const Entered in;
    return elapsed(milliseconds, start, end);
}
EXPORT hipEventDestroy(void *event) {
    const Entered in;
    return destroy_event(event);
}

extern "C" __attribute__((visibility("default"))) const char *hipGetErrorName(int code) {
    const CodeName *c = code_name(code);
    return c != nullptr ? c->hip : "hipErrorUnknown";
}
extern "C" __attribute__((visibility("default"))) const char *hipGetErrorString(int code) {
    const CodeName *c = code_name(code);
    return c != nullptr ? c->text : "unknown error";
}
