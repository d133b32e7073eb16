#include "backend/cpu/pool.h"

#include <csignal>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ridge::cpu {
namespace {

struct Aborted {};  // leaves the barrier of a round that another worker's exception has ended

void pause() {
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    asm volatile("isb");
#endif
}

// A pause is 40 to 140 cycles on x86: 30 to 100 microseconds in all.
constexpr unsigned kSpins = 2000;
constexpr unsigned kSpinsCrowded = 8;

// Rounds and phases wrap around; only equality is asked of them.
void advance(std::atomic<int> &counter) {
    counter.fetch_add(1, std::memory_order_release);
    counter.notify_all();
}

// Threads made while one lives get no signals but their own faults: the others are the business of the program's own
// threads, which may block them and wait for them.
class BlockSignals {
  public:
    BlockSignals() {
        sigset_t all;
        sigfillset(&all);
        for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) sigdelset(&all, fault);
        pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    ~BlockSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    BlockSignals(const BlockSignals &) = delete;
    BlockSignals &operator=(const BlockSignals &) = delete;

  private:
    sigset_t before_{};
};

}  // namespace

ThreadPool::ThreadPool(unsigned threads, unsigned processors)
    : size_(threads > 0 ? threads : 1), spins_(size_ <= processors ? kSpins : kSpinsCrowded) {
    threads_.reserve(size_ - 1);
    const BlockSignals block;
    try {
        for (unsigned w = 1; w < size_; w++) threads_.emplace_back([this, w] { loop(w); });
    } catch (...) {
        stop_ = true;
        advance(round_);
        for (std::thread &t : threads_) t.join();
        throw;
    }
}

ThreadPool::~ThreadPool() {
    stop_ = true;
    advance(round_);
    for (std::thread &t : threads_) t.join();
}

void ThreadPool::wait_while(const std::atomic<int> &value, int old) const {
    for (unsigned i = 0; i < spins_; i++) {
        if (value.load(std::memory_order_acquire) != old) return;
        pause();
    }
    value.wait(old, std::memory_order_acquire);
}

void ThreadPool::barrier() {
    const int phase = phase_.load(std::memory_order_acquire);
    // broken_ is set before phase_ moves: either it is seen here, or the phase seen here is one that will pass.
    if (broken_.load(std::memory_order_acquire)) throw Aborted{};
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == static_cast<int>(size_)) {
        arrived_.store(0, std::memory_order_relaxed);
        advance(phase_);
    } else {
        wait_while(phase_, phase);
    }
    if (broken_.load(std::memory_order_acquire)) throw Aborted{};
}

void ThreadPool::work(unsigned worker) {
    try {
        call_(fn_, worker);
    } catch (const Aborted &) {
    } catch (...) {
        {
            const std::lock_guard lock(error_mutex_);
            if (!error_) error_ = std::current_exception();
        }
        broken_.store(true, std::memory_order_release);
        advance(phase_);
    }
}

void ThreadPool::loop(unsigned worker) {
    int seen = 0;
    while (true) {
        wait_while(round_, seen);
        seen = round_.load(std::memory_order_acquire);
        if (stop_) return;
        work(worker);
        if (pending_.fetch_sub(1, std::memory_order_acq_rel) == 1) pending_.notify_one();
    }
}

void ThreadPool::run_erased(Call call, void *fn) {
    const std::lock_guard lock(turn_);
    call_ = call;
    fn_ = fn;
    error_ = nullptr;
    broken_.store(false, std::memory_order_relaxed);
    arrived_.store(0, std::memory_order_relaxed);
    pending_.store(static_cast<int>(size_) - 1, std::memory_order_relaxed);
    advance(round_);
    work(0);
    for (int left; (left = pending_.load(std::memory_order_acquire)) != 0;) wait_while(pending_, left);
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

}  // namespace ridge::cpu
