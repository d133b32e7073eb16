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

# -O2 in every configuration: what is not inlined there becomes a weak symbol compiled for that instruction set, which the
# linker may pick for code that runs everywhere.
# A file named *_<isa>.cpp below src/backend/cpu is compiled for that instruction set and chosen at run time.
function(ridge_isa_flags)
  if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    foreach(source IN LISTS RIDGE_SOURCES)
      if(source MATCHES "_(avx2|avx512)\\.cpp$")
        set_source_files_properties(${source} PROPERTIES HEADER_FILE_ONLY ON)
      endif()
    endforeach()
    return()
  endif()
  foreach(source IN LISTS RIDGE_SOURCES)
    if(source MATCHES "_avx2\\.cpp$")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "-O2;-mavx2;-mfma;-mf16c;-mbmi2;-mpopcnt")
    elseif(source MATCHES "_avx512\\.cpp$")
      # GCC 12 takes the undefined pass-through operand of its own AVX-512 intrinsics for a mistake of ours (PR 105593).
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS
        "-O2;-mavx2;-mfma;-mf16c;-mbmi2;-mpopcnt;-mavx512f;-mavx512bw;-mavx512vl;-mavx512dq;-mavx512vnni;-mprefer-vector-width=512;-Wno-maybe-uninitialized")
    endif()
  endforeach()
endfunction()
