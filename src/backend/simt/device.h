// What a SIMT kernel is written in: one text for CUDA (nvcc), HIP (clang) and the emulator (a C++ compiler).
//
// A kernel is a file kernels/<name>.cu of functions
//
//   KERNEL(name, Args, threads, blocks_per_sm) { ... uses `a`, a const Args & ... }
//
// Args is one plain struct (kernels/<name>.h, shared with the host), passed by value. A block has exactly `threads`
// threads in x. Everything that differs between machines has a name here:
//
//   thread() block_x() block_y() block_z()  indices; lane() = thread() % kWave, wave() = thread() / kWave
//   sync()               all threads of the block meet; shared and global memory written before is seen after
//   sync_wave()          the same for the lanes of a wave
//   shared()             the block's dynamic shared memory (the row says how much; there is no static one), 128-byte
//                        aligned
//   shuffle(v, from) shuffle_xor(v, mask) ...  of a 32-bit value among all lanes of a wave, which all take part
//   load(p) store(p, v)  global memory, any type of 1, 2, 4, 8, 16 bytes, aligned to its size. Kernels never
//   dereference
//                        a pointer to global memory by themselves: the emulator counts and checks what these touch
//   load_shared(p) store_shared(p, v)   the same for shared memory where wide access matters; plain dereferencing is
//                        allowed there
//   atomic_add, load_acquire, store_release   of u32 in global memory, seen by the whole device
//   wait_for_previous()  every kernel calls it once, in all threads, before it touches anything that a launch before it
//                        wrote or reads: with the lever pdl it may have been started before those ended. Only weights,
//                        tables and the step buffer may be read earlier
//   load_settled(p)      what a launch before the one in front wrote, also before wait_for_previous(): where the one in
//                        front lets the next start only after it has waited itself
//   let_next_start()     from here on the next launch may be started early
//   copy_async16(to, from)  16 bytes from global to shared memory, both aligned to 16, on their way until
//   copy_async_commit()  ... which closes a group of such copies of this thread, and
//   copy_async_wait<N>() ... which waits until all but the N latest groups have arrived (then sync() or sync_wave()
//   makes
//                        them visible to others)
//   Barrier              8 bytes of shared memory, aligned to 8, at which threads and bulk copies arrive:
//   barrier_init(b, n)   by one thread, then sync(): a phase of it is over when n arrivals were made and all bytes came
//   barrier_arrive(b)    barrier_arrive(b, bytes): one arrival, which also makes the phase wait for so many bytes more
//   barrier_wait(b, parity)  until the phase of this parity is over; the first has parity 0
//   copy_bulk(to, from, bytes, b)   by one thread: from global to shared memory, all multiples of 16; the bytes arrive
//                        at b. In the background from compute capability 9.0 on; elsewhere the thread makes the copy
//   kBulkCopies          whether copy_bulk is the machine's own; else copy_async16 by all lanes is faster
//   funnel_right(lo, hi, s)  the low word of (hi:lo) >> s, s below 32
//   nanoseconds()        of a clock that goes on while the kernel runs
//   dot4(acc, a, b)      acc + the dot of four signed bytes each
//   fma, exp, sqrt, min, max   f32, correctly rounded but exp, which takes the CPU's steps (backend/cpu/math.h): the
//   same
//                        bits on every machine. Nothing is contracted: a fused multiply-add is written as fma
//
// A wave has kWave lanes: 32 (NVIDIA, gfx11, gfx12) or 64 (gfx9).
#pragma once

#include <stdint.h>

#include <cstddef>

#if defined(__CUDACC__)
#define RIDGE_CUDA 1
#define DEVICE inline __device__ __attribute__((always_inline))
#define KERNEL(name, Args, threads, blocks) \
    extern "C" __global__ void __launch_bounds__(threads, blocks) name(const __grid_constant__ Args a)
#elif defined(__HIP__)
#define RIDGE_HIP 1
#define DEVICE inline __attribute__((device)) __attribute__((always_inline))
// clang counts waves per SIMD; two blocks or none.
#define KERNEL(name, Args, threads, blocks)                                                                      \
    extern "C" __attribute__((global)) __attribute__((amdgpu_flat_work_group_size(threads, threads))) void name( \
        const Args a)
