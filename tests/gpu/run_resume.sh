#!/usr/bin/env bash
# Checkpoints on a GPU: a run that is stopped and continued has the bits of an unbroken one, and what a save costs while
# training goes on. Takes less than 90 s of a GPU, and no build.
#   run_resume.sh FOLDER
# FOLDER holds quintet, built with QUINTET_CUDA. In the environment:
#   DEVICE=cuda                        or cpu: the same without a GPU
#   PARTS="bits cycles copy"           which parts run (this is the default)
#   STEPS=30 STOPS=1 SEED=1            of the runs whose bits are compared: steps, stops, and of the random moments
#   CYCLE_RECIPE=bench/gpu/1b.toml CYCLE_SETS="model.layers=4"     whose save cycles are timed, and its settings
#   COPY_RECIPE=bench/gpu/3b.toml      whose state is copied to host memory
#   CYCLE_DIR=/dev/shm                 where timed checkpoints go: room for two, or three with the last
#   RESULTS=FILE                       also write the figures there, as JSON
# Exit status 1 if bits differ, 2 if it cannot run at all. Figures are printed, not judged.
set -uo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
folder=$(cd "${1:?FOLDER with quintet}" && pwd) || exit 2
device=${DEVICE:-cuda}
parts=" ${PARTS:-bits cycles copy} "
. "$root/tests/gpu/environment.sh"
[ "$device" = cpu ] || require_gpu || exit 2
RANDOM=${SEED:-1}
work=$(mktemp -d)
slow=$(mktemp -d "${CYCLE_DIR:-/dev/shm}/quintet-resume.XXXXXX") || exit 2
trap 'rm -rf "$work" "$slow"' EXIT
some_text > "$work/data.txt"
failed=0
figures="{}"
add_figures() {  # key json
  figures=$(python3 -c 'import json, sys; d = json.loads(sys.argv[1]); d[sys.argv[2]] = json.loads(sys.argv[3]); print(json.dumps(d))' \
    "$figures" "$1" "$2")
}

# ---- bits
steps=${STEPS:-30} stops=${STOPS:-1}
# The command of a run, in `command`: a signal must reach the program itself.
prepare() {  # run-dir settings...
  command=("$folder/quintet" train "$root/tests/gpu/layouts.toml" --run-dir "$1" --steps "$steps" --sample 0
    --set "run.device=$device" --set run.deterministic=true --set "data.path=['$work/data.txt']")
  shift
  for setting in "$@"; do command+=(--set "$setting"); done
}
numbers() { grep -o '"step":[^,}]*\|"loss":[^,}]*\|"grad_norm":[^,}]*' "$1/metrics.jsonl"; }
last() { printf '%s/checkpoints/step-%08d' "$1" "$steps"; }

# Stops a run at random steps by a signal and continues it; then compares with the unbroken one.
stopped() {  # what signal settings...
  local what=$1 signal=$2 n at pid status
  shift 2
  rm -rf "$work"/unbroken "$work"/stopped "$work"/cache
  export QUINTET_CACHE_DIR="$work/cache"
  prepare "$work/unbroken" "$@"
  if ! "${command[@]}" > "$work/log" 2>&1; then
    echo "FAILED  $what: the unbroken run did not end well"
    tail -n 20 "$work/log" | sed 's/^/        /'
    failed=1
    return
  fi
  for n in $(seq 1 "$stops"); do
    at=$((steps * (n - 1) / stops + 1 + RANDOM % (steps / stops - 3)))
    prepare "$work/stopped" "$@"
    "${command[@]}" > "$work/log.$n" 2>&1 &
    pid=$!
    while kill -0 $pid 2> /dev/null && [ "$(cat "$work/stopped/metrics.jsonl" 2> /dev/null | wc -l)" -lt $at ]; do sleep 0.005; done
    kill "-$signal" $pid 2> /dev/null
    wait $pid 2> /dev/null
    status=$?
    # A continued run takes the tuned GEMM algorithms from its checkpoint.
    rm -rf "$work/cache"
    echo "        stopped by SIG$signal near step $at, exit status $status"
  done
  "${command[@]}" > "$work/log.last" 2>&1
  status=$?
  numbers "$work/unbroken" > "$work/a"
  numbers "$work/stopped" > "$work/b"
  if [ $status -eq 0 ] && grep -q "continues from\|this run is complete" "$work/log.last" && cmp "$work/a" "$work/b" &&
    [ "$(wc -l < "$work/a")" -eq $((3 * steps)) ] &&
    cmp "$(last "$work/unbroken")/rank-00000.safetensors" "$(last "$work/stopped")/rank-00000.safetensors"; then
    echo "ok      $what: the same losses, norms, weights and moments"
  else
    echo "FAILED  $what: the continued run differs, exit status $status"
    tail -n 12 "$work/log.last" | sed 's/^/        /'
    diff "$work/a" "$work/b" | head -n 6 | sed 's/^/        /'
    failed=1
  fi
}
case $parts in *" bits "*)
  narrow=()
  [ "$device" = cpu ] || narrow=(precision.compute=bf16)
  stopped "stopped by TERM, checkpoints every 7 steps" TERM checkpoint.every=7 "${narrow[@]}"
  stopped "killed, checkpoints every 3 steps" KILL checkpoint.every=3 optimizer.ema=0.9 "${narrow[@]}"
  ;;
