# Flags of every target, as one interface library, and the flags of the files that need more than the baseline.
add_library(ridge_options INTERFACE)
target_compile_options(ridge_options INTERFACE
  -Wall -Wextra -Wshadow=local -Wnon-virtual-dtor -Wno-missing-field-initializers
  # GCC 12 sees overlapping copies inside std::string where there are none (PR 105651).
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
  # Bits must not depend on whether a compiler fused a multiply and an add: kernels ask for fma by name.
  -ffp-contract=off)
if(RIDGE_SANITIZE)
  target_compile_options(ridge_options INTERFACE -fsanitize=${RIDGE_SANITIZE} -fno-omit-frame-pointer
                         -fno-sanitize-recover=all)
  target_link_options(ridge_options INTERFACE -fsanitize=${RIDGE_SANITIZE})
endif()

# A file named *_<isa>.cpp below src/backend/cpu is compiled for that instruction set and chosen at run time; those of
# other machines are left out.
# -O2 in every configuration: what is not inlined there becomes a weak symbol compiled for that instruction set, which the
# linker may pick for code that runs everywhere.
function(ridge_isa_flags)
  set(flags_avx2 -O2 -mavx2 -mfma -mf16c -mbmi2 -mpopcnt)
  set(flags_avxvnni ${flags_avx2} -mavxvnni)
  # GCC 12 takes the undefined pass-through operand of its own AVX-512 intrinsics for a mistake of ours (PR 105593).
  set(flags_avx512 ${flags_avx2} -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mprefer-vector-width=512
                   -Wno-maybe-uninitialized)
  set(flags_avx512vbmi ${flags_avx512} -mavx512vbmi -mavx512vbmi2 -mavx512bitalg)
  set(flags_avx512bf16 ${flags_avx512} -mavx512bf16)
  # The define names the set, see backend/cpu/isa.h.
  set(flags_neon -O2 -DRIDGE_BUILD_NEON)
  set(flags_dotprod -O2 -march=armv8.2-a+dotprod -DRIDGE_BUILD_DOTPROD)
  set(flags_i8mm -O2 -march=armv8.2-a+dotprod+i8mm -DRIDGE_BUILD_I8MM)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    set(here avx2 avxvnni avx512 avx512vbmi avx512bf16)
  elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64|ARM64")
    set(here neon dotprod i8mm)
  endif()
  foreach(source IN LISTS RIDGE_SOURCES)
    if(NOT source MATCHES "_(avx2|avxvnni|avx512|avx512vbmi|avx512bf16|neon|dotprod|i8mm)\\.cpp$")
      continue()
    endif()
    if(CMAKE_MATCH_1 IN_LIST here)
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${flags_${CMAKE_MATCH_1}}")
    else()
      set_source_files_properties(${source} PROPERTIES HEADER_FILE_ONLY ON)
    endif()
  endforeach()
endfunction()
