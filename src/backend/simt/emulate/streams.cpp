// Work of streams: how it is recorded, when it runs, captures and graphs.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <thread>

#include "backend/simt/emulate/driver.h"

namespace ridge::standin {

namespace {

void fail_device(Device &d, int code, const std::string &message) {
    d.failed = code;
    driver().message = message;
    std::fprintf(stderr, "stand-in driver: %s\n", message.c_str());
}

// A handle as the host gives it: null is the default stream of the device in use.
Stream *stream_of(void *handle) {
    if (handle != nullptr) return lookup(driver().streams, handle);
    return current_device() != nullptr ? current_device()->default_stream : nullptr;
}

// Where `bytes` at a device's address lie now; nullptr: not in one allocation of it.
std::byte *place(uint64_t address, int device, size_t bytes) {
    const emulate::Allocation *a = emulate::find(address, bytes);
    return a != nullptr && (a->owner == device || a->owner == emulate::kMaxDevices) ? emulate::bytes_of(*a, address)
                                                                                    : nullptr;
}

void run_kernel(const Work &w) {
    const Settings &s = driver().settings;
    emulate::LaunchOrder order;
    order.kernel = w.kernel;
    order.args = w.args.data();
    std::copy(w.grid, w.grid + 3, order.grid);
    order.shared_bytes = w.shared_bytes;
    order.early = w.early;
    order.count = s.count_bytes != 0;
    order.residents = static_cast<uint32_t>(std::max<uint64_t>(1, s.processors * s.blocks_per_processor));
    order.seed = s.order_seed;
    order.device = w.device->index;
    const emulate::LaunchResult r = emulate::run(order);
    driver().launches++;
    if (order.count) {
        StandinLaunch entry = {};
        std::snprintf(entry.kernel, sizeof entry.kernel, "%s", w.kernel->name);
        std::copy(w.grid, w.grid + 3, entry.grid);
        entry.threads = w.kernel->threads;
        entry.shared_bytes = w.shared_bytes;
        entry.device = static_cast<uint32_t>(w.device->index);
        entry.early = w.early;
        entry.bytes_read = r.read_sectors * 32;
        entry.bytes_written = r.written_sectors * 32;
        driver().log.push_back(entry);
    }
    if (r.code != 0) fail_device(*w.device, r.code, r.message);
    if (s.latency != 0) std::this_thread::sleep_for(std::chrono::microseconds(s.latency));
}

void run_stream(Stream &s);

void run(const Work &w) {
    if (w.kind == Work::Kind::wait) {
        if (w.event->done < w.serial) run_stream(*w.event->stream);
        return;
    }
    if (w.kind == Work::Kind::record) {
        w.event->done = std::max(w.event->done, w.serial);
        w.event->when = std::chrono::steady_clock::now();
        return;
    }
    if (w.device->failed != 0) return;
    if (w.kind == Work::Kind::kernel) return run_kernel(w);
    void *to = w.to_host != nullptr ? w.to_host : place(w.to, w.to_device, w.bytes);
    const void *from = w.from_host != nullptr ? w.from_host
                       : w.from != 0          ? place(w.from, w.from_device, w.bytes)
                                              : nullptr;
    if (to == nullptr || (w.kind == Work::Kind::copy && from == nullptr))
        return fail_device(*w.device, kIllegalAddress,
                           "a copy or fill of " + std::to_string(w.bytes) + " bytes ran after its memory was released");
    if (w.kind == Work::Kind::copy)
        std::memmove(to, from, w.bytes);
    else
        std::memset(to, w.value, w.bytes);
}

void run_stream(Stream &s) {
    // Taken out first: a wait may come back here.
    while (!s.queue.empty()) {
        std::vector<Work> now;
        now.swap(s.queue);
        for (const Work &w : now) run(w);
    }
}

// Checks that hold for all work of a stream; 0, or the code.
int check(const Stream *s) {
    if (!driver().initialized) return kNotInitialized;
    if (s == nullptr) return current_device() == nullptr ? kInvalidContext : kInvalidHandle;
    if (s->device->failed != 0) return s->device->failed;
    if (s->capture != nullptr && s->capture->invalid) return kCaptureInvalidated;
    if (s == s->device->default_stream) {
        // It waits for all others, so it would wait for a capture.
        for (const auto &c : driver().captures)
            if (c->mode != 2 && c->origin->device == s->device) {
                c->invalid = true;
                return kCaptureImplicit;
            }
    }
    return kSuccess;
}

int submit(Stream &s, Work work, bool at_once = false) {
    if (s.capture != nullptr) {
        s.captured++;
        s.capture->graph.work.push_back(std::move(work));
        return kSuccess;
    }
    s.queue.push_back(std::move(work));
    if (at_once || driver().settings.deferred == 0) run_stream(s);
    return kSuccess;
}

int invalidate(Stream &s, int code) {
    s.capture->invalid = true;
    return code;
}

bool is_pinned(const void *p, size_t bytes) { return emulate::find(reinterpret_cast<uint64_t>(p), bytes) != nullptr; }

Work copy_of(const Stream &s, size_t bytes) {
    Work w;
    w.kind = Work::Kind::copy;
    w.device = s.device;
    w.bytes = bytes;
    return w;
}

int refuse(const std::string &message) {
    driver().message = message;
    return kInvalidValue;
}

}  // namespace

int launch(const void *function, const Shape &shape, void *stream, void *const *params, const void *args,
           size_t args_bytes) {
    Stream *s = stream_of(stream);
    if (const int code = check(s); code != 0) return code;
    const Function *f = lookup(driver().functions, function);
    if (f == nullptr || f->device != s->device || f->device != current_device()) return kInvalidHandle;
    const std::string name = std::string("launch of ") + f->kernel->name + ": ";
    for (int i = 0; i < 3; ++i)
        if (shape.grid[i] == 0 || shape.grid[i] > (i == 0 ? 0x7fffffffu : 65535u))
            return refuse(name + "grid of " + std::to_string(shape.grid[i]) + " blocks");
    if (shape.block[0] != f->kernel->threads || shape.block[1] != 1 || shape.block[2] != 1)
        return refuse(name + std::to_string(shape.block[0]) + " threads, the kernel is written for " +
                      std::to_string(f->kernel->threads));
    if (shape.shared_bytes > f->allowed_shared)
        return refuse(name + std::to_string(shape.shared_bytes) + " bytes of shared memory, allowed are " +
                      std::to_string(f->allowed_shared));
    if (args == nullptr) {
        if (params == nullptr || params[0] == nullptr) return refuse(name + "no arguments");
        args = params[0];
    } else if (args_bytes != f->kernel->args_bytes) {
        return refuse(name + std::to_string(args_bytes) + " bytes of arguments, the kernel takes " +
                      std::to_string(f->kernel->args_bytes));
    }
    Work w;
    w.kind = Work::Kind::kernel;
    w.device = s->device;
    w.kernel = f->kernel;
    const auto *bytes = static_cast<const std::byte *>(args);
    w.args.assign(bytes, bytes + f->kernel->args_bytes);
    std::copy(shape.grid, shape.grid + 3, w.grid);
    w.shared_bytes = shape.shared_bytes;
    w.early = shape.early;
    return submit(*s, std::move(w));
}

// A copy from or to memory that is not pinned is staged: when the call returns, the host's side is done with.
int to_device(uint64_t to, const void *from, size_t bytes, void *stream) {
    Stream *s = stream_of(stream);
    if (const int code = check(s); code != 0) return code;
    if (bytes == 0) return kSuccess;
    if (from == nullptr || place(to, s->device->index, bytes) == nullptr) return kInvalidValue;
    Work w = copy_of(*s, bytes);
    w.to = to;
    w.to_device = s->device->index;
    w.from_host = from;
    return submit(*s, std::move(w), !is_pinned(from, bytes));
}

int to_host(void *to, uint64_t from, size_t bytes, void *stream) {
    Stream *s = stream_of(stream);
    if (const int code = check(s); code != 0) return code;
    if (bytes == 0) return kSuccess;
    if (to == nullptr || place(from, s->device->index, bytes) == nullptr) return kInvalidValue;
    Work w = copy_of(*s, bytes);
    w.from = from;
    w.from_device = s->device->index;
    w.to_host = to;
    return submit(*s, std::move(w), !is_pinned(to, bytes));
}

int to_peer(uint64_t to, int to_device, uint64_t from, int from_device, size_t bytes, void *stream) {
    Stream *s = stream_of(stream);
    if (const int code = check(s); code != 0) return code;
    if (bytes == 0) return kSuccess;
    if (place(to, to_device, bytes) == nullptr || place(from, from_device, bytes) == nullptr) return kInvalidValue;
    Work w = copy_of(*s, bytes);
    w.to = to;
    w.to_device = to_device;
    w.from = from;
    w.from_device = from_device;
    return submit(*s, std::move(w));
}

int on_device(uint64_t to, uint64_t from, size_t bytes, void *stream) {
    const Stream *s = stream_of(stream);
    if (const int code = check(s); code != 0) return code;
    return to_peer(to, s->device->index, from, s->device->index, bytes, stream);
}

int fill(uint64_t to, unsigned char value, size_t bytes, void *stream) {
    Stream *s = stream_of(stream);
    if (const int code = check(s); code != 0) return code;
    if (bytes == 0) return kSuccess;
    if (place(to, s->device->index, bytes) == nullptr) return kInvalidValue;
    Work w = copy_of(*s, bytes);
    w.kind = Work::Kind::fill;
    w.to = to;
    w.to_device = s->device->index;
    w.value = value;
    return submit(*s, std::move(w));
}

int synchronize(void *stream) {
    Stream *s = stream_of(stream);
    if (s == nullptr) return current_device() == nullptr ? kInvalidContext : kInvalidHandle;
    if (s->capture != nullptr) return invalidate(*s, kCaptureUnsupported);
    run_stream(*s);
    return s->device->failed;
}

int begin_capture(void *stream, int mode) {
    Stream *s = stream_of(stream);
    if (const int code = check(s); code != 0) return code;
    if (mode < 0 || mode > 2) return kInvalidValue;
    if (s == s->device->default_stream) return kCaptureUnsupported;
    if (s->capture != nullptr) return kIllegalState;
    driver().captures.push_back(std::make_unique<Capture>());
    s->capture = driver().captures.back().get();
    s->capture->origin = s;
    s->capture->mode = mode;
    s->capture->thread = std::this_thread::get_id();
    return kSuccess;
}

int end_capture(void *stream, void **graph) {
    Stream *s = stream_of(stream);
    if (s == nullptr || graph == nullptr) return kInvalidHandle;
    *graph = nullptr;
    Capture *c = s->capture;
    if (c == nullptr) return kIllegalState;
    if (c->origin != s) return invalidate(*s, kCaptureUnmatched);
    int code = c->invalid ? kCaptureInvalidated : s->device->failed;
    for (Stream *j : c->joined) {
        if (code == 0 && j->captured > j->rejoined) code = kCaptureUnjoined;
        j->capture = nullptr;
    }
    s->capture = nullptr;
    for (const auto &e : driver().events)
        if (e->capture == c) e->capture = nullptr;
    if (code == 0) {
        driver().graphs.push_back(std::make_unique<Graph>(std::move(c->graph)));
        *graph = driver().graphs.back().get();
    }
    std::erase_if(driver().captures, [&](const auto &p) { return p.get() == c; });
    return code;
}

int instantiate(void **ready, void *graph) {
    const Graph *g = lookup(driver().graphs, graph);
    if (g == nullptr || ready == nullptr) return kInvalidValue;
    driver().ready.push_back(std::make_unique<Graph>(*g));
    *ready = driver().ready.back().get();
    return kSuccess;
}

int launch_graph(void *ready, void *stream) {
    Stream *s = stream_of(stream);
    if (const int code = check(s); code != 0) return code;
    const Graph *g = lookup(driver().ready, ready);
    if (g == nullptr) return kInvalidHandle;
    if (s->capture != nullptr) return invalidate(*s, kCaptureUnsupported);
    s->queue.insert(s->queue.end(), g->work.begin(), g->work.end());
    if (driver().settings.deferred == 0) run_stream(*s);
    return kSuccess;
}

int record(void *event, void *stream) {
    Stream *s = stream_of(stream);
    if (const int code = check(s); code != 0) return code;
    Event *e = lookup(driver().events, event);
    if (e == nullptr || e->device != s->device) return kInvalidHandle;
    e->stream = s;
    e->capture = s->capture;
    if (s->capture != nullptr) {
        e->captured = s->captured;
        return kSuccess;
    }
    Work w;
    w.kind = Work::Kind::record;
    w.device = s->device;
    w.event = e;
    w.serial = ++e->records;
    return submit(*s, std::move(w));
}

int wait_event(void *stream, void *event) {
    Stream *s = stream_of(stream);
    if (const int code = check(s); code != 0) return code;
    Event *e = lookup(driver().events, event);
    if (e == nullptr) return kInvalidHandle;
    if (e->capture != nullptr) {
        Capture &c = *e->capture;
        if (s->capture == nullptr) {  // joins
            s->capture = &c;
            s->captured = 1;
            s->rejoined = 0;
            c.joined.push_back(s);
        } else if (s->capture != &c) {
            return invalidate(*s, kCaptureMerge);
        } else if (s != e->stream) {
            e->stream->rejoined = std::max(e->stream->rejoined, e->captured);
        }
        return kSuccess;
    }
    if (s->capture != nullptr) return invalidate(*s, kCaptureIsolation);
    if (e->records == 0) return kSuccess;
    Work w;
    w.kind = Work::Kind::wait;
    w.device = s->device;
    w.event = e;
    w.serial = e->records;
    return submit(*s, std::move(w));
}

int synchronize_event(void *event) {
    Event *e = lookup(driver().events, event);
    if (e == nullptr) return kInvalidHandle;
    if (e->capture != nullptr) {
        e->capture->invalid = true;
        return kCapturedEvent;
    }
    if (e->done < e->records) run_stream(*e->stream);
    return e->device->failed;
}

int elapsed(float *milliseconds, void *start, void *end) {
    const Event *a = lookup(driver().events, start), *b = lookup(driver().events, end);
    if (a == nullptr || b == nullptr || a->records == 0 || b->records == 0) return kInvalidHandle;
    if (a->done < a->records || b->done < b->records) return kNotReady;
    *milliseconds = std::chrono::duration<float, std::milli>(b->when - a->when).count();
    return kSuccess;
}

}  // namespace ridge::standin
