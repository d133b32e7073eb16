// Small kernels for the tests of the emulator itself, right and wrong ones.
#include "emulator_kernels.h"

#include "backend/simt/device.h"

namespace ridge::simt {

// Each block reverses its 256 words through shared memory.
KERNEL(emulator_reverse, EmulatorArgs, 256, 1) {
    wait_for_previous();
    auto *words = reinterpret_cast<u32 *>(shared());
    const u32 at = block_x() * 256;
    words[thread()] = load(a.a + at + thread());
    sync();
    store(a.b + at + thread(), words[255 - thread()]);
}

// Each thread: what the lane three further on in its wave has, after shared memory went round within the wave.
KERNEL(emulator_rotate, EmulatorArgs, 192, 1) {
    wait_for_previous();
    auto *words = reinterpret_cast<u32 *>(shared());
    const u32 at = block_x() * 192 + thread();
    u32 v = load(a.a + at);
    for (u32 i = 0; i < 3; i++) {
        words[thread()] = v;
        sync_wave();
        v = words[wave() * kWave + (lane() + 1) % kWave];
        sync_wave();
    }
    const u32 same = shuffle(load(a.a + at), (lane() + 3) % kWave);
    store(a.b + at, v == same ? v : ~0u);
}

// Sums of floats over waves, per block, and over blocks by the block that comes last.
KERNEL(emulator_sum, EmulatorArgs, 256, 1) {
    wait_for_previous();
    auto *sums = reinterpret_cast<i32 *>(shared());
    auto *last = reinterpret_cast<u32 *>(shared() + 1024);
    i32 v = static_cast<i32>(load(a.a + block_x() * 256 + thread()));
    v = sum_lanes(v);
    if (lane() == 0) sums[wave()] = v;
    sync();
    if (thread() == 0) {
        i32 total = 0;
        for (u32 i = 0; i < 256 / kWave; i++) total += sums[i];
        store(a.b + 2 + block_x(), static_cast<u32>(total));
        fence();
        *last = atomic_add(a.b, 1) == a.n - 1;
    }
    sync();
    if (*last == 0) return;
    // Of the last block all threads sum what the blocks stored.
    i32 mine = 0;
    for (u32 i = thread(); i < a.n; i += 256) mine += static_cast<i32>(load(a.b + 2 + i));
    mine = sum_lanes(mine);
    if (lane() == 0) sums[wave()] = mine;
    sync();
    if (thread() != 0) return;
    i32 total = 0;
    for (u32 i = 0; i < 256 / kWave; i++) total += sums[i];
    store(a.b + 1, static_cast<u32>(total));
    store(a.b, 0u);
}

// A persistent kernel: in each of a.n rounds every block adds to its word what its neighbour's was in the round before.
// a.b: rounds done by each block, then two sets of words.
KERNEL(emulator_rounds, EmulatorArgs, 64, 1) {
    wait_for_previous();
    const u32 blocks = load(a.a), neighbour = (block_x() + 1) % blocks;
    u32 *words = a.b + blocks;
    for (u32 round = 0; round < a.n; round++) {
        if (thread() == 0) {
            // Nobody is overtaken by two rounds.
            for (u32 i = 0; i < blocks; i++)
                while (load_acquire(a.b + i) < round) {
                }
            const u32 v = load(words + round % 2 * blocks + block_x()) + load(words + round % 2 * blocks + neighbour);
            store(words + (round + 1) % 2 * blocks + block_x(), v);
            store_release(a.b + block_x(), round + 1);
        }
        sync();
    }
}

// Each thread has a.n values from its neighbours, one after the other.
KERNEL(emulator_shuffles, EmulatorArgs, 256, 1) {
    wait_for_previous();
    u32 v = thread();
    for (u32 i = 0; i < a.n; i++) v = shuffle(v, (lane() + 1) % kWave);
    store(a.b + thread(), v);
}

KERNEL(emulator_barriers, EmulatorArgs, 256, 1) {
    wait_for_previous();
    auto *words = reinterpret_cast<u32 *>(shared());
    u32 v = thread();
    for (u32 i = 0; i < a.n; i++) {
        words[i % 2 * 256 + thread()] = v;
        sync();
        v = words[i % 2 * 256 + (thread() + 1) % 256];
    }
    store(a.b + thread(), v);
}

KERNEL(emulator_loads, EmulatorArgs, 256, 1) {
    wait_for_previous();
    u32 v = 0;
    for (u32 i = 0; i < a.n; i++) v += load(a.a + i * 256 + thread());
    store(a.b + thread(), v);
}

// Adds a.n pieces of 64 * 4 words, each fetched while the one before is added. With shared memory of two pieces, or with
// kForgetsToWait once before the piece has come.
template <bool kForgetsToWait>
DEVICE void sum_pieces(const EmulatorArgs &a) {
    wait_for_previous();
    auto *pieces = reinterpret_cast<u32x4 *>(shared());
    u32 sum = 0;
    const auto fetch = [&](u32 i) {
        if (i < a.n)
            copy_async16(pieces + i % 2 * 64 + thread(), reinterpret_cast<const u32x4 *>(a.a) + i * 64 + thread());
        copy_async_commit();
    };
    fetch(0);
    for (u32 i = 0; i < a.n; i++) {
        fetch(i + 1);
        if constexpr (kForgetsToWait)
            copy_async_wait<2>();
        else
            copy_async_wait<1>();
        sync();
        const u32x4 v = pieces[i % 2 * 64 + (thread() + 1) % 64];
        sum += v.x + v.y + v.z + v.w;
        sync();
    }
    store(a.b + thread(), sum);
}
KERNEL(emulator_pieces, EmulatorArgs, 64, 1) { sum_pieces<false>(a); }
KERNEL(emulator_pieces_too_soon, EmulatorArgs, 64, 1) { sum_pieces<true>(a); }

// The last 64 threads fetch a.n pieces of 256 words into two places; the others add two words of each.
KERNEL(emulator_bulk, EmulatorArgs, 256, 1) {
    wait_for_previous();
    auto *pieces = reinterpret_cast<u32 *>(shared());
    auto *full = reinterpret_cast<Barrier *>(shared() + 2048), *empty = full + 2;
    if (thread() == 0)
        for (u32 i = 0; i < 2; i++) {
            barrier_init(full + i, 1);
            barrier_init(empty + i, 192);
        }
    sync();
    if (thread() >= 192) {
        if (thread() != 192) return;
        for (u32 i = 0; i < a.n; i++) {
            if (i >= 2) barrier_wait(empty + i % 2, (i / 2 - 1) % 2);
            barrier_arrive(full + i % 2, 1024);
            copy_bulk(pieces + i % 2 * 256, a.a + i * 256, 1024, full + i % 2);
        }
        return;
    }
    u32 sum = 0;
    for (u32 i = 0; i < a.n; i++) {
        barrier_wait(full + i % 2, i / 2 % 2);
        sum += pieces[i % 2 * 256 + thread()] + pieces[i % 2 * 256 + thread() + 64];
        barrier_arrive(empty + i % 2);
    }
    store(a.b + thread(), sum);
}

// ---- each of these does one thing that the emulator has to find

// Whoever stores last is seen.
KERNEL(emulator_order, EmulatorArgs, 256, 1) {
    wait_for_previous();
    if (a.n == 0)
        store(a.b, thread());
    else if (thread() == 0)
        store(a.b, block_x());
}

KERNEL(emulator_uninitialised, EmulatorArgs, 64, 1) {
    wait_for_previous();
    store(a.b + thread(), reinterpret_cast<const u32 *>(shared())[thread()]);
}

KERNEL(emulator_wait_for_ever, EmulatorArgs, 64, 1) {
    wait_for_previous();
    if (thread() == 5)
        while (load_acquire(a.a) != a.n) {
        }
    sync();
}

// Half of a wave at the block's barrier, half in a shuffle; or with a.n in wave barriers.
KERNEL(emulator_diverged, EmulatorArgs, 64, 1) {
    wait_for_previous();
    if (lane() % 2 == 0)
        sync();
    else if (a.n != 0)
        sync_wave();
    else
        store(a.b, shuffle(1u, 0));
}

KERNEL(emulator_two_meetings, EmulatorArgs, 64, 1) {
    wait_for_previous();
    if (lane() % 2 == 0)
        sync_wave();
    else
        store(a.b, shuffle(1u, 0));
}

// Lanes that have ended are not waited for, but have nothing to give.
KERNEL(emulator_ended_lanes, EmulatorArgs, 64, 1) {
    wait_for_previous();
    if (lane() >= kWave / 2) return;
    sync();
    store(a.b + thread(), shuffle(thread(), a.n));
}

KERNEL(emulator_read, EmulatorArgs, 64, 1) {
    wait_for_previous();
    if (thread() == 3) store(a.b, load(a.a + a.n));
}

KERNEL(emulator_write, EmulatorArgs, 64, 1) {
    wait_for_previous();
    if (thread() == 3) store(a.b + a.n, 1u);
}

KERNEL(emulator_wide, EmulatorArgs, 64, 1) {
    wait_for_previous();
    if (thread() == 3) store(a.b, load(reinterpret_cast<const u32x4 *>(a.a + a.n)).x);
}

KERNEL(emulator_dereference, EmulatorArgs, 64, 1) {
    wait_for_previous();
    store(a.b, *const_cast<const volatile u32 *>(a.a));
}

KERNEL(emulator_shared, EmulatorArgs, 64, 1) {
    wait_for_previous();
    if (thread() == 3) const_cast<volatile u32 *>(reinterpret_cast<u32 *>(shared()))[a.n] = 1;
    sync();
}

// Before wait_for_previous(): reads a.a where a.n is 1, writes a.b where it is 2; where it is 3, never calls it.
KERNEL(emulator_early, EmulatorArgs, 64, 1) {
    u32 v = 1;
    if (a.n == 1) v = load(a.a);
    if (a.n == 2) store(a.b, v);
    if (a.n == 3) return;
    if (a.n == 4) v = static_cast<u32>(load_settled(reinterpret_cast<const i32 *>(a.a)));
    if (a.n == 5) let_next_start();
    wait_for_previous();
    if (a.n != 5) let_next_start();
    store(a.b + thread(), v);
}

// More bytes are announced than come.
KERNEL(emulator_bulk_lost, EmulatorArgs, 64, 1) {
    wait_for_previous();
    auto *barrier = reinterpret_cast<Barrier *>(shared() + 128);
    if (thread() == 0) barrier_init(barrier, 1);
    sync();
    if (thread() == 0) {
        barrier_arrive(barrier, 128);
        copy_bulk(shared(), a.a, 64, barrier);
    }
    barrier_wait(barrier, 0);
}

}  // namespace ridge::simt
