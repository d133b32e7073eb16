// Kernel rows in isolation: rows that could do the same work in turn, each time on weights that the caches have lost.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <set>
#include <thread>

#include "core/error.h"
#include "measure/bench.h"
#include "measure/bench_problem.h"
#include "measure/quiet.h"

namespace ridge::bench {
namespace {

constexpr unsigned kLeastRounds = 5, kMostRounds = 200;
constexpr unsigned kTries = 4;  // of a point that others disturb
// A sample is long against waking the threads and reading the clock.
constexpr double kSampleSeconds = 1e-3;
constexpr double kSampleMultiplyAdds = 1e9;

class Clock {
  public:
    explicit Clock(bool own) : own_(own) {}
    double now() const {
#if defined(CLOCK_THREAD_CPUTIME_ID)
        timespec t{};
        if (own_ && clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) == 0)
            return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
#endif
        return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
    }

  private:
    bool own_;
};

// One row of the point.
struct Variant {
    const Kernel *row;
    KernelResult result;
    std::vector<std::unique_ptr<Executable>> chunks;
    unsigned repeats = 1;  // of a chunk in one sample
    unsigned rounds = 1;
    double first = 0;  // seconds of the warm-up's chunk
};

bool matches(std::string_view pattern, std::string_view name) {
    if (pattern.find('*') == std::string_view::npos) return name.find(pattern) != std::string_view::npos;
    // Greedy, going back to the last star.
    size_t p = 0, n = 0, star = std::string_view::npos, mark = 0;
    while (n < name.size()) {
        if (p < pattern.size() && pattern[p] == '*') {
            star = p++, mark = n;
        } else if (p < pattern.size() && pattern[p] == name[n]) {
            p++, n++;
        } else if (star != std::string_view::npos) {
            p = star + 1, n = ++mark;
        } else {
            return false;
        }
    }
    while (p < pattern.size() && pattern[p] == '*') p++;
    return p == pattern.size();
}

class Point {
  public:
    Point(Backend &device, const KernelOptions &options, Format format, DType input, uint32_t m, uint32_t depth)
        : options_(options), problem_(device, options, format, input, m, depth), clock_(options.own_time) {
        const double per_launch = std::max(1.0, problem_.multiply_adds());
        const double launches = std::ceil(kSampleMultiplyAdds / per_launch);
        // As even as can be: the last chunk goes on with the first weights where they do not divide.
        const double all = problem_.launches();
        n_chunks_ = static_cast<uint32_t>(std::ceil(all / std::clamp(launches, 1.0, all)));
        per_chunk_ = static_cast<uint32_t>(std::ceil(all / n_chunks_));
        const Kernel *planned = problem_.planned();
        for (const Kernel *k : problem_.rows()) {
            if (!matches(options.row, k->name) || (options.planned_only && k != planned)) continue;
            Variant v{k, {}, {}};
            v.result.row = k->name;
            v.result.point = options.op == "attention" ? fmt::format("{} deep", depth) : info(format).name;
            v.result.input = name(options.op == "attention" ? options.kv : input);
            v.result.tokens = m;
            v.result.planned = k == planned;
            using enum KernelResult::Products;
            v.result.products = k->order == Order::bf16_pairs16 ? bf16 : input == DType::f32 ? f32 : int8;
            v.result.copies = problem_.copies();
            v.result.bytes = problem_.bytes(), v.result.multiply_adds = problem_.multiply_adds();
            variants_.push_back(std::move(v));
        }
    }

    bool empty() const { return variants_.empty(); }

    void measure() {
        for (Variant &v : variants_) warm_up(v);
        plan_rounds();
        for (unsigned attempt = 1;; attempt++) {
            QuietWatch watch;
            run_rounds();
            const Contention during = watch.lap();
            const std::string why = during.reason();
            const bool last = attempt == kTries;
            if (!why.empty() && last && options_.when_busy == WhenBusy::refuse)
                fail(ErrorKind::limit,
                     "the machine is not quiet: {}, in each of {} tries to measure {} with {} tokens; --force measures "
                     "all the same and marks what it measured",
                     why, kTries, variants_[0].result.point, variants_[0].result.tokens);
            if (why.empty() || options_.when_busy == WhenBusy::mark) {
                for (Variant &v : variants_) v.result.contended = why, v.result.clock = during.clock_after;
                return;
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(500));
        }
    }

