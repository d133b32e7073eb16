// The CPU backend: memory of the process, weights where the file is mapped, and an executor that wakes the pool once
// for a whole segment and walks its launches with a barrier between them.
#include "backend/cpu/cpu.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <utility>

#include "backend/cpu/ahead.h"
#include "backend/cpu/pool.h"
#include "backend/cpu/rows.h"
#include "backend/cpu/topology.h"
#include "core/error.h"
#include "engine/trace.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace ridge {
namespace {

constexpr size_t kAlign = 64;
constexpr size_t kHugePage = size_t{2} << 20;

size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

std::string mebibytes(uint64_t bytes) { return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20)); }

// Bytes of large blocks that this process holds.
std::atomic<uint64_t> large_bytes{0};

// Zero-filled and 64-byte aligned; null where there is no memory. Large blocks come from the kernel, which fills them
// page by page as they are touched.
std::shared_ptr<void> allocate_zeroed(size_t bytes) {
#if defined(__linux__)
    if (bytes >= kHugePage) {
        const size_t size = round_up(bytes, kHugePage);
        void *p = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED) return nullptr;
        madvise(p, size, MADV_HUGEPAGE);  // a wish: without it everything works, with more TLB misses
        large_bytes += size;
        return {p, [size](void *q) {
                    munmap(q, size);
                    large_bytes -= size;
                }};
    }
#endif
    const size_t size = round_up(std::max<size_t>(bytes, 1), kAlign);
    void *p = std::aligned_alloc(kAlign, size);
    if (p == nullptr) return nullptr;
    std::memset(p, 0, size);
    return {p, [](void *q) { std::free(q); }};
}

// What the system says, as old as `age` at most: to ask takes 0.3 ms, and a session allocates the state of every
// layer.
cpu::Memory recent_memory(std::chrono::milliseconds age) {
    using Clock = std::chrono::steady_clock;
    static std::mutex mutex;
    static cpu::Memory memory;
    static Clock::time_point read;
    const std::lock_guard lock(mutex);
    if (const Clock::time_point now = Clock::now(); memory.total == 0 || now - read >= age) {
        memory = cpu::read_memory();
        read = now;
    }
    return memory;
}

// Free bytes that no large block will take when it is touched. What the process has present may be other memory than
// large blocks: then this is too high by that much.
uint64_t unpromised(std::chrono::milliseconds age) {
    const cpu::Memory m = recent_memory(age);
    const uint64_t large = large_bytes, untouched = large - std::min(large, m.present);
    return m.free - std::min(m.free, untouched);
}

// The threads and what each keeps for all executables. Each allocates its own scratch, so that it lies near its
// processor on machines with several memories.
class Team {
  public:
    Team(unsigned threads, const cpu::Topology &topology)
        : pool_(threads, topology.at_once(), topology.preferred), scratch_(pool_.size()) {}

    cpu::ThreadPool &pool() { return pool_; }
    const cpu::ThreadPool &pool() const { return pool_; }
    std::byte *scratch(unsigned worker) const { return static_cast<std::byte *>(scratch_[worker].get()); }

    // Scratch of at least so many bytes from now on.
    void reserve(size_t bytes) {
        const std::lock_guard lock(mutex_);
        if (bytes <= bytes_) return;
        std::atomic<bool> failed{false};
        pool_.run([&](unsigned worker) {
            if (std::shared_ptr<void> p = allocate_zeroed(bytes))
                scratch_[worker] = std::move(p);
            else
                failed = true;
        });
        if (failed)
            fail(ErrorKind::limit, "no memory for the {} scratch buffers of {}; use fewer threads", pool_.size(),
                 mebibytes(bytes));
        bytes_ = bytes;
    }

  private:
    cpu::ThreadPool pool_;
    std::mutex mutex_;
    size_t bytes_ = 0;
    std::vector<std::shared_ptr<void>> scratch_;  // of each worker; replaced only inside pool_.run
};

