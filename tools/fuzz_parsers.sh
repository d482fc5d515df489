#!/usr/bin/env bash
# Runs libFuzzer over every target of tests/fuzz for the given seconds each, from the committed corpus and what earlier
# runs found in build-fuzz/corpus. An input that crashes a parser is left in build-fuzz/crashes: fix the parser, then
# keep the input in tests/fuzz/corpus/<target>, where `make test` replays it.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
cmake --preset fuzz >/dev/null
cmake --build --preset fuzz
seed=${FUZZ_SEED:-$(date +%s)}
mkdir -p build-fuzz/crashes
failed=()
for folder in tests/fuzz/corpus/*/; do
  target=$(basename "$folder")
  grown=build-fuzz/corpus/$target
  mkdir -p "$grown"
  options=(-max_total_time="$seconds" -seed="$seed" -timeout=10 -rss_limit_mb=2048 -max_len=65536 -print_final_stats=1
    -artifact_prefix="build-fuzz/crashes/$target-")
  [ ! -f "tests/fuzz/$target.dict" ] || options+=(-dict="tests/fuzz/$target.dict")
  log=build-fuzz/$target.log
  if build-fuzz/tests/fuzz/"fuzz_$target" "${options[@]}" "$grown" "$folder" >"$log" 2>&1; then
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    echo "fuzz-parsers: $target: $runs inputs, no finding (seed $seed)"
  else
    tail -n 40 "$log"
    echo "fuzz-parsers: $target FAILED (seed $seed); the input is in build-fuzz/crashes, the log is $log"
    failed+=("$target")
  fi
done
[ ${#failed[@]} -eq 0 ] || { echo "fuzz-parsers: failed: ${failed[*]}"; exit 1; }
