#!/usr/bin/env bash
# Tests communication over NCCL on this machine, 2 and 4 ranks, on one GPU if it has no more.
#   run_nccl.sh [FOLDER]
# FOLDER holds test_gpu_nccl, built elsewhere; without it it is built here, in build-cuda. RANKS="2" and
# MODES="graph abort" in the environment choose a part. Exit status 1 if any mode fails, 2 if it cannot run at all.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
folder=${1:-$root/build-cuda/tests/gpu/nccl}
. "$root/tests/gpu/environment.sh"
require_mpi
require_gpu
if [ $# -eq 0 ]; then
  cmake -S "$root" -B "$root/build-cuda" -G Ninja -DQUINTET_CUDA=ON > /dev/null || exit 2
  ninja -C "$root/build-cuda" test_gpu_nccl || exit 2
fi
program=$folder/test_gpu_nccl
modes=${MODES:-collectives groups grouped graph join_timeout first_timeout later_timeout graph_timeout abort unwind
  mismatch killed}

failed=0
run() {  # seconds ranks mode
  local log status=0 options=
  # By default mpirun ends a job in which a rank was killed; here the ranks must do it.
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
