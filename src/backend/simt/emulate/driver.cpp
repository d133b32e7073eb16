#include "backend/simt/emulate/driver.h"

#include <sys/sysinfo.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <thread>

namespace ridge::standin {

namespace {

thread_local Device *chosen = nullptr;

constexpr CodeName kCodes[] = {
    {0, "CUDA_SUCCESS", "hipSuccess", "no error"},
    {1, "CUDA_ERROR_INVALID_VALUE", "hipErrorInvalidValue", "invalid argument"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "hipErrorOutOfMemory", "out of memory"},
    {3, "CUDA_ERROR_NOT_INITIALIZED", "hipErrorNotInitialized", "initialization error"},
    {100, "CUDA_ERROR_NO_DEVICE", "hipErrorNoDevice", "no capable device is detected"},
    {101, "CUDA_ERROR_INVALID_DEVICE", "hipErrorInvalidDevice", "invalid device ordinal"},
    {200, "CUDA_ERROR_INVALID_IMAGE", "hipErrorInvalidImage", "device kernel image is invalid"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "hipErrorInvalidContext", "invalid device context"},
    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU", "hipErrorNoBinaryForGpu", "no kernel image is available for the device"},
    {217, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "hipErrorPeerAccessUnsupported", "peer access is not supported"},
    {400, "CUDA_ERROR_INVALID_HANDLE", "hipErrorInvalidHandle", "invalid resource handle"},
    {401, "CUDA_ERROR_ILLEGAL_STATE", "hipErrorIllegalState", "the operation is not allowed in this state"},
    {500, "CUDA_ERROR_NOT_FOUND", "hipErrorNotFound", "named symbol not found"},
    {600, "CUDA_ERROR_NOT_READY", "hipErrorNotReady", "device not ready"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "hipErrorIllegalAddress", "an illegal memory access was encountered"},
    {704, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "hipErrorPeerAccessAlreadyEnabled",
     "peer access is already enabled"},
    {716, "CUDA_ERROR_MISALIGNED_ADDRESS", "hipErrorLaunchFailure", "misaligned address"},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "hipErrorLaunchFailure", "unspecified launch failure"},
    {801, "CUDA_ERROR_NOT_SUPPORTED", "hipErrorNotSupported", "operation not supported"},
    {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "hipErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "hipErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {902, "CUDA_ERROR_STREAM_CAPTURE_MERGE", "hipErrorStreamCaptureMerge", "operation would merge two captures"},
    {903, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "hipErrorStreamCaptureUnmatched",
     "capture was not begun in this stream"},
    {904, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "hipErrorStreamCaptureUnjoined", "capturing stream has unjoined work"},
    {905, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION", "hipErrorStreamCaptureIsolation",
     "dependency created on uncaptured work in another stream"},
    {906, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", "hipErrorStreamCaptureImplicit",
     "operation would make the legacy stream depend on a capturing one"},
    {907, "CUDA_ERROR_CAPTURED_EVENT", "hipErrorCapturedEvent", "operation not permitted on an event of a capture"},
};

template <class T>
bool forget(std::vector<std::unique_ptr<T>> &all, const void *handle) {
    const auto it = std::find_if(all.begin(), all.end(), [&](const auto &p) { return p.get() == handle; });
    if (it == all.end()) return false;
    all.erase(it);
    return true;
}

// What cannot be part of a capture and may wait for one: breaks those that are going on.
int break_captures() {
    int code = kSuccess;
    for (const auto &c : driver().captures) {
        if (c->mode == 2 || (c->mode == 1 && c->thread != std::this_thread::get_id())) continue;
        c->invalid = true;
        code = kCaptureUnsupported;
    }
    return code;
}

// Whether code compiled for AMD GPUs (an ELF file, whose flags name the processor) is for one of this library's shape.
// Anything else fits: the kernels that run are the library's.
bool fits(const void *image) {
    constexpr unsigned char kElf[] = {0x7f, 'E', 'L', 'F'};
    constexpr uint16_t kAmdGpu = 224;
    constexpr uint8_t kWmma[] = {0x41, 0x43, 0x44, 0x46, 0x47, 0x48, 0x4a, 0x4e};  // gfx11.., gfx12..
    constexpr uint8_t kMfma[] = {0x3f, 0x40, 0x4b, 0x4c};                          // gfx90a, gfx94.
    const auto *bytes = static_cast<const unsigned char *>(image);
    if (!std::equal(kElf, kElf + 4, bytes)) return true;
    uint16_t machine = 0;
    std::memcpy(&machine, bytes + 18, sizeof machine);
    if (machine != kAmdGpu) return true;
    const uint8_t processor = bytes[48];
    return (RIDGE_EMULATE_ARCH == 1 && std::count(std::begin(kWmma), std::end(kWmma), processor) != 0) ||
           (RIDGE_EMULATE_ARCH == 2 && std::count(std::begin(kMfma), std::end(kMfma), processor) != 0);
}

int ready_for_memory() {
    if (current_device() == nullptr) return kInvalidContext;
    if (current_device()->failed != 0) return current_device()->failed;
    return break_captures();
}

}  // namespace

const CodeName *code_name(int code) {
    for (const CodeName &c : kCodes)
        if (c.code == code) return &c;
    return nullptr;
}

Driver::Driver() { reset(); }

void Driver::reset() {
    settings = {};
    captures.clear();
    graphs.clear();
    ready.clear();
    functions.clear();
    modules.clear();
    events.clear();
    streams.clear();
    log.clear();
    message.clear();
    launches = 0;
    emulate::release_all();
    for (int i = 0; i < emulate::kMaxDevices; ++i) {
        devices[i] = {};
        devices[i].index = i;
        streams.push_back(std::make_unique<Stream>());
        devices[i].default_stream = streams.back().get();
        devices[i].default_stream->device = &devices[i];
    }
}

namespace {

uint64_t *setting(Settings &s, const char *name) {
    const struct {
        const char *name;
        uint64_t *value;
    } all[] = {
        {"devices", &s.devices},       {"memory", &s.memory},
        {"processors", &s.processors}, {"blocks_per_processor", &s.blocks_per_processor},
        {"integrated", &s.integrated}, {"peer", &s.peer},
        {"shared", &s.shared},         {"compiled_for", &s.compiled_for},
        {"capability", &s.capability}, {"driver_version", &s.driver_version},
        {"order_seed", &s.order_seed}, {"count_bytes", &s.count_bytes},
        {"deferred", &s.deferred},     {"latency", &s.latency},
    };
    for (const auto &a : all)
        if (std::strcmp(a.name, name) == 0) return a.value;
    return nullptr;
}

// False: there is no such setting.
bool configure(Settings &s, const char *name, uint64_t value) {
    uint64_t *v = setting(s, name);
    if (v == nullptr) return false;
    *v = value;
    s.devices = std::min<uint64_t>(s.devices, ridge::emulate::kMaxDevices);
    return true;
}

Driver *made() {
    auto *d = new Driver;
    const char *settings = std::getenv("RIDGE_STANDIN");
    std::istringstream words(settings ? settings : "");
    for (std::string word; words >> word;) {
        const size_t equals = std::min(word.find('='), word.size() - 1);
        if (!configure(d->settings, word.substr(0, equals).c_str(), std::strtoull(&word[equals + 1], nullptr, 10))) {
            std::fprintf(stderr, "RIDGE_STANDIN: there is no setting '%s'\n", word.c_str());
            std::abort();
        }
    }
    return d;
}

}  // namespace

Driver &driver() {
    static Driver *one = made();
    return *one;
}

uint32_t shared_per_block() {
    const uint64_t set = driver().settings.shared;
    return set == 0 ? kMostSharedPerBlock : static_cast<uint32_t>(std::min<uint64_t>(set, kMostSharedPerBlock));
}

uint64_t capability() {
    const uint64_t set = driver().settings.capability;
    return set != 0 ? set : RIDGE_EMULATE_ARCH == 0 ? 90 : RIDGE_EMULATE_ARCH == 1 ? 110 : 94;
}

Device *current_device() { return chosen; }
void choose_device(Device *d) { chosen = d; }

int memory_info(size_t *free, size_t *total) {
    const Device *d = current_device();
    if (d == nullptr) return kInvalidContext;
    if (d->failed != 0) return d->failed;
    if (driver().settings.integrated != 0) {
        struct sysinfo host = {};
        sysinfo(&host);
        *total = host.totalram * host.mem_unit;
        *free = (host.freeram + host.bufferram) * host.mem_unit;
    } else {
        *total = driver().settings.memory;
        *free = driver().settings.memory - d->used;
    }
    return kSuccess;
}

int allocate(uint64_t *address, size_t bytes) {
    if (const int code = ready_for_memory(); code != 0) return code;
    if (address == nullptr || bytes == 0) return kInvalidValue;
    Device &d = *current_device();
    if (bytes > driver().settings.memory - std::min(d.used, driver().settings.memory)) return kOutOfMemory;
    *address = emulate::allocate_device(d.index, bytes);
    if (*address == 0) return kOutOfMemory;
    d.used += bytes;
    return kSuccess;
}

int release(uint64_t address) {
    if (const int code = ready_for_memory(); code != 0) return code;
    const emulate::Allocation *a = emulate::find(address, 1);
    if (a == nullptr || a->owner == emulate::kMaxDevices) return kInvalidValue;
    Device &owner = driver().devices[a->owner];
    // Work that was submitted may still touch it.
    for (const auto &s : driver().streams)
        if (s->device == &owner && s->capture == nullptr) synchronize(s.get());
    const size_t bytes = emulate::release(address, owner.index);
    owner.used -= bytes;
    return bytes != 0 ? kSuccess : kInvalidValue;
}

int allocate_pinned(void **p, size_t bytes) {
    if (const int code = ready_for_memory(); code != 0) return code;
    if (p == nullptr || bytes == 0) return kInvalidValue;
    *p = emulate::allocate_host(bytes);
    return *p != nullptr ? kSuccess : kOutOfMemory;
}

int release_pinned(void *p) {
    if (const int code = ready_for_memory(); code != 0) return code;
    for (const auto &s : driver().streams)
        if (s->capture == nullptr) synchronize(s.get());
    return emulate::release(reinterpret_cast<uint64_t>(p), emulate::kMaxDevices) != 0 ? kSuccess : kInvalidValue;
}

int enable_peer(Device &peer) {
    const Device *d = current_device();
    if (d == nullptr) return kInvalidContext;
    if (d == &peer) return kInvalidDevice;
    if (driver().settings.peer == 0) return kPeerUnsupported;
    if (emulate::peer_allowed(d->index, peer.index)) return kPeerAlreadyEnabled;
    emulate::allow_peer(d->index, peer.index);
    return kSuccess;
}

int load_module(void **module, const void *image) {
    if (const int code = ready_for_memory(); code != 0) return code;
    if (module == nullptr || image == nullptr) return kInvalidValue;
    if (std::strncmp(static_cast<const char *>(image), "other", 5) == 0 || !fits(image)) return kNoBinary;
    driver().modules.push_back(std::make_unique<Module>());
    driver().modules.back()->device = current_device();
    *module = driver().modules.back().get();
    return kSuccess;
}

int unload_module(void *module) {
    if (!forget(driver().modules, module)) return kInvalidHandle;
    std::erase_if(driver().functions, [&](const auto &f) { return f->module == module; });
    return kSuccess;
}

int find_function(void **function, void *module, const char *name, uint32_t allowed_shared) {
    Module *m = lookup(driver().modules, module);
    if (m == nullptr) return kInvalidHandle;
    if (function == nullptr || name == nullptr) return kInvalidValue;
    const emulate::Kernel *kernel = emulate::find_kernel(name);
    if (kernel == nullptr) return kNotFound;
    for (const auto &f : driver().functions) {
        if (f->module != m || f->kernel != kernel) continue;
        *function = f.get();
        return kSuccess;
    }
    auto f = std::make_unique<Function>();
    f->device = m->device;
    f->module = m;
    f->kernel = kernel;
    f->allowed_shared = allowed_shared;
    *function = f.get();
    driver().functions.push_back(std::move(f));
    return kSuccess;
}

int allow_shared(const void *function, int bytes) {
    Function *f = lookup(driver().functions, function);
    if (f == nullptr) return kInvalidHandle;
    if (bytes < 0 || static_cast<uint32_t>(bytes) > shared_per_block()) return kInvalidValue;
    f->allowed_shared = static_cast<uint32_t>(bytes);
    return kSuccess;
}

int destroy_graph(void *graph) { return forget(driver().graphs, graph) ? kSuccess : kInvalidHandle; }
int destroy_ready(void *ready) { return forget(driver().ready, ready) ? kSuccess : kInvalidHandle; }

int create_event(void **event) {
    if (current_device() == nullptr) return kInvalidContext;
    driver().events.push_back(std::make_unique<Event>());
    driver().events.back()->device = current_device();
    *event = driver().events.back().get();
    return kSuccess;
}

int create_stream(void **stream) {
    if (current_device() == nullptr) return kInvalidContext;
    driver().streams.push_back(std::make_unique<Stream>());
    driver().streams.back()->device = current_device();
    *stream = driver().streams.back().get();
    return kSuccess;
}

int destroy_event(void *event) {
    // Work that was submitted still uses it.
    for (const auto &s : driver().streams)
        if (s->capture == nullptr) synchronize(s.get());
    return forget(driver().events, event) ? kSuccess : kInvalidHandle;
}

int destroy_stream(void *stream) {
    Stream *s = lookup(driver().streams, stream);
    if (s == nullptr || s == s->device->default_stream) return kInvalidHandle;
    if (s->capture != nullptr) return kCaptureUnsupported;
    for (const auto &other : driver().streams)
        if (other->capture == nullptr) synchronize(other.get());
    forget(driver().streams, stream);
    return kSuccess;
}

}  // namespace ridge::standin

