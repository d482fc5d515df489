#!/usr/bin/env bash
# Tests communication over NCCL on this machine, 2 and 4 ranks, on one GPU if it has no more.
#   run_nccl.sh [FOLDER]
# FOLDER holds test_gpu_nccl, built elsewhere; without it it is built here, in build-cuda. RANKS="2" and
# MODES="graph abort" in the environment choose a part. Exit status 1 if any mode fails.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
folder=${1:-}
if [ -z "$folder" ]; then
  cmake -S "$root" -B "$root/build-cuda" -G Ninja -DQUINTET_CUDA=ON > /dev/null
  ninja -C "$root/build-cuda" test_gpu_nccl
  folder=$root/build-cuda/tests/gpu/nccl
fi
. "$root/tests/gpu/environment.sh"
program=$folder/test_gpu_nccl
modes=${MODES:-collectives groups grouped graph join_timeout first_timeout later_timeout graph_timeout abort unwind
  mismatch killed}

failed=0
run() {  # seconds ranks mode
  local log status=0 options=
  # By itself mpirun ends a job in which a rank was killed; here the ranks must.
  [ "$3" = killed ] && options=--enable-recovery
  log=$(MPIRUN_OPTIONS=$options timeout -k 10 "$1" bash -c 'on_ranks "$@"' on_ranks "$2" "$program" "$3" 2>&1) || status=$?
  [ "$3" = killed ] && [ "$status" -eq 137 ] && status=0  # of the rank that was killed
  check "$3 on $2 ranks" "$status" "$log" "$3 passed on $2 ranks"
}
check() {  # what status log expected
  if [ "$2" -eq 0 ] && grep -qF "$4" <<< "$3"; then
    echo "ok      $1"
  else
    echo "FAILED  $1 (exit status $2)"
    tail -n 40 <<< "$3" | sed 's/^/        /'
    failed=1
  fi
}

command -v mpirun > /dev/null || { echo "mpirun was not found: install Open MPI (Debian: openmpi-bin)"; exit 2; }
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2> /dev/null || true
status=0
if [ -z "${MODES:-}" ]; then
  log=$(timeout -k 10 120 "$program" threads 2>&1) || status=$?
  check "threads of one process" "$status" "$log" "threads passed"
  run 120 1 alone
fi
for ranks in ${RANKS:-2 4}; do
  for mode in $modes; do
    run 240 "$ranks" "$mode"
  done
done
exit $failed
