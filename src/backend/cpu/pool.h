// A fixed team of threads that run one function together, with a barrier inside.
//
// run(fn) calls fn(0) on the caller and fn(1) .. fn(n-1) on the pool's threads and returns when all are done.
//
// Waiting first spins and then sleeps. Measured with two threads on two cores of a virtual machine (Zen 5): a barrier
// whose threads spin costs 0.2 us, waking one that sleeps 15 us where its processor idles in a loop and 100 us where it
// has halted. So threads spin
//   at the barrier and for the end of a run     100 us: longer than the launches of a step differ
//   for the next run                              1 ms: longer than sampling and printing a token take (0.1 to 0.5 ms)
//                                                 and as long as no other process wants the processor
// and an idle pool costs nothing. With more threads than processors they hardly spin: the one that is waited for may
// be waiting for this very processor. Where nobody sleeps, nothing here makes a system call.
//
// Threads are not pinned. Two processes that both pin to the first cores would share them and leave the others idle,
// and a caller would keep a mask it never asked for. But a scheduler may leave two threads of a pool on one processor
// for seconds (it packs virtual processors, or has work of others on the rest), where each barrier then costs whole
// time slices. `Placement::apart` undoes that when it happens: a thread that has to wait and finds another one of the
// pool on its processor moves to one where none is, and leaves its affinity mask as it was.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <type_traits>
#include <vector>

namespace ridge::cpu {

enum class Placement : uint8_t {
    free,   // wherever the scheduler puts them
    apart,  // threads that share a processor move apart, on Linux
};

class ThreadPool {
  public:
    // `at_once`: how many of the threads can run at the same time. `order`: the processors to move to, the best first;
    // those outside a thread's affinity mask are passed over.
    ThreadPool(unsigned threads, unsigned at_once, std::vector<int> order = {});
    ~ThreadPool();
    ThreadPool(const ThreadPool &) = delete;
    ThreadPool &operator=(const ThreadPool &) = delete;

    unsigned size() const { return size_; }

    // fn(worker), worker = 0 .. size()-1. The first exception that leaves fn is thrown here, once all workers are out.
    // Calls from several threads take turns; a call from inside fn would wait for itself.
    template <class F>
    void run(F &&fn, Placement placement = Placement::free) {
        using Fn = std::remove_reference_t<F>;
        run_erased([](void *f, unsigned worker) { (*static_cast<Fn *>(f))(worker); },
                   const_cast<void *>(static_cast<const void *>(std::addressof(fn))), placement);
    }

    // Inside run, on `worker`: returns when every worker has called it; what was written before is visible after. Where
    // another worker has left fn by an exception, it throws, so that no worker waits for one that will not come.
    // While others are awaited `idle` is called again and again; it does some 50 ns of work and says whether there is
    // more.
    template <class Idle>
    void barrier(unsigned worker, Idle &&idle) {
        const int phase = phase_->load(std::memory_order_acquire);
        if (arrive(worker)) return;
        while (phase_->load(std::memory_order_acquire) == phase && idle()) {
        }
        leave(worker, phase);
    }
    void barrier(unsigned worker) {
        barrier(worker, [] { return false; });
    }

  private:
    using Call = void (*)(void *fn, unsigned worker);

    void run_erased(Call call, void *fn, Placement placement);
    void work(unsigned worker);
    void loop(unsigned worker);
    bool arrive(unsigned worker);            // whether it was the last one, who has opened the barrier
    void leave(unsigned worker, int phase);  // waits for the end of `phase`
    void wait_while(const std::atomic<int> &value, int old, unsigned worker, std::chrono::microseconds spin);
    bool shares_processor(unsigned worker) const;
    bool part(unsigned worker);
    void take_seat(unsigned worker);

    const unsigned size_;
    const bool crowded_;
    const std::vector<int> order_;
    Call call_ = nullptr;
    void *fn_ = nullptr;
    std::atomic<Placement> placement_{Placement::free};
    bool stop_ = false;
    std::mutex turn_;
    std::mutex error_mutex_;
    std::exception_ptr error_;

    // int, because that is what the kernel can wait on. A line for each that is polled.
    alignas(64) std::atomic<int> round_{0};    // grows by one for each run
    alignas(64) std::atomic<int> pending_{0};  // threads that have not finished the round
    // At the barrier. The last of a few threads to arrive opens it on the line that it has just fetched; many would
    // take the line from each other's arrivals by polling it, so they poll another one.
    struct alignas(64) Barrier {
        std::atomic<int> arrived{0};
        std::atomic<int> near_phase{0};
        alignas(64) std::atomic<int> far_phase{0};
        std::atomic<bool> broken{false};
    } barrier_;
    std::atomic<int> *const phase_;  // grows by one each time the barrier opens

    // Where each thread last ran, as it said itself.
    struct alignas(64) Seat {
        std::atomic<int> processor{-1};
    };
    std::vector<Seat> seats_;
    std::vector<std::thread> threads_;
};

// Moves the calling thread to the first processor of `order` that its affinity mask has and `taken` lacks; the mask is
// afterwards what it was. False where there is none, or where the system cannot do it.
bool move_off(std::span<const int> taken, std::span<const int> order);

// The processor that the caller runs on; -1 where the system does not say.
int current_processor();

}  // namespace ridge::cpu