    const std::vector<Variant> &variants() const { return variants_; }

  private:
    // Goes on with the weights after those that were read last, whichever row read them. Seconds of a chunk.
    double run_chunks(Variant &v, unsigned count) {
        const double start = clock_.now();
        for (unsigned i = 0; i < count; i++) v.chunks[(next_ + i) % n_chunks_]->run(problem_.step());
        const double took = clock_.now() - start;
        next_ = (next_ + count) % n_chunks_;
        return took / count;
    }

    void warm_up(Variant &v) {
        for (uint32_t c = 0; c < n_chunks_; c++)
            v.chunks.push_back(problem_.compile(*v.row, c * per_chunk_, per_chunk_));
        run_chunks(v, 1);
        v.first = run_chunks(v, 1);
        v.repeats = static_cast<unsigned>(std::clamp(std::ceil(kSampleSeconds / std::max(v.first, 1e-9)), 1.0, 1e4));
    }

    // The fast rows get the rounds that the time allows, five at least; a row that is slower by far gets fewer, down to
    // one.
    void plan_rounds() {
        double round = 0;
        for (const Variant &v : variants_) round += std::min(v.first * v.repeats, options_.seconds / kLeastRounds);
        const double seconds = options_.seconds * static_cast<double>(variants_.size());
        const auto rounds =
            static_cast<unsigned>(std::clamp(seconds / round, double{kLeastRounds}, double{kMostRounds}));
        double fastest = variants_[0].first;
        for (const Variant &v : variants_) fastest = std::min(fastest, v.first);
        for (Variant &v : variants_) {
            const double most = 4 * options_.seconds / (v.first * v.repeats);
            const bool slow = v.first > 4 * fastest;
            v.rounds = slow ? static_cast<unsigned>(std::clamp(most, 1.0, static_cast<double>(rounds))) : rounds;
        }
    }

    void run_rounds() {
        unsigned rounds = 0;
        for (Variant &v : variants_) v.result.seconds = {}, rounds = std::max(rounds, v.rounds);
        for (unsigned r = 0; r < rounds; r++)
            for (Variant &v : variants_)
                if (r < v.rounds) v.result.seconds.add(run_chunks(v, v.repeats) / per_chunk_);
    }

    const KernelOptions &options_;
    Problem problem_;
    Clock clock_;
    uint32_t per_chunk_ = 1, n_chunks_ = 1;  // launches of a chunk; chunks until the weights come round again
    uint32_t next_ = 0;                      // chunk
    std::vector<Variant> variants_;
};

// Types of activations that rows for this operation and format read, quantised ones first.
std::vector<DType> inputs(const Backend &device, OpKind op, Format format, bool every) {
    std::set<DType> found;
    for (const Kernel &k : device.kernels())
        if (k.op == op && k.formats.has(format) && (k.needs & ~device.features()) == 0) found.insert(k.input);
    std::vector<DType> list;
    for (const DType t : found)
        if (t != DType::f32) list.push_back(t);
    if (found.contains(DType::f32) && (every || list.empty())) list.push_back(DType::f32);
    return list;
}

}  // namespace

void bench_kernels(Backend &device, const KernelOptions &options,
                   const std::function<void(const KernelResult &)> &emit) {
    const bool attends = options.op == "attention";
    if (!attends && options.op != "contract" && options.op != "gate_up")
        fail(ErrorKind::usage, "--op {}: there is no bench for it; there are contract, gate_up, attention", options.op);
    const OpKind op = options.op == "contract" ? kind<Contract>() : kind<GateUp>();
    size_t measured = 0;
    const auto point = [&](Format format, DType input, uint32_t m, uint32_t depth) {
        Point p(device, options, format, input, m, depth);
        if (p.empty()) return;
        p.measure();
        for (const Variant &v : p.variants()) emit(v.result), measured++;
    };
    if (attends) {
        for (const uint32_t depth : options.depths)
            for (const uint32_t m : options.tokens) point(Format::F32, DType::f32, m, depth);
    } else {
        for (const Format format : options.formats)
            for (const uint32_t m : options.tokens)
                for (const DType input : inputs(device, op, format, options.every_input)) point(format, input, m, 0);
    }
    if (measured == 0)
        fail(ErrorKind::usage, "no row of {} is called '{}'; `ridge gate --list --op {}` lists them", options.op,
             options.row, options.op);
}

}  // namespace ridge::bench
