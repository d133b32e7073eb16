// One launch: blocks of fibers, and who runs when.
//
// The lanes of a wave form a ring. A lane that must wait changes straight to the next one that need not, so in
// lock-step a shuffle costs each lane one change; the last lane to arrive just goes on. Where no lane of the wave can
// go on, the scheduler visits the next wave, and the next block where no wave can. Up to `residents` blocks are begun
// at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "backend/simt/emulate/context.h"

namespace ridge::emulate {

struct Kernel {
    const char *name = nullptr;
    void (*entry)(const void *args) = nullptr;
    size_t args_bytes = 0;
    uint32_t threads = 0;
};
// nullptr: no kernel of this name was made known.
const Kernel *find_kernel(const char *name);

struct LaunchOrder {
    const Kernel *kernel = nullptr;
    const void *args = nullptr;
    uint32_t grid[3] = {1, 1, 1};
    uint32_t shared_bytes = 0;
    bool early = false;      // may touch nothing of earlier launches before wait_for_previous()
    bool count = false;      // distinct sectors
    uint32_t residents = 4;  // blocks at a time
    uint64_t seed = 0;       // of the order of blocks, waves and lanes; 0: as they are numbered
    int device = 0;
};

struct LaunchResult {
    int code = 0;         // 0, or the driver's: 700 illegal address, 716 misaligned, 719 anything else
    std::string message;  // of what went wrong, naming kernel, block and thread
    uint64_t read_sectors = 0, written_sectors = 0;  // distinct ones of 32 bytes, where counted
};

// One at a time in the process: the caller has a lock.
LaunchResult run(const LaunchOrder &);

// ---- within the emulator

struct Wave;

struct Thread {
    Context context;
    // It may go on when *watch != seen.
    const uint32_t *watch = nullptr;
    uint32_t seen = 0;
    uint32_t index = 0, lane = 0;
    Wave *wave = nullptr;
    Thread *next = nullptr, *previous = nullptr;  // ring of the wave's lanes that have not ended
    bool careful = false;                         // its accesses are looked at more closely (memory.cpp)
    bool waited = false;                          // called wait_for_previous()
    enum class At : uint8_t { begin, running, shuffle, wave_barrier, barrier, load, end } at = At::begin;
};

extern Thread *current;    // that runs
extern uint64_t progress;  // grows whenever something changes that another thread might wait for

bool launch_counts();
uint32_t launch_number();     // of the running one: launches so far
uint32_t front_number();      // of the launch in front of it on its device; 0: none
bool front_waited();          // the launch in front of it let it start when it had waited, or had ended
bool may_precede_previous();  // the running thread was started early and has not called wait_for_previous()
// Until a round of the scheduler has passed, in which others may have done something.
void let_others_run();
// [0, bytes) of the running block's shared memory.
std::byte *shared_begin(size_t *bytes);
class BlockCopies;
BlockCopies &running_copies();
// Ends the launch. `what` goes on after the name of the thread: "reads 4 bytes at ...".
[[noreturn]] void fail(int code, const std::string &what);
// Of the running launch, for the message of a fault: kernel, block, thread; "" while there is none.
const char *running_kernel();

}  // namespace ridge::emulate
