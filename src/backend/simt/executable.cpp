#include "backend/simt/executable.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "backend/simt/event.h"
#include "backend/simt/kernels/ceilings.h"
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
          graphs_(program.levers.has(Lever::graphs) && program.levers.has(Lever::expert_ids_on_device) &&
                  !upload_arguments_),
          program_(program),
          bindings_(bindings),
          launches_(std::move(launches)) {
        size_t shared = 0;
        for (const RowLaunch &l : launches_)
            if (const auto bytes = l.row->kernel.tile.shared_bytes)
                shared = std::max(shared, bytes(program_, program_.nodes[l.launch.node].op, bindings_.limits));
        if (shared > 0) workspace_ = device_.workspace(shared);
        const size_t words = bindings_.limits.words() * sizeof(int32_t);
        step_ = device_.allocate(words, "the step buffer");
        slot_bytes_ = (words + 255) / 256 * 256;
        slots_ = device_.host_memory(kSlots * slot_bytes_);
        while (copied_.size() < kSlots) copied_.emplace_back(driver_);
        if (upload_arguments_) {
            arguments_ = device_.allocate(kMostArguments, "arguments");
            host_arguments_ = device_.host_memory(kMostArguments);
        }
    }

    ~SimtExecutable() override {
        driver_.use(device_.index());
        driver_.synchronize(device_.stream());
        for (const auto &[key, ready] : graphs_ready_) driver_.destroy_ready(ready);
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
        else
            submit_all();
    }

  private:
    static constexpr size_t kSlots = 4;
    static constexpr size_t kMostArguments = 4096;

    // Brings the step buffer to the device, through pinned memory of which a slot is reused when its copy is over.
    void send(const StepBuffer &step) {
        const size_t slot = next_slot_++ % kSlots;
        std::byte *host = static_cast<std::byte *>(slots_.get()) + slot * slot_bytes_;
        if (next_slot_ > kSlots) copied_[slot].wait();
        const auto words = std::as_bytes(step.words());
        std::memcpy(host, words.data(), words.size());
        check(driver_, driver_.to_device(step_.address, host, words.size(), device_.stream()), "copying the step");
        copied_[slot].record(device_.stream());
        first_ = true, dry_ = traced_ = false;  // also where the step before broke off
    }

    void submit_all() {
        if (graphs_ && view_.tokens() <= kMostCaptured && launches_.size() >= kFewestCaptured) return replay();
        for (const RowLaunch &l : launches_) emit(l);
    }

    LaunchView view_of(const RowLaunch &l) const {
        return {program_,
                program_.nodes[l.launch.node].op,
                bindings_,
                view_,
                reinterpret_cast<std::byte *>(workspace_.address),
                limits_.processors};
    }
    void emit(const RowLaunch &l) {
        front_ = &l == launches_.data() ? nullptr : &l - 1;
        l.row->emit(view_of(l), *this);
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
            try {
                for (const RowLaunch &l : launches_) emit(l);
            } catch (...) {
                if (driver_.end_capture(device_.stream(), &graph) == 0) driver_.destroy_graph(graph);
                throw;
            }
            check(driver_, driver_.end_capture(device_.stream(), &graph), "capturing a step");
            const int code = driver_.instantiate(&ready, graph);
            driver_.destroy_graph(graph);
            check(driver_, code, "making a graph ready");
            found = graphs_ready_.emplace(key, ready).first;
        }
        check(driver_, driver_.launch_graph(found->second, device_.stream()), "launching a graph");
    }

    // The step as it always runs, for its time; then once more launch by launch with an event between any two, which
    // gives the same values again from the same inputs. A kernel that waits keeps the device busy until the host has
    // submitted all of it, so that the events tell of the device alone. Launches that overlapped in the first run, or
    // followed each other faster in a graph, take longer apart: their times are scaled to what the first run took.
    void run_traced(StepTrace &trace) {
        while (events_.size() < launches_.size() + 4) events_.emplace_back(driver_);
        const auto record = [&](Event &e) { e.record(device_.stream()); };
        Event &begin = events_[launches_.size() + 2], &end = events_[launches_.size() + 3];
        const auto now = [&] { return trace.time_of(TraceClock::now()); };
        device_.synchronize();
        const TraceClock::time_point keeping = TraceClock::now();
        const std::vector<Kept> inputs = keep_inputs();
        trace.apart += std::chrono::duration<double>(TraceClock::now() - keeping).count();
        const double submitted = now();
        record(begin);
        submit_all();
        record(end);
        device_.synchronize();
        const double ended = now(), device_time = seconds_between(begin, end);
        const double lead = std::max(0.0, ended - submitted - device_time);

        const TraceClock::time_point again = TraceClock::now();
        bring_back(inputs);
        traced_ = true;
        wait(launches_.size());
        record(events_[launches_.size() + 1]);
        record(events_[0]);  // what lies between these two is the cost of an event
        std::vector<uint32_t> grids(launches_.size());
        for (size_t i = 0; i < launches_.size(); i++) {
            grids_ = 0;
            emit(launches_[i]);
            grids[i] = grids_;
            record(events_[i + 1]);
        }
        traced_ = false;
        device_.synchronize();
        const double cost = seconds_between(events_[launches_.size() + 1], events_[0]);
        std::vector<double> seconds(launches_.size());
        double sum = 0;
        for (size_t i = 0; i < launches_.size(); i++)
            if (grids[i] > 0) sum += seconds[i] = std::max(1e-9, seconds_between(events_[i], events_[i + 1]) - cost);
        const double scale = sum > device_time ? device_time / sum : 1;
        const std::vector<Routed> routed = count_routed(inputs);
        double at = submitted + lead;
        for (size_t i = 0; i < launches_.size(); i++) {
            if (grids[i] == 0) continue;
            LaunchTrace t{.kernel = launches_[i].launch.kernel,
                          .node = launches_[i].launch.node,
                          .device = program_.nodes[launches_[i].launch.node].device,
                          .start = at,
                          .tiles = grids[i],
                          .experts = routed[i].experts,
                          .routed_rows = routed[i].fill.rows,
                          .tile_rows = routed[i].fill.tile_rows};
            t.busy = seconds[i] * scale;
            at = t.end = at + t.busy;
            trace.launches.push_back(t);
        }
        trace.apart += std::chrono::duration<double>(TraceClock::now() - again).count();
    }
    // What the launches read and did not write before: values of other devices' launches. What they write themselves
    // may lie in the same memory.
    struct Kept {
        uint64_t address;
        std::vector<std::byte> bytes;
    };
    std::vector<Kept> keep_inputs() {
        struct Operands {
            std::set<ValueId> read, written;
            void in(ValueId v) {
                if (v != kNone && !written.contains(v)) read.insert(v);
            }
            void out(ValueId v) { now.push_back(v); }
            void weight(WeightId) {}
            void state(StateId) {}
            std::vector<ValueId> now;  // of the launch that is looked at: it reads before it writes
        } operands;
        for (const RowLaunch &l : launches_) {
            visit_operands(program_.nodes[l.launch.node].op, operands);
            operands.written.insert(operands.now.begin(), operands.now.end());
            operands.now.clear();
        }
        std::vector<Kept> inputs;
        for (const ValueId v : operands.read) {
            const Value &x = program_.value(v);
            const size_t bytes = rows_of(x, view_.tokens(), view_.outputs()) * row_bytes(x.type, x.cols);
            inputs.push_back({bindings_.values[static_cast<size_t>(v)], std::vector<std::byte>(bytes)});
            device_.download(inputs.back().address, inputs.back().bytes);
        }
        return inputs;
    }
    void bring_back(const std::vector<Kept> &inputs) {
        for (const Kept &k : inputs) device_.upload(k.address, k.bytes);
    }
    // Of each launch, the experts that have rows, and how full the tiles are that hold those. For this the step is run
    // once more, with a stop in front of each such launch: what is another value's memory later holds its ids then.
    struct Routed {
        uint32_t experts = 0;
        TileFill fill;
    };
    std::vector<Routed> count_routed(const std::vector<Kept> &inputs) {
        std::vector<Routed> all(launches_.size());
        const auto ids_of = [&](const RowLaunch &l) { return expert_ids(program_.nodes[l.launch.node].op); };
        if (std::all_of(launches_.begin(), launches_.end(), [&](const RowLaunch &l) { return ids_of(l) == kNone; }))
            return all;
        bring_back(inputs);
        for (size_t i = 0; i < launches_.size(); i++) {
            const RowLaunch &l = launches_[i];
            if (const ValueId id = ids_of(l); id != kNone) {
                const Value &value = program_.value(id);
                const size_t n = rows_of(value, view_.tokens(), view_.outputs()) * value.cols;
                const uint32_t experts = expert_total(program_, program_.nodes[l.launch.node].op);
                const auto ids = read_ids(bindings_.values[static_cast<size_t>(id)], n);
                all[i].experts = count_experts(ids.data(), n, experts);
                if (l.row->fill != nullptr) all[i].fill = l.row->fill(view_of(l), limits_, ids);
            }
            emit(l);
        }
        device_.synchronize();
        return all;
    }
    // Keeps the device busy for as long as it takes to submit so many launches and events.
    void wait(size_t launches) {
        CeilingArgs a{};
        a.n = 50000 + 15000 * launches;
        launch("ceilings", "ceiling_wait", {1, 1, 1}, 128, 0, &a, sizeof a);
    }
    // Emit
    Front front() const override {
        return front_ ? Front{front_->row, &program_.nodes[front_->launch.node].op} : Front{};
    }
    uint64_t step_address() const override { return step_.address; }
    const DeviceLimits &device() const override { return limits_; }
    uint64_t table(const std::string &key, size_t bytes,
                   const std::function<void(std::span<std::byte>)> &fill) override {
        if (const auto found = tables_.find(key); found != tables_.end()) return found->second.address;
        return tables_.emplace(key, device_.table(key, bytes, fill)).first->second.address;
    }
    std::span<const int32_t> read_ids(uint64_t address, size_t n) override {
        ids_.resize(n);
        device_.download(address, std::as_writable_bytes(std::span(ids_)));
        return ids_;
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
    std::vector<Event> copied_;  // of each slot
    std::map<std::string, Buffer> tables_;
    std::map<std::pair<uint32_t, uint32_t>, Handle> graphs_ready_;  // by tokens and outputs
    std::vector<Event> events_;
    std::vector<int32_t> ids_;

    // While a step is being submitted.
    StepView view_{};
    const RowLaunch *front_ = nullptr;
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
