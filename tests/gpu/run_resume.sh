#!/usr/bin/env bash
# Checkpoints on a GPU: a run that is stopped and continued has the bits of an unbroken one, and what a save costs while
# training goes on. Takes less than 4 minutes of a GPU, and no build.
#   run_resume.sh FOLDER
# FOLDER holds quintet, built with QUINTET_CUDA. In the environment:
#   DEVICE=cuda                        or cpu: the same without a GPU
#   PARTS="bits cycles copy"           which parts run (this is the default)
#   STEPS=30 STOPS=1 SEED=1            of the runs whose bits are compared: steps, stops, and of the random moments
#   LARGE_SETS="model.layers=8 ..."    of the run whose state several threads load (200 MB or more)
#   CYCLE_RECIPE=bench/gpu/1b.toml CYCLE_SETS=""     whose save cycles are timed, and its settings
#   CYCLE_EVERY=60 CYCLES=2 CYCLE_SECONDS=150        steps between saves, saves, and seconds after which it ends anyway
#   COPY_RECIPE=bench/gpu/3b.toml      whose state is copied to host memory
#   CYCLE_DIR=FOLDER                   where timed checkpoints go: room for two. Default: the folder for temporary files if it has
#                                      50 GB, else /dev/shm
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
cycle_dir=${CYCLE_DIR:-$work}
[ -n "${CYCLE_DIR:-}" ] || [ "$(df --output=avail -B1M "$work" | tail -n 1)" -ge 50000 ] || cycle_dir=/dev/shm
slow=$(mktemp -d "$cycle_dir/quintet-resume.XXXXXX") || exit 2
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
    [ $at -gt $((steps / 3)) ] || at=$((steps / 3 + 1))  # there is a checkpoint to continue from
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
  # 400 MB: several threads load, through page-locked blocks, and saves are copied in groups beside the next step. The
  # first two states fit into one block.
  large=${LARGE_SETS-model.layers=8 model.embed=512 model.ffn=2048 model.heads=8 model.kv_heads=8}
  # shellcheck disable=SC2086
  stopped "stopped by TERM, a state that four threads load" TERM checkpoint.every=10 "${narrow[@]}" $large
  ;;
esac

# ---- save cycles: the step time beside a copy and a write, and the time that training stands still
case $parts in *" cycles "*)
  cycle_recipe=${CYCLE_RECIPE:-bench/gpu/1b.toml} every=${CYCLE_EVERY:-60} cycles=${CYCLES:-2}
  arguments=()
  # shellcheck disable=SC2086
  for setting in ${CYCLE_SETS-}; do arguments+=(--set "$setting"); done
  unset QUINTET_CACHE_DIR
  # Without a cache folder no GEMM is tuned, which takes long. The run is ended by force: no last state is saved.
  env -u XDG_CACHE_HOME HOME= "$folder/quintet" train "$root/$cycle_recipe" --run-dir "$work/cycle" --steps 100000 \
    --sample 0 --set "run.device=$device" --set "data.path=['$work/data.txt']" --set "checkpoint.every=$every" \
    --set checkpoint.keep=1 --set "checkpoint.dir=$slow/checkpoints" --set run.log_every=100000 "${arguments[@]}" > "$work/log" 2>&1 &
  pid=$!
  until_step=$((every * (cycles + 1) - 1)) waited=0
  while kill -0 $pid 2> /dev/null && [ $waited -lt "${CYCLE_SECONDS:-150}0" ] &&
    [ "$(cat "$work/cycle/metrics.jsonl" 2> /dev/null | wc -l)" -lt $until_step ]; do
    sleep 0.1
    waited=$((waited + 1))
  done
  if kill -KILL $pid 2> /dev/null; then
    wait $pid 2> /dev/null
  else
    echo "FAILED  save cycles: the run did not end well"
    tail -n 20 "$work/log" | sed 's/^/        /'
    failed=1
  fi
  cat > "$work/cycles.py" <<'PY'
import json, re, statistics, sys
log, metrics, every = open(sys.argv[1]).read(), [], int(sys.argv[3])
for line in open(sys.argv[2]):
    try: metrics.append(json.loads(line))
    except json.JSONDecodeError: pass  # the last one, of a run that was killed
