// A fixed team of threads that run one function together, with a barrier inside.
//
// run(fn) calls fn(0) on the caller and fn(1) .. fn(n-1) on the pool's threads and returns when all are done.
// Waiting (for work, at the barrier, for the end) first spins for some tens of microseconds, the usual gap between two
// launches, and then sleeps. With more threads than processors it hardly spins: the one it would wait for may
// be waiting for this very processor.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace ridge::cpu {

class ThreadPool {
  public:
    // `processors`: how many of the threads can run at the same time.
    ThreadPool(unsigned threads, unsigned processors);
    ~ThreadPool();
    ThreadPool(const ThreadPool &) = delete;
    ThreadPool &operator=(const ThreadPool &) = delete;

    unsigned size() const { return size_; }

    // fn(worker), worker = 0 .. size()-1. The first exception that leaves fn is thrown here, once all workers are out.
    // Calls from several threads take turns; a call from inside fn would wait for itself.
    template <class F>
    void run(F &&fn) {
        using Fn = std::remove_reference_t<F>;
        run_erased([](void *f, unsigned worker) { (*static_cast<Fn *>(f))(worker); },
                   const_cast<void *>(static_cast<const void *>(std::addressof(fn))));
    }

    // Inside run: returns when every worker has called it; what was written before is visible after. Where another
    // worker has left fn by an exception, it throws, so that no worker waits for one that will not come.
    void barrier();

  private:
    using Call = void (*)(void *fn, unsigned worker);
    void run_erased(Call call, void *fn);
    void work(unsigned worker);
    void loop(unsigned worker);
    void wait_while(const std::atomic<int> &value, int old) const;

    const unsigned size_;
    const unsigned spins_;
    Call call_ = nullptr;
    void *fn_ = nullptr;
    bool stop_ = false;
    std::mutex turn_;
    std::mutex error_mutex_;
    std::exception_ptr error_;

    // int, because that is what the kernel can wait on. Each on its own cache line: all threads poll them.
    alignas(64) std::atomic<int> round_{0};    // grows by one for each run
    alignas(64) std::atomic<int> pending_{0};  // threads that have not finished the round
    alignas(64) std::atomic<int> arrived_{0};  // at the barrier
    alignas(64) std::atomic<int> phase_{0};    // grows by one each time the barrier opens
    std::atomic<bool> broken_{false};
    std::vector<std::thread> threads_;
};

}  // namespace ridge::cpu
