// The few verbs each backend has. What a backend lacks is an absent row, never a stub.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/kernel.h"
#include "engine/program.h"
#include "engine/step.h"

namespace ridge {

struct StepTrace;

// Memory of a device. `address` means something to its backend only; on the CPU it is a pointer.
struct Buffer {
    uint64_t address = 0;
    size_t bytes = 0;
    std::shared_ptr<void> owner;
};

// Where everything a device's launches touch lies. Entries of other devices are 0.
struct Bindings {
    std::vector<uint64_t> values, weights, states;
    StepLimits limits;
};

// One launch as a kernel sees it. Pointers are those of the launch's device.
struct LaunchView {
    const Program &program;
    const Op &op;
    const Bindings &bindings;
    StepView step;
    std::byte *shared = nullptr;  // Tile::shared_bytes, 64-byte aligned
    uint32_t workers = 1;         // that take tiles: how many are worth making. No result may depend on it

    // Rows of a value in this step.
    size_t rows(ValueId v) const { return rows_of(program.value(v), step.tokens(), step.outputs()); }
    uint32_t cols(ValueId v) const { return program.value(v).cols; }
    template <class T>
    T *ptr(ValueId v) const {
        return reinterpret_cast<T *>(bindings.values[static_cast<size_t>(v)]);
    }
    Q8View q8(ValueId v) const { return Q8View(ptr<void>(v), rows(v), cols(v)); }
    const std::byte *weight(WeightId w) const {
        return reinterpret_cast<const std::byte *>(bindings.weights[static_cast<size_t>(w)]);
    }
    template <class T>
    T *state(StateId s) const {
        return reinterpret_cast<T *>(bindings.states[static_cast<size_t>(s)]);
    }
};

struct Launch {
    const Kernel *kernel = nullptr;  // nullptr: a copy, run by the engine
    uint32_t node = 0;               // index into Program::nodes
};

// Consecutive launches of one device, made ready to run many times.
class Executable {
  public:
    virtual ~Executable() = default;
    // Returns when all launches are complete and their results visible. Where `trace` is not null, appends them to it
    // and adds barriers, waiting and overhead; it has begun.
    virtual void run(const StepBuffer &step, StepTrace *trace) = 0;
    void run(const StepBuffer &step) { run(step, nullptr); }
    // As run, but may return earlier: whatever is asked of the same device afterwards comes after the launches.
    virtual void submit(const StepBuffer &step, StepTrace *trace) { run(step, trace); }
};

struct DeviceInfo {
    std::string name;                            // as --device takes it: "cpu", "cuda:0"
    std::string description;                     // "AMD EPYC, 2 cores, AVX-512 VNNI"
    uint64_t memory_total = 0, memory_free = 0;  // bytes
    unsigned workers = 1;                        // that take tiles at the same time: threads
    std::string driver;                          // what of the system its speed depends on: "Linux 6.18.4"
    bool shares_host_memory = false;             // its memory is the host's: an integrated GPU
};

class Backend {
  public:
    virtual ~Backend() = default;
    virtual DeviceInfo info() const = 0;
    virtual std::span<const Kernel> kernels() const = 0;
    virtual Features features() const = 0;
    virtual std::string feature_names(Features f) const = 0;  // "avx512f avx512vnni"
    // Whether the lever graphs does anything here: steps captured once and replayed.
    virtual bool captures() const { return false; }
    // Levers of those fusion rules that only some devices' rows take (fuse.h), and this one's do.
    virtual LeverSet fusions() const { return LeverSet::none(); }

    // Zero-filled. Throws Error{limit} with the size wanted and the size free; `what` says what it is for.
    virtual Buffer allocate(size_t bytes, std::string_view what) = 0;
    // Makes a weight readable by kernels in `layout`; the mapping outlives the buffer, so the CPU just points into it.
    virtual Buffer load(const Weight &w, Layout layout) = 0;
    // `load` of each, in order; a backend that copies reads and copies at the same time. `loaded` is told how many
    // bytes more are there, from one thread at a time; where it answers false the rest is not loaded, and fewer buffers
    // come back.
    virtual std::vector<Buffer> load_all(std::span<const Weight *const> weights, Layout layout,
                                         const std::function<bool(uint64_t bytes)> &loaded) {
        std::vector<Buffer> buffers;
        for (const Weight *w : weights) {
            buffers.push_back(load(*w, layout));
            if (!loaded(w->bytes())) break;
        }
        return buffers;
    }
    // Whether `load` copies, so that weights take memory of the device and are not read from the mapping later.
    virtual bool copies_weights() const { return false; }
    virtual void upload(const Buffer &to, size_t offset, std::span<const std::byte> from) = 0;
    virtual void download(const Buffer &from, size_t offset, std::span<std::byte> to) = 0;
    // Memory of the host that download reaches fastest; not filled. nullptr: any does.
    virtual std::shared_ptr<void> host_memory(size_t) { return nullptr; }

    // `program` and `bindings` must outlive the executable.
    virtual std::unique_ptr<Executable> compile(const Program &program, const Bindings &bindings,
                                                std::vector<Launch> launches) = 0;
};

}  // namespace ridge
