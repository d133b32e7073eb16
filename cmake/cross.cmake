# A build for another machine: ridge_gate, which runs the gate of formats, kernel rows and fused forms under an emulator
# (scripts/gate_aarch64.sh). Libraries of the other machine are not needed: what is left out is all that wants PCRE2 or
# libedit (text, chat, whole models), {fmt} is used as headers, and the program is static. Of the GPU backends there is the
# host's side, without code for a GPU.
find_package(Threads REQUIRED)

# Headers of the build machine, one by one: its include folder as a whole would bring its C library.
set(headers ${CMAKE_BINARY_DIR}/headers)
file(MAKE_DIRECTORY ${headers})
find_path(RIDGE_FMT_HEADERS fmt/format.h NO_CMAKE_FIND_ROOT_PATH PATHS /usr/include /usr/local/include REQUIRED)
file(CREATE_LINK ${RIDGE_FMT_HEADERS}/fmt ${headers}/fmt SYMBOLIC)

file(GLOB_RECURSE RIDGE_SOURCES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/*.cpp)
list(FILTER RIDGE_SOURCES INCLUDE REGEX "/src/(backend|core|engine|format|op)/|/src/gguf/printable|/src/oracle/(decode|ops|tables)|/src/measure/gate")
list(FILTER RIDGE_SOURCES EXCLUDE REGEX "/gate_(model|replay)|/simt/emulate/")
set(RIDGE_CUDA_ARCHS off)
set(RIDGE_HIP_ARCHS off)
ridge_simt_images()
add_executable(ridge_gate ${PROJECT_SOURCE_DIR}/tests/cross/gate.cpp ${RIDGE_SOURCES} ${RIDGE_SIMT_IMAGES})
target_include_directories(ridge_gate PRIVATE ${PROJECT_SOURCE_DIR}/src)
target_include_directories(ridge_gate SYSTEM PRIVATE ${headers})
target_compile_definitions(ridge_gate PRIVATE FMT_HEADER_ONLY RIDGE_VERSION="${PROJECT_VERSION}")
target_link_libraries(ridge_gate PRIVATE ridge_options Threads::Threads)
target_link_options(ridge_gate PRIVATE -static)
ridge_isa_flags()
