// What this machine can do at most, measured, never from a data sheet: how many bytes per second it reads from memory
// and how many multiply-adds per second it computes, with one thread and with all. A measurement of a kernel is set
// against them.
//
//   read   plain loads of the widest vectors, over a buffer of many times the last-level cache, on huge pages where the
//          system grants them; every thread reads a stretch of its own
//   int8   8-bit by 8-bit products into 32-bit sums (vpdpbusd, sdot, smmla), operands in registers
//   f32    fused multiply-adds, operands in registers
//   bf16   products of pairs of bf16 added to f32 (vdpbf16ps), where the processor has them
//
// A figure is the best of several rounds: what disturbs a round only ever lowers it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ridge::cpu {

struct Ceiling {
    double one = 0, all = 0;  // per second
};

struct Ceilings {
    std::string isa;       // whose instructions were used: "avx512"
    unsigned threads = 0;  // that `all` had
    size_t bytes = 0;      // that were read
    Ceiling read;          // bytes
    Ceiling int8, f32;     // multiply-adds
    Ceiling bf16;          // and those of bf16; 0: the processor has no instruction for them
};

struct CeilingOptions {
    unsigned threads = 0;       // 0: as many as a backend takes that is not told otherwise
    double seconds = 0.15;      // for each figure
    size_t bytes = 0;           // that are read; 0: beyond_caches()
    std::string_view isa = {};  // "portable", "avx2", ...; empty: the best that this machine has
};

// Throws Error{usage} for an instruction set that is not there, Error{limit} where there is no memory to read.
Ceilings measure_ceilings(const CeilingOptions &options = {});

// Bytes of the largest cache of processor 0; 32 MiB where the system does not say.
size_t last_level_cache(const std::string &root = "");
// How much must be read in turn for the caches to be of next to no use: 16 times the last one, which does not forget
// the oldest first and so keeps some of what is 4 times its size; where that is over 1 GiB, 4 times.
size_t beyond_caches(const std::string &root = "");

// The loops of one instruction set. `rounds` repeats the loop body; the result keeps the compiler from leaving it out.
struct CeilingLoops {
    std::string_view isa;
    uint64_t (*read)(const std::byte *from, size_t bytes);  // bytes: a multiple of 1024
    uint64_t (*int8)(uint64_t rounds);
    uint64_t (*f32)(uint64_t rounds);
    uint64_t (*bf16)(uint64_t rounds);                     // nullptr: it has none
    double int8_per_round, f32_per_round, bf16_per_round;  // multiply-adds
};
extern const CeilingLoops kCeilingsPortable, kCeilingsAvx2, kCeilingsAvx512, kCeilingsAvx512Bf16, kCeilingsDotprod,
    kCeilingsI8mm;

}  // namespace ridge::cpu
