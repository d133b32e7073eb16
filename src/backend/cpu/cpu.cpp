// The CPU backend: memory of the process, weights where the file is mapped, and an executor that wakes the pool once
// for a whole segment and walks its launches with a barrier between them.
#include "backend/cpu/cpu.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>

#include "backend/cpu/pool.h"
#include "backend/cpu/rows.h"
#include "backend/cpu/topology.h"
#include "core/error.h"

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

// Free bytes that no large block will take when it is touched. What the process has present may be other memory than
// large blocks: then this is too high by that much.
uint64_t unpromised() {
    const cpu::Memory m = cpu::read_memory();
    const uint64_t large = large_bytes, untouched = large - std::min(large, m.present);
    return m.free - std::min(m.free, untouched);
}

class CpuExecutable final : public Executable {
  public:
    CpuExecutable(cpu::ThreadPool &pool, const Program &program, const Bindings &bindings, std::vector<Launch> launches)
        : pool_(pool),
          program_(program),
          bindings_(bindings),
          launches_(std::move(launches)),
          taken_(launches_.size() * pool.size()) {
        size_t bytes = 0;
        for (const Launch &l : launches_) {
            RIDGE_ASSERT(l.kernel != nullptr && l.kernel->op == program_.nodes[l.node].op.index());
            bytes = std::max(bytes, l.kernel->tile.scratch_bytes);
        }
        for (unsigned w = 0; w < pool_.size(); w++) {
            scratch_.push_back(allocate_zeroed(bytes));
            if (!scratch_.back())
                fail(ErrorKind::limit, "no memory for the {} scratch buffers of {}; use fewer threads", pool_.size(),
                     mebibytes(bytes));
        }
    }

    void run(const StepBuffer &step) override {
        const StepView view = step.view();
        for (Taken &t : taken_) t.tiles.store(0, std::memory_order_relaxed);
        pool_.run([&](unsigned worker) { walk(view, worker); });
    }

  private:
    // Every worker walks all launches and decides alike about barriers. A launch of a single tile is worker 0's, so
    // between two such launches there is nothing to wait for.
    void walk(const StepView &step, unsigned worker) {
        auto *scratch = static_cast<std::byte *>(scratch_[worker].get());
        uint32_t before = 0;  // tiles of the last launch that had any
        for (size_t i = 0; i < launches_.size(); i++) {
            const LaunchView view{program_, program_.nodes[launches_[i].node].op, bindings_, step};
            const Tile &tile = launches_[i].kernel->tile;
            const uint32_t count = tile.count(view);
            if (count == 0) continue;
            if (before > 1 || (before == 1 && count > 1)) pool_.barrier();
            before = count;
            if (count == 1) {
                if (worker == 0) tile.run(view, 0, scratch);
                continue;
            }
            // Neighbouring tiles read neighbouring memory, so each worker has a stretch of them; whoever is done early
            // takes from the stretches of the others.
            const auto workers = static_cast<uint32_t>(pool_.size());
            for (uint32_t k = 0; k < workers; k++) {
                const uint32_t owner = (worker + k) % workers;
                const auto start = [&](uint32_t w) { return static_cast<uint32_t>(uint64_t{count} * w / workers); };
                const uint32_t first = start(owner), end = start(owner + 1);
                std::atomic<uint32_t> &taken = taken_[i * workers + owner].tiles;
                if (taken.load(std::memory_order_relaxed) >= end - first) continue;  // spares others a busy line
                for (uint32_t t; (t = first + taken.fetch_add(1, std::memory_order_relaxed)) < end;)
                    tile.run(view, t, scratch);
            }
        }
    }

    cpu::ThreadPool &pool_;
    const Program &program_;
    const Bindings &bindings_;
    const std::vector<Launch> launches_;
    struct alignas(64) Taken {
        std::atomic<uint32_t> tiles{0};
    };
    std::vector<Taken> taken_;  // of each launch and worker: how many tiles of its stretch somebody has
    std::vector<std::shared_ptr<void>> scratch_;  // of each worker
};

class CpuBackend final : public Backend {
  public:
    CpuBackend(std::string name, cpu::Topology topology, unsigned threads)
        : name_(std::move(name)), topology_(std::move(topology)), pool_(threads, topology_.at_once()) {}

    DeviceInfo info() const override {
        const cpu::Memory memory = cpu::read_memory();
        const std::string names = feature_names(features());
        return {
            name_,
            fmt::format("{}, {} thread{} on {} core{}{}{}", topology_.model, pool_.size(), pool_.size() == 1 ? "" : "s",
                        topology_.cores, topology_.cores == 1 ? "" : "s", names.empty() ? "" : ", ", names),
            memory.total, memory.free};
    }

    std::span<const Kernel> kernels() const override { return cpu_kernels(); }
    Features features() const override { return cpu_features(); }

    std::string feature_names(Features f) const override {
        std::string names;
        const auto add = [&](Features bit, const char *text) {
            if ((f & bit) != 0) names += (names.empty() ? "" : " ") + std::string(text);
        };
        add(cpu::kAvx2, "avx2");
        add(cpu::kAvx512, "avx512vnni");
        return names;
    }

    Buffer allocate(size_t bytes, std::string_view what) override {
        // The kernel promises more than it has and kills who takes it at its word, so large wishes are checked first,
        // together with those that were granted and are not touched yet.
        const auto refuse = [&](uint64_t free) {
            fail(ErrorKind::limit, "{}: {} for {} do not fit: {} are free. A shorter context or a smaller model would",
                 name_, mebibytes(bytes), what, mebibytes(free));
        };
        if (bytes >= kHugePage)
            if (const uint64_t free = unpromised(); bytes > free) refuse(free);
        std::shared_ptr<void> owner = allocate_zeroed(bytes);
        if (!owner) refuse(unpromised());
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
        return std::make_unique<CpuExecutable>(pool_, program, bindings, std::move(launches));
    }

  private:
    const std::string name_;
    const cpu::Topology topology_;
    cpu::ThreadPool pool_;
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
        add({cpu::kContractAvx2, cpu::kQuantizeAvx2, cpu::kOpsAvx2});
        add({cpu::kContractAvx512, cpu::kQuantizeAvx512, cpu::kOpsAvx512});
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