#else
#define RIDGE_EMULATE 1
#include "backend/simt/emulate/emulate.h"
#define DEVICE inline __attribute__((always_inline))
#define KERNEL(name, Args, threads, blocks)                                                                  \
    static void name##_body(const Args &a);                                                                  \
    static void name##_entry(const void *args) { name##_body(*static_cast<const Args *>(args)); }            \
    static const ::ridge::emulate::Registered name##_registered{#name, name##_entry, sizeof(Args), threads}; \
    static void name##_body([[maybe_unused]] const Args &a)
#endif

#include "backend/simt/args.h"
#include "format/dialect.h"

namespace ridge::simt {

using dialect::as_f32;
using dialect::f16_f32;
using dialect::f32_bits;

#if defined(RIDGE_EMULATE)
#ifndef RIDGE_WAVE
#define RIDGE_WAVE 32
#endif
constexpr u32 kWave = RIDGE_WAVE;
#elif defined(RIDGE_HIP) && defined(__GFX9__)
constexpr u32 kWave = 64;
#else
constexpr u32 kWave = 32;
#endif

struct alignas(8) Barrier {
    u64 state;
};

#if defined(RIDGE_CUDA)

DEVICE u32 thread() { return threadIdx.x; }
DEVICE u32 block_x() { return blockIdx.x; }
DEVICE u32 block_y() { return blockIdx.y; }
DEVICE u32 block_z() { return blockIdx.z; }
DEVICE void sync() { __syncthreads(); }
DEVICE void sync_wave() { __syncwarp(); }
extern __shared__ u32x4 ridge_shared[];
DEVICE std::byte *shared() { return reinterpret_cast<std::byte *>(ridge_shared); }
DEVICE u32 shuffle_bits(u32 v, u32 from) { return __shfl_sync(~0u, v, from); }
DEVICE u32 shuffle_xor_bits(u32 v, u32 mask) { return __shfl_xor_sync(~0u, v, mask); }
template <class T>
DEVICE T load(const T *p) {
    return *p;
}
template <class T>
DEVICE void store(T *p, T v) {
    *p = v;
}
DEVICE u32 atomic_add(u32 *p, u32 v) {
    u32 old;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;" : "=r"(old) : "l"(p), "r"(v) : "memory");
    return old;
}
DEVICE u32 load_acquire(const u32 *p) {
    u32 v;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
DEVICE void store_release(u32 *p, u32 v) {
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
DEVICE void copy_async16(void *to, const void *from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(static_cast<u32>(__cvta_generic_to_shared(to))),
                 "l"(from)
                 : "memory");
}
DEVICE void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N>
DEVICE void copy_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}
// What a thread wrote to global memory is seen by all threads of the device that later learn of it.
DEVICE void fence() { __threadfence(); }
// Before a barrier behind which one thread tells the device of what all threads of the block wrote, and behind one
// before which one has learnt of what others did: here the barrier and that thread's atomic operation pass it on.
DEVICE void release_to_barrier() {}
#if __CUDA_ARCH__ >= 900
DEVICE u32 shared_address(const void *p) { return static_cast<u32>(__cvta_generic_to_shared(p)); }
DEVICE void barrier_init(Barrier *b, u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(b)), "r"(arrivals) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
DEVICE void barrier_arrive(Barrier *b) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(b)) : "memory");
}
DEVICE void barrier_arrive(Barrier *b, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(b)), "r"(bytes)
                 : "memory");
}
DEVICE void barrier_wait(Barrier *b, u32 parity) {
    u32 over;
    do {
        asm volatile(
            "{.reg .pred p;\n\t"
            "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
            "selp.u32 %0, 1, 0, p;}"
            : "=r"(over)
            : "r"(shared_address(b)), "r"(parity)
            : "memory");
    } while (over == 0);
}
DEVICE void copy_bulk(void *to, const void *from, u32 bytes, Barrier *b) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address(to)),
                 "l"(from), "r"(bytes), "r"(shared_address(b))
                 : "memory");
}
#else
#define RIDGE_PLAIN_BARRIER 1
DEVICE u64 swap_shared(u64 *p, u64 expected, u64 desired) {
    return atomicCAS(reinterpret_cast<unsigned long long *>(p), static_cast<unsigned long long>(expected),
                     static_cast<unsigned long long>(desired));
}
DEVICE u64 look_shared(const u64 *p) { return *const_cast<const volatile u64 *>(p); }
DEVICE void fence_shared() { __threadfence_block(); }
#endif
DEVICE void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
DEVICE void let_next_start() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
DEVICE i32 load_settled(const i32 *p) {
    i32 v;
    asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
DEVICE u64 nanoseconds() {
    u64 t;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
    return t;
}
DEVICE i32 dot4(i32 acc, u32 a, u32 b) { return __dp4a(static_cast<i32>(a), static_cast<i32>(b), acc); }
DEVICE f32 fma(f32 a, f32 b, f32 c) { return __fmaf_rn(a, b, c); }
DEVICE f32 sqrt(f32 x) { return __fsqrt_rn(x); }
DEVICE f32 divide(f32 a, f32 b) { return __fdiv_rn(a, b); }

#elif defined(RIDGE_HIP)

DEVICE u32 thread() { return __builtin_amdgcn_workitem_id_x(); }
DEVICE u32 block_x() { return __builtin_amdgcn_workgroup_id_x(); }
DEVICE u32 block_y() { return __builtin_amdgcn_workgroup_id_y(); }
DEVICE u32 block_z() { return __builtin_amdgcn_workgroup_id_z(); }
DEVICE void sync() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
DEVICE void sync_wave() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
    __builtin_amdgcn_wave_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}
