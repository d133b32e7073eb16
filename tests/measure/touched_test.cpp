// The bytes that cost() says a contraction reads of its weights, against those that it touches: weights lie in pages
// that cannot be read, and each page that is read nevertheless is counted.
#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "backend/cpu/cpu.h"
#include "engine/engine.h"
#include "engine/trace.h"

#if defined(__linux__)
#include <sys/mman.h>
#include <unistd.h>

namespace ridge {
namespace {

// Pages that count who touches them. One lives at a time.
class Watched {
  public:
    explicit Watched(size_t pages)
        : page_(static_cast<size_t>(sysconf(_SC_PAGESIZE))), pages_(pages), touched_(new std::atomic<bool>[pages]) {
        base_ = static_cast<std::byte *>(
            mmap(nullptr, pages * page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        if (base_ == MAP_FAILED) throw std::bad_alloc();
        current_ = this;
        struct sigaction action = {};
        action.sa_sigaction = on_fault;
        action.sa_flags = SA_SIGINFO;
        sigaction(SIGSEGV, &action, &before_);
    }
    ~Watched() {
        sigaction(SIGSEGV, &before_, nullptr);
        current_ = nullptr;
        munmap(base_, pages_ * page_);
    }
    Watched(const Watched &) = delete;
    Watched &operator=(const Watched &) = delete;

    std::byte *data() const { return base_; }
    size_t page() const { return page_; }
    void protect() {
        for (size_t i = 0; i < pages_; i++) touched_[i] = false;
        mprotect(base_, pages_ * page_, PROT_NONE);
    }
    void release() { mprotect(base_, pages_ * page_, PROT_READ | PROT_WRITE); }
    // Bytes of the pages first .. end-1 that were touched.
    size_t touched(size_t first, size_t end) const {
        size_t n = 0;
        for (size_t i = first; i < end; i++) n += touched_[i] ? page_ : 0;
        return n;
    }

  private:
    static void on_fault(int, siginfo_t *info, void *) {
        const Watched &w = *current_;
        const auto *at = static_cast<std::byte *>(info->si_addr);
        const size_t i = static_cast<size_t>(at - w.base_) / w.page_;
        if (at < w.base_ || i >= w.pages_) {  // somebody's bug: taken again, it ends the program
            signal(SIGSEGV, SIG_DFL);
            return;
        }
        w.touched_[i] = true;
        mprotect(w.base_ + i * w.page_, w.page_, PROT_READ);
    }
    static Watched *current_;
    size_t page_, pages_;
    std::unique_ptr<std::atomic<bool>[]> touched_;
    std::byte *base_;
    struct sigaction before_ = {};
};
Watched *Watched::current_ = nullptr;

// quantize and contract, or gate_up, whose matrices lie in watched pages with a page of nobody after each.
class Launched {
  public:
    Launched(Format f, uint32_t experts, uint32_t slots, bool gate_up) : experts_(experts) {
        constexpr uint32_t k = 512;
        const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
        // Rows enough that each expert is whole pages.
        const auto n = static_cast<uint32_t>(2 * page / std::gcd(page, row_bytes(f, k)));
        const size_t bytes = row_bytes(f, k) * n * experts;
        each_ = bytes / page;
        pages_ = std::make_unique<Watched>(2 * (each_ + 1));
        Program p;
        const ValueId x = p.add_value({.name = "x", .cols = k}),
                      q8 = p.add_value({.name = "x_q8", .type = DType::q8, .cols = k});
        p.inputs = {x};
        ValueId ids = kNone;
        if (experts > 1) p.inputs.push_back(ids = p.add_value({.name = "ids", .type = DType::i32, .cols = slots}));
        const auto weight = [&](size_t i) {
            return p.add_weight({.name = "w" + std::to_string(i),
                                 .format = f,
                                 .n = n,
                                 .k = k,
                                 .experts = experts,
                                 .data = pages_->data() + i * (each_ + 1) * page});
        };
        const auto out = [&] { return p.add_value({.name = "out", .per_row = slots, .cols = n}); };
        p.nodes.push_back({Quantize{x, q8}, 0, 0});
        if (gate_up) {
            GateUp g{.x = q8, .ids = ids};
            g.gate = weight(0), g.up = weight(1), g.out = out();
            p.nodes.push_back({g, 0, 0});
        } else {
            Contract c{.x = q8, .ids = ids, .n_banks = 2};
            for (size_t b = 0; b < 2; b++) c.banks[b] = {weight(b), kNone, out()};
            p.nodes.push_back({c, 0, 0});
        }
        p.levers = LeverSet::defaults();
        ids_ = ids;
        engine_ = std::make_unique<Engine>(std::move(p), std::vector<Backend *>{cpu_.get()}, weights_,
                                           EngineOptions{.limits = {.tokens = 32, .outputs = 1}});
    }

    // For every row that can: what cost() declares is what is touched, and nobody's pages are not.
    void expect_declared_bytes(uint32_t tokens, const std::vector<int32_t> &ids) {
        StepBuffer step(engine_->options().limits);
        step.set_page(0, 0, 0);
        step.begin();
        for (uint32_t i = 0; i < tokens; i++) step.add(0, i, 0, false);
        if (ids_ != kNone) engine_->write_value(ids_, std::as_bytes(std::span(ids)));
        engine_->run(step);
        const Program &p = engine_->program();
        const Op &op = p.nodes[1].op;
        StepCount count{.tokens = tokens};
        if (ids_ != kNone)
            count.expert_share = static_cast<double>(count_experts(ids.data(), ids.size(), experts_)) / experts_;
        const double declared = cost(p, op, count).weight_bytes;
        const std::vector<const Kernel *> rows = legal_rows(p, op, *cpu_, tokens);
        ASSERT_FALSE(rows.empty());
        for (const Kernel *row : rows) {
            SCOPED_TRACE(std::string(row->name) + ", " + std::to_string(tokens) + " tokens");
            pages_->protect();
            engine_->run_node(1, *row, step);
            size_t touched = 0, beyond = 0;
            for (size_t m = 0; m < 2; m++) {
                const size_t first = m * (each_ + 1);
                touched += pages_->touched(first, first + each_);
                beyond += pages_->touched(first + each_, first + each_ + 1);
            }
            pages_->release();
            EXPECT_EQ(static_cast<double>(touched), declared);
            EXPECT_EQ(beyond, 0U);
        }
    }

  private:
    std::unique_ptr<Backend> cpu_ = make_cpu_backend({.threads = 2});
    WeightStore weights_;
    uint32_t experts_;
    size_t each_ = 0;  // pages of a matrix of all experts
    std::unique_ptr<Watched> pages_;
    ValueId ids_ = kNone;
    std::unique_ptr<Engine> engine_;
};

TEST(TouchedBytes, OfDenseContractions) {
    for (Format f : {Format::Q4_K, Format::Q8_0, Format::IQ2_XXS})
        for (bool gate_up : {false, true}) {
            Launched l(f, 1, 1, gate_up);
            for (uint32_t tokens : {1U, 3U, 32U}) l.expect_declared_bytes(tokens, {});
        }
}

TEST(TouchedBytes, OfExpertsWithTokensOnly) {
    for (Format f : {Format::Q4_K, Format::MXFP4})
        for (bool gate_up : {false, true}) {
            Launched l(f, 8, 2, gate_up);
            l.expect_declared_bytes(1, {5, 2});
            l.expect_declared_bytes(3, {5, 2, 2, 7, 5, 7});
            std::vector<int32_t> many;
            for (int32_t i = 0; i < 32; i++) many.push_back(i % 3), many.push_back(6);
            l.expect_declared_bytes(32, many);
        }
}

}  // namespace
}  // namespace ridge

#endif
