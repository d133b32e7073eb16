#include "backend/cpu/pool.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

namespace ridge::cpu {
namespace {

// Both ways of waiting: spinning (room for all) and at once asleep (one processor).
class Pool : public testing::TestWithParam<std::tuple<unsigned, unsigned>> {
  protected:
    unsigned threads() const { return std::get<0>(GetParam()); }
    ThreadPool pool_{threads(), std::get<1>(GetParam())};
};

INSTANTIATE_TEST_SUITE_P(Sizes, Pool,
                         testing::Combine(testing::Values(1u, 2u, 3u, 4u, 7u, 16u), testing::Values(1u, 64u)));

TEST_P(Pool, EveryWorkerRunsOnce) {
    ASSERT_EQ(pool_.size(), threads());
    for (int round = 0; round < 200; round++) {
        std::vector<int> runs(threads(), 0);
        pool_.run([&](unsigned worker) { runs[worker]++; });
        ASSERT_EQ(runs, std::vector<int>(threads(), 1));
    }
}

// Each worker writes, all pass the barrier, each reads what its neighbour wrote: plain ints, so that a thread
// sanitizer sees whether the barrier orders them.
TEST_P(Pool, BarrierOrdersWrites) {
    std::vector<int> cell(threads(), 0);
    std::vector<int> wrong(threads(), 0);
    const int phases = 50;
    for (int round = 0; round < 10; round++)
        pool_.run([&](unsigned worker) {
            for (int phase = 0; phase < phases; phase++) {
                cell[worker] = 100 * round + phase;
                pool_.barrier();
                if (cell[(worker + 1) % threads()] != 100 * round + phase) wrong[worker]++;
                pool_.barrier();
            }
        });
    EXPECT_EQ(wrong, std::vector<int>(threads(), 0));
}

TEST_P(Pool, AnExceptionComesOutAndThePoolLivesOn) {
    for (unsigned thrower : {0u, threads() - 1}) {
        try {
            pool_.run([&](unsigned worker) {
                if (worker == thrower) throw std::runtime_error("from worker");
                pool_.barrier();  // would wait for the thrower for ever
                ADD_FAILURE() << "passed a barrier that one worker never reached";
            });
            ADD_FAILURE() << "nothing was thrown";
        } catch (const std::runtime_error &e) {
            EXPECT_STREQ(e.what(), "from worker");
        }
        std::atomic<unsigned> runs{0};
        pool_.run([&](unsigned) {
            pool_.barrier();
            runs++;
        });
        EXPECT_EQ(runs, threads());
    }
}

TEST_P(Pool, AllMayThrow) {
    EXPECT_THROW(pool_.run([](unsigned) { throw std::logic_error("all"); }), std::logic_error);
}

TEST(PoolTurns, CallersFromSeveralThreadsTakeTurns) {
    ThreadPool pool(3, 2);
    int shared = 0;  // only ever touched by worker 0 of a round
    std::vector<std::thread> callers;
    for (int c = 0; c < 4; c++)
        callers.emplace_back([&] {
            for (int i = 0; i < 50; i++)
                pool.run([&](unsigned worker) {
                    if (worker == 0) shared++;
                });
        });
    for (std::thread &t : callers) t.join();
    EXPECT_EQ(shared, 200);
}

TEST(PoolTurns, UnusedPoolsEnd) {
    for (int i = 0; i < 20; i++) ThreadPool(5, 2);
}

}  // namespace
}  // namespace ridge::cpu
