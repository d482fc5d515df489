#!/usr/bin/env bash
# Checks that take too long for every change. Every stage runs, even after one has failed; the last lines list them.
# Some hours on 2 cores. With arguments only the named stages: docs, tidy, asan, tsan, pages, coverage, cuda, repeat,
# mutate, layouts, parsers, parquet, shells, reshard, crash.
set -uo pipefail
cd "$(dirname "$0")/.."
seed=${FUZZ_SEED:-$(date +%s)}
layouts=${FUZZ_LAYOUTS:-5000}
seconds=${FUZZ_SECONDS:-600}
stages=("$@")
[ ${#stages[@]} -gt 0 ] || stages=(docs tidy asan tsan pages coverage cuda repeat mutate layouts parsers parquet shells reshard crash)
echo "nightly: seed $seed (FUZZ_SEED=$seed repeats the random stages)"

# The commands of the docs that take minutes too.
docs() {
  make docs && make build && QUINTET_DOCS_ALL=1 build/tests/test_cli --gtest_filter='Docs.CommandsOfGuidesRun'
}
shells() { tools/setup.sh --shells && make build && build/tests/test_cli --gtest_filter='Tool.ShellsComplete'; }
tidy() { make setup && tools/setup.sh --tidy && tools/tidy.sh --all && tools/tidy.sh --analyze; }
# GCC 12's sanitizers cannot run where the kernel randomizes 32 bits of addresses (tools/run_tests.py).
fixed=()
setarch -R true 2>/dev/null && fixed=(setarch -R)
all_under() {
  make setup && cmake --preset "$1" >/dev/null && cmake --build --preset "$1" && "${fixed[@]}" ctest --preset "$1"
}
asan() { all_under asan-full; }
tsan() { all_under tsan; }
pages() { make test-pages; }
coverage() { make coverage; }
cuda() {
  if ! command -v nvcc >/dev/null; then
    echo "nightly: no nvcc on PATH: the CUDA build is skipped"
    return 77
  fi
  tools/setup.sh --cuda && cmake --preset cuda >/dev/null && cmake --build --preset cuda || return 1
  if command -v nvidia-smi >/dev/null && nvidia-smi -L >/dev/null 2>&1; then tests/gpu/run_all.sh; fi
}
repeat() { make repeat FUZZ_SEED="$seed"; }
mutate() { make mutate FUZZ_SEED="$seed"; }
layouts() { make fuzz FUZZ_SEED="$seed" FUZZ_LAYOUTS="$layouts"; }
parquet() { make test-parquet; }
parsers() { make fuzz-parsers FUZZ_SEED="$seed" FUZZ_SECONDS="$seconds"; }
reshard() { make reshard; }
crash() { make crash; }

status=0
report=()
for stage in "${stages[@]}"; do
  case $stage in
    docs | tidy | asan | tsan | pages | coverage | cuda | repeat | mutate | layouts | parsers | parquet | shells | reshard | crash) ;;
    *) echo "nightly: unknown stage '$stage'; expected docs, tidy, asan, tsan, pages, coverage, cuda, repeat, mutate, layouts, parsers, parquet, shells, reshard or crash" >&2; exit 2 ;;
  esac
  echo "== nightly: $stage"
  start=$SECONDS
  "$stage" </dev/null
  case $? in
    0) result=passed ;;
    77) result=skipped ;;
    *) result=FAILED status=1 ;;
  esac
  report+=("$(printf '%-9s %-8s %6d s' "$stage" "$result" $((SECONDS - start)))")
done
echo "== nightly: seed $seed"
printf '%s\n' "${report[@]}"
exit $status
