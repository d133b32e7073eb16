#include "backend/simt/executable.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "core/error.h"
#include "engine/trace.h"

namespace ridge::simt {
namespace {

// Steps of up to so many tokens are captured, one graph for each number of tokens and outputs: with more, launches take
// longer than it takes to submit them.
constexpr uint32_t kMostCaptured = 8;
// So few launches are submitted as fast one by one.
constexpr size_t kFewestCaptured = 4;

class SimtExecutable final : public Executable, private Emit {
  public:
    SimtExecutable(Device &device, const DeviceLimits &limits, bool early, const Program &program,
                   const Bindings &bindings, std::vector<RowLaunch> launches)
        : device_(device),
          driver_(device.driver()),
          limits_(limits),
          early_(early && program.levers.has(Lever::pdl)),
          upload_arguments_(program.levers.has(Lever::uploaded_metadata)),
          graphs_(program.levers.has(Lever::graphs) && !upload_arguments_),
          program_(program),
          bindings_(bindings),
          launches_(std::move(launches)) {
        size_t shared = 0;
        for (const RowLaunch &l : launches_)
            if (const auto bytes = l.row->kernel.tile.shared_bytes)
                shared = std::max(shared, bytes(program_, program_.nodes[l.launch.node].op, bindings_.limits));
        if (shared > 0) workspace_ = device_.allocate(shared, "a workspace of kernels");
        const size_t words = bindings_.limits.words() * sizeof(int32_t);
        step_ = device_.allocate(words, "the step buffer");
        slot_bytes_ = (words + 255) / 256 * 256;
        slots_ = device_.host_memory(kSlots * slot_bytes_);
        for (Handle &e : copied_) check(driver_, driver_.create_event(&e), "making an event");
        if (upload_arguments_) {
            arguments_ = device_.allocate(kMostArguments, "arguments");
            host_arguments_ = device_.host_memory(kMostArguments);
        }
    }

    ~SimtExecutable() override {
        driver_.use(device_.index());
        driver_.synchronize(device_.stream());
        for (const auto &[key, ready] : graphs_ready_) driver_.destroy_ready(ready);
        for (const Handle e : copied_) driver_.destroy_event(e);
        for (const Handle e : events_) driver_.destroy_event(e);
    }

    void run(const StepBuffer &step, StepTrace *trace) override {
        submit(step, trace);
        device_.synchronize();
    }

    void submit(const StepBuffer &step, StepTrace *trace) override {
        device_.use();
        view_ = step.view();
        send(step);
        if (trace)
            run_traced(*trace);
        else if (graphs_ && view_.tokens() <= kMostCaptured && launches_.size() >= kFewestCaptured)
            replay();
        else
            for (const RowLaunch &l : launches_) emit(l);
    }

  private:
    static constexpr size_t kSlots = 4;
    static constexpr size_t kMostArguments = 4096;

    // Brings the step buffer to the device, through pinned memory of which a slot is reused when its copy is over.
    void send(const StepBuffer &step) {
        const size_t slot = next_slot_++ % kSlots;
        std::byte *host = static_cast<std::byte *>(slots_.get()) + slot * slot_bytes_;
        if (next_slot_ > kSlots)
            check(driver_, driver_.synchronize_event(copied_[slot]), "waiting for an earlier step");
        const auto words = std::as_bytes(step.words());
        std::memcpy(host, words.data(), words.size());
        check(driver_, driver_.to_device(step_.address, host, words.size(), device_.stream()), "copying the step");
        check(driver_, driver_.record(copied_[slot], device_.stream()), "recording an event");
        first_ = true;
    }

    void emit(const RowLaunch &l) {
        current_ = &l;
        const LaunchView view{program_,
                              program_.nodes[l.launch.node].op,
                              bindings_,
                              view_,
                              reinterpret_cast<std::byte *>(workspace_.address),
                              limits_.processors};
        l.row->emit(view, *this);
    }

    void replay() {
        const std::pair key{view_.tokens(), view_.outputs()};
        auto found = graphs_ready_.find(key);
        if (found == graphs_ready_.end()) {
            // Functions and tables are made ready outside of the capture, which allows neither loads nor allocation.
            dry_ = true;
            for (const RowLaunch &l : launches_) emit(l);
            dry_ = false;
            Handle graph = nullptr, ready = nullptr;
            check(driver_, driver_.begin_capture(device_.stream()), "beginning a capture");
            for (const RowLaunch &l : launches_) emit(l);
            check(driver_, driver_.end_capture(device_.stream(), &graph), "capturing a step");
            const int code = driver_.instantiate(&ready, graph);
            driver_.destroy_graph(graph);
            check(driver_, code, "making a graph ready");
            found = graphs_ready_.emplace(key, ready).first;
        }
        check(driver_, driver_.launch_graph(found->second, device_.stream()), "launching a graph");
    }

