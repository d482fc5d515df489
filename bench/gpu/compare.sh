#!/usr/bin/env bash
# Compares Quintet with PyTorch on this machine's GPU, interleaved; one JSON line per run on standard output.
#   compare.sh QUINTET [SECONDS]
# QUINTET is the tool, built with QUINTET_CUDA. Each timed run is preceded by SECONDS (30) of warm-up. CASES selects
# cases, e.g. CASES="1b 125m-4"; PYTHON is an interpreter with PyTorch; FLOORS=0.15 also measures Quintet's floors, for that
# many seconds per kind of instruction. TURNS=2 runs every case twice, the second time PyTorch first. PyTorch compiles
# clipping and AdamW too, unless COMPILED_UPDATE=0. Packed cases read the same file of document lengths (documents/) on
# both sides and have two peers, flex and varlen; ATTENTION=flex selects one. Both sides begin with the same weights and
# train on the same tokens: how far the first 20 losses differ is reported, and the script fails where one of the first
# five differs by more than LOSS_LIMIT (0.02, with fp8 0.06); later ones drift apart, since both sides round to bf16. Cases whose
# names end in -fp8 quantise the linear layers of the blocks, here with delayed scales, there by torchao with the scales of
# each tensor; -fp8-head quantises the head too; -fp8-block has scales of blocks here, of rows there.
# The last lines on standard error are a table of the rates.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
if [ $# -eq 0 ] || [ ! -x "$1" ]; then
  echo "compare.sh QUINTET [SECONDS]: QUINTET must be the tool, built with QUINTET_CUDA; got '${1:-}'" >&2
  exit 2
fi
tool=$1
seconds=${2:-30}
python=${PYTHON:-python3}
steps=${STEPS:-50}
gpu=${CUDA_VISIBLE_DEVICES:-0} gpu=${gpu%%,*}  # the GPU that both use

# name: recipe, sequence length, sequences, fastest PyTorch mode[, file of document lengths or -[, torchao's float8 recipe
# [, head]]]
declare -A cases=(
  [1b]="1b 4096 4 whole" [3b]="3b 4096 4 whole" [8b8l]="8b8l 4096 4 whole" [8b8l-8192]="8b8l 8192 2 block"
  [125m]="125m 1024 32 whole" [125m-4]="125m 1024 4 graph"
  [1b-508]="1b 4096 4 whole 508" [1b-96]="1b 4096 4 whole 96" [8b8l-packed]="8b8l 4096 4 whole lognormal700"
  [1b-fp8-head]="1b 4096 4 whole - tensorwise head" [8b8l-fp8-head]="8b8l 4096 4 whole - tensorwise head"
  [1b-fp8-block]="1b 4096 4 whole - rowwise" [3b-fp8-block]="3b 4096 4 whole - rowwise" [8b8l-fp8-block]="8b8l 4096 4 whole - rowwise"
  [1b-fp8]="1b 4096 4 whole - tensorwise" [3b-fp8]="3b 4096 4 whole - tensorwise" [8b8l-fp8]="8b8l 4096 4 whole - tensorwise"
)
nvidia-smi -i "$gpu" --query-gpu=name,driver_version,power.limit --format=csv,noheader 2> /dev/null | grep . >&2 || {
  echo "no NVIDIA GPU found by nvidia-smi" >&2
  exit 2
}
# Runs a command and reports clocks, power and temperature of its second half, when the GPU is warm, on standard error.
samples=$(mktemp) result=$(mktemp) peer=$(mktemp) rates=$(mktemp) sampler=
trap '[ -z "$sampler" ] || kill "$sampler" 2> /dev/null; rm -f "$samples" "$result" "$peer" "$rates"' EXIT
watched() {  # what command...
  local what=$1 status=0
  shift
  nvidia-smi -i "$gpu" --query-gpu=clocks.sm,clocks.mem,power.draw,temperature.gpu --format=csv,noheader,nounits -lms 500 > "$samples" &
  sampler=$!
  "$@" || status=$?
  kill "$sampler" && wait "$sampler" 2> /dev/null || true
  sampler=
  "$python" - "$what" "$samples" >&2 << 'SUMMARY'
import statistics, sys
rows = []
for line in open(sys.argv[2]):
    try:
        clock, memory, power, heat = map(float, line.split(","))
    except ValueError:  # a truncated last line, or a GPU without this sensor
        continue
    rows.append((clock, memory, power, heat))
warm = rows[len(rows) // 2:]
sm, memory, power, heat = (sorted(column) for column in zip(*warm)) if warm else ([0],) * 4
print(f"{sys.argv[1]}: SM clock {sm[0]:.0f} to {sm[-1]:.0f} MHz, median {statistics.median(sm):.0f}; memory clock "
      f"{statistics.median(memory):.0f} MHz; power {statistics.median(power):.0f} W; {heat[-1]:.0f} C at most; "
      f"{len(warm)} samples")
SUMMARY
  return "$status"
}
declare -A linears=([tensorwise]=fp8-delayed [rowwise]=fp8-block)  # ours by torchao's recipe
turns=${TURNS:-1}
if ! [ "$turns" -ge 1 ] 2> /dev/null; then
  echo "TURNS must be an integer of at least 1, got '$turns'" >&2
  exit 2
fi
quintet_step() {
  watched "$name, Quintet" "$tool" bench step "$here/$recipe.toml" --set data.seq_len="$seq" --set batch.micro="$micro" \
    --steps "$steps" --warm "$seconds" ${FLOORS:+--floors "$FLOORS"} \
    ${documents:+--set data.pack=true --documents "$here/documents/$documents.txt"} \
    ${float8:+--set "precision.linear=\"${linears[$float8]}\""} ${head:+--set precision.fp8_head=true} --json > "$result"
  tr -d '\n' < "$result"
  echo
}
torch_step() {
  watched "$name, PyTorch" "$python" "$here/torch_llama.py" "$here/$recipe.toml" --seq "$seq" --micro "$micro" --mode "$mode" \
    --steps "$steps" --seconds "$seconds" ${documents:+--documents "$here/documents/$documents.txt" --attention "$attention"} \
    ${float8:+--float8 "$float8"} ${head:+--float8-head} $([ "${COMPILED_UPDATE:-1}" = 0 ] || echo --compiled-update) > "$peer"
  cat "$peer"
}
# Adds a row to the table of rates.
compare_results() {
  "$python" - "$name" "$result" "$peer" "${LOSS_LIMIT:-$([ -z "$float8" ] && echo 0.02 || echo 0.06)}" "$rates" >&2 << 'LOSSES'
import json, sys
name, ours, theirs, limit = sys.argv[1], json.load(open(sys.argv[2])), json.load(open(sys.argv[3])), float(sys.argv[4])
pairs = list(zip(ours["first_losses"], theirs["losses"]))
worst = max(abs(a - b) for a, b in pairs)
print(f"{name}: the first {len(pairs)} losses ({pairs[0][0]:.4f} to {pairs[-1][0]:.4f}) differ by at most {worst:.2g}")
with open(sys.argv[5], "a") as table:
    table.write(f"| {name} | {theirs['attention']} | {ours['tokens_per_s']:,.0f} | {theirs['tokens_per_s']:,.0f} "
                f"| {ours['tokens_per_s'] / theirs['tokens_per_s']:.3f} | {worst:.2g} |\n")
early = max(abs(a - b) for a, b in pairs[:5])
sys.exit(f"{name}: the first five differ by {early:.2g}, more than LOSS_LIMIT: not the same training" if early > limit else 0)
LOSSES
}
for name in ${CASES:-1b 3b 8b8l 8b8l-8192 125m 125m-4}; do
  read -r recipe seq micro mode documents float8 head <<< "${cases[$name]:?no case $name; there are ${!cases[*]}}"
  [ "$documents" != - ] || documents=
  peers=sdpa
  [ -z "$documents" ] || peers=${ATTENTION:-flex varlen}
  for turn in $(seq "$turns"); do
    [ $((turn % 2)) -eq 0 ] || quintet_step
    for attention in $peers; do
      torch_step
      [ $((turn % 2)) -eq 0 ] || compare_results
    done
    if [ $((turn % 2)) -eq 0 ]; then
      quintet_step
      compare_results
    fi
  done
done
{
  echo "| case | PyTorch's attention | Quintet tokens/s | PyTorch tokens/s | ratio | losses differ by |"
  echo "|---|---|---|---|---|---|"
  cat "$rates"
} >&2
