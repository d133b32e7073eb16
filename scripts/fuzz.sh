#!/usr/bin/env bash
# Fuzzes what reads files and text, for longer than the tests do.
#   scripts/fuzz.sh [SECONDS [HARNESS...]]     default: 600 seconds for each of all harnesses (tests/fuzz/*.cpp)
# Inputs that were found interesting stay in build/fuzz/<harness>/corpus, and the next run starts from them; so do the
# inputs of findings in build/fuzz/<harness>. Ends with a line per harness: executions, coverage, crashes.
source "$(dirname "$0")/setup.sh"
seconds=${1:-600}
shift $(($# > 0 ? 1 : 0))
need "${build_packages[@]}" clang-19 libclang-rt-19-dev
harnesses=("$@")
if [ ${#harnesses[@]} -eq 0 ]; then
    for source in "$root"/tests/fuzz/*.cpp; do
        name=$(basename "$source" .cpp)
        [ "$name" = support ] || harnesses+=("$name")
    done
fi
say "building"
cmake -G Ninja -S "$root/tests/fuzz" -B "$root/build/fuzz/build" -DCMAKE_CXX_COMPILER=clang++-19 >"$root/build/fuzz.log" 2>&1 ||
    { cat "$root/build/fuzz.log" >&2; exit 1; }
cmake --build "$root/build/fuzz/build" --target "${harnesses[@]}"
failed=0
for name in "${harnesses[@]}"; do
    say "$name for $seconds s"
    "$root/tests/fuzz/run.sh" "$root/build/fuzz/build/$name" "$seconds" "$root/build/fuzz/$name" || failed=1
done
exit $failed
