#!/usr/bin/env bash
# Quintet beside PyTorch on this machine's GPU, in turns, one JSON line per run on standard output.
#   compare.sh QUINTET [SECONDS]
# QUINTET is the tool, built with QUINTET_CUDA. SECONDS of warming up precede each timed run (30). CASES chooses, e.g.
# CASES="1b 125m-4"; PYTHON is the interpreter that has PyTorch; FLOORS=0.15 has Quintet measure its floors too, that many
# seconds for each kind of instruction.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
tool=${1:?the path of quintet, built with QUINTET_CUDA}
seconds=${2:-30}
python=${PYTHON:-python3}
steps=${STEPS:-50}

# name: recipe, sequence length, sequences, the peer's strongest mode
declare -A cases=(
  [1b]="1b 4096 4 whole" [3b]="3b 4096 4 whole" [8b8l]="8b8l 4096 4 whole" [8b8l-8192]="8b8l 8192 2 block"
  [125m]="125m 1024 32 whole" [125m-4]="125m 1024 4 graph"
)
log() { nvidia-smi --query-gpu=name,clocks.sm,clocks.mem,power.draw,temperature.gpu --format=csv,noheader >&2; }
for name in ${CASES:-1b 3b 8b8l 8b8l-8192 125m 125m-4}; do
  read -r recipe seq micro mode <<< "${cases[$name]:?no case $name; there are ${!cases[*]}}"
  log
  "$tool" bench step "$here/$recipe.toml" --set data.seq_len="$seq" --set batch.micro="$micro" --steps "$steps" --warm "$seconds" ${FLOORS:+--floors "$FLOORS"} --json |
    tr -d '\n'
  echo
  log
  "$python" "$here/torch_llama.py" "$here/$recipe.toml" --seq "$seq" --micro "$micro" --mode "$mode" \
    --steps "$steps" --seconds "$seconds"
done
log
