#include "backend/cpu/pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "backend/cpu/topology.h"

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
                pool_.barrier(worker);
                if (cell[(worker + 1) % threads()] != 100 * round + phase) wrong[worker]++;
                pool_.barrier(worker);
            }
        });
    EXPECT_EQ(wrong, std::vector<int>(threads(), 0));
}

TEST_P(Pool, AnExceptionComesOutAndThePoolLivesOn) {
    for (unsigned thrower : {0u, threads() - 1}) {
        try {
            pool_.run([&](unsigned worker) {
                if (worker == thrower) throw std::runtime_error("from worker");
                pool_.barrier(worker);  // would wait for the thrower for ever
                ADD_FAILURE() << "passed a barrier that one worker never reached";
            });
            ADD_FAILURE() << "nothing was thrown";
        } catch (const std::runtime_error &e) {
            EXPECT_STREQ(e.what(), "from worker");
        }
        std::atomic<unsigned> runs{0};
        pool_.run([&](unsigned worker) {
            pool_.barrier(worker);
            runs++;
        });
        EXPECT_EQ(runs, threads());
    }
}

// A worker that waits is given the time; the last one to come is not.
TEST_P(Pool, IdleIsCalledWhileOthersAreAwaited) {
    std::vector<int> calls(threads(), 0);
    std::atomic<unsigned> waiting{0};
    pool_.run([&](unsigned worker) {
        if (worker == 0)
            while (waiting != threads() - 1) std::this_thread::yield();
        pool_.barrier(worker, [&] {
            if (calls[worker]++ == 0) waiting++;
            return calls[worker] < 5;
        });
    });
    EXPECT_EQ(calls[0], 0);
    for (unsigned w = 1; w < threads(); w++) {
        EXPECT_GE(calls[w], 1);
        EXPECT_LE(calls[w], 5);
    }
}

TEST_P(Pool, AnExceptionReachesWorkersInIdle) {
    std::atomic<unsigned> waiting{0};
    EXPECT_THROW(pool_.run([&](unsigned worker) {
        if (worker == 0) {
            while (waiting != threads() - 1) std::this_thread::yield();
            throw std::runtime_error("from worker");
        }
        bool first = true;
        pool_.barrier(worker, [&] {
            if (std::exchange(first, false)) waiting++;
            return true;
        });
        ADD_FAILURE() << "passed a barrier that one worker never reached";
    }),
                 std::runtime_error);
}

// As above, with threads that look where the others are and move.
TEST_P(Pool, ApartOrdersWritesToo) {
    std::vector<int> cell(threads(), 0), wrong(threads(), 0);
    for (int round = 0; round < 50; round++)
        pool_.run(
            [&](unsigned worker) {
                cell[worker] = round;
                pool_.barrier(worker);
                if (cell[(worker + 1) % threads()] != round) wrong[worker]++;
                pool_.barrier(worker);
            },
            Placement::apart);
    EXPECT_EQ(wrong, std::vector<int>(threads(), 0));
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

TEST(PoolPlacement, MovesOffAndKeepsTheMask) {
    const std::vector<int> mask = affinity_mask();
    const int here = current_processor();
    if (here < 0 || mask.size() < 2) GTEST_SKIP() << "one processor, or a system that does not say which";
    EXPECT_FALSE(move_off(mask, mask));  // all are taken
    EXPECT_FALSE(move_off({}, {}));
    const std::vector<int> none = {-1, 1 << 20};
    EXPECT_FALSE(move_off({}, none));
    for (int target : mask) {
        std::vector<int> taken;
        for (int c : mask)
            if (c != target) taken.push_back(c);
        ASSERT_TRUE(move_off(taken, mask));
        EXPECT_EQ(affinity_mask(), mask);
    }
}

// Threads that share a processor end on two, and the caller's mask is what it was. The scheduler may move them again at
// any time, so this must succeed in one of many attempts, not in each.
TEST(PoolPlacement, ThreadsOnOneProcessorPart) {
    const std::vector<int> mask = affinity_mask();
    if (current_processor() < 0 || mask.size() < 2)
        GTEST_SKIP() << "one processor, or a system that does not say which";
    ThreadPool pool(2, 2, mask);
    int parted = 0;
    for (int attempt = 0; attempt < 50 && parted == 0; attempt++) {
        int at[2] = {};
        pool.run(
            [&](unsigned worker) {
                // Both to the first processor.
                std::vector<int> others(mask.begin() + 1, mask.end());
                move_off(others, mask);
                for (int i = 0; i < 20; i++) pool.barrier(worker);
                at[worker] = current_processor();
            },
            Placement::apart);
        parted += at[0] != at[1];
    }
    EXPECT_GT(parted, 0);
    EXPECT_EQ(affinity_mask(), mask);
}

TEST(PoolTurns, UnusedPoolsEnd) {
    for (int i = 0; i < 20; i++) ThreadPool(5, 2);
}

}  // namespace
}  // namespace ridge::cpu
