#!/usr/bin/env bash
# Tests communication over NCCL on this machine, 2 and 4 ranks, on one GPU if it has no more.
#   run_nccl.sh [FOLDER]
# FOLDER holds test_gpu_nccl, built elsewhere; without it it is built here, in build-cuda. Libraries that are not on
# the loader's path are looked for in Python's site-packages. RANKS="2" and MODES="graph abort" in the environment
# choose a part. Exit status 1 if any mode fails.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
folder=${1:-}
if [ -z "$folder" ]; then
  cmake -S "$root" -B "$root/build-cuda" -G Ninja -DQUINTET_CUDA=ON > /dev/null
  ninja -C "$root/build-cuda" test_gpu_nccl
  folder=$root/build-cuda/tests/gpu/nccl
fi
program=$folder/test_gpu_nccl
packages=$(python3 -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])' 2> /dev/null || true)
for lib in "$packages"/nvidia/*/lib "$folder"; do
  [ -d "$lib" ] && LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$lib"
done
export LD_LIBRARY_PATH
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# Containers often forbid one process to read another's memory; a machine without ssh has no remote nodes to reach.
export OMPI_MCA_btl_vader_single_copy_mechanism=none
command -v ssh > /dev/null || export OMPI_MCA_plm=isolated
export NCCL_SOCKET_IFNAME=${NCCL_SOCKET_IFNAME:-lo} NCCL_DEBUG=${NCCL_DEBUG:-WARN}

failed=0
# Ranks that share a GPU must look like hosts of their own to NCCL.
run() {  # seconds ranks mode
  local log status=0
  log=$(timeout -k 10 "$1" mpirun --oversubscribe -n "$2" -x LD_LIBRARY_PATH -x NCCL_SOCKET_IFNAME -x NCCL_DEBUG \
    bash -c 'export NCCL_HOSTID=quintet-rank-$OMPI_COMM_WORLD_RANK; exec "$0" "$@"' "$program" "$3" 2>&1) || status=$?
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
log=$(timeout -k 10 120 "$program" threads 2>&1) || status=$?
check "threads of one process" "$status" "$log" "threads passed"
run 120 1 alone
for ranks in ${RANKS:-2 4}; do
  for mode in ${MODES:-collectives groups grouped graph join_timeout first_timeout later_timeout graph_timeout abort unwind}; do
    run 240 $ranks $mode
  done
done
exit $failed
