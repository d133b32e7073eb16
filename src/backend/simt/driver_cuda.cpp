// The table of driver.h from libcuda. The declarations are those of CUDA's driver API as far as they are used, so that
// no toolkit is needed to build; a function whose meaning changed over time is asked for by its versioned name.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <mutex>

#include "backend/simt/driver.h"
#include "backend/simt/library.h"
#include "core/error.h"

namespace ridge::simt {
namespace {

// 12.0 has programmatic launches and graphs as they are used here.
constexpr int kOldestDriver = 12000;
constexpr int kMostDevices = 64;

struct LaunchAttribute {
    int id;
    int pad;
    union {
        char bytes[64];
        int allowed;
    } value;
};
constexpr int kProgrammaticSerialization = 6;

struct LaunchConfig {
    unsigned grid[3], block[3], shared;
    Handle stream;
    LaunchAttribute *attributes;
    unsigned n_attributes;
};

// CUdevice_attribute. Shared memory is what a block may have when it asks for more than the usual 48 KB.
constexpr DriverAttributes kAttributes = {.major = 75,
                                          .minor = 76,
                                          .processors = 16,
                                          .wave = 10,
                                          .shared_per_block = 97,
                                          .threads_per_processor = 39,
                                          .clock_khz = 13,
                                          .l2 = 38,
                                          .integrated = 18};

struct Functions {
    int (*init)(unsigned);
    int (*version)(int *);
    int (*count)(int *);
    int (*get)(int *, int);
    int (*device_name)(char *, int, int);
    int (*attribute)(int *, int, int);
    int (*total)(size_t *, int);
    int (*retain)(Handle *, int);
    int (*set_current)(Handle);
    int (*memory)(size_t *, size_t *);
    int (*alloc)(Address *, size_t);
    int (*free)(Address);
    int (*alloc_host)(void **, size_t);
    int (*free_host)(void *);
    int (*to_device)(Address, const void *, size_t, Handle);
    int (*to_host)(void *, Address, size_t, Handle);
    int (*fill)(Address, unsigned char, size_t, Handle);
    int (*load)(Handle *, const void *);
    int (*unload)(Handle);
    int (*function)(Handle *, Handle, const char *);
    int (*get_function_attribute)(int *, int, Handle);
    int (*function_attribute)(Handle, int, int);
    int (*launch)(const LaunchConfig *, Handle, void **, void **);
    int (*stream)(Handle *, unsigned);
    int (*end_stream)(Handle);
    int (*synchronize)(Handle);
    int (*event)(Handle *, unsigned);
    int (*end_event)(Handle);
    int (*record)(Handle, Handle);
    int (*synchronize_event)(Handle);
    int (*elapsed)(float *, Handle, Handle);
    int (*begin)(Handle, int);
    int (*end)(Handle, Handle *);
    int (*instantiate)(Handle *, Handle, unsigned long long);
    int (*end_graph)(Handle);
    int (*run_graph)(Handle, Handle);
    int (*end_ready)(Handle);
    int (*error_name)(int, const char **);
    int (*error_text)(int, const char **);
} cu;

std::array<Handle, kMostDevices> contexts{};  // the primary ones, retained when a device is first used
std::mutex mutex;

int context_of(int device, Handle *context) {
    const std::lock_guard lock(mutex);
    Handle &c = contexts[static_cast<size_t>(device)];
    int code = 0;
    if (!c) {
        int d = 0;
        if ((code = cu.get(&d, device)) == 0) code = cu.retain(&c, d);
    }
    *context = c;
    return code;
}

int use(int device) {
    Handle context;
    const int code = context_of(device, &context);
    return code != 0 ? code : cu.set_current(context);
}

int describe(int device, DriverDevice &out) {
    int d = 0;
    std::array<char, 256> name{};
    size_t total = 0;
    int code = cu.get(&d, device);
    if (code == 0) code = cu.device_name(name.data(), static_cast<int>(name.size()) - 1, d);
    if (code == 0) code = cu.total(&total, d);
    if (code != 0) return code;
    out.name = name.data();
    out.memory = total;
    return describe_by(kAttributes, out, [d](int *value, int attribute) { return cu.attribute(value, attribute, d); });
}

int compiled_for(int *capability, Handle function) {
    constexpr int kPtxVersion = 5;
    return cu.get_function_attribute(capability, kPtxVersion, function);
}

int allow_shared(Handle function, int bytes) {
    constexpr int kMaxDynamicShared = 8;
    return cu.function_attribute(function, kMaxDynamicShared, bytes);
}

int launch(Handle function, const LaunchShape &s, Handle stream, const void *args, size_t) {
    LaunchAttribute early{};
    early.id = kProgrammaticSerialization;
    early.value.allowed = 1;
    const LaunchConfig config{
        {s.grid[0], s.grid[1], s.grid[2]}, {s.threads, 1, 1}, s.shared_bytes, stream, &early, s.early ? 1u : 0u};
    void *parameters[] = {const_cast<void *>(args)};
    return cu.launch(&config, function, parameters, nullptr);
}

int create_stream(Handle *s) {
    constexpr unsigned kNonBlocking = 1;
    return cu.stream(s, kNonBlocking);
}
int create_event(Handle *e) { return cu.event(e, 0); }
int begin_capture(Handle stream) {
    constexpr int kThreadLocal = 1;
    return cu.begin(stream, kThreadLocal);
}
int instantiate(Handle *ready, Handle graph) { return cu.instantiate(ready, graph, 0); }

std::string error(int code) {
    const char *name = nullptr, *text = nullptr;
    cu.error_name(code, &name);
    cu.error_text(code, &text);
    return fmt::format("{} ({})", text ? text : "unknown error", name ? name : std::to_string(code).c_str());
}

bool resolve(Library &l) {
    return l.get(cu.init, "cuInit") && l.get(cu.version, "cuDriverGetVersion") && l.get(cu.count, "cuDeviceGetCount") &&
           l.get(cu.get, "cuDeviceGet") && l.get(cu.device_name, "cuDeviceGetName") &&
           l.get(cu.attribute, "cuDeviceGetAttribute") && l.get(cu.total, "cuDeviceTotalMem_v2") &&
           l.get(cu.retain, "cuDevicePrimaryCtxRetain") && l.get(cu.set_current, "cuCtxSetCurrent") &&
           l.get(cu.memory, "cuMemGetInfo_v2") && l.get(cu.alloc, "cuMemAlloc_v2") && l.get(cu.free, "cuMemFree_v2") &&
           l.get(cu.alloc_host, "cuMemAllocHost_v2") && l.get(cu.free_host, "cuMemFreeHost") &&
           l.get(cu.to_device, "cuMemcpyHtoDAsync_v2") && l.get(cu.to_host, "cuMemcpyDtoHAsync_v2") &&

           l.get(cu.fill, "cuMemsetD8Async") && l.get(cu.load, "cuModuleLoadData") &&
           l.get(cu.unload, "cuModuleUnload") && l.get(cu.function, "cuModuleGetFunction") &&
           l.get(cu.get_function_attribute, "cuFuncGetAttribute") &&
           l.get(cu.function_attribute, "cuFuncSetAttribute") && l.get(cu.launch, "cuLaunchKernelEx") &&
           l.get(cu.stream, "cuStreamCreate") && l.get(cu.end_stream, "cuStreamDestroy_v2") &&
           l.get(cu.synchronize, "cuStreamSynchronize") && l.get(cu.event, "cuEventCreate") &&
           l.get(cu.end_event, "cuEventDestroy_v2") && l.get(cu.record, "cuEventRecord") &&
           l.get(cu.synchronize_event, "cuEventSynchronize") && l.get(cu.elapsed, "cuEventElapsedTime") &&
           l.get(cu.begin, "cuStreamBeginCapture_v2") && l.get(cu.end, "cuStreamEndCapture") &&
           l.get(cu.instantiate, "cuGraphInstantiateWithFlags") && l.get(cu.end_graph, "cuGraphDestroy") &&
           l.get(cu.run_graph, "cuGraphLaunch") && l.get(cu.end_ready, "cuGraphExecDestroy") &&
           l.get(cu.error_name, "cuGetErrorName") && l.get(cu.error_text, "cuGetErrorString");
}

Driver open(const std::string &path) {
    Library library = path.empty() ? Library{"libcuda.so.1", "libcuda.so"} : Library{path};
    if (!library)
        fail(ErrorKind::unsupported, "no NVIDIA driver is installed ({}); installing it adds the CUDA devices",
             library.why());
    const bool complete = resolve(library);
    int version = 0;
    if (cu.version == nullptr)
        fail(ErrorKind::unsupported, "{} is no NVIDIA driver: it has no {}", library.name(), library.missing());
    if (cu.version(&version) != 0 || version < kOldestDriver)
        fail(ErrorKind::unsupported, "the NVIDIA driver in {} is for CUDA {}.{}; a driver for {}.{} or later is needed",
             library.name(), version / 1000, version % 1000 / 10, kOldestDriver / 1000, kOldestDriver % 1000 / 10);
    if (!complete)
        fail(ErrorKind::unsupported, "the NVIDIA driver in {} has no {}; a newer driver would", library.name(),
             library.missing());
    Driver d;
    d.library = library.name();
    d.name = "CUDA";
    d.version = fmt::format("{}.{}", version / 1000, version % 1000 / 10);
    d.error = error;
    constexpr int kNoDevice = 100;
    int code = cu.init(0);
    if (code == 0) code = cu.count(&d.devices);
    if (code == kNoDevice || (code == 0 && d.devices == 0))
        fail(ErrorKind::unsupported, "the NVIDIA driver sees no device");
    check(d, code, "starting the driver");
    d.devices = std::min(d.devices, kMostDevices);
    d.use = use, d.describe = describe, d.memory = cu.memory;
    d.allocate = cu.alloc, d.release = cu.free, d.allocate_host = cu.alloc_host, d.release_host = cu.free_host;
    d.to_device = cu.to_device, d.to_host = cu.to_host;
    d.fill = cu.fill;
    d.load_module = cu.load, d.unload_module = cu.unload, d.find_function = cu.function;
    d.compiled_for = compiled_for;
    d.allow_shared = allow_shared, d.launch = launch;
    d.create_stream = create_stream, d.destroy_stream = cu.end_stream, d.synchronize = cu.synchronize;
    d.create_event = create_event, d.destroy_event = cu.end_event, d.record = cu.record;
    d.synchronize_event = cu.synchronize_event, d.elapsed = cu.elapsed;
    d.begin_capture = begin_capture, d.end_capture = cu.end, d.instantiate = instantiate;
    d.destroy_graph = cu.end_graph, d.launch_graph = cu.run_graph, d.destroy_ready = cu.end_ready;
    return d;
}

}  // namespace

const Driver &open_cuda_driver(const std::string &path) {
    static const Driver driver = open(path);  // one per process: the functions above are one set
    return driver;
}

}  // namespace ridge::simt