// What a worker that walks a segment tells of. Unwatched is the walk as it is without a trace: nothing remains of it.
struct Unwatched {
    void begin(size_t) {}
    void met() {}
    void ran(size_t, uint32_t) {}
    void routed(size_t, const LaunchView &) {}
};

// A worker's own notes of its walk, in memory that it touches alone. The end of one thing is the start of the next, so
// each costs one look at the clock.
class alignas(64) Watch {
  public:
    struct Entry {
        TraceClock::time_point start, end;
        uint32_t tiles = 0, experts = 0;
    };

    void begin(size_t launches) {
        entries_.assign(launches, {});
        barriers_ = stamps_ = 0;
        waited_ = counted_ = {};
        last_ = TraceClock::now();
    }
    // All workers have met.
    void met() {
        waited_ += lap();
        barriers_++;
    }
    void ran(size_t launch, uint32_t tiles) {
        const TraceClock::time_point start = last_;
        const TraceClock::duration took = lap();
        if (tiles > 0)
            entries_[launch].start = start, entries_[launch].end = last_, entries_[launch].tiles = tiles;
        else
            waited_ += took;
    }
    // While others may still run the launch, so its ids are there. Not part of any launch.
    void routed(size_t launch, const LaunchView &view) {
        const ValueId ids = expert_ids(view.op);
        if (ids == kNone) return;
        entries_[launch].experts = count_experts(view.ptr<const int32_t>(ids), view.rows(ids) * view.cols(ids),
                                                 expert_total(view.program, view.op));
        const TraceClock::duration took = lap();
        counted_ += took, waited_ += took;
    }

    const Entry &entry(size_t launch) const { return entries_[launch]; }
    TraceClock::time_point last() const { return last_; }
    uint32_t barriers() const { return barriers_; }
    TraceClock::duration waited() const { return waited_; }
    double overhead() const { return stamps_ * stamp_cost() + std::chrono::duration<double>(counted_).count(); }

  private:
    TraceClock::duration lap() {
        const TraceClock::time_point now = TraceClock::now();
        stamps_++;
        return now - std::exchange(last_, now);
    }
    std::vector<Entry> entries_;
    TraceClock::time_point last_;
    TraceClock::duration waited_{}, counted_{};
    uint32_t barriers_ = 0, stamps_ = 0;
};

class CpuExecutable final : public Executable {
  public:
    CpuExecutable(Team &team, const Program &program, const Bindings &bindings, std::vector<Launch> launches)
        : team_(team),
          placement_(program.levers.has(Lever::apart) ? cpu::Placement::apart : cpu::Placement::free),
          program_(program),
          bindings_(bindings),
          launches_(std::move(launches)),
          taken_(2 * team.pool().size()) {
        size_t bytes = 0, shared = 0;
        for (const Launch &l : launches_) {
            RIDGE_ASSERT(l.kernel != nullptr && l.kernel->op == program_.nodes[l.node].op.index());
            const Tile &tile = l.kernel->tile;
            bytes = std::max(bytes, tile.scratch_bytes);
            if (tile.shared_bytes)
                shared = std::max(shared, tile.shared_bytes(program_, program_.nodes[l.node].op, bindings_.limits));
        }
        if (shared > 0) shared_ = allocate_zeroed(shared);  // without it rows do without
        team_.reserve(bytes);
        next_known_.assign(launches_.size(), launches_.size());
        if (!program_.levers.has(Lever::ahead)) return;
        for (size_t i = launches_.size(), next = i; i-- > 0;)
            next_known_[i] = next = cpu::Ahead::knows(launches_[i], op(i)) ? i : next;
    }

