# Stand-in driver libraries: the emulator, the symbols of both GPU drivers, and kernels compiled as C++. Tests open them
# in place of libcuda or libamdhip64. They share nothing with the program that loads them.
#
# ridge_standin() makes, of all kernels of src/backend/simt,
#   standin_mma    as an NVIDIA GPU has it (waves of 32)
#   standin_wmma   as AMD gfx11 has it (waves of 32)
#   standin_mfma   as AMD gfx9 has it (waves of 64)
# in ${CMAKE_BINARY_DIR}/standin, and the target `standin` for all of them.
function(ridge_standin_library name wave arch)
  file(GLOB emulator CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/backend/simt/emulate/*.cpp)
  set_source_files_properties(${ARGN} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "-x;c++")
  add_library(${name} MODULE ${emulator} ${ARGN})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_compile_definitions(${name} PRIVATE RIDGE_WAVE=${wave} RIDGE_EMULATE_ARCH=${arch})
  # Fibers are not for AddressSanitizer or ThreadSanitizer; the emulator does its own checking of memory. -O2 in every
  # configuration: a kernel that is not optimised wants larger stacks than fibers have.
  target_compile_options(${name} PRIVATE -O2 -Wall -Wextra -Wshadow=local -Wno-unknown-pragmas -ffp-contract=off -fno-stack-protector
                         $<$<CXX_COMPILER_ID:GNU>:-fno-gnu-unique>)
  if(RIDGE_SANITIZE MATCHES "undefined")
    target_compile_options(${name} PRIVATE -fsanitize=undefined -fno-sanitize-recover=all)
    target_link_options(${name} PRIVATE -fsanitize=undefined)
  endif()
  # It stays loaded: mappings and kernels' names are for the life of a process.
  target_link_options(${name} PRIVATE -Wl,-Bsymbolic -Wl,--no-undefined -Wl,-z,nodelete
                      -Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/standin.map)
  set_target_properties(${name} PROPERTIES PREFIX "" CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
                        LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/standin)
endfunction()

function(ridge_standin)
  file(GLOB kernels CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/backend/simt/kernels/*.cu)
  ridge_standin_library(standin_mma 32 0 ${kernels})
  ridge_standin_library(standin_wmma 32 1 ${kernels})
  ridge_standin_library(standin_mfma 64 2 ${kernels})
  # The emulator's own tests bring their kernels.
  ridge_standin_library(standin_test_32 32 0 ${PROJECT_SOURCE_DIR}/tests/simt/emulator_kernels.cu)
  ridge_standin_library(standin_test_64 64 2 ${PROJECT_SOURCE_DIR}/tests/simt/emulator_kernels.cu)
  add_custom_target(standin DEPENDS standin_mma standin_wmma standin_mfma standin_test_32 standin_test_64)
endfunction()
