// The stand-in driver below its two sets of symbols: devices, streams, captures, graphs, events.
//
// Codes are the drivers': the ones used here are the same in CUDA and HIP.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "backend/simt/emulate/launch.h"
#include "backend/simt/emulate/memory.h"
#include "backend/simt/emulate/standin.h"

namespace ridge::standin {

enum Code : int {
    kSuccess = 0,
    kInvalidValue = 1,
    kOutOfMemory = 2,
    kNotInitialized = 3,
    kNoDevice = 100,
    kInvalidDevice = 101,
    kInvalidImage = 200,
    kInvalidContext = 201,
    kNoBinary = 209,
    kPeerUnsupported = 217,
    kInvalidHandle = 400,
    kIllegalState = 401,
    kNotFound = 500,
    kNotReady = 600,
    kIllegalAddress = 700,
    kOutOfResources = 701,
    kPeerAlreadyEnabled = 704,
    kMisalignedAddress = 716,
    kLaunchFailed = 719,
    kNotSupported = 801,
    kCaptureUnsupported = 900,
    kCaptureInvalidated = 901,
    kCaptureMerge = 902,
    kCaptureUnmatched = 903,
    kCaptureUnjoined = 904,
    kCaptureIsolation = 905,
    kCaptureImplicit = 906,
    kCapturedEvent = 907,
};
struct CodeName {
    int code;
    const char *cuda, *hip, *text;
};
// nullptr: an unknown code.
const CodeName *code_name(int code);

struct Settings {
    uint64_t devices = 1, memory = uint64_t{8} << 30, processors = 4, blocks_per_processor = 1, integrated = 0,
             peer = 1, shared = 0, compiled_for = 0, driver_version = 13000, capability = 0, order_seed = 0,
             count_bytes = 0, deferred = 0, latency = 0;
};

struct Device;
struct Stream;
struct Event;

// A unit of a stream's work, recorded so that it can run later and again.
struct Work {
    enum class Kind : uint8_t { kernel, copy, fill, record, wait } kind = Kind::kernel;
    Device *device = nullptr;
    // kernel
    const emulate::Kernel *kernel = nullptr;
    std::vector<std::byte> args;
    uint32_t grid[3] = {1, 1, 1}, shared_bytes = 0;
    bool early = false;
    // copy, fill; an address of a device (0: the host's pointer is meant) and who owns it
    uint64_t to = 0, from = 0;
    void *to_host = nullptr;
    const void *from_host = nullptr;
    int to_device = -1, from_device = -1;
    size_t bytes = 0;
    unsigned char value = 0;
    // record, wait
    Event *event = nullptr;
    uint64_t serial = 0;  // of the record that a wait waits for
};

struct Graph {
    std::vector<Work> work;
};

struct Capture {
    Stream *origin = nullptr;
    int mode = 0;  // whose calls break it: 0 those of all threads, 1 of its own, 2 none
    std::thread::id thread;
    bool invalid = false;
    Graph graph;
    std::vector<Stream *> joined;  // streams that wait for an event of it
};

struct Stream {
    Device *device = nullptr;
    std::vector<Work> queue;  // not yet run
    Capture *capture = nullptr;
    uint64_t captured = 0, rejoined = 0;  // of a joined stream: work recorded, and the part the origin waits for
};

struct Event {
    Device *device = nullptr;
    Stream *stream = nullptr;  // of the last record
    uint64_t records = 0, done = 0;
    Capture *capture = nullptr;  // recorded within
    uint64_t captured = 0;       // work of the stream before it
    std::chrono::steady_clock::time_point when;
};

struct Module {
    Device *device = nullptr;
};
struct Function {
    Device *device = nullptr;
    Module *module = nullptr;
    const emulate::Kernel *kernel = nullptr;
    uint32_t allowed_shared = 0;
};

struct Device {
    int index = 0;
    int failed = 0;  // the code that every call answers with since a launch went wrong
    uint64_t used = 0;
    Stream *default_stream = nullptr;
};

// All state, behind one lock that every exported function takes.
struct Driver {
    std::mutex lock;
    Settings settings;
    bool initialized = false;
    Device devices[emulate::kMaxDevices];
    std::vector<std::unique_ptr<Stream>> streams;
    std::vector<std::unique_ptr<Event>> events;
    std::vector<std::unique_ptr<Module>> modules;
    std::vector<std::unique_ptr<Function>> functions;
    std::vector<std::unique_ptr<Graph>> graphs, ready;
    std::vector<std::unique_ptr<Capture>> captures;
    std::vector<StandinLaunch> log;
    std::string message;
    uint64_t launches = 0;

    Driver();
    void reset();
};
Driver &driver();

// The shape that the library emulates.
constexpr uint32_t kMostSharedPerBlock = RIDGE_EMULATE_ARCH == 0 ? 227 << 10 : 64 << 10;
uint32_t shared_per_block();
uint64_t capability();

// Of the thread that calls; nullptr: none was chosen.
Device *current_device();
void choose_device(Device *);

template <class T>
T *lookup(const std::vector<std::unique_ptr<T>> &all, const void *handle) {
    for (const auto &p : all)
        if (p.get() == handle) return p.get();
    return nullptr;
}

// Each under the lock, for the device in use; see the functions of the drivers that they are named after.
int memory_info(size_t *free, size_t *total);
int allocate(uint64_t *address, size_t bytes);
int release(uint64_t address);
int allocate_pinned(void **, size_t bytes);
int release_pinned(void *);
int enable_peer(Device &peer);
int load_module(void **module, const void *image);
int unload_module(void *module);
int find_function(void **function, void *module, const char *name, uint32_t allowed_shared);
int allow_shared(const void *function, int bytes);

struct Shape {
    uint32_t grid[3], block[3], shared_bytes;
    bool early;
};
// `params`: one pointer, to the arguments' struct. Or the struct itself with its size.
int launch(const void *function, const Shape &, void *stream, void *const *params, const void *args, size_t args_bytes);
int to_device(uint64_t to, const void *from, size_t, void *stream);
int to_host(void *to, uint64_t from, size_t, void *stream);
int on_device(uint64_t to, uint64_t from, size_t, void *stream);
int to_peer(uint64_t to, int to_device, uint64_t from, int from_device, size_t, void *stream);
int fill(uint64_t to, unsigned char value, size_t, void *stream);

int create_stream(void **stream);
int destroy_stream(void *stream);
int synchronize(void *stream);
int begin_capture(void *stream, int mode);
int end_capture(void *stream, void **graph);
int instantiate(void **ready, void *graph);
int launch_graph(void *ready, void *stream);
int destroy_graph(void *graph);
int destroy_ready(void *ready);
int create_event(void **event);
int destroy_event(void *event);
int record(void *event, void *stream);
int wait_event(void *stream, void *event);
int synchronize_event(void *event);
int elapsed(float *milliseconds, void *start, void *end);

}  // namespace ridge::standin
