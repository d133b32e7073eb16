// The symbols of libcuda that driver_cuda.cpp calls. Types and numbers as the CUDA driver API documents them.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "backend/simt/emulate/driver.h"

using namespace ridge::standin;

namespace {

using Lock = std::lock_guard<std::mutex>;

// CUlaunchConfig
struct LaunchAttribute {
    unsigned id;
    char pad[4];
    union {
        char bytes[64];
        int value;
    };
};
struct LaunchConfig {
    unsigned grid[3], block[3], shared_bytes;
    void *stream;
    const LaunchAttribute *attributes;
    unsigned attribute_count;
};
constexpr unsigned kProgrammaticStreamSerialization = 6;

int device_number(int device) {
    if (!driver().initialized) return kNotInitialized;
    return device >= 0 && device < static_cast<int>(driver().settings.devices) ? kSuccess : kInvalidDevice;
}

// A context is its device.
Device *device_of(void *context) {
    for (Device &d : driver().devices)
        if (&d == context) return &d;
    return nullptr;
}

int attribute(int id) {
    const Settings &s = driver().settings;
    switch (id) {
        case 1:
            return 1024;  // threads per block
        case 2:
        case 3:
            return 1024;  // of a block, x and y
        case 4:
            return 64;  // z
        case 5:
            return 0x7fffffff;  // of a grid, x
        case 6:
        case 7:
            return 65535;  // y and z
        case 8:
            return 48 << 10;  // shared memory per block
        case 10:
            return RIDGE_WAVE;  // lanes of a wave
        case 12:
            return 65536;  // registers per block
        case 13:
            return 1980000;  // clock, kHz
        case 16:
            return static_cast<int>(s.processors);  // multiprocessors
        case 18:
            return s.integrated != 0;  // integrated
        case 19:
            return 1;  // maps host memory
        case 36:
            return 3201000;  // memory clock, kHz
        case 37:
            return 6144;  // width of the memory's bus
        case 38:
            return 50 << 20;  // L2
        case 39:
            return 2048;  // threads per multiprocessor
        case 40:
            return 3;  // copy engines
        case 41:
            return 1;  // unified addressing
        case 75:
            return static_cast<int>(capability() / 10);  // compute capability
        case 76:
            return static_cast<int>(capability() % 10);
        case 81:
            return static_cast<int>(shared_per_block()) + (1 << 10);  // shared memory per multiprocessor
        case 95:
            return 1;  // cooperative launch
        case 97:
            return static_cast<int>(shared_per_block());  // shared memory per block, at most
        case 106:
            return 32;  // blocks per multiprocessor
        case 111:
            return 1 << 10;  // shared memory of the system per block
        default:
            return 0;
    }
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default"))) int

EXPORT cuInit(unsigned) {
    const Lock hold(driver().lock);
    if (driver().settings.devices == 0) return kNoDevice;
    driver().initialized = true;
    return kSuccess;
}
EXPORT cuDriverGetVersion(int *version) {
    const Lock hold(driver().lock);
    *version = static_cast<int>(driver().settings.driver_version);
    return kSuccess;
}
EXPORT cuDeviceGetCount(int *count) {
    const Lock hold(driver().lock);
    *count = static_cast<int>(driver().settings.devices);
    return driver().initialized ? kSuccess : kNotInitialized;
}
EXPORT cuDeviceGet(int *device, int ordinal) {
    const Lock hold(driver().lock);
    *device = ordinal;
    return device_number(ordinal);
}
EXPORT cuDeviceGetName(char *name, int bytes, int device) {
    const Lock hold(driver().lock);
    if (const int code = device_number(device); code != 0) return code;
    std::snprintf(name, static_cast<size_t>(bytes), "emulated GPU %d, wave %d", device, RIDGE_WAVE);
    return kSuccess;
}
EXPORT cuDeviceGetAttribute(int *value, int id, int device) {
    const Lock hold(driver().lock);
    if (const int code = device_number(device); code != 0) return code;
    *value = attribute(id);
    return kSuccess;
}
EXPORT cuDeviceTotalMem_v2(size_t *bytes, int device) {
    const Lock hold(driver().lock);
    if (const int code = device_number(device); code != 0) return code;
    Device *before = current_device();
    choose_device(&driver().devices[device]);
    size_t free = 0;
    const int code = memory_info(&free, bytes);
    choose_device(before);
    return code;
}
EXPORT cuDeviceCanAccessPeer(int *can, int device, int peer) {
    const Lock hold(driver().lock);
    if (device_number(device) != 0 || device_number(peer) != 0) return kInvalidDevice;
    *can = device != peer && driver().settings.peer != 0;
    return kSuccess;
}
EXPORT cuDevicePrimaryCtxRetain(void **context, int device) {
    const Lock hold(driver().lock);
    if (const int code = device_number(device); code != 0) return code;
    *context = &driver().devices[device];
    return kSuccess;
}
EXPORT cuDevicePrimaryCtxRelease_v2(int device) {
    const Lock hold(driver().lock);
    return device_number(device);
}
EXPORT cuCtxSetCurrent(void *context) {
    const Lock hold(driver().lock);
    Device *d = device_of(context);
    if (context != nullptr && d == nullptr) return kInvalidContext;
    choose_device(d);
    return kSuccess;
}
EXPORT cuCtxEnablePeerAccess(void *context, unsigned) {
    const Lock hold(driver().lock);
    Device *d = device_of(context);
    return d == nullptr ? kInvalidContext : enable_peer(*d);
}

EXPORT cuMemGetInfo_v2(size_t *free, size_t *total) {
    const Lock hold(driver().lock);
    return memory_info(free, total);
}
EXPORT cuMemAlloc_v2(uint64_t *address, size_t bytes) {
    const Lock hold(driver().lock);
    return allocate(address, bytes);
}
EXPORT cuMemFree_v2(uint64_t address) {
    const Lock hold(driver().lock);
    return release(address);
}
EXPORT cuMemAllocHost_v2(void **p, size_t bytes) {
    const Lock hold(driver().lock);
    return allocate_pinned(p, bytes);
}
EXPORT cuMemFreeHost(void *p) {
    const Lock hold(driver().lock);
    return release_pinned(p);
}
EXPORT cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, void *stream) {
    const Lock hold(driver().lock);
    return to_device(to, from, bytes, stream);
}
EXPORT cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *stream) {
    const Lock hold(driver().lock);
    return to_host(to, from, bytes, stream);
}
EXPORT cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void *stream) {
    const Lock hold(driver().lock);
    return on_device(to, from, bytes, stream);
}
EXPORT cuMemcpyPeerAsync(uint64_t to, void *to_context, uint64_t from, void *from_context, size_t bytes, void *stream) {
    const Lock hold(driver().lock);
    const Device *t = device_of(to_context), *f = device_of(from_context);
    if (t == nullptr || f == nullptr) return kInvalidContext;
    return to_peer(to, t->index, from, f->index, bytes, stream);
}
EXPORT cuMemsetD8Async(uint64_t to, unsigned char value, size_t bytes, void *stream) {
    const Lock hold(driver().lock);
    return fill(to, value, bytes, stream);
}

