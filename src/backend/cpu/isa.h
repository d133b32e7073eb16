// The instruction set that the including file is compiled for, as the namespace RIDGE_ISA: a file compiled for AVX-512
// must not leave behind a symbol that the linker could choose for everybody.
//
// On x86 the compiler's macros tell. On ARM they cannot: every aarch64 compiler has NEON, some (Apple's) have dotprod
// by default, and portable code is to stay what it is everywhere. So the build names the set (cmake/options.cmake).
// Each of neon, dotprod and i8mm contains the one before it.
#pragma once

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512BF16__)
#define RIDGE_ISA avx512bf16
#define RIDGE_ISA_AVX512 1
#elif defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VBMI__) && defined(__AVX512VBMI2__)
#define RIDGE_ISA avx512vbmi
#define RIDGE_ISA_AVX512 1
#define RIDGE_ISA_AVX512VBMI 1
#elif defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)
#define RIDGE_ISA avx512
#define RIDGE_ISA_AVX512 1
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__) && defined(__AVXVNNI__)
#define RIDGE_ISA avxvnni
#define RIDGE_ISA_AVX2 1
#define RIDGE_ISA_AVXVNNI 1
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define RIDGE_ISA avx2
#define RIDGE_ISA_AVX2 1
#elif defined(RIDGE_BUILD_I8MM)
#define RIDGE_ISA i8mm
#define RIDGE_ISA_NEON 1
#define RIDGE_ISA_DOTPROD 1
#define RIDGE_ISA_I8MM 1
#elif defined(RIDGE_BUILD_DOTPROD)
#define RIDGE_ISA dotprod
#define RIDGE_ISA_NEON 1
#define RIDGE_ISA_DOTPROD 1
#elif defined(RIDGE_BUILD_NEON)
#define RIDGE_ISA neon
#define RIDGE_ISA_NEON 1
#else
#define RIDGE_ISA portable
#endif