extern __attribute__((shared)) u32x4 ridge_shared[];
DEVICE std::byte *shared() { return reinterpret_cast<std::byte *>(ridge_shared); }
DEVICE u32 shuffle_bits(u32 v, u32 from) {
    return static_cast<u32>(__builtin_amdgcn_ds_bpermute(static_cast<int>(from * 4), static_cast<int>(v)));
}
DEVICE u32 wave_lane() {
    const u32 low = __builtin_amdgcn_mbcnt_lo(~0u, 0);
    return kWave == 32 ? low : __builtin_amdgcn_mbcnt_hi(~0u, low);
}
DEVICE u32 shuffle_xor_bits(u32 v, u32 mask) { return shuffle_bits(v, wave_lane() ^ mask); }
template <class T>
DEVICE T load(const T *p) {
    return *p;
}
template <class T>
DEVICE void store(T *p, T v) {
    *p = v;
}
DEVICE u32 atomic_add(u32 *p, u32 v) {
    return __hip_atomic_fetch_add(p, v, __ATOMIC_ACQ_REL, __HIP_MEMORY_SCOPE_AGENT);
}
DEVICE u32 load_acquire(const u32 *p) { return __hip_atomic_load(p, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT); }
DEVICE void store_release(u32 *p, u32 v) { __hip_atomic_store(p, v, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_AGENT); }
DEVICE void copy_async16(void *to, const void *from) {
    *static_cast<u32x4 *>(to) = load(static_cast<const u32x4 *>(from));
}
DEVICE void copy_async_commit() {}
template <int N>
DEVICE void copy_async_wait() {}
DEVICE void fence() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent"); }
// On gfx9 a barrier does not wait for what other waves have stored, and one wave's release is for its own stores.
DEVICE void release_to_barrier() { fence(); }
#define RIDGE_PLAIN_BARRIER 1
DEVICE u64 swap_shared(u64 *p, u64 expected, u64 desired) {
    __hip_atomic_compare_exchange_strong(p, &expected, desired, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE,
                                         __HIP_MEMORY_SCOPE_WORKGROUP);
    return expected;
}
DEVICE u64 look_shared(const u64 *p) { return __hip_atomic_load(p, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_WORKGROUP); }
DEVICE void fence_shared() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "workgroup"); }
DEVICE void wait_for_previous() {}
DEVICE void let_next_start() {}
DEVICE i32 load_settled(const i32 *p) { return load(p); }
DEVICE u64 nanoseconds() { return __builtin_readsteadycounter() * 10; }  // of 100 MHz on all targets here
DEVICE i32 dot4(i32 acc, u32 a, u32 b) {
#if defined(__GFX11__) || defined(__GFX12__)
    return __builtin_amdgcn_sudot4(true, static_cast<i32>(a), true, static_cast<i32>(b), acc, false);
#else
    return __builtin_amdgcn_sdot4(static_cast<i32>(a), static_cast<i32>(b), acc, false);
#endif
}
DEVICE f32 fma(f32 a, f32 b, f32 c) { return __builtin_fmaf(a, b, c); }
DEVICE f32 sqrt(f32 x) { return __builtin_sqrtf(x); }
DEVICE f32 divide(f32 a, f32 b) { return a / b; }

