#!/usr/bin/env bash
# Tests and times the CUDA kernels on this machine's GPU.
#   run_kernels.sh [FOLDER]
# FOLDER holds test_gpu_kernels and cuda_kernels_bench, built elsewhere; without it both are built here, in
# build-cuda. Libraries that are not on the loader's path are looked for in Python's site-packages.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
folder=${1:-}
if [ -z "$folder" ]; then
  cmake -S "$root" -B "$root/build-cuda" -G Ninja -DQUINTET_CUDA=ON -DQUINTET_BENCH=ON > /dev/null
  ninja -C "$root/build-cuda" test_gpu_kernels cuda_kernels_bench
  folder=$root/build-cuda/bin
  mkdir -p "$folder"
  ln -sf ../tests/gpu/test_gpu_kernels ../bench/cuda_kernels_bench "$folder"
fi
packages=$(python3 -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])' 2> /dev/null || true)
for lib in "$packages"/nvidia/*/lib "$folder"; do
  [ -d "$lib" ] && LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$lib"
done
export LD_LIBRARY_PATH
nvidia-smi --query-gpu=name,driver_version,power.limit --format=csv,noheader
"$folder/test_gpu_kernels" --gtest_brief=1
"$folder/cuda_kernels_bench"