unit = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
def seconds(t):
    m = re.fullmatch(r"([\d.]+) (ns|us|ms|s)", t)
    if m: return float(m[1]) * unit[m[2]]
    m = re.fullmatch(r"(\d+)m (\d+)s", t)
    return 60.0 * int(m[1]) + int(m[2])
took = [m["tokens"] / m["tokens_per_s"] for m in metrics]
saves = [(int(a), seconds(b), seconds(c), seconds(d)) for a, b, c, d in
         re.findall(r"checkpoint of step (\d+) complete: \S+ in ([^,\n]+), copied in ([^,]+), training stopped for ([^,\n]+)", log)]
# Steps: the one after a save, whose update waits for the copy; those beside the write; and all others, without the first ten.
alone, result = [], {"saves": []}
beside_any = set()
for step, total, copied, stopped in saves:
    at, t, beside = step, stopped, []
    while at < len(took) and t < total:
        if at > step and t + took[at] <= total: beside.append(took[at])
        beside_any.add(at)
        t += took[at]
        at += 1
    result["saves"].append({"step": step, "complete_s": total, "copied_s": copied, "stopped_s": stopped,
                            "first_step_s": took[step] if step < len(took) else None, "beside_s": beside})
alone = [t for i, t in enumerate(took) if i >= 10 and i not in beside_any]
if not alone: sys.exit("no step ran without a write beside it")
base = statistics.median(alone)
result.update({"steps_alone": len(alone), "step_alone_s": base, "mean_alone_s": statistics.mean(alone)})
print(f"cycles  steps without a write: {len(alone)}, median {base * 1e3:.1f} ms, mean {statistics.mean(alone) * 1e3:.1f} ms")
print("        save   complete     copied    stopped  next step |  steps beside the write: count  median ms   slower   mean ms   slower")
for s in result["saves"]:
    b = s.pop("beside_s")
    s["steps_beside"] = len(b)
    text = "    none"
    if b:
        s["step_beside_s"], s["mean_beside_s"] = statistics.median(b), statistics.mean(b)
        text = (f"{len(b):30d} {s['step_beside_s'] * 1e3:10.1f} {100 * (s['step_beside_s'] / base - 1):7.2f} %"
                f" {s['mean_beside_s'] * 1e3:9.1f} {100 * (s['mean_beside_s'] / statistics.mean(alone) - 1):7.2f} %")
    first = s["first_step_s"]
    print(f"        {s['step']:4d} {s['complete_s']:8.2f} s {s['copied_s'] * 1e3:7.0f} ms {s['stopped_s'] * 1e3:7.1f} ms"
          f" {first * 1e3 if first else 0:7.1f} ms | {text}")
json.dump(result, open(sys.argv[4], "w"))
PY
  if [ -s "$work/cycle/metrics.jsonl" ] && python3 "$work/cycles.py" "$work/log" "$work/cycle/metrics.jsonl" "$every" "$work/cycles.json"; then
    add_figures cycles "$(cat "$work/cycles.json")"
  else
    failed=1
  fi
  du -sm "$slow/checkpoints" 2> /dev/null | awk '{print "        on disk: " $1 " MiB, in " $2}'
  rm -rf "$slow/checkpoints"
  ;;
esac

# ---- the copy of a large state to host memory, beside the rate of one large copy in the same process
case $parts in *" copy "*)
  if copy=$("$folder/quintet" bench checkpoint "$root/${COPY_RECIPE:-bench/gpu/3b.toml}" --set "run.device=$device" \
    --copy-only --rounds 5 --json 2> "$work/log"); then
    add_figures copy "$copy"
    python3 - "$copy" <<'PY'
import json, statistics, sys
b = json.loads(sys.argv[1])
size, link = b["bytes_of_rank_0"], b["link_bytes_per_s"]
print(f"copy    {size / 2**30:.1f} GiB; one large page-locked copy alone: {link / 1e9:.2f} GB/s")
for i, r in enumerate(b["rounds"]):
    print(f"        round {i + 1}: {r['copy']:.3f} s, {size / r['copy'] / 1e9:.2f} GB/s, the call returned after {r['stop'] * 1e3:.1f} ms")
rate = size / statistics.median(r["copy"] for r in b["rounds"])
print(f"        median {rate / 1e9:.2f} GB/s, {100 * rate / link:.1f} % of one large copy")
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
