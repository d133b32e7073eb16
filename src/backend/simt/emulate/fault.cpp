#include "backend/simt/emulate/fault.h"

#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "backend/simt/emulate/launch.h"
#include "backend/simt/emulate/memory.h"
#include "backend/simt/emulate/stacks.h"

namespace ridge::emulate {

namespace {

struct sigaction before[2];
constexpr int kSignals[2] = {SIGSEGV, SIGBUS};
alignas(64) char handler_stack[64 << 10];

void on_fault(int, siginfo_t *info, void *) {
    const char *what = fiber_memory_at(info->si_addr);
    if (what == nullptr && is_device_address(info->si_addr)) what = "global memory without load() or store()";
    if (what == nullptr) what = "an address that is no memory of the device";
    char text[512];
    const int n =
        std::snprintf(text, sizeof text, "emulator: %s faults at %p: %s\n", running_kernel(), info->si_addr, what);
    if (n > 0 && write(STDERR_FILENO, text, static_cast<size_t>(n)) < 0) _exit(1);
    // The access happens again, under whoever was there before.
    for (int i = 0; i < 2; ++i) sigaction(kSignals[i], &before[i], nullptr);
}

}  // namespace

// On a stack of its own: the fault may be that of a thread whose stack is full.
FaultMessages::FaultMessages() {
    stack_t now = {};
    sigaltstack(nullptr, &now);
    if (now.ss_flags & SS_DISABLE) {
        stack_t own = {};
        own.ss_sp = handler_stack;
        own.ss_size = sizeof handler_stack;
        own_stack_ = sigaltstack(&own, &stack_) == 0;
    }
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    for (int i = 0; i < 2; ++i) sigaction(kSignals[i], &action, &before[i]);
}

FaultMessages::~FaultMessages() {
    for (int i = 0; i < 2; ++i) sigaction(kSignals[i], &before[i], nullptr);
    if (own_stack_) sigaltstack(&stack_, nullptr);
}

}  // namespace ridge::emulate
