#include "engine/engine.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"

namespace ridge {

Buffer WeightStore::get(Backend &device, const Weight &w, Layout layout) {
    const Key key{&device, w.data, layout};
    const auto found = loaded_.find(key);
    return found != loaded_.end() ? found->second : loaded_.emplace(key, device.load(w, layout)).first->second;
}

void WeightStore::put(Backend &device, const Weight &w, Layout layout, Buffer buffer) {
    loaded_.insert_or_assign({&device, w.data, layout}, std::move(buffer));
}

namespace {

// Binds every weight a device's nodes read.
struct BindWeights {
    const Program &p;
    Backend &device;
    Bindings &bindings;
    WeightStore &store;
    std::vector<Buffer> &keep;
    void in(ValueId) {}
    void out(ValueId) {}
    void state(StateId) {}
    void weight(WeightId w) {
        uint64_t &address = bindings.weights[static_cast<size_t>(w)];
        if (address != 0) return;
        keep.push_back(store.get(device, p.weight(w), Layout::file));
        address = keep.back().address;
    }
};

}  // namespace

size_t state_bytes(const State &s, const EngineOptions &options) {
    const size_t rows = s.per == State::Per::token ? size_t{options.pages} * kPageTokens : options.limits.sequences;
    return rows * row_bytes(s.type, s.cols);
}

Engine::Engine(Program program, std::vector<Backend *> devices, WeightStore &weights, const EngineOptions &options)
    : program_(std::move(program)), devices_(std::move(devices)), options_(options) {
    check(program_);
    for (const Node &n : program_.nodes)
        if (n.device < 0 || static_cast<size_t>(n.device) >= devices_.size())
            fail(ErrorKind::usage, "layer {} is placed on device {}, but the devices are 0 to {}", n.layer, n.device,
                 devices_.size() - 1);
    buckets_ = token_buckets(devices_, options_.limits.tokens);
    const MemoryPlan memory = plan_memory(program_, options_.limits, devices_.size(), options_.keep_values);
    offsets_ = memory.offset;
    size_t copy_bytes = 0;
    for (size_t d = 0; d < devices_.size(); d++) {
        arenas_.push_back(devices_[d]->allocate(memory.device_bytes[d], "activations"));
        Bindings b;
        b.limits = options_.limits;
        b.values.assign(program_.values.size(), 0);
        b.weights.assign(program_.weights.size(), 0);
        b.states.assign(program_.states.size(), 0);
        for (size_t v = 0; v < program_.values.size(); v++)
            if (offsets_[v] != MemoryPlan::kUnused && static_cast<size_t>(program_.values[v].device) == d)
                b.values[v] = arenas_[d].address + offsets_[v];
        bindings_.push_back(std::move(b));
    }
    for (size_t s = 0; s < program_.states.size(); s++) {
        const State &st = program_.states[s];
        const auto d = static_cast<size_t>(st.device);
        states_.push_back(devices_[d]->allocate(ridge::state_bytes(st, options_), "state " + st.name));
        bindings_[d].states[s] = states_.back().address;
    }
    for (const Node &n : program_.nodes) {
        const auto d = static_cast<size_t>(n.device);
        visit_operands(n.op, BindWeights{program_, *devices_[d], bindings_[d], weights, weights_});
        if (const Copy *c = std::get_if<Copy>(&n.op)) {
            const Value &v = program_.value(c->x);
            copy_bytes = std::max(
                copy_bytes, rows_of(v, options_.limits.tokens, options_.limits.outputs) * row_bytes(v.type, v.cols));
        }
    }
    staging_.resize(copy_bytes);
    if (program_.logits != kNone) make_host_rows(program_.logits, logits_rows_);
    if (program_.choice != kNone) make_host_rows(program_.choice, choice_rows_);
    compiled_for(1);  // so that a missing kernel is an error now, not at the first token
}

template <class T>
void Engine::make_host_rows(ValueId v, HostRows<T> &to) {
    const Value &x = program_.value(v);
    const size_t n = size_t{options_.limits.outputs} * x.cols;
    to.pinned = devices_[static_cast<size_t>(x.device)]->host_memory(n * sizeof(T));
    if (!to.pinned) to.memory.resize(n);
    to.rows = {to.pinned ? static_cast<T *>(to.pinned.get()) : to.memory.data(), n};
}

Engine::Compiled &Engine::compiled_for(uint32_t tokens) {
    const uint32_t bucket = *std::prev(std::upper_bound(buckets_.begin(), buckets_.end(), tokens));
    const auto found = compiled_.find(bucket);
    if (found != compiled_.end()) return found->second;
    Compiled c;
    c.plan = make_plan(program_, devices_, bucket);
    for (const Segment &s : c.plan.segments) {
        const auto d = static_cast<size_t>(s.device);
        c.executables.push_back(s.is_copy() ? nullptr : devices_[d]->compile(program_, bindings_[d], s.launches));
    }
    return compiled_.emplace(bucket, std::move(c)).first->second;
}

void Engine::prepare() {
    for (uint32_t b : buckets_) compiled_for(b);
}

const Plan &Engine::plan_for(uint32_t tokens) { return compiled_for(tokens).plan; }

void Engine::run(const StepBuffer &step, StepTrace *trace, Fetch fetch) {
    const uint32_t tokens = step.view().tokens();
    RIDGE_ASSERT(tokens >= 1 && step.words().size() == options_.limits.words());
    RIDGE_ASSERT(fetch != Fetch::choice || program_.choice != kNone);
    Compiled &c = compiled_for(tokens);
    if (trace) trace->begin(program_, step.view());
    for (size_t i = 0; i < c.executables.size(); i++) {
        if (c.executables[i])
            c.executables[i]->submit(step, trace);
        else
            copy(c.plan.segments[i].launches[0], step, trace);
    }
    const TraceClock::time_point ran = trace ? TraceClock::now() : TraceClock::time_point{};
    logits_ = {}, choice_ = {};
    if (fetch == Fetch::choice)
        choice_ = fetch_rows(program_.choice, step, choice_rows_);
    else
        logits_ = fetch_rows(program_.logits, step, logits_rows_);
    if (trace) {
        trace->end(program_);
        trace->logits = trace->wall - trace->time_of(ran);
        trace->overhead += 2 * stamp_cost();
    }
}

template <class T>
std::span<const T> Engine::fetch_rows(ValueId v, const StepBuffer &step, const HostRows<T> &to) {
    if (v == kNone) return {};
    const Value &x = program_.value(v);
    const std::span<T> out = to.rows.first(size_t{step.view().outputs()} * x.cols);
    const auto d = static_cast<size_t>(x.device);
    if (!out.empty()) devices_[d]->download(arenas_[d], offsets_[static_cast<size_t>(v)], std::as_writable_bytes(out));
    return out;
}

void Engine::copy(const Launch &launch, const StepBuffer &step, StepTrace *trace) {
    const Copy &c = std::get<Copy>(program_.nodes[launch.node].op);
    LaunchTrace traced{.node = launch.node, .device = program_.value(c.out).device, .tiles = 1};
    if (trace) traced.start = trace->time_of(TraceClock::now());
    const Value &from = program_.value(c.x), &to = program_.value(c.out);
    const size_t bytes = rows_of(from, step.view().tokens(), step.view().outputs()) * row_bytes(from.type, from.cols);
    const std::span<std::byte> staged(staging_.data(), bytes);
    const auto source = static_cast<size_t>(from.device), target = static_cast<size_t>(to.device);
    devices_[source]->download(arenas_[source], offsets_[static_cast<size_t>(c.x)], staged);
    devices_[target]->upload(arenas_[target], offsets_[static_cast<size_t>(c.out)], staged);
    if (trace && bytes > 0) {
        traced.end = trace->time_of(TraceClock::now());
        traced.busy = traced.end - traced.start;
        trace->launches.push_back(traced);
        trace->overhead += 2 * stamp_cost();
    }
}

size_t Engine::activation_bytes() const {
    size_t n = 0;
    for (const Buffer &b : arenas_) n += b.bytes;
    return n;
}

size_t Engine::state_bytes() const {
    size_t n = 0;
    for (const Buffer &b : states_) n += b.bytes;
    return n;
}

std::vector<std::byte> Engine::read_value(ValueId v, size_t rows) const {
    const Value &x = program_.value(v);
    std::vector<std::byte> bytes(rows * row_bytes(x.type, x.cols));
    devices_[static_cast<size_t>(x.device)]->download(arenas_[static_cast<size_t>(x.device)],
                                                      offsets_[static_cast<size_t>(v)], bytes);
    return bytes;
}

std::vector<std::byte> Engine::read_state(StateId s) const {
    const Buffer &b = states_[static_cast<size_t>(s)];
    std::vector<std::byte> bytes(b.bytes);
    devices_[static_cast<size_t>(program_.state(s).device)]->download(b, 0, bytes);
    return bytes;
}

void Engine::write_value(ValueId v, std::span<const std::byte> bytes) {
    const Value &x = program_.value(v);
    devices_[static_cast<size_t>(x.device)]->upload(arenas_[static_cast<size_t>(x.device)],
                                                    offsets_[static_cast<size_t>(v)], bytes);
}

void Engine::write_state(StateId s, std::span<const std::byte> bytes) {
    devices_[static_cast<size_t>(program_.state(s).device)]->upload(states_[static_cast<size_t>(s)], 0, bytes);
}

void Engine::run_node(uint32_t node, const Kernel &kernel, const StepBuffer &step) {
    const auto d = static_cast<size_t>(program_.nodes[node].device);
    devices_[d]->compile(program_, bindings_[d], {{&kernel, node}})->run(step);
}

std::unique_ptr<Excerpt> Engine::excerpt(std::span<const uint32_t> nodes, const StepBuffer &step) {
    // Which values the nodes read; who writes them comes first.
    struct Reads {
        std::vector<bool> &of;
        void in(ValueId v) { of[static_cast<size_t>(v)] = true; }
        void out(ValueId) {}
        void weight(WeightId) {}
        void state(StateId) {}
    };
    std::vector<bool> read(program_.values.size(), false);
    for (const uint32_t n : nodes) visit_operands(program_.nodes[n].op, Reads{read});

    auto e = std::make_unique<Excerpt>();
    e->bindings_ = bindings_;
    struct Keep {
        Engine &engine;
        Excerpt &e;
        const std::vector<bool> &read;
        StepView step;
        void in(ValueId) {}
        void weight(WeightId) {}
        void state(StateId) {}
        void out(ValueId v) {
            if (!read[static_cast<size_t>(v)]) return;
            const Value &x = engine.program_.value(v);
            const auto d = static_cast<size_t>(x.device);
            const std::vector<std::byte> bytes = engine.read_value(v, rows_of(x, step.tokens(), step.outputs()));
            e.memory_.push_back(engine.devices_[d]->allocate(bytes.size(), "operands of an excerpt"));
            engine.devices_[d]->upload(e.memory_.back(), 0, bytes);
            e.bindings_[d].values[static_cast<size_t>(v)] = e.memory_.back().address;
        }
    };
    const Compiled &c = compiled_for(step.view().tokens());
    for (const Choice &choice : c.plan.choices) {
        const Op &op = program_.nodes[choice.node].op;
        if (choice.chosen)
            run_node(choice.node, *choice.chosen, step);
        else
            copy({nullptr, choice.node}, step, nullptr);
        visit_operands(op, Keep{*this, *e, read, step.view()});
    }

    std::vector<Launch> part;
    DeviceId device = 0;
    const auto finish = [&] {
        const auto d = static_cast<size_t>(device);
        if (!part.empty()) e->parts_.push_back(devices_[d]->compile(program_, e->bindings_[d], std::move(part)));
        part.clear();
    };
    for (const uint32_t n : nodes) {
        const Kernel *chosen = c.plan.choices[n].chosen;
        if (!chosen) continue;
        if (program_.nodes[n].device != device) finish();
        device = program_.nodes[n].device;
        part.push_back({chosen, n});
    }
    finish();
    return e;
}

}  // namespace ridge
