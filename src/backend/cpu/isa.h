// The instruction set that the including file is compiled for, as the namespace RIDGE_ISA: a file compiled for AVX-512
// must not leave behind a symbol that the linker could choose for everybody.
#pragma once

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)
#define RIDGE_ISA avx512
#define RIDGE_ISA_AVX512 1
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define RIDGE_ISA avx2
#define RIDGE_ISA_AVX2 1
#else
#define RIDGE_ISA portable
#endif