EXPORT cuModuleLoadData(void **module, const void *image) {
    const Lock hold(driver().lock);
    return load_module(module, image);
}
EXPORT cuModuleUnload(void *module) {
    const Lock hold(driver().lock);
    return unload_module(module);
}
EXPORT cuModuleGetFunction(void **function, void *module, const char *name) {
    const Lock hold(driver().lock);
    return find_function(function, module, name, 48 << 10);
}
EXPORT cuFuncGetAttribute(int *value, int id, void *function) {
    const Lock hold(driver().lock);
    if (lookup(driver().functions, function) == nullptr) return kInvalidHandle;
    if (id != 5) return kNotSupported;  // 5: the architecture of the PTX that it was made of
    const uint64_t set = driver().settings.compiled_for;
    *value = static_cast<int>(set == 0 ? capability() : set);
    return kSuccess;
}
EXPORT cuFuncSetAttribute(void *function, int id, int value) {
    const Lock hold(driver().lock);
    // 8: the largest dynamic shared memory. Others only advise.
    return id == 8 ? allow_shared(function, value) : kSuccess;
}
EXPORT cuLaunchKernelEx(const LaunchConfig *config, void *function, void **params, void **extra) {
    const Lock hold(driver().lock);
    if (extra != nullptr) return kNotSupported;
    Shape shape = {};
    std::copy(config->grid, config->grid + 3, shape.grid);
    std::copy(config->block, config->block + 3, shape.block);
    shape.shared_bytes = config->shared_bytes;
    for (unsigned i = 0; i < config->attribute_count; ++i) {
        if (config->attributes[i].id != kProgrammaticStreamSerialization) return kNotSupported;
        if (config->attributes[i].value != 0 && capability() < 90) return kNotSupported;
        shape.early = config->attributes[i].value != 0;
    }
    return launch(function, shape, config->stream, params, nullptr, 0);
}