    void run(const StepBuffer &step, StepTrace *trace) override {
        const StepView view = step.view();
        for (Taken &t : taken_) t.tiles.store(0, std::memory_order_relaxed);
        if (trace == nullptr) {
            team_.pool().run(
                [&](unsigned worker) {
                    Unwatched nothing;
                    walk(view, worker, nothing);
                },
                placement_);
            return;
        }
        watches_.resize(team_.pool().size());
        team_.pool().run([&](unsigned worker) { walk(view, worker, watches_[worker]); }, placement_);
        note(*trace);
    }

  private:
    struct alignas(64) Taken {
        std::atomic<uint32_t> tiles{0};
    };
    // The launch whose weights a worker fetches ahead.
    struct Target {
        size_t launch = static_cast<size_t>(-1);
        cpu::Ahead weights;
    };

    // Every worker walks all launches and decides alike about barriers. A launch of a single tile is worker 0's, so
    // between two such launches there is nothing to wait for.
    template <class W>
    void walk(const StepView &step, unsigned worker, W &watch) {
        cpu::ThreadPool &pool = team_.pool();
        std::byte *scratch = team_.scratch(worker);
        Taken *taken = &taken_[0], *other = &taken_[pool.size()];
        uint32_t before = 0;  // tiles of the last launch that had any
        Target ahead;
        watch.begin(launches_.size());
        for (size_t i = 0; i < launches_.size(); i++) {
            const LaunchView view = view_of(i, step);
            const Tile &tile = launches_[i].kernel->tile;
            const uint32_t count = tile.count(view);
            if (count == 0) continue;
            if (before > 1 || (before == 1 && count > 1)) {
                wait(step, i, worker, ahead);
                watch.met();
            }
            before = count;
            if (count == 1) {
                if (worker != 0) continue;
                tile.run(view, 0, scratch);
                watch.ran(i, 1);
                watch.routed(i, view);
                continue;
            }
            // Nobody takes from the launch before any more, nor from the next one yet.
            other[worker].tiles.store(0, std::memory_order_relaxed);
            watch.ran(i, share(view, tile, count, taken, worker, scratch));
            if (worker == 0) watch.routed(i, view);
            std::swap(taken, other);
        }
    }

    // Puts the workers' notes together.
    void note(StepTrace &trace) const {
        const TraceClock::time_point start = TraceClock::now();
        const auto workers = static_cast<uint32_t>(watches_.size());
        TraceClock::time_point end{};
        for (const Watch &w : watches_) end = std::max(end, w.last());
        for (size_t i = 0; i < launches_.size(); i++) {
            LaunchTrace l{.kernel = launches_[i].kernel,
                          .node = launches_[i].node,
                          .device = program_.nodes[launches_[i].node].device,
                          .workers = workers};
            for (const Watch &w : watches_) {
                const Watch::Entry &e = w.entry(i);
                l.experts += e.experts;
                if (e.tiles == 0) continue;
                const double first = trace.time_of(e.start), last = trace.time_of(e.end);
                l.start = l.tiles > 0 ? std::min(l.start, first) : first;
                l.end = std::max(l.end, last);
                l.busy += last - first;
                l.tiles += e.tiles;
            }
            if (l.tiles > 0) trace.launches.push_back(l);
        }
        double overhead = 0;
        for (const Watch &w : watches_) {
            trace.waiting += std::chrono::duration<double>(w.waited() + (end - w.last())).count();
            overhead = std::max(overhead, w.overhead());
        }
        trace.workers = std::max(trace.workers, workers);
        if (workers > 1) trace.barriers += watches_[0].barriers() + 1;
        trace.overhead += overhead + std::chrono::duration<double>(TraceClock::now() - start).count();
    }

    const Op &op(size_t launch) const { return program_.nodes[launches_[launch].node].op; }
    LaunchView view_of(size_t launch, const StepView &step) const {
        return {program_,
                op(launch),
                bindings_,
                step,
                static_cast<std::byte *>(shared_.get()),
                static_cast<uint32_t>(team_.pool().size())};
    }

    static uint32_t start_of(uint32_t worker, uint32_t count, uint32_t workers) {
        return static_cast<uint32_t>(uint64_t{count} * worker / workers);
    }

