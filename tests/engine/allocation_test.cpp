// Nothing is allocated while a step runs.
#include <atomic>
#include <cstdlib>
#include <new>

#include "backend/cpu/cpu.h"
#include "engine/fuse.h"
#include "engine/support.h"
#include "runtime/tiny_model.h"

namespace {

std::atomic<size_t> g_allocations{0};

void *counted_or_null(size_t n, size_t align) noexcept {
    g_allocations++;
    n = n == 0 ? 1 : n;
    return align > alignof(std::max_align_t) ? std::aligned_alloc(align, (n + align - 1) / align * align)
                                             : std::malloc(n);
}

void *counted(size_t n, size_t align) {
    void *p = counted_or_null(n, align);
    if (p == nullptr) throw std::bad_alloc();
    return p;
}

}  // namespace

// Every operator new of this test program.
void *operator new(size_t n) { return counted(n, 0); }
void *operator new[](size_t n) { return counted(n, 0); }
void *operator new(size_t n, std::align_val_t a) { return counted(n, static_cast<size_t>(a)); }
void *operator new[](size_t n, std::align_val_t a) { return counted(n, static_cast<size_t>(a)); }
void *operator new(size_t n, const std::nothrow_t &) noexcept { return counted_or_null(n, 0); }
void *operator new[](size_t n, const std::nothrow_t &) noexcept { return counted_or_null(n, 0); }
void *operator new(size_t n, std::align_val_t a, const std::nothrow_t &) noexcept {
    return counted_or_null(n, static_cast<size_t>(a));
}
void *operator new[](size_t n, std::align_val_t a, const std::nothrow_t &) noexcept {
    return counted_or_null(n, static_cast<size_t>(a));
}
void operator delete(void *p) noexcept { std::free(p); }
void operator delete[](void *p) noexcept { std::free(p); }
void operator delete(void *p, size_t) noexcept { std::free(p); }
void operator delete[](void *p, size_t) noexcept { std::free(p); }
void operator delete(void *p, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void *p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void *p, size_t, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void *p, size_t, std::align_val_t) noexcept { std::free(p); }

namespace ridge::test {
namespace {

template <class F>
size_t allocations(F f) {
    const size_t before = g_allocations;
    f();
    return g_allocations - before;
}

TEST(Allocation, TheCounterCounts) {
    EXPECT_EQ(allocations([] {}), 0U);
    EXPECT_GT(allocations([] { std::vector<int> v(1000); }), 0U);
}

TEST(Allocation, NoneWhileAStepRuns) {
    for (const char *like : {"tiny-llama", "tiny-qwen3moe"})
        for (LeverSet levers : {LeverSet::defaults(), LeverSet::none()}) {
            const auto a = make_cpu_backend({.name = "a", .threads = 2}),
                       b = make_cpu_backend({.name = "b", .threads = 1});
            WeightStore weights;
            Program p = tiny_model(like).program;
            place(p, {{0, 1}});
            p = fuse(std::move(p), levers);
            insert_copies(p);
            EngineOptions options{.limits = {.tokens = 64, .outputs = 64, .pages = 4}, .pages = 4};
            Engine engine(std::move(p), {a.get(), b.get()}, weights, options);
            engine.prepare();
            StepBuffer step(options.limits);
            for (uint32_t i = 0; i < 4; i++) step.set_page(0, i, i);
            uint32_t at = 0;
            for (uint32_t tokens : {1U, 2U, 3U, 5U, 8U, 17U, 64U, 1U}) {
                step.begin();
                for (uint32_t i = 0; i < tokens; i++, at++) step.add(static_cast<int32_t>(i), at, 0, true);
                EXPECT_EQ(allocations([&] { engine.run(step); }), 0U)
                    << like << ", " << tokens << " tokens, levers " << levers.to_string();
            }
        }
}

TEST(Allocation, NoneWhileASessionDecodes) {
    const auto cpu = make_cpu_backend({.threads = 2});
    WeightStore weights;
    const auto s = session_of(tiny_model("tiny-qwen3"), {cpu.get()}, weights, {.context = 128, .map = {}});
    s->evaluate(some_tokens(20));
    for (int32_t t = 0; t < 60; t++) EXPECT_EQ(allocations([&] { s->evaluate({&t, 1}); }), 0U) << "token " << t;
}

}  // namespace
}  // namespace ridge::test
