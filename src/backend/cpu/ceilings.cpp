#include "backend/cpu/ceilings.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <ctime>
#include <fstream>
#include <memory>
#include <vector>

#include "backend/cpu/cpu.h"
#include "backend/cpu/pool.h"
#include "backend/cpu/rows.h"
#include "backend/cpu/topology.h"
#include "core/error.h"

namespace ridge::cpu {
namespace {

const CeilingLoops &loops_for(std::string_view isa) {
    std::vector<const CeilingLoops *> here{&kCeilingsPortable};
#if defined(__x86_64__)
    if ((cpu_features() & kAvx2) != 0) here.push_back(&kCeilingsAvx2);
    if ((cpu_features() & kAvx512) != 0) here.push_back(&kCeilingsAvx512);
    if ((cpu_features() & kAvx512Bf16) != 0) here.push_back(&kCeilingsAvx512Bf16);
#elif defined(__aarch64__)
    if ((cpu_features() & kDotprod) != 0) here.push_back(&kCeilingsDotprod);
    if ((cpu_features() & kI8mm) != 0) here.push_back(&kCeilingsI8mm);
#endif
    if (isa.empty()) return *here.back();
    std::string names;
    for (const CeilingLoops *l : here) {
        if (l->isa == isa) return *l;
        names += (names.empty() ? "" : ", ") + std::string(l->isa);
    }
    fail(ErrorKind::usage, "ceilings of '{}' cannot be measured on this machine, which has {}", isa, names);
}

double seconds_between(std::chrono::steady_clock::time_point a, std::chrono::steady_clock::time_point b) {
    return std::chrono::duration<double>(b - a).count();
}

// Time of the calling thread on its processor: others that run in between do not count.
double thread_seconds() {
#if defined(CLOCK_THREAD_CPUTIME_ID)
    timespec t{};
    if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) == 0)
        return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
#endif
    return seconds_between({}, std::chrono::steady_clock::now());
}

std::atomic<uint64_t> sink;

// Arithmetic is timed by each thread's own clock: threads do not share what it uses, so others that get the processor
// in between change nothing. Memory is shared, and so is its time.
enum class TimeOf : uint8_t { each_thread, all };

// Calls of `work(worker)` per second, all workers together, in the best of the rounds that fit into `seconds`.
template <class Work>
double best_rate(ThreadPool &pool, double seconds, TimeOf time, Work &&work) {
    const auto start = std::chrono::steady_clock::now();
    double best = 0;
    std::vector<double> own(pool.size());
    std::vector<std::chrono::steady_clock::time_point> began(pool.size()), ended(pool.size());
    for (unsigned round = 0; round < 3 || seconds_between(start, std::chrono::steady_clock::now()) < seconds; round++) {
        pool.run([&](unsigned worker) {
            pool.barrier(worker);
            began[worker] = std::chrono::steady_clock::now();
            const double own_start = thread_seconds();
            sink.fetch_add(work(worker), std::memory_order_relaxed);
            own[worker] = thread_seconds() - own_start;
            ended[worker] = std::chrono::steady_clock::now();
        });
        double rate = 0;
        if (time == TimeOf::all && pool.size() > 1)  // from the first that began to the last that ended
            rate = pool.size() / seconds_between(*std::min_element(began.begin(), began.end()),
                                                 *std::max_element(ended.begin(), ended.end()));
        else
            for (const double t : own) rate += 1 / t;
        best = std::max(best, rate);
    }
    return best;
}

// Rounds of a loop that take about 5 ms.
uint64_t rounds_for(uint64_t (*loop)(uint64_t)) {
    uint64_t rounds = 1 << 12;
    for (;; rounds *= 2) {
        const double start = thread_seconds();
        sink.fetch_add(loop(rounds), std::memory_order_relaxed);
        if (const double took = thread_seconds() - start; took > 1e-3)
            return static_cast<uint64_t>(static_cast<double>(rounds) * 5e-3 / took) + 1;
    }
}

constexpr size_t kPiece = size_t{8} << 20;