#else  // the emulator

DEVICE u32 thread() { return emulate::thread_index(); }
DEVICE u32 block_x() { return emulate::block_index(0); }
DEVICE u32 block_y() { return emulate::block_index(1); }
DEVICE u32 block_z() { return emulate::block_index(2); }
DEVICE void sync() { emulate::barrier(); }
DEVICE void sync_wave() { emulate::wave_barrier(); }
DEVICE std::byte *shared() { return emulate::shared_memory(); }
DEVICE u32 shuffle_bits(u32 v, u32 from) { return emulate::shuffle(v, from); }
DEVICE u32 shuffle_xor_bits(u32 v, u32 mask) { return emulate::shuffle(v, (emulate::thread_index() % kWave) ^ mask); }
template <class T>
DEVICE T load(const T *p) {
    T v;
    __builtin_memcpy(&v, emulate::reading(p, sizeof(T)), sizeof(T));
    return v;
}
template <class T>
DEVICE void store(T *p, T v) {
    __builtin_memcpy(emulate::writing(p, sizeof(T)), &v, sizeof(T));
}
DEVICE u32 atomic_add(u32 *p, u32 v) { return emulate::atomic_add(p, v); }
DEVICE u32 load_acquire(const u32 *p) { return emulate::load_acquire(p); }
DEVICE void store_release(u32 *p, u32 v) { store(p, v); }
DEVICE void copy_async16(void *to, const void *from) { emulate::copy_async16(to, from); }
DEVICE void copy_async_commit() { emulate::copy_async_commit(); }
template <int N>
DEVICE void copy_async_wait() {
    emulate::copy_async_wait(N);
}
DEVICE void fence() {}
DEVICE void release_to_barrier() {}
DEVICE void barrier_init(Barrier *b, u32 arrivals) { emulate::barrier_init(&b->state, arrivals); }
DEVICE void barrier_arrive(Barrier *b) { emulate::barrier_arrive(&b->state, 0); }
DEVICE void barrier_arrive(Barrier *b, u32 bytes) { emulate::barrier_arrive(&b->state, bytes); }
DEVICE void barrier_wait(Barrier *b, u32 parity) { emulate::barrier_wait(&b->state, parity); }
DEVICE void copy_bulk(void *to, const void *from, u32 bytes, Barrier *b) {
    emulate::copy_bulk(to, from, bytes, &b->state);
}
DEVICE void wait_for_previous() { emulate::wait_for_previous(); }
DEVICE void let_next_start() { emulate::let_next_start(); }
DEVICE i32 load_settled(const i32 *p) { return *static_cast<const i32 *>(emulate::reading_settled(p, sizeof(i32))); }
inline u64 nanoseconds() {  // each look takes a microsecond
    static u64 now = 0;
    return now += 1000;
}
DEVICE i32 dot4(i32 acc, u32 a, u32 b) {
    for (u32 i = 0; i < 4; i++) acc += static_cast<i8>(a >> (8 * i)) * static_cast<i8>(b >> (8 * i));
    return acc;
}
DEVICE f32 fma(f32 a, f32 b, f32 c) { return __builtin_fmaf(a, b, c); }
DEVICE f32 sqrt(f32 x) { return __builtin_sqrtf(x); }
DEVICE f32 divide(f32 a, f32 b) { return a / b; }

#endif