esac

# ---- save cycles: the step time beside a copy and a write, and the time that training stands still
case $parts in *" cycles "*)
  cycle_recipe=${CYCLE_RECIPE:-bench/gpu/1b.toml}
  arguments=()
  # shellcheck disable=SC2086
  for setting in ${CYCLE_SETS-model.layers=4}; do arguments+=(--set "$setting"); done
  unset QUINTET_CACHE_DIR
  # Without a cache folder no GEMM is tuned, which takes long.
  env -u XDG_CACHE_HOME HOME= "$folder/quintet" train "$root/$cycle_recipe" --run-dir "$work/cycle" --steps "${CYCLE_STEPS:-44}" \
    --sample 0 --set "run.device=$device" --set "data.path=['$work/data.txt']" --set checkpoint.every=16 \
    --set checkpoint.keep=1 --set "checkpoint.dir=$slow/checkpoints" --set run.log_every=1000 "${arguments[@]}" > "$work/log" 2>&1 || {
    echo "FAILED  save cycles: the run did not end well"
    tail -n 20 "$work/log" | sed 's/^/        /'
    failed=1
  }
  grep "checkpoint of step" "$work/log"
  cat > "$work/cycles.py" <<'PY'
import json, re, statistics, sys
log, metrics = open(sys.argv[1]).read(), [json.loads(l) for l in open(sys.argv[2])]
unit = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
def seconds(t):
    m = re.fullmatch(r"([\d.]+) (ns|us|ms|s)", t)
    if m: return float(m[1]) * unit[m[2]]
    m = re.fullmatch(r"(\d+)m (\d+)s", t)
    return 60.0 * int(m[1]) + int(m[2])
took = [m["tokens"] / m["tokens_per_s"] for m in metrics]
saves = [(int(a), seconds(b), seconds(c), seconds(d)) for a, b, c, d in
         re.findall(r"checkpoint of step (\d+) complete: \S+ in ([^,\n]+), copied in ([^,]+), training stopped for ([^,\n]+)", log)]
alone = statistics.median(took[4:16])
out = {"step_alone_s": alone, "saves": []}
for step, total, copied, stopped in saves:
    beside, at, t = [], step, 0.0
    while at < len(took) and t + took[at] < total:
        beside.append(took[at]); t += took[at]; at += 1
    during = [x for i, x in enumerate(beside)]
    after_copy = []
    t = 0.0
    for x in beside:
        if t >= copied: after_copy.append(x)
        t += x
    out["saves"].append({"step": step, "complete_s": total, "copied_s": copied, "stopped_s": stopped,
                         "first_step_s": beside[0] if beside else None,
                         "steps_beside_write": len(after_copy),
                         "step_beside_write_s": statistics.median(after_copy) if after_copy else None,
                         "slower_percent": 100 * (statistics.median(after_copy) / alone - 1) if after_copy else None})
print(json.dumps(out))
PY
  if [ -s "$work/cycle/metrics.jsonl" ]; then
    cycles=$(python3 "$work/cycles.py" "$work/log" "$work/cycle/metrics.jsonl")
    echo "cycles  $cycles"
    add_figures cycles "$cycles"
  fi
  rm -rf "$slow/checkpoints"
  ;;
esac

# ---- the copy of a large state to host memory, beside the rate of one large copy
case $parts in *" copy "*)
  if copy=$("$folder/quintet" bench checkpoint "$root/${COPY_RECIPE:-bench/gpu/3b.toml}" --set "run.device=$device" \
    --copy-only --rounds 3 --json 2> "$work/log"); then
    echo "copy    $copy"
    add_figures copy "$copy"
    python3 - "$copy" <<'PY'
import json, statistics, sys
b = json.loads(sys.argv[1])
rate = b["bytes_of_rank_0"] / statistics.median(r["copy"] for r in b["rounds"])
print(f"        {b['bytes_of_rank_0'] / 2**30:.1f} GiB at {rate / 1e9:.1f} GB/s, {100 * rate / b['link_bytes_per_s']:.1f} % of one large copy")
PY
  else
    echo "FAILED  copy: did not run"
    tail -n 20 "$work/log" | sed 's/^/        /'
    failed=1
  fi
  ;;
esac
[ -z "${RESULTS:-}" ] || printf '%s\n' "$figures" > "$RESULTS"
exit $failed