    // Waits before launch i, and meanwhile fetches weights for this launch or the first after it that has known ones.
    void wait(const StepView &step, size_t i, unsigned worker, Target &ahead) {
        cpu::ThreadPool &pool = team_.pool();
        const size_t next = next_known_[i];
        if (next == launches_.size() || step.tokens() > cpu::Ahead::kMostTokens) return pool.barrier(worker);
        const LaunchView view = view_of(next, step);
        pool.barrier(worker, [&] {
            if (ahead.launch != next) {
                const uint32_t count = launches_[next].kernel->tile.count(view);
                ahead.launch = next;
                ahead.weights.aim(view, start_of(worker, count, pool.size()), start_of(worker + 1, count, pool.size()));
            }
            return ahead.weights.step(view);
        });
    }

    // Neighbouring tiles read neighbouring memory, so each worker has a stretch of them; whoever is done early takes
    // from the stretches of the others. Returns how many this worker ran.
    uint32_t share(const LaunchView &view, const Tile &tile, uint32_t count, Taken *taken, unsigned worker,
                   std::byte *scratch) {
        const auto workers = static_cast<uint32_t>(team_.pool().size());
        uint32_t ran = 0;
        for (uint32_t k = 0; k < workers; k++) {
            const uint32_t owner = worker + k < workers ? worker + k : worker + k - workers;
            const uint32_t first = start_of(owner, count, workers), end = start_of(owner + 1, count, workers);
            std::atomic<uint32_t> &tiles = taken[owner].tiles;
            if (tiles.load(std::memory_order_relaxed) >= end - first) continue;  // spares others a busy line
            for (uint32_t t; (t = first + tiles.fetch_add(1, std::memory_order_relaxed)) < end; ran++)
                tile.run(view, t, scratch);
        }
        return ran;
    }

    Team &team_;
    const cpu::Placement placement_;
    const Program &program_;
    const Bindings &bindings_;
    const std::vector<Launch> launches_;
    std::vector<size_t> next_known_;  // per launch: it or the first after it whose weights can be fetched ahead
    // Two sets of how many tiles of each worker's stretch somebody has, which launches use in turn: there is a barrier
    // between two, so each worker clears its own of one while the other is in use, and the lines stay in its cache.
    std::vector<Taken> taken_;
    std::shared_ptr<void> shared_;  // by the workers, see Tile::shared_bytes
    std::vector<Watch> watches_;    // of each worker, for runs with a trace; empty before the first
};

class CpuBackend final : public Backend {
  public:
    CpuBackend(std::string name, cpu::Topology topology, unsigned threads)
        : name_(std::move(name)), topology_(std::move(topology)), team_(threads, topology_) {}

    DeviceInfo info() const override {
        const cpu::Memory memory = cpu::read_memory();
        const unsigned threads = team_.pool().size();
        const std::string names = feature_names(features());
        return {name_,
                fmt::format("{}, {} thread{} on {} core{}{}{}", topology_.model, threads, threads == 1 ? "" : "s",
                            topology_.cores, topology_.cores == 1 ? "" : "s", names.empty() ? "" : ", ", names),
                memory.total,
                memory.free,
                threads,
                cpu::system_release()};
    }

    std::span<const Kernel> kernels() const override { return cpu_kernels(); }
    Features features() const override { return cpu_features(); }

    std::string feature_names(Features f) const override {
        std::string names;
        const auto add = [&](Features bit, const char *text) {
            if ((f & bit) != 0) names += (names.empty() ? "" : " ") + std::string(text);
        };
        add(cpu::kAvx2, "avx2");
        add(cpu::kAvxVnni, "avxvnni");
        add(cpu::kAvx512, "avx512vnni");
        add(cpu::kAvx512Bf16, "avx512bf16");
        add(cpu::kAvx512Vbmi, "avx512vbmi");
        add(cpu::kNeon, "neon");
        add(cpu::kDotprod, "dotprod");
        add(cpu::kI8mm, "i8mm");
        return names;
    }