#if defined(RIDGE_PLAIN_BARRIER)
// bytes awaited (32 bits) | arrivals awaited (15) | arrivals of a phase (15) | parity of the phase that goes on. Bytes
// may come before they are announced, so they count modulo 2^32.
DEVICE void barrier_init(Barrier *b, u32 arrivals) { b->state = u64{arrivals} << 32 | u64{arrivals} << 47; }
DEVICE void barrier_change(Barrier *b, u32 bytes, u32 arrivals) {
    fence_shared();
    u64 seen = look_shared(&b->state);
    for (;;) {
        const u32 left = static_cast<u32>(seen) + bytes;
        u64 next = (seen >> 32 << 32 | left) - (u64{arrivals} << 32);
        if (left == 0 && (next >> 32 & 0x7fffu) == 0) next = (next ^ u64{1} << 62) | (next >> 47 & 0x7fffu) << 32;
        const u64 now = swap_shared(&b->state, seen, next);
        if (now == seen) return;
        seen = now;
    }
}
DEVICE void barrier_arrive(Barrier *b) { barrier_change(b, 0, 1); }
DEVICE void barrier_arrive(Barrier *b, u32 bytes) { barrier_change(b, bytes, 1); }
DEVICE void barrier_wait(Barrier *b, u32 parity) {
    while ((look_shared(&b->state) >> 62 & 1u) == parity) {
    }
    fence_shared();
}
DEVICE void copy_bulk(void *to, const void *from, u32 bytes, Barrier *b) {
    for (u32 i = 0; i < bytes / 16; i++) static_cast<u32x4 *>(to)[i] = load(static_cast<const u32x4 *>(from) + i);
    barrier_change(b, 0u - bytes, 0);
}
#endif

#if defined(RIDGE_CUDA)
#if __CUDA_ARCH__ >= 900
constexpr bool kBulkCopies = true;
#else
constexpr bool kBulkCopies = false;
#endif
DEVICE u32 funnel_right(u32 lo, u32 hi, u32 s) { return __funnelshift_r(lo, hi, s); }
#else
#if defined(RIDGE_EMULATE)
constexpr bool kBulkCopies = RIDGE_EMULATE_ARCH == 0;
#else
constexpr bool kBulkCopies = false;
#endif
DEVICE u32 funnel_right(u32 lo, u32 hi, u32 s) { return static_cast<u32>((u64{hi} << 32 | lo) >> s); }
#endif

DEVICE u32 lane() { return thread() % kWave; }
DEVICE u32 wave() { return thread() / kWave; }
DEVICE u32 min(u32 a, u32 b) { return a < b ? a : b; }
DEVICE u32 max(u32 a, u32 b) { return a > b ? a : b; }
// NaN in either gives the other or NaN, as the machine likes: not for values that may be NaN.
DEVICE f32 max(f32 a, f32 b) { return a > b ? a : b; }
DEVICE f32 min(f32 a, f32 b) { return a < b ? a : b; }
DEVICE f32 abs(f32 x) { return as_f32(f32_bits(x) & 0x7fffffffu); }
DEVICE bool is_nan_or_inf(f32 x) { return (f32_bits(x) & 0x7f800000u) == 0x7f800000u; }

DEVICE u32 shuffle(u32 v, u32 from) { return shuffle_bits(v, from); }
DEVICE i32 shuffle(i32 v, u32 from) { return static_cast<i32>(shuffle_bits(static_cast<u32>(v), from)); }
DEVICE f32 shuffle(f32 v, u32 from) { return as_f32(shuffle_bits(f32_bits(v), from)); }
DEVICE u32 shuffle_xor(u32 v, u32 mask) { return shuffle_xor_bits(v, mask); }
DEVICE i32 shuffle_xor(i32 v, u32 mask) { return static_cast<i32>(shuffle_xor_bits(static_cast<u32>(v), mask)); }
DEVICE f32 shuffle_xor(f32 v, u32 mask) { return as_f32(shuffle_xor_bits(f32_bits(v), mask)); }

