#!/usr/bin/env bash
# Everything that needs a GPU, in one go: kernels and ops, models against the CPU, NCCL, layouts on 2 and 4 ranks
# against one rank, ranks that die or hang, the bits of two runs and of stopped ones, and compute-sanitizer on the small ones.
#   run_all.sh [FOLDER]
# FOLDER holds programs that were built elsewhere with QUINTET_CUDA (test_gpu_kernels, test_gpu_models, test_gpu_nccl,
# quintet, cuda_kernels_bench); without it they are built here, in build-cuda. In the environment:
#   PARTS="kernels models curve nccl faults bits resume layouts sanitizer bench"   which parts run (this is the default)
#   TEST_SHARDS=4                                                           processes that share the tests of kernels and models
#   LAYOUT_SECONDS=180 LAYOUT_JOBS=1                                        how long one layout may take, how many run at a time
#   LAYOUTS="rows past|ep 4"                                               which layouts: a regular expression
#   SANITIZER_SECONDS=300                                                   how long one part of a group may take under a checker
#   SANITIZER_GROUPS="norm loss" SANITIZER_TOOLS=racecheck                  which groups and which checkers; see below
#   SANITIZER_SHARDS=4 SANITIZER_JOBS=16                                    parts of a group, and how many run at a time
#   RESULTS=FILE                                                            also write the table of results there, as Markdown
# Exit status 1 if anything fails, 2 if it cannot run at all. Skipped parts state the reason.
set -uo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
export QUINTET_ROOT=$root
folder=${1:-$root/build-cuda/bin}
parts=${PARTS:-kernels models curve nccl faults bits resume layouts sanitizer bench}
. "$root/tests/gpu/environment.sh"
gpu=$(require_gpu) || exit 2
echo "$gpu"
if [ $# -eq 0 ]; then
  cmake -S "$root" -B "$root/build-cuda" -G Ninja -DQUINTET_CUDA=ON -DQUINTET_BENCH=ON > /dev/null || exit 2
  ninja -C "$root/build-cuda" quintet test_gpu_kernels test_gpu_models test_gpu_nccl cuda_kernels_bench || exit 2
  mkdir -p "$folder"
  ln -sf ../quintet ../tests/gpu/test_gpu_kernels ../tests/gpu/models/test_gpu_models ../tests/gpu/nccl/test_gpu_nccl \
    ../bench/cuda_kernels_bench "$folder"
fi
folder=$(cd "$folder" && pwd) || exit 2

results="| part | what | result | seconds |
|---|---|---|---|"
failed=0
note() {  # part what result seconds
  results+=$'\n'"| $1 | $2 | $3 | $4 |"
  printf '%-9s %-10s %s (%s s)\n' "$3" "$1" "$2" "$4"
}
# Number of tests with such a result, from GoogleTest's own output.
tests_in() {  # how: PASSED, or several with | between
  grep -oE "\[  ($1)  ?\] [0-9]+ test" | grep -oE '[0-9]+' | awk '{ n += $1 } END { print n + 0 }'
}
# Records the result of a command; on failure its last lines are shown. GoogleTest programs report how many tests passed.
conclude() {  # part what status seconds log
  local part=$1 what=$2 status=$3 seconds=$4 log=$5 passed
  passed=$(tests_in PASSED <<< "$log")
  if [ "$status" -eq 0 ] && grep -qF '[==========]' <<< "$log" && [ "$passed" -eq 0 ]; then
    status=1 log="no test of that name"  # which GoogleTest treats as success
  fi
  if [ "$status" -eq 0 ]; then
    note "$part" "$what$([ "$passed" -eq 0 ] || echo ", $passed tests")" ok "$seconds"
  else
    note "$part" "$what, exit status $status" FAILED "$seconds"
    tail -n "${LINES_OF_FAILURE:-60}" <<< "$log" | sed 's/^/        /'
    failed=1
  fi
}
try() {  # part what seconds command...
  local part=$1 what=$2 limit=$3 log status=0 begin=$SECONDS
  shift 3
  log=$(timeout -k 10 "$limit" "$@" 2>&1) || status=$?
  conclude "$part" "$what" "$status" $((SECONDS - begin)) "$log"
}
# Runs a test program as several processes, each with a part of the tests, because much of their time is spent on the host;
# each tunes its own GEMM algorithms. The last lines of those that failed or timed out are shown last.
in_shards() {  # program arguments...
  local shards=${TEST_SHARDS:-4} shard status=0 one pids=()
  [ "$shards" -ge 1 ] || { echo "TEST_SHARDS must be at least 1, is $shards"; return 2; }
  shards_work=$(mktemp -d) || return 2
  trap 'tail -n 20 "$shards_work"/log.*; wait; rm -rf "$shards_work"; exit 143' TERM
  for shard in $(seq 0 $((shards - 1))); do
    QUINTET_CACHE_DIR=$shards_work/cache.$shard GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$shard "$@" \
      > "$shards_work/log.$shard" 2>&1 &
    pids+=($!)
  done
  for shard in "${!pids[@]}"; do
    one=0
    wait "${pids[$shard]}" || one=$?
    if [ "$one" -eq 0 ]; then
      cat "$shards_work/log.$shard"
    else
      status=$one
      { echo "process $shard of $shards, exit status $one:"; tail -n 40 "$shards_work/log.$shard"; } >> "$shards_work/failed"
    fi
  done
  [ ! -e "$shards_work/failed" ] || cat "$shards_work/failed"
  rm -rf "$shards_work"
  return "$status"
}
export -f in_shards
missing() { note "$1" "$2" "left out" 0; }  # part why
runs() { [[ " $parts " == *" $1 "* ]]; }

if runs kernels; then
  try kernels "kernels and ops against the CPU" 900 bash -c 'in_shards "$@"' in_shards "$folder/test_gpu_kernels" \
    --gtest_brief=1
fi
if runs models; then
  try models "GPU against CPU, graphs, bits, memory, traces" 900 bash -c 'in_shards "$@"' in_shards \
    "$folder/test_gpu_models" --gtest_brief=1 --gtest_filter=-LossCurve.*
fi
if runs curve; then
  try models "500 steps compared with the CPU" 900 "$folder/test_gpu_models" --gtest_brief=1 --gtest_filter='LossCurve.*'
fi

# With tensor_cores=1 attention must have run on tensor cores.
verified() {  # ranks command...
  local log status=0
  log=$(on_ranks "$@" 2>&1) || status=$?
  echo "$log"
  [ -z "${tensor_cores:-}" ] || ! grep -F 'without tensor cores' <<< "$log" || status=1
  return "$status"
}
export -f verified
layout_names=() layout_logs=
layout() {  # ranks what settings...
  local ranks=$1 what=$2 arguments=() log
  [[ "$1 ranks: $2" =~ ${LAYOUTS:-.} ]] || return 0
  shift 2
  for setting in "$@"; do arguments+=(--set "$setting"); done
  [ -n "$layout_logs" ] || layout_logs=$(mktemp -d)
  while [ "$(jobs -rp | wc -l)" -ge "${LAYOUT_JOBS:-1}" ]; do wait -n; done
  log=$layout_logs/${#layout_names[@]}
  layout_names+=("$ranks ranks: $what")
  {
    begin=$SECONDS status=0
    timeout -k 10 "${LAYOUT_SECONDS:-180}" bash -c 'verified "$@"' verified "$ranks" "$folder/quintet" \
      verify "$root/tests/gpu/layouts.toml" --synthetic --dtype "${dtype:-f64}" --steps 3 "${arguments[@]}" > "$log" 2>&1 || status=$?
    echo "$status $((SECONDS - begin))" > "$log.end"
    echo "ended     layouts    $ranks ranks: $what, exit status $status"  # before the table, in case that time runs out
  } &
}
conclude_layouts() {
  local i status seconds
  wait
  for i in "${!layout_names[@]}"; do
    status=1 seconds=0  # unless it has ended
    [ ! -e "$layout_logs/$i.end" ] || read -r status seconds < "$layout_logs/$i.end"
    conclude layouts "${layout_names[$i]}" "$status" "$seconds" "$(cat "$layout_logs/$i")"
  done
  rm -rf "$layout_logs"
}
have_mpi=$(command -v mpirun || true)
if runs nccl; then
  if [ -n "$have_mpi" ]; then
    try nccl "collectives, groups, graphs, failures" 1800 "$root/tests/gpu/run_nccl.sh" "$folder"
  else
    missing nccl "mpirun was not found (Debian: openmpi-bin)"
  fi
fi
if runs faults; then
  if [ -n "$have_mpi" ]; then
    try faults "rank 1 dies, rank 1 hangs" 400 "$root/tests/gpu/run_faults.sh" "$folder"
  else
    missing faults "mpirun was not found (Debian: openmpi-bin)"
  fi
fi
if runs bits; then
  if [ -n "$have_mpi" ]; then
    try bits "two runs on 2 ranks" 600 "$root/tests/gpu/run_bits.sh" "$folder"
  else
    missing bits "mpirun was not found (Debian: openmpi-bin)"
  fi
fi
if runs resume; then
  try resume "stopped and continued" 200 env PARTS=bits "$root/tests/gpu/run_resume.sh" "$folder"
fi
if runs layouts && [ -z "$have_mpi" ]; then
  missing layouts "mpirun was not found (Debian: openmpi-bin)"
elif runs layouts; then
  experts=(model.moe.experts=4 model.moe.top_k=2 model.moe.ffn=32 model.ffn=32)
  layout 2 "dp_replicate 2" parallel.dp_replicate=2
  for zero in 1 2 3; do layout 2 "dp_shard 2, zero $zero" parallel.dp_shard=2 parallel.zero=$zero; done
  layout 2 "tp 2" parallel.tp=2
  layout 2 "tp 2, sequence parallel" parallel.tp=2 parallel.sequence_parallel=true
  for method in gather ring ulysses; do layout 2 "cp 2, $method" parallel.cp=2 parallel.cp_method=$method; done
  for method in gather ring ulysses; do
    tensor_cores=1 dtype=bf16 layout 2 "cp 2, $method, bf16 through cuDNN" parallel.cp=2 parallel.cp_method=$method data.pack=false
  done
  # Packed documents, with heads for which Hopper has its own kernels.
  for method in gather ring ulysses; do
    tensor_cores=1 dtype=bf16 layout 2 "cp 2, $method, documents, bf16, heads of 64" parallel.cp=2 parallel.cp_method=$method \
      model.embed=256 model.heads=4 model.kv_heads=2 data.seq_len=384
  done
  tensor_cores=1 dtype=bf16 layout 2 "cp 2, ring, documents, bf16, heads of 128" parallel.cp=2 parallel.cp_method=ring \
    model.embed=256 model.heads=2 model.kv_heads=1 data.seq_len=384
  tensor_cores=1 dtype=bf16 layout 2 "cp 2, ulysses, documents, bf16, heads of 96" parallel.cp=2 parallel.cp_method=ulysses \
    model.embed=192 model.heads=2 model.kv_heads=2 data.seq_len=384
  tensor_cores=1 dtype=bf16 layout 2 "cp 2, ring, documents, bf16, heads of 256" parallel.cp=2 parallel.cp_method=ring \
    model.embed=512 model.heads=2 model.kv_heads=1 data.seq_len=384
  tensor_cores=1 dtype=bf16 layout 2 "tp 2, sequence parallel, bf16 through cuDNN in its fastest form" parallel.tp=2 \
    parallel.sequence_parallel=true data.pack=false run.deterministic=false
  layout 2 "pp 2, 1f1b" parallel.pp=2
  layout 2 "pp 2, interleaved, tied" parallel.pp=2 parallel.schedule=interleaved model.tied=true
  layout 2 "ep 2" parallel.dp_shard=2 parallel.ep=2 "${experts[@]}"
  # Room for a third of the mean rows: further passes in every layer.
  layout 2 "ep 2, rows past a bound" parallel.dp_shard=2 parallel.ep=2 "${experts[@]}" model.moe.receive_bound=0.3
  layout 2 "ep 2, a bound that holds most rows" parallel.dp_shard=2 parallel.ep=2 "${experts[@]}" model.moe.receive_bound=1.05
  dtype=bf16 layout 2 "ep 2, rows past a bound, bf16" parallel.dp_shard=2 parallel.ep=2 "${experts[@]}" model.moe.receive_bound=0.3
  padded=(model.moe.capacity_factor=1.25 model.moe.pad=true)
  layout 2 "ep 2, padded" parallel.dp_shard=2 parallel.ep=2 "${experts[@]}" "${padded[@]}"
  layout 4 "dp_shard 2 x tp 2, zero 3" parallel.dp_shard=2 parallel.zero=3 parallel.tp=2 \
    parallel.sequence_parallel=true
  layout 4 "pp 2 x tp 2" parallel.pp=2 parallel.tp=2
  layout 4 "pp 2 x dp_shard 2, zero 1, zb-h1" parallel.pp=2 parallel.dp_shard=2 parallel.zero=1 \
    parallel.schedule=zb-h1
  layout 4 "cp 2 x tp 2, ring" parallel.cp=2 parallel.tp=2 parallel.cp_method=ring
  layout 4 "dp_replicate 2 x dp_shard 2, zero 3" parallel.dp_replicate=2 parallel.dp_shard=2 parallel.zero=3
  layout 4 "dp_shard 2 x tp 2, ep 4, zero 2" parallel.dp_shard=2 parallel.tp=2 parallel.ep=4 parallel.zero=2 \
    parallel.sequence_parallel=true "${experts[@]}"
  layout 4 "dp_shard 2 x tp 2, ep 4, zero 2, rows past a bound" parallel.dp_shard=2 parallel.tp=2 parallel.ep=4 parallel.zero=2 \
    parallel.sequence_parallel=true "${experts[@]}" model.moe.receive_bound=0.3
  layout 4 "pp 2 x ep 2, zb-h1, full recompute, rows past a bound" parallel.pp=2 parallel.dp_shard=2 parallel.ep=2 \
    parallel.schedule=zb-h1 'memory.recompute="full"' "${experts[@]}" model.moe.receive_bound=0.3
  layout 4 "dp_shard 2 x tp 2, ep 2, etp 2, padded" parallel.dp_shard=2 parallel.tp=2 parallel.ep=2 parallel.etp=2 \
    parallel.sequence_parallel=true "${experts[@]}" "${padded[@]}"
  layout 4 "cp 4, ulysses+ring" parallel.cp=4 parallel.cp_method=ulysses+ring parallel.ulysses=2
  layout 2 "pp 2, zb-v" parallel.pp=2 parallel.schedule=zb-v
  # In 16 bits other kernels run, on tensor cores; and in f16 losses are scaled (run_bits.sh has a scale that
  # overflows). Rounding makes the bounds here so wide that f64, above, is the actual proof.
  dtype=bf16 layout 2 "dp_shard 2, zero 3, bf16" parallel.dp_shard=2 parallel.zero=3
  dtype=bf16 layout 2 "tp 2, sequence parallel, bf16" parallel.tp=2 parallel.sequence_parallel=true
  dtype=bf16 layout 2 "pp 2, bf16" parallel.pp=2
  dtype=bf16 layout 2 "ep 2, bf16" parallel.dp_shard=2 parallel.ep=2 "${experts[@]}"
  dtype=f16 layout 2 "dp_shard 2, zero 2, f16" parallel.dp_shard=2 parallel.zero=2
  conclude_layouts
fi

# compute-sanitizer over Quintet's own kernels, in groups; racecheck takes minutes for some. SANITIZER is the path of the
# program if it is not on PATH. Kernels of libraries are not checked: only names in Quintet's namespace are. In models a
# refused CUDA call is not an error: the program throws, or expects it (device/cuda/overlap.cc).
declare -A checked=(
  [norm]='GpuNorm/*:GpuNormRows*'
  [activation]='GpuPointwise*.Activations:GpuPointwise*.Swiglu'
  [pointwise]='GpuPointwise*.AddFillScale:GpuPointwise*.BiasAndColumnSum:GpuPointwise*.Sum*:GpuPointwise*.Dropout*:GpuConvert*:GpuPointwiseBytes*'
  [rope]='GpuPointwise*.Rope*'
  [loss]='GpuLoss*'
  [embedding]='GpuEmbedding*'
  [optimizer]='GpuAdamW*:GpuSgd*'
  [experts]='GpuExpertOps*-GpuExpertOps.Grouped*'
  [grouped]='GpuExpertOps.Grouped*'
  [attention]='GpuAttention.NativeKernels*:GpuAttention.Segments*'
  [tiled]='GpuTiledAttention.HeadSizes:GpuTiledAttention.Pairs:GpuTiledAttention.Groups:GpuTiledAttention.MoreTiles*'
  [hops]='Ring/GpuHops.*By2*bf16:GpuWholeKeys.OfWhole*'
  [generate]='GpuGenerate.*'
  [ops]='GpuOps*-GpuOps.MatchTheCpu:GpuOps.NoneIsMissing'
  [all_ops]='GpuOps.MatchTheCpu'
  [models]='Dense/Models.MatchTheCpu/llama_f32:Experts/Models.MatchTheCpu/experts_f32'
)
if runs sanitizer; then
  sanitizer=${SANITIZER:-$(command -v compute-sanitizer ||
    ls /usr/local/cuda/bin/compute-sanitizer "$packages"/nvidia/*/bin/compute-sanitizer 2> /dev/null | head -n 1)}
  if [ -z "$sanitizer" ]; then
    missing sanitizer "compute-sanitizer was not found (it comes with the CUDA toolkit; Python: nvidia-cuda-sanitizer-api)"
  fi
  # A checker works on the host more than on the GPU, so the tests of a group are distributed to several processes.
  logs=$(mktemp -d) started=()
  declare -A shards_of tests_of
  trap 'rm -rf "$logs"' EXIT
  check() {  # tool group program shard shards
    local status=0 begin=$SECONDS log="$logs/$1, $2.$4"
    local options=()
    [ "$1" = racecheck ] && export QUINTET_RACECHECK=1
    [ "$1, $2" = "memcheck, models" ] && options=(--report-api-errors no)
    export GTEST_TOTAL_SHARDS=$5 GTEST_SHARD_INDEX=$4
    timeout -k 10 "${SANITIZER_SECONDS:-300}" "$sanitizer" --tool "$1" --kernel-name kns=quintet --error-exitcode 9 \
      --print-limit 5 "${options[@]}" "$folder/$3" --gtest_filter="${checked[$2]}" > "$log.log" 2>&1 || status=$?
    echo "$status $((SECONDS - begin))" > "$log.end"
  }
  for group in ${SANITIZER_GROUPS:-attention tiled norm experts grouped activation pointwise rope loss embedding optimizer hops generate ops all_ops models}; do
    [ -n "$sanitizer" ] || break
    program=test_gpu_kernels
    [ "$group" = models ] && program=test_gpu_models
    tests=$("$folder/$program" --gtest_list_tests --gtest_filter="${checked[$group]:-nothing}" | grep -c '^  ')
    if [ "$tests" -eq 0 ]; then  # which would pass
      note sanitizer "$group: no test of that name" FAILED 0
      failed=1
      continue
    fi
    for tool in ${SANITIZER_TOOLS:-racecheck memcheck}; do
      # racecheck stops inside a library's GEMM with an internal error, whatever its filters are.
      [ "$group/$tool" = all_ops/racecheck ] && continue
      shards=$((tests < ${SANITIZER_SHARDS:-4} ? tests : ${SANITIZER_SHARDS:-4}))
      for shard in $(seq 0 $((shards - 1))); do
        while [ "$(jobs -rp | wc -l)" -ge "${SANITIZER_JOBS:-16}" ]; do wait -n; done
        check "$tool" "$group" "$program" "$shard" "$shards" &
      done
      started+=("$tool, $group")
      shards_of["$tool, $group"]=$shards
      tests_of["$tool, $group"]=$tests
    done
  done
  wait
  for what in "${started[@]}"; do
    status=0 seconds=0 log='' passed=0
    for shard in $(seq 0 $((${shards_of[$what]} - 1))); do
      one=1 took=0  # unless it has ended
      [ -e "$logs/$what.$shard.end" ] && read -r one took < "$logs/$what.$shard.end"
      [ "$took" -le "$seconds" ] || seconds=$took
      passed=$((passed + $(tests_in 'PASSED|SKIPPED' < "$logs/$what.$shard.log")))
      [ "$one" -eq 0 ] || log+=$(tail -n 25 "$logs/$what.$shard.log")$'\n'
      [ "$one" -eq 0 ] || status=$one
    done
    if [ "$status" -eq 0 ] && [ "$passed" -ne "${tests_of[$what]}" ]; then
      status=1 log="$passed of ${tests_of[$what]} tests ran"
    fi
    conclude sanitizer "$what, $passed tests" "$status" "$seconds" "$log"
  done
fi
if runs bench && [ ! -x "$folder/cuda_kernels_bench" ]; then
  missing bench "cuda_kernels_bench is not in $folder"
elif runs bench; then
  "$folder/cuda_kernels_bench" || failed=1
fi

if [ -n "${RESULTS:-}" ]; then
  printf '%s, %s\n\n%s\n' "$(date -u +%Y-%m-%d)" "$gpu" "$results" > "$RESULTS"
fi
[ "$failed" -eq 0 ] && echo "all passed" || echo "some failed"
exit $failed
