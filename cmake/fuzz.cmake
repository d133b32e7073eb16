# The fuzz harnesses as a part of the tests: tests/fuzz is built by clang as a project of its own beside the rest, and
# each harness runs for a few seconds. scripts/fuzz.sh runs them for longer.
option(RIDGE_FUZZ "Build the fuzz harnesses and run each for a few seconds (needs clang 19 with its libFuzzer)" ON)

function(ridge_fuzz_tests)
  # The harnesses bring sanitizers of their own.
  if(NOT RIDGE_FUZZ OR RIDGE_SANITIZE)
    return()
  endif()
  find_program(RIDGE_FUZZ_COMPILER NAMES clang++-19)
  set(probe ${CMAKE_BINARY_DIR}/fuzz/probe)
  file(WRITE ${probe}.cpp "extern \"C\" int LLVMFuzzerTestOneInput(const unsigned char *, unsigned long) { return 0; }\n")
  set(status 1)
  if(RIDGE_FUZZ_COMPILER)
    execute_process(COMMAND ${RIDGE_FUZZ_COMPILER} -fsanitize=fuzzer,address,undefined ${probe}.cpp -o ${probe}
                    RESULT_VARIABLE status OUTPUT_QUIET ERROR_QUIET)
  endif()
  if(NOT status EQUAL 0)
    # Skipped where the tools are not there, a failure where they are required.
    add_test(NAME fuzz.tools COMMAND sh -c
      "echo 'clang++-19 with libFuzzer is missing: Debian packages clang-19, libclang-rt-19-dev'; [ -n \"$RIDGE_REQUIRE_TOOLS\" ] && exit 1; exit 77")
    set_tests_properties(fuzz.tools PROPERTIES SKIP_RETURN_CODE 77)
    return()
  endif()

  include(ExternalProject)
  ExternalProject_Add(fuzz_harnesses
    SOURCE_DIR ${PROJECT_SOURCE_DIR}/tests/fuzz
    BINARY_DIR ${CMAKE_BINARY_DIR}/fuzz/build
    STAMP_DIR ${CMAKE_BINARY_DIR}/fuzz/stamp
    TMP_DIR ${CMAKE_BINARY_DIR}/fuzz/tmp
    CMAKE_ARGS -DCMAKE_CXX_COMPILER=${RIDGE_FUZZ_COMPILER}
    INSTALL_COMMAND ""
    BUILD_ALWAYS ON)
  file(GLOB harnesses CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/fuzz/*.cpp)
  list(FILTER harnesses EXCLUDE REGEX "/support\\.cpp$")
  foreach(source IN LISTS harnesses)
    get_filename_component(name ${source} NAME_WE)
    add_test(NAME fuzz.${name} COMMAND ${PROJECT_SOURCE_DIR}/tests/fuzz/run.sh
             ${CMAKE_BINARY_DIR}/fuzz/build/${name} 8 ${CMAKE_BINARY_DIR}/fuzz/${name})
    # Alone: each looks at the processor time that an input takes.
    set_tests_properties(fuzz.${name} PROPERTIES RUN_SERIAL ON TIMEOUT 60)
  endforeach()
endfunction()
