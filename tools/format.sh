#!/usr/bin/env bash
# Formats every tracked C++ and CUDA file, or with --check says which ones are not formatted.
set -euo pipefail
cd "$(dirname "$0")/.."
mapfile -d '' -t files < <(git ls-files -z -- '*.h' '*.cc' '*.cu' '*.cuh')
present=()
for file in "${files[@]}"; do [ ! -f "$file" ] || present+=("$file"); done
[ ${#present[@]} -gt 0 ] || exit 0
if [ "${1:-}" = --check ]; then
  if ! clang-format --dry-run --Werror "${present[@]}"; then
    echo "format: run 'make format' (clang-format $(clang-format --version | grep -o '[0-9][0-9.]*' | head -1))" >&2
    exit 1
  fi
else
  clang-format -i "${present[@]}"
fi
