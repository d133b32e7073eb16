#!/usr/bin/env bash
# Installs what the tests need, builds, runs all tests. Ends with ctest's summary.
#   ./test.sh [ctest flags]     e.g. ./test.sh -R gguf
source "$(dirname "$0")/scripts/setup.sh"
need "${build_packages[@]}" libgtest-dev librapidcheck-dev clang-19 glslc spirv-cross
fetch_model smollm2 >/dev/null
fetch_model qwen2.5 >/dev/null
say "building"
build release -DRIDGE_TESTS=ON
say "testing"
export RIDGE_REQUIRE_TOOLS=1 RIDGE_REQUIRE_MODELS=1
cd "$root/build/release"
exec ctest --output-on-failure "$@"
