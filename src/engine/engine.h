// A program made ready to run: weights loaded, memory allocated, plans compiled. Nothing is allocated while a step
// runs, once every token bucket has been used (or `prepare` was called).
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/plan.h"
#include "engine/trace.h"

namespace ridge {

// Weights on devices, for one thread at a time, shared by all programs over the same file: loading the same bytes to
// the same device in the same layout twice gives the same buffer.
class WeightStore {
  public:
    Buffer get(Backend &device, const Weight &w, Layout layout);
    // One that is loaded already.
    void put(Backend &device, const Weight &w, Layout layout, Buffer buffer);

  private:
    struct Key {
        const Backend *device;
        const std::byte *data;
        Layout layout;
        auto operator<=>(const Key &) const = default;
    };
    std::map<Key, Buffer> loaded_;
};

struct EngineOptions {
    StepLimits limits;
    uint32_t pages = 1;        // pages of per-token state, over all sequences
    bool keep_values = false;  // for gates: no two values share memory, so that all can be read after a step
};

// Bytes that a state takes.
size_t state_bytes(const State &s, const EngineOptions &options);

// What comes back to the host after a step.
enum class Fetch : uint8_t { logits, choice };

// For measurements: some launches of a step apart from the others, as often as wanted, on what they found in it.
class Excerpt {
  public:
    Excerpt() = default;
    Excerpt(const Excerpt &) = delete;
    Excerpt &operator=(const Excerpt &) = delete;
    // Precondition: a step of as many tokens and outputs as the one that the excerpt was made with.
    void run(const StepBuffer &step) {
        for (const auto &p : parts_) p->run(step);
    }

  private:
    friend class Engine;
    std::vector<Bindings> bindings_;  // per device; values that the launches read have memory of their own
    std::vector<Buffer> memory_;
    std::vector<std::unique_ptr<Executable>> parts_;
};

class Engine {
  public:
    // `devices[i]` is device i of the program; they and `weights` must outlive the engine.
    // Throws Error{unsupported} where an operation has no kernel, Error{limit} where memory does not suffice,
    // Error{usage} where the program is placed on a device that is not there.
    Engine(Program program, std::vector<Backend *> devices, WeightStore &weights, const EngineOptions &options);

    // Executables refer to the program and the bindings in here.
    Engine(const Engine &) = delete;
    Engine &operator=(const Engine &) = delete;

    const Program &program() const { return program_; }
    const EngineOptions &options() const { return options_; }
    std::span<Backend *const> devices() const { return devices_; }

    // Runs one step and, where there is a trace, says in it when each launch ran. Precondition: step's limits are the
    // engine's, and with Fetch::choice the program has one.
    void run(const StepBuffer &step, StepTrace *trace = nullptr, Fetch fetch = Fetch::logits);
    // Logits of the last step, (outputs, vocab), or its choices, (outputs), whichever was fetched; valid until the next
    // one.
    std::span<const float> logits() const { return logits_; }
    std::span<const int32_t> choice() const { return choice_; }

    // Compiles the plans for all token counts up to the limit, so that later steps allocate nothing.
    void prepare();
    const Plan &plan_for(uint32_t tokens);

    // Bytes of activations and state on all devices.
    size_t activation_bytes() const;
    size_t state_bytes() const;

    // For gates: a value or state as it lies on its device after the last step. Values share memory, so what a value
    // holds at the end of a step is its own only where no later one took its place.
    std::vector<std::byte> read_value(ValueId v, size_t rows) const;
    std::vector<std::byte> read_state(StateId s) const;
    void write_value(ValueId v, std::span<const std::byte> bytes);
    void write_state(StateId s, std::span<const std::byte> bytes);
    // For gates: runs the node with the given row instead of the planned one.
    void run_node(uint32_t node, const Kernel &kernel, const StepBuffer &step);
    // For measurements: the launches of `nodes` (ascending), by the rows that `step` takes. Runs `step` launch by
    // launch to get their operands. Copies among the nodes are left out. The engine must outlive it.
    std::unique_ptr<Excerpt> excerpt(std::span<const uint32_t> nodes, const StepBuffer &step);

  private:
    struct Compiled {
        Plan plan;
        std::vector<std::unique_ptr<Executable>> executables;  // per segment; null for copies
    };
    Compiled &compiled_for(uint32_t tokens);
    void copy(const Launch &launch, const StepBuffer &step, StepTrace *trace);
    // Where the rows of a value come to on the host: memory that its device reaches fastest, where it has such, for
    // they come at every token.
    template <class T>
    struct HostRows {
        std::vector<T> memory;
        std::shared_ptr<void> pinned;
        std::span<T> rows;  // of one of the two
    };
    template <class T>
    void make_host_rows(ValueId v, HostRows<T> &to);
    template <class T>
    std::span<const T> fetch_rows(ValueId v, const StepBuffer &step, const HostRows<T> &to);

    Program program_;
    std::vector<Backend *> devices_;
    EngineOptions options_;
    std::vector<Bindings> bindings_;  // per device
    std::vector<Buffer> arenas_;      // per device
    std::vector<Buffer> states_;      // per state
    std::vector<Buffer> weights_;     // keeps the store's buffers alive
    std::vector<size_t> offsets_;     // of values in their arenas
    std::vector<uint32_t> buckets_;
    std::map<uint32_t, Compiled> compiled_;  // by the first token count of the bucket
    std::vector<std::byte> staging_;         // for copies
    HostRows<float> logits_rows_;
    HostRows<int32_t> choice_rows_;
    std::span<const float> logits_;
    std::span<const int32_t> choice_;
};

}  // namespace ridge