// Sum and maximum over `width` neighbouring lanes (a power of two up to kWave); every lane gets it. Both partners of
// each step add the same two numbers, so all lanes have the same bits.
DEVICE f32 sum_lanes(f32 v, u32 width = kWave) {
    for (u32 mask = width / 2; mask > 0; mask /= 2) v = v + shuffle_xor(v, mask);
    return v;
}
DEVICE i32 sum_lanes(i32 v, u32 width = kWave) {
    for (u32 mask = width / 2; mask > 0; mask /= 2) v = v + shuffle_xor(v, mask);
    return v;
}
DEVICE f32 max_lanes(f32 v, u32 width = kWave) {
    for (u32 mask = width / 2; mask > 0; mask /= 2) v = max(v, shuffle_xor(v, mask));
    return v;
}

// See backend/cpu/math.h: the same steps, so the same bits.
DEVICE f32 exp(f32 x) {
    constexpr f32 magic = 12582912.0f;
    f32 c = 89.0f < x ? 89.0f : x;
    c = -104.0f > c ? -104.0f : c;
    const f32 shifted = fma(c, 0x1.715476p+0f, magic);
    const f32 whole = shifted - magic;
    const u32 n = f32_bits(shifted) - f32_bits(magic);
    f32 r = fma(-whole, 0x1.62e430p-1f, c);
    r = fma(-whole, -0x1.05c610p-29f, r);
    f32 p = fma(0x1.6a2466p-10f, r, 0x1.1239e2p-7f);
    p = fma(p, r, 0x1.5558f2p-5f);
    p = fma(p, r, 0x1.555492p-3f);
    p = fma(p, r, 0x1.fffffcp-2f);
    p = fma(p, r, 1.0f);
    p = fma(p, r, 1.0f);
    const u32 half = static_cast<u32>(static_cast<i32>(n) >> 1);
    return p * as_f32((half + 127u) << 23) * as_f32((n - half + 127u) << 23);
}

// To f16, nearest, ties to even, NaN made quiet, subnormals kept (backend/cpu/math.h).
DEVICE u32 f32_f16(f32 x) {
#if defined(RIDGE_CUDA)
    u16 r;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(x));
    return r;
#elif defined(RIDGE_HIP)
    return __builtin_bit_cast(u16, static_cast<_Float16>(x));
#else
    const u32 bits = f32_bits(x), sign = (bits >> 16) & 0x8000u;
    u32 m = bits & 0x7fffffffu;
    if (m > 0x7f800000u)
        m = 0x7e00u | (m >> 13 & 0x3ffu);
    else if (m >= 0x47800000u)
        m = 0x7c00u;
    else if (m < 0x38800000u)
        m = f32_bits(as_f32(m) + 0.5f) - f32_bits(0.5f);
    else
        m = (m - (112u << 23) + 0xfffu + ((m - (112u << 23)) >> 13 & 1u)) >> 13;
    return sign | m;
#endif
}

// The step buffer is written by a copy, which the first launch of a step waits for as any copy; the others start after
// that one has. So it may be read before wait_for_previous().
constexpr u32 kPageTokens = 64;
DEVICE u32 tokens(const Step &s) { return static_cast<u32>(load(s.base)); }
DEVICE u32 outputs(const Step &s) { return static_cast<u32>(load(s.base + 1)); }
DEVICE u32 token_of(const Step &s, u32 i) { return static_cast<u32>(load(s.base + 4 + i)); }
DEVICE u32 position_of(const Step &s, u32 i) { return static_cast<u32>(load(s.base + 4 + s.max_tokens + i)); }
DEVICE u32 sequence_of(const Step &s, u32 i) { return static_cast<u32>(load(s.base + 4 + 2 * s.max_tokens + i)); }
DEVICE u32 output_of(const Step &s, u32 i) { return static_cast<u32>(load(s.base + 4 + 3 * s.max_tokens + i)); }
DEVICE const i32 *pages_of(const Step &s, u32 sequence) {
    return s.base + 4 + 3 * s.max_tokens + s.max_outputs + s.max_sequences + u64{sequence} * s.max_pages;
}
// Row of per-token state of a position, given the sequence's page table.
DEVICE u32 slot(const i32 *pages, u32 position) {
    return static_cast<u32>(load(pages + position / kPageTokens)) * kPageTokens + position % kPageTokens;
}

}  // namespace ridge::simt