// ---- what tests set and ask

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT int standin_configure(const char *name, uint64_t value) {
    using namespace ridge::standin;
    const std::lock_guard hold(driver().lock);
    if (std::strcmp(name, "reset") == 0) {
        driver().reset();
        return 0;
    }
    return configure(driver().settings, name, value) ? 0 : 1;
}

EXPORT uint64_t standin_state(const char *name) {
    using namespace ridge::standin;
    Driver &d = driver();
    const std::lock_guard hold(d.lock);
    uint64_t used = 0;
    for (const Device &device : d.devices) used += device.used;
    const struct {
        const char *name;
        uint64_t value;
    } all[] = {
        {"allocations", ridge::emulate::live_allocations(false)},
        {"host_allocations", ridge::emulate::live_allocations(true)},
        {"used", used},
        {"modules", d.modules.size()},
        {"streams", d.streams.size() - ridge::emulate::kMaxDevices},
        {"events", d.events.size()},
        {"graphs", d.graphs.size()},
        {"ready_graphs", d.ready.size()},
        {"launches", d.launches},
    };
    for (const auto &a : all)
        if (std::strcmp(a.name, name) == 0) return a.value;
    return ~uint64_t{0};
}

EXPORT size_t standin_counters(StandinLaunch *out, size_t capacity) {
    using namespace ridge::standin;
    const std::lock_guard hold(driver().lock);
    const size_t n = driver().log.size();
    for (size_t i = 0; i < std::min(n, capacity); ++i) out[i] = driver().log[i];
    driver().log.clear();
    return n;
}

EXPORT const char *standin_message() {
    const std::lock_guard hold(ridge::standin::driver().lock);
    return ridge::standin::driver().message.c_str();
}