    // Launch by launch, with an event between any two.
    void run_traced(StepTrace &trace) {
        while (events_.size() < launches_.size() + 1) {
            Handle e = nullptr;
            check(driver_, driver_.create_event(&e), "making an event");
            events_.push_back(e);
        }
        device_.synchronize();  // so that the first event is now
        const double began = trace.since_began(TraceClock::now());
        check(driver_, driver_.record(events_[0], device_.stream()), "recording an event");
        traced_ = true;
        std::vector<uint32_t> grids(launches_.size());
        for (size_t i = 0; i < launches_.size(); i++) {
            grids_ = 0;
            emit(launches_[i]);
            grids[i] = grids_;
            check(driver_, driver_.record(events_[i + 1], device_.stream()), "recording an event");
        }
        traced_ = false;
        device_.synchronize();
        for (size_t i = 0; i < launches_.size(); i++) {
            if (grids[i] == 0) continue;
            LaunchTrace t{.kernel = launches_[i].launch.kernel,
                          .node = launches_[i].launch.node,
                          .device = program_.nodes[launches_[i].launch.node].device,
                          .tiles = grids[i]};
            t.start = began + since_first(i), t.end = began + since_first(i + 1);
            t.busy = t.end - t.start;
            if (const ValueId ids = expert_ids(op(i)); ids != kNone) t.experts = experts(i, ids);
            trace.launches.push_back(t);
        }
    }
    double since_first(size_t event) const {
        float ms = 0;
        check(driver_, driver_.elapsed(&ms, events_[0], events_[event]), "reading an event");
        return ms * 1e-3;
    }
    const Op &op(size_t i) const { return program_.nodes[launches_[i].launch.node].op; }
    // Ids share memory with other values, so they are counted only where they are still there: right after the step,
    // where no later value took their place. Plans keep them until the last expert launch of a layer, so the last
    // layer's are.
    uint32_t experts(size_t, ValueId) const { return 0; }

    // Emit
    uint64_t step_address() const override { return step_.address; }
    const DeviceLimits &device() const override { return limits_; }
    uint64_t table(const std::string &key, size_t bytes,
                   const std::function<void(std::span<std::byte>)> &fill) override {
        const std::string full = std::to_string(current_->launch.node) + ' ' + key;
        if (const auto found = tables_.find(full); found != tables_.end()) return found->second.address;
        std::vector<std::byte> host(bytes);
        fill(host);
        const Buffer b = device_.allocate(bytes, "a table of " + std::string(current_->row->kernel.name));
        device_.upload(b.address, host);
        return tables_.emplace(full, b).first->second.address;
    }
    void launch(std::string_view file, std::string_view name, Grid blocks, uint32_t threads, size_t shared_bytes,
                const void *args, size_t args_bytes) override {
        if (blocks.x == 0 || blocks.y == 0 || blocks.z == 0) return;
        const Handle function = device_.modules().function(file, name);
        device_.modules().allow(function, shared_bytes);
        if (dry_) return;
        grids_++;
        if (upload_arguments_) {
            RIDGE_ASSERT(args_bytes <= kMostArguments);
            std::memcpy(host_arguments_.get(), args, args_bytes);
            check(driver_, driver_.to_device(arguments_.address, host_arguments_.get(), args_bytes, device_.stream()),
                  "uploading arguments");
        }
        const LaunchShape shape{{blocks.x, blocks.y, blocks.z},
                                threads,
                                static_cast<unsigned>(shared_bytes),
                                early_ && !first_ && !traced_ && !upload_arguments_};
        first_ = false;
        if (const int code = driver_.launch(function, shape, device_.stream(), args, args_bytes); code != 0)
            fail(ErrorKind::device,
                 "{}: launching {} ({} x {} x {} blocks of {} threads, {} bytes of shared memory) failed: {}",
                 device_.name(), name, blocks.x, blocks.y, blocks.z, threads, shared_bytes, driver_.error(code));
    }

    Device &device_;
    const Driver &driver_;
    const DeviceLimits limits_;
    const bool early_, upload_arguments_, graphs_;
    const Program &program_;
    const Bindings &bindings_;
    const std::vector<RowLaunch> launches_;
    Buffer workspace_, step_, arguments_;
    std::shared_ptr<void> slots_, host_arguments_;
    size_t slot_bytes_ = 0, next_slot_ = 0;
    std::array<Handle, kSlots> copied_{};
    std::map<std::string, Buffer> tables_;
    std::map<std::pair<uint32_t, uint32_t>, Handle> graphs_ready_;  // by tokens and outputs
    std::vector<Handle> events_;

    // While a step is being submitted.
    StepView view_{};
    const RowLaunch *current_ = nullptr;
    bool dry_ = false, first_ = true, traced_ = false;
    uint32_t grids_ = 0;
};

}  // namespace

std::unique_ptr<Executable> make_executable(Device &device, const DeviceLimits &limits, bool early,
                                            const Program &program, const Bindings &bindings,
                                            std::vector<RowLaunch> launches) {
    return std::make_unique<SimtExecutable>(device, limits, early, program, bindings, std::move(launches));
}

}  // namespace ridge::simt
