// Where a fiber was left, and the change from one to another.
//
// The change is inline: what called shuffle() in one lane returns into the same place of the next lane, so that the
// processor's prediction of returns holds. It costs about a nanosecond; a change that is a function of its own, three.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ridge::emulate {

struct Context {
    void *stack = nullptr;  // stack pointer
    const void *resume = nullptr;
    void *frame = nullptr;  // frame pointer: the one register that may not be named as clobbered
};

// Of a fiber that has not run: it will enter `entry`, which never returns, on the stack that ends at `top`.
inline Context fresh_context(std::byte *top, void (*entry)()) {
    const uintptr_t aligned = reinterpret_cast<uintptr_t>(top) & ~uintptr_t{63};
#if defined(__x86_64__)
    // As after a call: the return address (none) has been pushed.
    auto *sp = reinterpret_cast<uint64_t *>(aligned - 8);
    *sp = 0;
#else
    auto *sp = reinterpret_cast<uint64_t *>(aligned);
#endif
    return {sp, reinterpret_cast<const void *>(entry), nullptr};
}

// Leaves the running fiber in `from` and goes on where `to` was left.
[[gnu::always_inline]] inline void change(Context &from, const Context &to) {
#if defined(__x86_64__)
    void *a = &from;
    const void *d = &to;
    asm volatile(
        "leaq 1f(%%rip), %%rcx\n\t"
        "movq %%rsp, 0(%0)\n\t"
        "movq %%rcx, 8(%0)\n\t"
        "movq %%rbp, 16(%0)\n\t"
        "movq 16(%1), %%rbp\n\t"
        "movq 0(%1), %%rsp\n\t"
        "jmpq *8(%1)\n\t"
        "1:\n\t"
        : "+a"(a), "+d"(d)
        :
        : "rbx", "rcx", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "xmm0", "xmm1", "xmm2",
          "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15",
          "cc", "memory");
#elif defined(__aarch64__)
    register void *a asm("x0") = &from;
    register const void *d asm("x1") = &to;
    asm volatile(
        "adr x2, 1f\n\t"
        "mov x3, sp\n\t"
        "stp x3, x2, [x0]\n\t"
        "str x29, [x0, 16]\n\t"
        "ldp x3, x2, [x1]\n\t"
        "ldr x29, [x1, 16]\n\t"
        "mov sp, x3\n\t"
        "br x2\n\t"
        "1:\n\t"
        : "+r"(a), "+r"(d)
        :
        : "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15", "x16", "x17", "x19",
          "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27", "x28", "x30", "v0", "v1", "v2", "v3", "v4", "v5",
          "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14", "v15", "v16", "v17", "v18", "v19", "v20", "v21",
          "v22", "v23", "v24", "v25", "v26", "v27", "v28", "v29", "v30", "v31", "cc", "memory");
#else
#error "the emulator's fibers are written for x86-64 and 64-bit ARM"
#endif
}

}  // namespace ridge::emulate
