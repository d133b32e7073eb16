#include "backend/simt/emulate/launch.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include "backend/simt/emulate/copies.h"
#include "backend/simt/emulate/emulate.h"
#include "backend/simt/emulate/fault.h"
#include "backend/simt/emulate/memory.h"
#include "backend/simt/emulate/stacks.h"

namespace ridge::emulate {

constexpr uint32_t kWave = RIDGE_WAVE;

struct Block;

struct Wave {
    Block *block = nullptr;
    Thread *ring = nullptr;   // a lane that has not ended
    uint32_t live = 0;        // lanes that have not ended
    uint32_t arrived = 0;     // of them, those in the shuffle or wave barrier that is going on
    uint32_t at_barrier = 0;  // of them, those waiting at the block's barrier
    uint32_t met = 0;         // shuffles and wave barriers done
    uint32_t visits = 0;      // of the scheduler: a lane in a spin loop goes on at the next
    Thread::At meeting = Thread::At::running;
    // By parity of `met`: what lanes gave, and which did. A lane cannot be two meetings ahead of another.
    uint32_t values[2][kWave];
    uint64_t given[2] = {0, 0};
};

struct Block {
    size_t slot = 0;
    uint32_t index[3] = {0, 0, 0};
    uint32_t live = 0, arrived = 0, barriers = 0;
    std::byte *shared = nullptr;
    bool waited = false;  // a thread of it called wait_for_previous()
    std::vector<Wave> waves;
    std::vector<Thread> threads;
    std::vector<std::byte *> stacks;
    BlockCopies copies;
};

Here here;
Thread *current = nullptr;
uint64_t progress = 0;

namespace {

constexpr uint32_t kAlways = 1;  // watched by a thread that has not begun

struct State {
    const LaunchOrder *order = nullptr;
    Context scheduler;
    Block *block = nullptr;
    LaunchResult result;
    bool failed = false;
    // Of the running launch and, by device, of the last: its number, and whether it let the next start before it had
    // waited itself.
    uint32_t number = 0, front_number[kMaxDevices] = {};
    bool hurried = false, front_hurried[kMaxDevices] = {};
    bool spun = false;  // a thread came to an acquiring load or an atomic
    uint64_t random = 0;
    size_t stacks = 0;                           // given to blocks
    std::vector<std::unique_ptr<Block>> blocks;  // resident; kept over launches
    std::vector<uint32_t> lanes, waves;          // in the order of this launch
} state;

std::vector<Kernel> &kernels() {
    static auto *all = new std::vector<Kernel>;
    return *all;
}

uint32_t random_below(uint32_t n) {
    state.random ^= state.random << 13;
    state.random ^= state.random >> 7;
    state.random ^= state.random << 17;
    return static_cast<uint32_t>((state.random * 0x2545f4914f6cdd1dULL >> 32) * n >> 32);
}

template <class T>
void shuffle_order(std::vector<T> &v) {
    for (size_t i = v.size(); i > 1; --i) std::swap(v[i - 1], v[random_below(static_cast<uint32_t>(i))]);
}

// ---- changes between fibers

[[gnu::always_inline]] inline bool can_go_on(const Thread &t) { return *t.watch != t.seen; }

[[gnu::always_inline]] inline void leave(Thread &t) { change(t.context, state.scheduler); }

// Until *t.watch != t.seen.
[[gnu::always_inline]] inline void rest(Thread &t) {
    Thread *n = t.next;
    while (n != &t && !can_go_on(*n)) n = n->next;
    if (n == &t) {
        leave(t);
    } else {
        current = n;
        here.thread = n->index;
        change(t.context, n->context);
    }
}

// ---- what threads wait at, in words

std::string describe(const Wave &w, uint32_t index) {
    static constexpr const char *kPlaces[] = {"not begun", "running",   "at a shuffle", "at sync_wave()",
                                              "at sync()", "in a loop", "ended"};
    uint32_t counts[7] = {};
    for (const Thread &t : w.block->threads)
        if (t.wave == &w) counts[static_cast<size_t>(t.at)]++;
    std::string text;
    for (size_t i = 0; i < 7; ++i)
        if (counts[i] != 0) text += (text.empty() ? "" : ", ") + std::to_string(counts[i]) + " " + kPlaces[i];
    return "wave " + std::to_string(index) + ": " + text;
}

std::string describe(const Block &b) {
    std::string text;
    const size_t shown = std::min<size_t>(b.waves.size(), 8);
    for (uint32_t i = 0; i < shown; ++i) text += (i == 0 ? "" : "; ") + describe(b.waves[i], i);
    return text + (shown < b.waves.size() ? "; ..." : "");
}

std::string name_of(const Block &b) {
    return "block (" + std::to_string(b.index[0]) + ", " + std::to_string(b.index[1]) + ", " +
           std::to_string(b.index[2]) + ")";
}

void fail_launch(int code, const std::string &what) {
    state.failed = true;
    state.result.code = code;
    state.result.message = std::string("kernel ") + state.order->kernel->name + ", " + what;
}

[[noreturn, gnu::noinline]] void diverged(const char *at) {
    const Wave &w = *current->wave;
    const auto index = static_cast<uint32_t>(&w - w.block->waves.data());
    fail(719,
         std::string("comes to ") + at + " while other lanes of its wave are elsewhere (" + describe(w, index) + ")");
}

// ---- meetings

// All live lanes have arrived.
[[gnu::always_inline]] inline void complete(Wave &w) {
    w.arrived = 0;
    ++w.met;
    w.given[w.met & 1] = 0;
    ++progress;
}

void complete(Block &b) {
    b.arrived = 0;
    ++b.barriers;
    for (Wave &w : b.waves) w.at_barrier = 0;
    ++progress;
}

[[gnu::always_inline]] inline void meet(Thread &t, Wave &w, Thread::At at, const char *name) {
    if (w.at_barrier != 0 || (w.arrived != 0 && w.meeting != at)) [[unlikely]]
        diverged(name);
    w.meeting = at;
    if (++w.arrived == w.live) {
        complete(w);
        return;
    }
    t.at = at;
    t.watch = &w.met;
    t.seen = w.met;
    rest(t);
    t.at = Thread::At::running;
}

void spin(Thread &t) {
    state.spun = true;
    t.at = Thread::At::load;
    t.watch = &t.wave->visits;
    t.seen = t.wave->visits;
    rest(t);
    t.at = Thread::At::running;
}

// ---- the life of a thread

[[noreturn]] void end_thread(Thread &t) {
    Wave &w = *t.wave;
    Block &b = *w.block;
    t.at = Thread::At::end;
    t.previous->next = t.next;
    t.next->previous = t.previous;
    if (w.ring == &t) w.ring = t.next;
    ++progress;
    --b.live;
    --w.live;
    if (w.live != 0 && w.arrived == w.live) complete(w);
    if (b.live != 0 && b.arrived == b.live) complete(b);
    Thread *n = w.live == 0 ? nullptr : t.next;
    while (n != nullptr && !can_go_on(*n)) n = n->next == t.next ? nullptr : n->next;
    if (n == nullptr) leave(t);
    current = n;
    here.thread = n->index;
    change(t.context, n->context);
    __builtin_unreachable();
}

void thread_main() {
    current->at = Thread::At::running;
    state.order->kernel->entry(state.order->args);
    end_thread(*current);
}

void begin_block(Block &b, uint64_t number) {
    const LaunchOrder &o = *state.order;
    b.index[0] = static_cast<uint32_t>(number % o.grid[0]);
    b.index[1] = static_cast<uint32_t>(number / o.grid[0] % o.grid[1]);
    b.index[2] = static_cast<uint32_t>(number / o.grid[0] / o.grid[1]);
    const uint32_t threads = o.kernel->threads, waves = (threads + kWave - 1) / kWave;
    b.live = threads;
    b.arrived = b.barriers = 0;
    b.waited = false;
    const uint32_t rounded = (o.shared_bytes + 127) / 128 * 128;
    b.shared = shared_end(b.slot) - rounded;
    std::memset(b.shared, 0xff, rounded);
    b.waves.assign(waves, Wave());
    b.threads.resize(threads);
    b.copies.begin(threads);
    while (b.stacks.size() < threads) b.stacks.push_back(stack_top(state.stacks++));
    for (uint32_t w = 0; w < waves; ++w) {
        Wave &wave = b.waves[w];
        wave.block = &b;
        Thread *first = nullptr, *last = nullptr;
        for (const uint32_t lane : state.lanes) {
            const uint32_t i = w * kWave + lane;
            if (i >= threads) continue;
            Thread &t = b.threads[i];
            t = {};
            t.context = fresh_context(b.stacks[i], thread_main);
            t.watch = &kAlways;
            t.index = i;
            t.lane = lane;
            t.wave = &wave;
            t.careful = o.count || o.early;
            t.previous = last;
            (last != nullptr ? last->next : first) = &t;
            last = &t;
            wave.live++;
        }
        last->next = first;
        first->previous = last;
        wave.ring = first;
    }
}

void end_block(const Block &b) {
    const LaunchOrder &o = *state.order;
    for (const std::byte *p = b.shared + o.shared_bytes; p < shared_end(b.slot); ++p)
        if (*p != std::byte{0xff})
            return fail_launch(700, name_of(b) + " wrote behind its " + std::to_string(o.shared_bytes) +
                                        " bytes of shared memory, at byte " + std::to_string(p - b.shared));
    if (o.early && !b.waited)
        fail_launch(719, name_of(b) +
                             " ended without a call of wait_for_previous(): the launch behind it could start "
                             "before the one in front of it has ended");
}

// ---- the scheduler

void visit(Wave &w) {
    ++w.visits;
    Thread *t = w.ring;
    while (!can_go_on(*t)) {
        t = t->next;
        if (t == w.ring) return;
    }
    Block &b = *w.block;
    current = t;
    here = {t->index, {b.index[0], b.index[1], b.index[2]}, b.shared};
    change(state.scheduler, t->context);
    current = nullptr;
}

// Visits the waves of a block until it is done, nothing in it moves, or a thread in it may wait for another block.
void run_block(Block &b) {
    state.block = &b;
    for (;;) {
        const uint64_t before = progress;
        const bool spun_before = state.spun;
        state.spun = false;
        for (const uint32_t i : state.waves) {
            Wave &w = b.waves[i];
            if (w.live == 0 || w.at_barrier == w.live) continue;
            visit(w);
            if (state.failed) return;
        }
        const bool spun = state.spun;
        state.spun |= spun_before;
        if (b.live == 0) return end_block(b);
        if (progress == before || spun) return;
        if (state.order->seed != 0 && random_below(4) == 0) return;
    }
}

Block *block_of_slot(size_t slot) {
    while (state.blocks.size() <= slot) {
        state.blocks.push_back(std::make_unique<Block>());
        state.blocks.back()->slot = state.blocks.size() - 1;
    }
    return state.blocks[slot].get();
}

void run_blocks() {
    const LaunchOrder &o = *state.order;
    const uint64_t count = uint64_t{o.grid[0]} * o.grid[1] * o.grid[2];
    std::vector<uint32_t> numbers;  // only where they are not in order
    if (o.seed != 0) {
        numbers.resize(count);
        std::iota(numbers.begin(), numbers.end(), 0u);
        shuffle_order(numbers);
    }
    uint64_t begun = 0;
    const auto next = [&] { return numbers.empty() ? begun++ : uint64_t{numbers[begun++]}; };
    // A thread in a spin loop may give up after some rounds; one that waits for a meeting never moves by itself.
    constexpr int kRoundsOfSpinning = 1000;
    int idle = 0;
    std::vector<Block *> resident, unused;
    while (!resident.empty() || begun < count) {
        const uint64_t before = progress;
        state.spun = false;
        // Another block is begun only where those that are resident wait: so most launches use the stacks of one, which
        // stay in the cache.
        if (begun < count && resident.size() < o.residents) {
            if (unused.empty()) unused.push_back(block_of_slot(resident.size()));
            begin_block(*unused.back(), next());
            resident.push_back(unused.back());
            unused.pop_back();
            ++progress;
        }
        for (size_t i = 0; i < resident.size();) {
            Block &b = *resident[i];
            run_block(b);
            if (state.failed) return;
            if (b.live != 0) {
                ++i;
                continue;
            }
            unused.push_back(&b);
            resident.erase(resident.begin() + static_cast<std::ptrdiff_t>(i));
        }
        idle = progress == before ? idle + 1 : 0;
        if (idle == 0 || (state.spun && idle < kRoundsOfSpinning)) continue;
        const Block &b = *resident.front();
        return fail_launch(719, name_of(b) + " of " + std::to_string(resident.size()) + " resident and " +
                                    std::to_string(count - begun) +
                                    " not begun: nothing moves any more, every thread waits (" + describe(b) + ")");
    }
}

}  // namespace

Registered::Registered(const char *name, void (*entry)(const void *args), size_t args_bytes, uint32_t threads) {
    kernels().push_back({name, entry, args_bytes, threads});
}

const Kernel *find_kernel(const char *name) {
    for (const Kernel &k : kernels())
        if (std::strcmp(k.name, name) == 0) return &k;
    return nullptr;
}

LaunchResult run(const LaunchOrder &order) {
    state.order = &order;
    state.result = {};
    state.failed = false;
    state.number++;
    state.hurried = false;
    state.random = order.seed * 0x9e3779b97f4a7c15ULL + 1;
    state.lanes.resize(kWave);
    std::iota(state.lanes.begin(), state.lanes.end(), 0u);
    state.waves.resize((order.kernel->threads + kWave - 1) / kWave);
    std::iota(state.waves.begin(), state.waves.end(), 0u);
    if (order.seed != 0) {
        shuffle_order(state.lanes);
        shuffle_order(state.waves);
    }
    begin_accesses(order.device);
    {
        FaultMessages faults;
        run_blocks();
    }
    const Sectors sectors = end_accesses();
    state.result.read_sectors = sectors.read;
    state.result.written_sectors = sectors.written;
    state.front_number[order.device] = state.number, state.front_hurried[order.device] = state.hurried;
    state.order = nullptr;
    current = nullptr;
    return state.result;
}

bool launch_counts() { return state.order->count; }
uint32_t launch_number() { return state.number; }
uint32_t front_number() { return state.front_number[state.order->device]; }
bool front_waited() { return !state.front_hurried[state.order->device]; }

bool may_precede_previous() { return state.order->early && !current->waited; }

void fail(int code, const std::string &what) {
    Thread &t = *current;
    fail_launch(code, name_of(*t.wave->block) + ", thread " + std::to_string(t.index) + " " + what);
    leave(t);
    __builtin_unreachable();
}

void let_others_run() { spin(*current); }

std::byte *shared_begin(size_t *bytes) {
    *bytes = state.order->shared_bytes;
    return here.shared;
}

BlockCopies &running_copies() { return current->wave->block->copies; }

const char *running_kernel() {
    static char text[256];
    if (state.order == nullptr) return "";
    if (current == nullptr) return state.order->kernel->name;
    std::snprintf(text, sizeof text, "kernel %s, block (%u, %u, %u), thread %u", state.order->kernel->name,
                  here.block[0], here.block[1], here.block[2], here.thread);
    return text;
}

// ---- switch points, see emulate.h

void barrier() {
    Thread &t = *current;
    Wave &w = *t.wave;
    Block &b = *w.block;
    if (w.arrived != 0) [[unlikely]]
        diverged("sync()");
    if (++b.arrived == b.live) return complete(b);
    ++w.at_barrier;
    t.at = Thread::At::barrier;
    t.watch = &b.barriers;
    t.seen = b.barriers;
    if (w.at_barrier == w.live)
        leave(t);
    else
        rest(t);
    t.at = Thread::At::running;
}

void wave_barrier() {
    Thread &t = *current;
    meet(t, *t.wave, Thread::At::wave_barrier, "sync_wave()");
}

uint32_t shuffle(uint32_t v, uint32_t from) {
    Thread &t = *current;
    Wave &w = *t.wave;
    const uint32_t parity = w.met & 1;
    w.values[parity][t.lane] = v;
    w.given[parity] |= uint64_t{1} << t.lane;
    meet(t, w, Thread::At::shuffle, "a shuffle");
    if (from >= kWave || (w.given[parity] >> from & 1) == 0) [[unlikely]]
        fail(719, "takes a value from lane " + std::to_string(from) + " of its wave, which gave none");
    return w.values[parity][from];
}

uint32_t load_acquire(const uint32_t *p) {
    const auto *at = static_cast<const volatile uint32_t *>(reading(p, sizeof *p));
    spin(*current);
    return *at;
}

uint32_t atomic_add(uint32_t *p, uint32_t v) {
    const uint64_t before = progress;
    auto *at = static_cast<volatile uint32_t *>(writing(p, sizeof *p));
    // Adding nothing is a way to read, and moves nothing.
    if (v == 0) progress = before;
    spin(*current);
    const uint32_t old = *at;
    *at = old + v;
    return old;
}

void let_next_start() { state.hurried |= may_precede_previous(); }

void wait_for_previous() {
    Thread &t = *current;
    t.waited = true;
    t.careful = state.order->count;
    t.wave->block->waited = true;
}

}  // namespace ridge::emulate
