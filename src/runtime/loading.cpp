#include "runtime/loading.h"

#include <algorithm>
#include <set>
#include <utility>

namespace ridge {

Loading::Loading(const Program &plain, const DeviceMap &map, std::span<Backend *const> devices) {
    struct Collect {
        const Program &p;
        Part &part;
        std::set<const std::byte *> &seen;
        void in(ValueId) {}
        void out(ValueId) {}
        void state(StateId) {}
        void weight(WeightId id) {
            if (seen.insert(p.weight(id).data).second) part.weights.push_back(&p.weight(id));
        }
    };
    const std::vector<DeviceId> of_node = devices_of(plain, map);
    for (size_t d = 0; d < devices.size(); d++) {
        if (!devices[d]->copies_weights()) continue;
        Part part{devices[d], {}, {}};
        std::set<const std::byte *> seen;
        for (size_t i = 0; i < of_node.size(); i++)
            if (static_cast<size_t>(of_node[i]) == d) visit_operands(plain.nodes[i].op, Collect{plain, part, seen});
        // As they lie in the file, so that a disk reads it from front to back.
        std::sort(part.weights.begin(), part.weights.end(),
                  [](const Weight *a, const Weight *b) { return a->data < b->data; });
        for (const Weight *w : part.weights) total_ += w->bytes();
        if (!part.weights.empty()) parts_.push_back(std::move(part));
    }
    running_ = parts_.size();
    for (Part &p : parts_) threads_.emplace_back([this, &p] { load(p); });
}

Loading::~Loading() {
    {
        const std::lock_guard lock(mutex_);
        stopped_ = true;
    }
    for (std::thread &t : threads_) t.join();
}

void Loading::load(Part &part) {
    std::exception_ptr error;
    try {
        part.buffers = part.device->load_all(part.weights, Layout::file, [&](uint64_t bytes) {
            const std::lock_guard lock(mutex_);
            done_ += bytes;
            changed_.notify_one();
            return !stopped_;
        });
    } catch (...) {
        error = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    if (error) error_ = error, stopped_ = true;
    running_--;
    changed_.notify_one();
}

bool Loading::wait(WeightStore &store, const std::function<bool(uint64_t done)> &progress) {
    uint64_t shown = 0;
    std::unique_lock lock(mutex_);
    while (running_ > 0) {
        changed_.wait(lock, [&] { return running_ == 0 || done_ != shown; });
        shown = done_;
        lock.unlock();
        const bool go_on = !progress || progress(shown);
        lock.lock();
        if (go_on) continue;
        stopped_ = true;
        return false;
    }
    if (error_) std::rethrow_exception(error_);
    for (const Part &p : parts_)
        for (size_t i = 0; i < p.buffers.size(); i++) store.put(*p.device, *p.weights[i], Layout::file, p.buffers[i]);
    return true;
}

}  // namespace ridge