    Buffer allocate(size_t bytes, std::string_view what) override {
        // The kernel promises more than it has and kills who takes it at its word, so large wishes are checked first,
        // together with those that were granted and are not touched yet.
        const auto refuse = [&](uint64_t free) {
            fail(ErrorKind::limit, "{}: {} for {} do not fit: {} are free. A shorter context or a smaller model would",
                 name_, mebibytes(bytes), what, mebibytes(free));
        };
        using std::chrono::milliseconds;
        if (bytes >= kHugePage && bytes > unpromised(milliseconds(50)))
            if (const uint64_t free = unpromised(milliseconds(0)); bytes > free) refuse(free);
        std::shared_ptr<void> owner = allocate_zeroed(bytes);
        if (!owner) refuse(unpromised(milliseconds(0)));
        const auto address = reinterpret_cast<uint64_t>(owner.get());
        return {address, bytes, std::move(owner)};
    }

    Buffer load(const Weight &w, Layout layout) override {
        RIDGE_ASSERT(layout == Layout::file);
        return {reinterpret_cast<uint64_t>(w.data), w.bytes(), nullptr};
    }

    void upload(const Buffer &to, size_t offset, std::span<const std::byte> from) override {
        RIDGE_ASSERT(offset <= to.bytes && from.size() <= to.bytes - offset);
        if (!from.empty()) std::memcpy(reinterpret_cast<std::byte *>(to.address) + offset, from.data(), from.size());
    }

    void download(const Buffer &from, size_t offset, std::span<std::byte> to) override {
        RIDGE_ASSERT(offset <= from.bytes && to.size() <= from.bytes - offset);
        if (!to.empty()) std::memcpy(to.data(), reinterpret_cast<std::byte *>(from.address) + offset, to.size());
    }

    std::unique_ptr<Executable> compile(const Program &program, const Bindings &bindings,
                                        std::vector<Launch> launches) override {
        return std::make_unique<CpuExecutable>(team_, program, bindings, std::move(launches));
    }

  private:
    const std::string name_;
    const cpu::Topology topology_;
    Team team_;
};

}  // namespace

std::span<const Kernel> cpu_kernels() {
    static const std::vector<Kernel> rows = [] {
        std::vector<Kernel> r;
        const auto add = [&r](std::initializer_list<cpu::RowTable> tables) {
            for (cpu::RowTable t : tables) r.insert(r.end(), t.begin(), t.end());
        };
        add({cpu::kContractPortable, cpu::kQuantizePortable, cpu::kOpsPlain, cpu::kOpsPortable});
#if defined(__x86_64__)
        add({cpu::kContractAvx2, cpu::kContractAvxVnni, cpu::kQuantizeAvx2, cpu::kOpsAvx2});
        add({cpu::kContractAvx512Vbmi, cpu::kContractAvx512Bf16, cpu::kContractAvx512, cpu::kQuantizeAvx512,
             cpu::kOpsAvx512});
#elif defined(__aarch64__)
        add({cpu::kContractNeon, cpu::kQuantizeNeon, cpu::kOpsNeon});
        add({cpu::kContractDotprod, cpu::kContractI8mm});
#endif
        return r;
    }();
    return rows;
}

std::unique_ptr<Backend> make_cpu_backend(const CpuOptions &options) {
    cpu::Topology topology = cpu::read_topology();
    const auto logical = static_cast<unsigned>(topology.processors.size());
    if (options.threads > 4 * logical)
        fail(ErrorKind::usage, "{} threads are too many for the {} processors this process may use; ask for {} at most",
             options.threads, logical, 4 * logical);
    const unsigned threads = options.threads > 0 ? options.threads : topology.default_threads();
    return std::make_unique<CpuBackend>(options.name, std::move(topology), threads);
}

}  // namespace ridge
