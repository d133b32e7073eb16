#!/usr/bin/env bash
# Builds the gate of formats, kernel rows and fused forms for 64-bit ARM and runs it under qemu-user. That shows that the
# bits are right; it says nothing about speed.
#   scripts/gate_aarch64.sh [flags of ridge_gate]      default: --quick; e.g. --op contract --format Q4_K --row i8mm
# Exits with 77, which the tests take for "skipped", where the tools are missing and RIDGE_REQUIRE_TOOLS is not set.
source "$(dirname "$0")/setup.sh"
for tool in aarch64-linux-gnu-g++ qemu-aarch64; do
    command -v "$tool" >/dev/null && continue
    say "$tool is missing: Debian packages g++-aarch64-linux-gnu, qemu-user"
    [ -n "${RIDGE_REQUIRE_TOOLS:-}" ] && exit 1
    exit 77
done
build aarch64
gate=$root/build/aarch64/ridge_gate
if [ $# -gt 0 ]; then
    exec qemu-aarch64 -cpu max "$gate" "$@"
fi
say "a processor with dotprod and i8mm"
qemu-aarch64 -cpu max "$gate" --quick
# Rows must not be chosen where their instructions are missing: an illegal instruction would end the program.
for cpu in cortex-a72 neoverse-n1; do
    say "$cpu"
    qemu-aarch64 -cpu $cpu "$gate" --quick --op contract --format Q4_0
done
