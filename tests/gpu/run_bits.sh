#!/usr/bin/env bash
# The same run twice on two ranks with run.deterministic leaves the same bits: the weights and every loss.
#   run_bits.sh FOLDER
# FOLDER holds quintet, built with QUINTET_CUDA. In the environment:
#   DEVICE=cuda   or cpu: the same over MPI alone, without a GPU
# Exit status 1 if any differs, 2 if it cannot run at all.
set -uo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
folder=$(cd "${1:?FOLDER with quintet}" && pwd) || exit 2
. "$root/tests/gpu/environment.sh"
require_mpi
[ "${DEVICE:-cuda}" = cpu ] || require_gpu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
some_text > "$work/data.txt"

failed=0
# The shards of the last checkpoint: weights and moments of both ranks.
same_state() {
  local shard
  for shard in rank-00000 rank-00001; do
    cmp "$work/run1/checkpoints/step-00000020/$shard.safetensors" "$work/run2/checkpoints/step-00000020/$shard.safetensors" || return 1
  done
}
# With skips=1 some steps must have been skipped.
twice() {  # what settings...
  local what=$1 arguments=() run lines skipped
  shift
  for setting in "$@"; do arguments+=(--set "$setting"); done
  rm -rf "$work"/run*
  for run in run1 run2; do
    if ! timeout -k 10 120 bash -c 'on_ranks "$@"' on_ranks 2 "$folder/quintet" train "$root/tests/gpu/layouts.toml" \
      --run-dir "$work/$run" --steps 20 --set "run.device=${DEVICE:-cuda}" --set precision.compute=bf16 \
      --set "data.path=['$work/data.txt']" "${arguments[@]}" > "$work/log" 2>&1; then
      echo "FAILED  $what: did not run"
      tail -n 20 "$work/log" | sed 's/^/        /'
      failed=1
      return
    fi
    grep -o '"loss":[^,}]*\|"grad_norm":[^,}]*' "$work/$run/metrics.jsonl" > "$work/$run.losses"
  done
  lines=$(wc -l < "$work/run1.losses")
  skipped=$(grep -c '"skipped": *true' "$work/run1/metrics.jsonl")
  if [ -n "${skips:-}" ] && [ "$skipped" -eq 0 ]; then
    echo "FAILED  $what: no step was skipped"
    failed=1
  elif [ "$lines" -eq 40 ] && cmp "$work/run1.losses" "$work/run2.losses" &&
    same_state; then
    echo "ok      $what: the same weights and moments, and the same $lines recorded numbers; $skipped steps skipped"
  else
    echo "FAILED  $what: two runs differ"
    failed=1
  fi
}
experts=(parallel.dp_shard=2 parallel.ep=2 model.moe.experts=4 model.moe.top_k=2 model.moe.ffn=32 model.ffn=32)
twice "dp_shard 2, zero 2, ep 2" parallel.zero=2 "${experts[@]}"
twice "dp_shard 2, zero 1, ep 2, padded" parallel.zero=1 "${experts[@]}" model.moe.capacity_factor=1.25 model.moe.pad=true
twice "dp_shard 2, zero 1, ep 2, rows past a bound" parallel.zero=1 "${experts[@]}" model.moe.receive_bound=0.5
twice "tp 2, sequence parallel" parallel.tp=2 parallel.sequence_parallel=true
# The scale is doubled after every good step, so gradients overflow repeatedly, on one rank or on both. If they did not
# agree on which steps to skip, the replicas would differ, which the run itself checks.
skips=1 twice "dp_replicate 2, f16, scales that overflow" parallel.dp_replicate=2 precision.compute=f16 \
  precision.loss_scale=dynamic precision.loss_scale_window=1
exit $failed
