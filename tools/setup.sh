#!/usr/bin/env bash
# Installs what building and testing Quintet needs on Debian or Ubuntu. If nothing is missing, it changes nothing, needs
# no privileges and does not access the network.
#   tools/setup.sh            compiler, CMake, libraries, MPI, clang-format
#   tools/setup.sh --bench    also the benchmarks' dependencies: Google Benchmark, fio, and PyTorch in build/peer-venv
#   tools/setup.sh --cuda     also the headers of the cuDNN front end in build/cudnn-frontend, for QUINTET_CUDA=ON. The
#                             toolkit itself (13.0 or later), cuDNN 9 and NCCL come from NVIDIA's packages
#   tools/setup.sh --tidy     also clang-tidy 19 (make tidy)
#   tools/setup.sh --fuzz     also clang 19 with libFuzzer (make fuzz-parsers)
#   tools/setup.sh --pages    also Chromium (make test-pages)
#   tools/setup.sh --shells   also zsh and fish, for which completion is tested (make nightly)
#   tools/setup.sh --coverage also gcovr (make coverage)
#   tools/setup.sh --docs     also Sphinx, its Markdown parser and a theme (make docs)
#   tools/setup.sh --hf       also tokenizers, tiktoken, sentencepiece, transformers, megatron-core, lm-eval and PyTorch in build/hf-venv
#                             (make test-hf)
#   tools/setup.sh --parquet  also Arrow C++ from PyPI's pyarrow in build/arrow, which reads Parquet files
#   tools/setup.sh --check    only report what is missing (exit status 1 if anything is)
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(
  g++ cmake ninja-build ccache git                # build
  libfmt-dev libtomlplusplus-dev nlohmann-json3-dev libcli11-dev libxxhash-dev
  libutf8proc-dev libpcre2-dev libsentencepiece-dev  # tokenizer
  zlib1g-dev libzstd-dev                          # text
  libopenmpi-dev openmpi-bin                      # comm/mpi
  libgtest-dev clang-format python3               # test and lint
)
torch_version=2.11.0
venv=build/peer-venv
hf_venv=build/hf-venv
frontend_version=1.32.0
frontend=build/cudnn-frontend
arrow_version=26.0.1
arrow=build/arrow

bench=no cuda=no hf=no parquet=no check=no
for argument in "$@"; do
  case $argument in
    --bench) bench=yes ;;
    --cuda) cuda=yes ;;
    --hf) hf=yes packages+=(python3-venv) ;;
    --parquet) parquet=yes ;;
    --tidy) packages+=(clang-tidy-19) ;;
    --fuzz) packages+=(clang-19 libclang-rt-19-dev llvm-19) ;;
    --coverage) packages+=(gcovr) ;;
    --shells) packages+=(zsh fish) ;;
    --pages) packages+=(chromium fonts-dejavu-core) ;;
    --docs) packages+=(python3-sphinx python3-myst-parser python3-sphinx-copybutton furo) ;;
    --check) check=yes ;;
    *) echo "setup: unknown option '$argument'; expected --bench, --cuda, --tidy, --fuzz, --pages, --shells, --coverage, --docs, --hf, --parquet or --check" >&2; exit 2 ;;
  esac
done
if [ $bench = yes ]; then packages+=(libbenchmark-dev python3-venv fio); fi
if [ $cuda = yes ] && [ ! -f "$frontend/include/cudnn_frontend.h" ] && ! python3 -m pip --version >/dev/null 2>&1; then
  packages+=(python3-pip)  # downloads the front end
fi

if [ $parquet = yes ] && [ ! -f "$arrow/include/parquet/arrow/reader.h" ] && ! python3 -m pip --version >/dev/null 2>&1; then
  packages+=(python3-pip)
fi

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "setup: this system has no apt. Install the equivalents of these Debian packages, then run 'make build':" >&2
  echo "  ${packages[*]}" >&2
  exit 1
fi

missing=()
for package in "${packages[@]}"; do
  state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$state" = installed ] || missing+=("$package")