EXPORT cuStreamCreate(void **stream, unsigned) {
    const Lock hold(driver().lock);
    return create_stream(stream);
}
EXPORT cuStreamDestroy_v2(void *stream) {
    const Lock hold(driver().lock);
    return destroy_stream(stream);
}
EXPORT cuStreamSynchronize(void *stream) {
    const Lock hold(driver().lock);
    return synchronize(stream);
}
EXPORT cuStreamWaitEvent(void *stream, void *event, unsigned) {
    const Lock hold(driver().lock);
    return wait_event(stream, event);
}
EXPORT cuStreamBeginCapture_v2(void *stream, int mode) {
    const Lock hold(driver().lock);
    return begin_capture(stream, mode);
}
EXPORT cuStreamEndCapture(void *stream, void **graph) {
    const Lock hold(driver().lock);
    return end_capture(stream, graph);
}
EXPORT cuGraphInstantiateWithFlags(void **ready, void *graph, unsigned long long) {
    const Lock hold(driver().lock);
    return instantiate(ready, graph);
}
EXPORT cuGraphLaunch(void *ready, void *stream) {
    const Lock hold(driver().lock);
    return launch_graph(ready, stream);
}
EXPORT cuGraphExecDestroy(void *ready) {
    const Lock hold(driver().lock);
    return destroy_ready(ready);
}
EXPORT cuGraphDestroy(void *graph) {
    const Lock hold(driver().lock);
    return destroy_graph(graph);
}
EXPORT cuEventCreate(void **event, unsigned) {
    const Lock hold(driver().lock);
    return create_event(event);
}
EXPORT cuEventRecord(void *event, void *stream) {
    const Lock hold(driver().lock);
    return record(event, stream);
}
EXPORT cuEventSynchronize(void *event) {
    const Lock hold(driver().lock);
    return synchronize_event(event);
}
EXPORT cuEventElapsedTime(float *milliseconds, void *start, void *end) {
    const Lock hold(driver().lock);
    return elapsed(milliseconds, start, end);
}
EXPORT cuEventDestroy_v2(void *event) {
    const Lock hold(driver().lock);
    return destroy_event(event);
}

EXPORT cuGetErrorName(int code, const char **name) {
    const CodeName *c = code_name(code);
    *name = c != nullptr ? c->cuda : nullptr;
    return c != nullptr ? kSuccess : kInvalidValue;
}
EXPORT cuGetErrorString(int code, const char **text) {
    const CodeName *c = code_name(code);
    *text = c != nullptr ? c->text : nullptr;
    return c != nullptr ? kSuccess : kInvalidValue;
}