class Measurement {
  public:
    Measurement(unsigned threads, unsigned processors, const CeilingLoops &loops, double seconds)
        : one_(1, processors), all_(threads, processors), processors_(processors), loops_(loops), seconds_(seconds) {}

    template <class F>
    Ceiling both(F &&per_second) {
        Ceiling c;
        c.one = per_second(one_);
        // On a busy machine all threads may never have run together.
        c.all = all_.size() == 1 ? c.one : std::max(c.one, per_second(all_));
        return c;
    }

    Ceiling multiply_adds(uint64_t (*loop)(uint64_t), double per_round) {
        const uint64_t rounds = rounds_for(loop);
        return both([&](ThreadPool &pool) {
            const double calls = best_rate(pool, seconds_, TimeOf::each_thread, [&](unsigned) { return loop(rounds); });
            const double at_once = std::min(1.0, static_cast<double>(processors_) / pool.size());
            return static_cast<double>(rounds) * per_round * calls * at_once;
        });
    }

    // A round is a piece of every thread's stretch, long against a barrier and short against the time for which a busy
    // system leaves all threads running; the rounds walk through the stretches, so that the caches do not help.
    Ceiling read(const std::byte *from, size_t bytes) {
        return both([&](ThreadPool &pool) {
            const size_t share = bytes / pool.size() / 1024 * 1024, piece = std::min(share, kPiece);
            std::vector<size_t> at(pool.size(), 0);
            return static_cast<double>(piece) * best_rate(pool, seconds_, TimeOf::all, [&](unsigned worker) {
                       if (at[worker] + piece > share) at[worker] = 0;
                       const uint64_t found = loops_.read(from + worker * share + at[worker], piece);
                       at[worker] += piece;
                       return found;
                   });
        });
    }

  private:
    ThreadPool one_, all_;
    unsigned processors_;
    const CeilingLoops &loops_;
    double seconds_;
};

}  // namespace

size_t last_level_cache(const std::string &root) {
    size_t most = 0;
    for (int i = 0; i < 8; i++) {
        std::ifstream in(root + "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(i) + "/size");
        size_t size = 0;
        char unit = 0;
        if (!(in >> size)) continue;
        if (in >> unit) size <<= unit == 'K' ? 10 : unit == 'M' ? 20 : unit == 'G' ? 30 : 0;
        most = std::max(most, size);
    }
    return most > 0 ? most : size_t{32} << 20;
}

size_t beyond_caches(const std::string &root) {
    const size_t cache = last_level_cache(root);
    return std::max(4 * cache, std::min(16 * cache, size_t{1} << 30));
}

Ceilings measure_ceilings(const CeilingOptions &options) {
    const Topology topology = read_topology();
    const CeilingLoops &loops = loops_for(options.isa);
    Ceilings c;
    c.isa = loops.isa;
    c.threads = options.threads > 0 ? options.threads : topology.default_threads();
    c.bytes = options.bytes > 0 ? options.bytes : beyond_caches();
    c.bytes = std::max(c.bytes / 1024 * 1024, size_t{c.threads} * 1024);
    Measurement m(c.threads, topology.at_once(), loops, options.seconds);
    // The backend's own memory: what it asks of the system for large blocks (huge pages) is what weights get.
    const std::unique_ptr<Backend> backend = make_cpu_backend({.threads = 1});
    const Buffer memory = backend->allocate(c.bytes, "the measurement of read bandwidth");
    auto *bytes = reinterpret_cast<std::byte *>(memory.address);
    std::memset(bytes, 1, c.bytes);  // pages that nobody has written are all the same one
    c.read = m.read(bytes, c.bytes);
    c.int8 = m.multiply_adds(loops.int8, loops.int8_per_round);
    c.f32 = m.multiply_adds(loops.f32, loops.f32_per_round);
    if (loops.bf16 != nullptr) c.bf16 = m.multiply_adds(loops.bf16, loops.bf16_per_round);
    return c;
}

}  // namespace ridge::cpu