done
if [ $check = yes ]; then
  [ $cuda = no ] || [ -f "$frontend/include/cudnn_frontend.h" ] || missing+=(cudnn-frontend)
  [ ${#missing[@]} -eq 0 ] || { echo "setup: missing: ${missing[*]}"; exit 1; }
  exit 0
fi

if [ ${#missing[@]} -gt 0 ]; then
  as_root=(env)
  if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
      echo "setup: installing the missing packages needs root, but sudo is not available." >&2
      echo "Ask an administrator to run: apt-get install ${missing[*]}" >&2
      exit 1
    fi
    as_root=(sudo env)
  fi
  echo "setup: installing ${missing[*]}"
  log=$(mktemp)
  trap 'rm -f "$log"' EXIT
  install() {
    # Another apt-get may be at work: wait for it, five minutes at most.
    "${as_root[@]}" apt-get update -q -o Acquire::Retries=3 &&
      "${as_root[@]}" DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends \
        -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 "${missing[@]}"
  }
  if ! install >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    echo "setup: apt-get could not install: ${missing[*]}" >&2
    echo "The lines above are the end of its output; common causes are a missing network and stale package lists." >&2
    exit 1
  fi
fi

if [ $bench = yes ] && ! "$venv/bin/python" -c 'import torch' 2>/dev/null; then
  echo "setup: installing PyTorch $torch_version into $venv (only the benchmarks use it)"
  if ! { /usr/bin/python3 -m venv "$venv" && "$venv/bin/pip" install -q "torch==$torch_version" numpy setuptools; }; then
    echo "setup: could not install PyTorch; the benchmarks need PyPI once" >&2
    exit 1
  fi
fi

if [ $cuda = yes ] && [ ! -f "$frontend/include/cudnn_frontend.h" ]; then
  echo "setup: downloading the headers of the cuDNN front end $frontend_version into $frontend"
  wheel=$(mktemp -d)
  if ! { python3 -m pip download -q --no-deps --only-binary :all: -d "$wheel" "nvidia-cudnn-frontend==$frontend_version" &&
    mkdir -p "$frontend" && python3 -m zipfile -e "$wheel"/*.whl "$wheel/x" && rm -rf "$frontend/include" &&
    cp -r "$wheel/x/include" "$frontend/include"; }; then
    rm -rf "$wheel"
    echo "setup: could not download the cuDNN front end from PyPI; alternatively, set QUINTET_CUDNN_FRONTEND to its headers" >&2
    exit 1
  fi
  rm -rf "$wheel"
fi

if [ $hf = yes ] && ! "$hf_venv/bin/python" -c 'import tokenizers, tiktoken, sentencepiece, torch, transformers, jinja2, megatron.core, lm_eval' 2>/dev/null; then
  echo "setup: installing tokenizers, tiktoken, sentencepiece, transformers, megatron-core, lm-eval and PyTorch (some GB) into $hf_venv (only make test-hf uses them)"
  if ! { /usr/bin/python3 -m venv "$hf_venv" &&
    "$hf_venv/bin/pip" install -q tokenizers==0.23.3 tiktoken==0.14.0 sentencepiece==0.2.1 megatron-core==0.16.1 \
      "torch==$torch_version" numpy setuptools transformers==5.23.0 jinja2==3.1.6 safetensors lm-eval==0.4.13 accelerate; }; then
    echo "setup: could not install them; make test-hf needs PyPI once" >&2
    exit 1
  fi
fi

if [ $parquet = yes ] && [ ! -f "$arrow/include/parquet/arrow/reader.h" ]; then
  echo "setup: downloading Arrow C++ $arrow_version into $arrow"
  wheel=$(mktemp -d)
  if ! { python3 -m pip download -q --no-deps --only-binary :all: -d "$wheel" "pyarrow==$arrow_version" &&
    python3 -m zipfile -e "$wheel"/*.whl "$wheel/x" && rm -rf "$arrow" && mkdir -p "$arrow/lib" &&
    cp "$wheel"/x/pyarrow/libarrow.so.* "$wheel"/x/pyarrow/libparquet.so.* "$arrow/lib/" &&
    cp -r "$wheel/x/pyarrow/include" "$arrow/include"; }; then
    rm -rf "$wheel"
    echo "setup: could not download pyarrow from PyPI; alternatively, set QUINTET_ARROW to a folder with Arrow's include/ and lib/" >&2
    exit 1
  fi
  rm -rf "$wheel"
  [ ! -f build/CMakeCache.txt ] || cmake build >/dev/null  # finds it
fi
