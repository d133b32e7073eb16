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


}  // namespace ridge::simt
