// The table of driver.h from libamdhip64. The declarations are those of HIP's runtime API as far as they are used.
// Which code object fits a device is found by loading them, so that no device property beyond attributes is read (the
// structure of properties has changed between versions of HIP).
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "backend/simt/driver.h"
#include "backend/simt/library.h"
#include "core/error.h"

namespace ridge::simt {
namespace {

// 6.0 changed the numbers of device attributes and is the first with all that is used here.
constexpr int kOldestDriver = 60000000;

// hipDeviceAttribute_t of HIP 6.
constexpr DriverAttributes kAttributes = {.major = 23,
                                          .minor = 61,
                                          .processors = 63,
                                          .wave = 87,
                                          .shared_per_block = 74,
                                          .threads_per_processor = 57,
                                          .clock_khz = 5,
                                          .l2 = 19,
                                          .integrated = 16};

struct Functions {
    int (*init)(unsigned);
    int (*version)(int *);
    int (*count)(int *);
    int (*set)(int);
    int (*device_name)(char *, int, int);
    int (*attribute)(int *, int, int);
    int (*total)(size_t *, int);
    int (*memory)(size_t *, size_t *);
    int (*alloc)(void **, size_t);
    int (*free)(void *);
    int (*alloc_host)(void **, size_t, unsigned);
    int (*free_host)(void *);
    int (*to_device)(void *, const void *, size_t, Handle);
    int (*to_host)(void *, void *, size_t, Handle);
    int (*fill)(void *, unsigned char, size_t, Handle);
    int (*load)(Handle *, const void *);
    int (*unload)(Handle);
    int (*function)(Handle *, Handle, const char *);
    int (*launch)(Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Handle, void **,
                  void **);
    int (*stream)(Handle *, unsigned);
    int (*end_stream)(Handle);
    int (*synchronize)(Handle);
    int (*event)(Handle *);
    int (*end_event)(Handle);
    int (*record)(Handle, Handle);
    int (*synchronize_event)(Handle);
    int (*elapsed)(float *, Handle, Handle);
    int (*begin)(Handle, int);
    int (*end)(Handle, Handle *);
    int (*instantiate)(Handle *, Handle, Handle *, char *, size_t);
    int (*end_graph)(Handle);
    int (*run_graph)(Handle, Handle);
    int (*end_ready)(Handle);
    const char *(*error_name)(int);
    const char *(*error_text)(int);
} hip;

void *pointer(Address a) { return reinterpret_cast<void *>(a); }

int describe(int device, DriverDevice &out) {
    std::array<char, 256> name{};
    size_t total = 0;
    int code = hip.device_name(name.data(), static_cast<int>(name.size()) - 1, device);
    if (code == 0) code = hip.total(&total, device);
    if (code != 0) return code;
    out.name = name.data();
    out.memory = total;
    return describe_by(kAttributes, out,
                       [device](int *value, int attribute) { return hip.attribute(value, attribute, device); });
}

int allocate(Address *a, size_t bytes) {
    void *p = nullptr;
    const int code = hip.alloc(&p, bytes);
    *a = reinterpret_cast<Address>(p);
    return code;
}
int release(Address a) { return hip.free(pointer(a)); }
int allocate_host(void **p, size_t bytes) { return hip.alloc_host(p, bytes, 0); }
int to_device(Address to, const void *from, size_t n, Handle s) { return hip.to_device(pointer(to), from, n, s); }
int to_host(void *to, Address from, size_t n, Handle s) { return hip.to_host(to, pointer(from), n, s); }
int fill(Address a, unsigned char v, size_t n, Handle s) { return hip.fill(pointer(a), v, n, s); }
int allow_shared(Handle, int) { return 0; }  // a block has what the device has

int launch(Handle function, const LaunchShape &s, Handle stream, const void *args, size_t) {
    void *parameters[] = {const_cast<void *>(args)};
    return hip.launch(function, s.grid[0], s.grid[1], s.grid[2], s.threads, 1, 1, s.shared_bytes, stream, parameters,
                      nullptr);
}

int create_stream(Handle *s) {
    constexpr unsigned kNonBlocking = 1;
    return hip.stream(s, kNonBlocking);
}
int create_event(Handle *e) { return hip.event(e); }
int begin_capture(Handle stream) {
    constexpr int kThreadLocal = 1;
    return hip.begin(stream, kThreadLocal);
}
int instantiate(Handle *ready, Handle graph) { return hip.instantiate(ready, graph, nullptr, nullptr, 0); }

std::string error(int code) { return fmt::format("{} ({})", hip.error_text(code), hip.error_name(code)); }

bool resolve(Library &l) {
    return l.get(hip.init, "hipInit") && l.get(hip.version, "hipDriverGetVersion") &&
           l.get(hip.count, "hipGetDeviceCount") && l.get(hip.set, "hipSetDevice") &&
           l.get(hip.device_name, "hipDeviceGetName") && l.get(hip.attribute, "hipDeviceGetAttribute") &&
           l.get(hip.total, "hipDeviceTotalMem") && l.get(hip.memory, "hipMemGetInfo") &&
           l.get(hip.alloc, "hipMalloc") && l.get(hip.free, "hipFree") && l.get(hip.alloc_host, "hipHostMalloc") &&
           l.get(hip.free_host, "hipHostFree") && l.get(hip.to_device, "hipMemcpyHtoDAsync") &&
           l.get(hip.to_host, "hipMemcpyDtoHAsync") && l.get(hip.fill, "hipMemsetD8Async") &&
           l.get(hip.load, "hipModuleLoadData") && l.get(hip.unload, "hipModuleUnload") &&
           l.get(hip.function, "hipModuleGetFunction") && l.get(hip.launch, "hipModuleLaunchKernel") &&
           l.get(hip.stream, "hipStreamCreateWithFlags") && l.get(hip.end_stream, "hipStreamDestroy") &&
           l.get(hip.synchronize, "hipStreamSynchronize") && l.get(hip.event, "hipEventCreate") &&
           l.get(hip.end_event, "hipEventDestroy") && l.get(hip.record, "hipEventRecord") &&
           l.get(hip.synchronize_event, "hipEventSynchronize") && l.get(hip.elapsed, "hipEventElapsedTime") &&
           l.get(hip.begin, "hipStreamBeginCapture") && l.get(hip.end, "hipStreamEndCapture") &&
           l.get(hip.instantiate, "hipGraphInstantiate") && l.get(hip.end_graph, "hipGraphDestroy") &&
           l.get(hip.run_graph, "hipGraphLaunch") && l.get(hip.end_ready, "hipGraphExecDestroy") &&
           l.get(hip.error_name, "hipGetErrorName") && l.get(hip.error_text, "hipGetErrorString");
}

Driver open(const std::string &path) {
    Library library = path.empty() ? Library{"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so"} : Library{path};
    if (!library)
        fail(ErrorKind::unsupported, "no ROCm runtime is installed ({}); installing libamdhip64 adds the AMD devices",
             library.why());
    const bool complete = resolve(library);
    int version = 0;
    if (hip.version == nullptr)
        fail(ErrorKind::unsupported, "{} is no ROCm runtime: it has no {}", library.name(), library.missing());
    if (hip.version(&version) != 0 || version < kOldestDriver)
        fail(ErrorKind::unsupported, "the ROCm runtime in {} is HIP {}.{}; {}.{} or later is needed", library.name(),
             version / 10000000, version / 100000 % 100, kOldestDriver / 10000000, kOldestDriver / 100000 % 100);
    if (!complete)
        fail(ErrorKind::unsupported, "the ROCm runtime in {} has no {}; a newer one would", library.name(),
             library.missing());
    Driver d;
    d.library = library.name();
    d.name = "HIP";
    d.is_cuda = false;
    d.version = fmt::format("{}.{}", version / 10000000, version / 100000 % 100);
    d.error = error;
    constexpr int kNoDevice = 100;
    int code = hip.init(0);
    if (code == 0) code = hip.count(&d.devices);
    if (code == kNoDevice || (code == 0 && d.devices == 0))
        fail(ErrorKind::unsupported, "the ROCm runtime sees no device");
    check(d, code, "starting the runtime");
    d.use = hip.set, d.describe = describe, d.memory = hip.memory;
    d.allocate = allocate, d.release = release, d.allocate_host = allocate_host, d.release_host = hip.free_host;
    d.to_device = to_device, d.to_host = to_host, d.fill = fill;
    d.load_module = hip.load, d.unload_module = hip.unload, d.find_function = hip.function;
    d.allow_shared = allow_shared, d.launch = launch;
    d.create_stream = create_stream, d.destroy_stream = hip.end_stream, d.synchronize = hip.synchronize;
    d.create_event = create_event, d.destroy_event = hip.end_event, d.record = hip.record;
    d.synchronize_event = hip.synchronize_event, d.elapsed = hip.elapsed;
    d.begin_capture = begin_capture, d.end_capture = hip.end, d.instantiate = instantiate;
    d.destroy_graph = hip.end_graph, d.launch_graph = hip.run_graph, d.destroy_ready = hip.end_ready;
    return d;
}

}  // namespace

const Driver &open_hip_driver(const std::string &path) {
    static const Driver driver = open(path);
    return driver;
}

}  // namespace ridge::simt
