#!/usr/bin/env bash
# run.sh PROGRAM SECONDS FOLDER: runs one fuzz harness from its seeds and with its dictionary, and prints what it did on
# one line. Fails where there is a finding; the input that shows it stays in FOLDER. FOLDER keeps the inputs that the
# run found interesting: the next one starts from them too.
set -euo pipefail
program=$1 seconds=$2 folder=$3
name=$(basename "$program")
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mkdir -p "$folder/corpus"
log=$folder/log
flags=(-max_total_time="$seconds" -max_len=4096 -timeout=10 -rss_limit_mb=512 -malloc_limit_mb=256
       -print_final_stats=1 -artifact_prefix="$folder/")
[ -f "$here/dict/$name.dict" ] && flags+=(-dict="$here/dict/$name.dict")
# Freed memory is kept from reuse for a while, which counts as memory in use.
export ASAN_OPTIONS=quarantine_size_mb=32 UBSAN_OPTIONS=print_stacktrace=1
status=0
"$program" "${flags[@]}" "$folder/corpus" "$here/corpus/$name" >"$log" 2>&1 || status=$?
executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
coverage=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -1)
if [ $status -ne 0 ]; then
    grep -vE '^"|^#[0-9]+[[:space:]]+(NEW|REDUCE|pulse)' "$log" | tail -60
    echo "$name: a finding after ${executions:-some} executions; run the program again on the file named above"
    exit 1
fi
echo "$name: ${executions:-0} executions in $seconds s, ${coverage:-0} edges covered, 0 crashes"
[ "${executions:-0}" -gt 0 ]
