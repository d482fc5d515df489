# Shared by the scripts here; source it with `folder` set to the folder of the programs. Sets up libraries, MPI and NCCL;
# defines on_ranks (runs a command on several ranks of this machine), some_text (to train on) and checks of prerequisites.

# Libraries that are not on the loader's path are looked for in Python's site-packages.
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

# Ranks that share a GPU must look like separate hosts to NCCL. MPIRUN_OPTIONS are passed to mpirun.
on_ranks() {  # ranks command...
  local ranks=$1
  shift
  # shellcheck disable=SC2086
  mpirun --oversubscribe ${MPIRUN_OPTIONS:-} -n "$ranks" -x LD_LIBRARY_PATH -x NCCL_SOCKET_IFNAME -x NCCL_DEBUG \
    bash -c 'export NCCL_HOSTID=quintet-rank-$OMPI_COMM_WORLD_RANK; exec "$0" "$@"' "$@"
}
export -f on_ranks

# Prints a description of the first GPU; ends the script if there is none.
require_gpu() {
  nvidia-smi --query-gpu=name,driver_version,power.limit --format=csv,noheader 2> /dev/null | sed -n 1p | grep . || {
    echo "no NVIDIA GPU here: nvidia-smi finds none" >&2
    exit 2
  }
}
require_mpi() {
  command -v mpirun > /dev/null || {
    echo "mpirun was not found: install Open MPI (Debian: openmpi-bin)" >&2
    exit 2
  }
}

some_text() { for i in $(seq 1 4000); do echo "line $i of a text that says nothing new, $((i * 7919 % 1000))"; done; }
