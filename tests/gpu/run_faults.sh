#!/usr/bin/env bash
# A run of two ranks in which rank 1 dies or hangs: rank 0 must end by itself within the timeout, and report what it was
# waiting for.
#   run_faults.sh FOLDER
# FOLDER holds quintet, built with QUINTET_CUDA. In the environment:
#   FAULTS="KILL STOP"   the signals that rank 1 gets in the middle of the run (this is the default)
#   DEVICE=cuda          or cpu: the same over MPI alone, without a GPU
#   TIMEOUT=20           seconds (run.timeout); a rank also waits that long while another tunes GEMMs
# Exit status 1 if any fails, 2 if it cannot run at all.
set -uo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
folder=$(cd "${1:?FOLDER with quintet}" && pwd) || exit 2
. "$root/tests/gpu/environment.sh"
device=${DEVICE:-cuda} seconds=${TIMEOUT:-20}
require_mpi
[ "$device" = cpu ] || require_gpu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
some_text > "$work/data.txt"

# Rank 1 gets the signal once the run's metrics have some lines: by then steps are replayed as graphs.
cat > "$work/rank.sh" << 'RANK'
metrics=$1 signal=$2
shift 2
if [ "$OMPI_COMM_WORLD_RANK" -eq 1 ]; then
  (
    while [ "$(cat "$metrics" 2> /dev/null | wc -l)" -lt 8 ]; do sleep 0.1; done
    kill "-$signal" $$
  ) &
fi
exec "$@"
RANK

failed=0
for signal in ${FAULTS:-KILL STOP}; do
  run=$work/$signal
  options=
  # By default mpirun ends a job in which a rank was killed; here rank 0 must do it.
  [ "$signal" = KILL ] && options=--enable-recovery
  begin=$SECONDS status=0 limit=$((seconds * 3 + 90))
  MPIRUN_OPTIONS=$options timeout -k 10 $limit bash -c 'on_ranks "$@"' on_ranks 2 \
    bash "$work/rank.sh" "$run/metrics.jsonl" "$signal" "$folder/quintet" train "$root/tests/gpu/layouts.toml" \
    --run-dir "$run" --steps 1000000 --set "run.device=$device" --set "run.timeout=$seconds" --set parallel.dp_shard=2 \
    --set parallel.zero=1 --set "data.path=['$work/data.txt']" > "$work/log" 2>&1 || status=$?
  took=$((SECONDS - begin))
  # Required: who ended the job, what it was inside, how long it waited, and a failing exit status.
  wrong=
  # (With --enable-recovery mpirun's own status is meaningless; the one that rank 0 reports counts.)
  [ "$status" -ne 0 ] || [ "$signal" = KILL ] || wrong+=" exit status 0;"
  [ "$took" -lt "$limit" ] || wrong+=" it did not end by itself;"
  grep -qE 'rank 0 of 2 ends the job: ' "$work/log" || wrong+=" rank 0 did not end the job;"
  # The reason alone: the last calls, which follow it, name operations and groups whatever happened.
  sed -n '/rank 0 of 2 ends the job: /,/its last calls:/p' "$work/log" | grep -v 'its last calls:' > "$work/reason"
  grep -qE "(all_reduce|all_gather|reduce_scatter)" "$work/reason" || wrong+=" no operation is named;"
  # In a step it waits for its group on the device; between steps the ranks agree on the host.
  grep -qE "'(dp_shard|world)" "$work/reason" || wrong+=" no group is named;"
  grep -qF 'exit status 1' "$work/log" || wrong+=" no exit status is reported;"
  # A dead peer may be noticed at once; one that hangs only by waiting.
  [ "$signal" = KILL ] || grep -qE '(waited|was enqueued|within) [0-9.]+ s' "$work/reason" || wrong+=" no time is reported;"
  if [ -z "$wrong" ]; then
    echo "ok      rank 1 gets SIG$signal on $device: ended after $took s in all"
    [ -z "${VERBOSE:-}" ] || sed 's/^/        /' "$work/log"
  else
    echo "FAILED  rank 1 gets SIG$signal on $device (exit status $status, $took s):$wrong"
    tail -n 40 "$work/log" | sed 's/^/        /'
    failed=1
  fi
done
exit $failed
