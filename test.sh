#!/usr/bin/env bash
# Installs what the tests need, builds, runs all tests. Ends with ctest's summary.
#   ./test.sh [ctest flags]             e.g. ./test.sh -R gguf
#   ./test.sh --sanitize [ctest flags]  the same under AddressSanitizer and UBSan, then under ThreadSanitizer (slow)
source "$(dirname "$0")/scripts/setup.sh"
presets=(release)
if [ "${1:-}" = --sanitize ]; then
    presets=(asan tsan)
    shift
fi
need "${build_packages[@]}" libgtest-dev librapidcheck-dev libboost-context-dev clang-19 lld-19 libclang-rt-19-dev glslc spirv-cross \
    g++-aarch64-linux-gnu qemu-user
for what in smollm2 qwen2.5 gemma3 vocabularies templates; do
    fetch_model "$what" >/dev/null
done
export RIDGE_REQUIRE_TOOLS=1 RIDGE_REQUIRE_MODELS=1
for preset in "${presets[@]}"; do
    say "building ($preset)"
    build "$preset" -DRIDGE_TESTS=ON -DRIDGE_CUDA_ARCHS=90a "-DRIDGE_HIP_ARCHS=gfx1151;gfx942"
    say "testing ($preset)"
    (cd "$root/build/$preset" && ctest --output-on-failure "$@")
done
