#include "backend/cpu/pool.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <utility>

#if defined(__linux__)
#include <sched.h>
#endif
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

using std::chrono::microseconds;
using Clock = std::chrono::steady_clock;
constexpr microseconds kSpinBarrier{100}, kSpinRound{1000};
constexpr microseconds kYield{20};  // to yield takes 0.5 us where nobody takes the processor
// Between two looks at the clock: a pause is 10 to 50 ns, so the waits that end by themselves never look at it.
constexpr unsigned kPauses = 64, kPausesCrowded = 8;
constexpr unsigned kNear = 4;  // most threads that share a line for arriving and polling

// Rounds and phases wrap around; only equality is asked of them. notify_all calls the kernel only where somebody waits.
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

int current_processor() {
#if defined(__linux__)
    return sched_getcpu();
#else
    return -1;
#endif
}

bool move_off(std::span<const int> taken, std::span<const int> order) {
#if defined(__linux__)
    cpu_set_t mask;
    if (sched_getaffinity(0, sizeof mask, &mask) != 0) return false;  // a machine of more than 1024 processors
    const auto free = [&](int c) {
        return c >= 0 && c < CPU_SETSIZE && CPU_ISSET(static_cast<size_t>(c), &mask) &&
               std::find(taken.begin(), taken.end(), c) == taken.end();
    };
    const auto target = std::find_if(order.begin(), order.end(), free);
    if (target == order.end()) return false;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<size_t>(*target), &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0) return false;
    sched_setaffinity(0, sizeof mask, &mask);
    return true;
#else
    static_cast<void>(taken), static_cast<void>(order);
    return false;
#endif
}

ThreadPool::ThreadPool(unsigned threads, unsigned at_once, std::vector<int> order)
    : size_(threads > 0 ? threads : 1),
      crowded_(size_ > at_once),
      order_(std::move(order)),
      phase_(size_ <= kNear ? &barrier_.near_phase : &barrier_.far_phase),
      seats_(size_) {
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

void ThreadPool::wait_while(const std::atomic<int> &value, int old, unsigned worker, microseconds spin) {
    Clock::time_point start;
    for (unsigned i = 1; value.load(std::memory_order_acquire) == old; i++) {
        pause();
        if (crowded_ && i == kPausesCrowded) break;
        if (i % kPauses != 0) continue;
        const Clock::time_point now = Clock::now();
        if (i == kPauses) {
            start = now;
            // Who is waited for may be waiting for this processor.
            const bool apart = placement_.load(std::memory_order_relaxed) == Placement::apart;
            if (apart && shares_processor(worker) && !part(worker)) break;
        } else if (now - start >= spin) {
            break;
        } else if (now - start >= kSpinBarrier) {
            // A long wait goes on only as long as nobody else wants the processor.
            std::this_thread::yield();
            if (Clock::now() - now >= kYield) break;
        }
    }
    if (value.load(std::memory_order_acquire) == old) value.wait(old, std::memory_order_acquire);
}

bool ThreadPool::shares_processor(unsigned worker) const {
    const int here = current_processor();
    for (unsigned w = 0; w < size_; w++)
        if (w != worker && seats_[w].processor.load(std::memory_order_relaxed) == here && here >= 0) return true;
    return false;
}

// Only the pool's own threads move: the caller's place is the business of its program.
bool ThreadPool::part(unsigned worker) {
    if (worker == 0) return false;
    std::array<int, 256> taken{};
    size_t n = 0;
    for (unsigned w = 0; w < size_ && n < taken.size(); w++)
        if (w != worker) taken[n++] = seats_[w].processor.load(std::memory_order_relaxed);
    if (!move_off(std::span(taken).first(n), order_)) return false;
    take_seat(worker);
    return true;
}

void ThreadPool::take_seat(unsigned worker) {
    if (placement_.load(std::memory_order_relaxed) == Placement::apart)
        seats_[worker].processor.store(current_processor(), std::memory_order_relaxed);
}

bool ThreadPool::arrive(unsigned worker) {
    Barrier &b = barrier_;
    // broken is set before the phase moves: either it is seen here, or the phase that barrier() saw is one that passes.
    if (b.broken.load(std::memory_order_acquire)) throw Aborted{};
    take_seat(worker);
    if (b.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 != static_cast<int>(size_)) return false;
    b.arrived.store(0, std::memory_order_relaxed);
    advance(*phase_);
    if (b.broken.load(std::memory_order_acquire)) throw Aborted{};
    return true;
}

void ThreadPool::leave(unsigned worker, int phase) {
    wait_while(*phase_, phase, worker, kSpinBarrier);
    if (barrier_.broken.load(std::memory_order_acquire)) throw Aborted{};
}

void ThreadPool::work(unsigned worker) {
    take_seat(worker);
    try {
        call_(fn_, worker);
    } catch (const Aborted &) {
    } catch (...) {
        {
            const std::lock_guard lock(error_mutex_);
            if (!error_) error_ = std::current_exception();
        }
        barrier_.broken.store(true, std::memory_order_release);
        advance(*phase_);
    }
}

void ThreadPool::loop(unsigned worker) {
    int seen = 0;
    while (true) {
        wait_while(round_, seen, worker, kSpinRound);
        seen = round_.load(std::memory_order_acquire);
        if (stop_) return;
        work(worker);
        if (pending_.fetch_sub(1, std::memory_order_acq_rel) == 1) pending_.notify_one();
    }
}

void ThreadPool::run_erased(Call call, void *fn, Placement placement) {
    const std::lock_guard lock(turn_);
    call_ = call;
    fn_ = fn;
    placement_.store(placement, std::memory_order_relaxed);
    error_ = nullptr;
    barrier_.broken.store(false, std::memory_order_relaxed);
    barrier_.arrived.store(0, std::memory_order_relaxed);
    pending_.store(static_cast<int>(size_) - 1, std::memory_order_relaxed);
    advance(round_);
    work(0);
    for (int left; (left = pending_.load(std::memory_order_acquire)) != 0;) wait_while(pending_, left, 0, kSpinBarrier);
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

}  // namespace ridge::cpu
