#!/usr/bin/env bash
# Formats all tracked C++ and CUDA files, and joins messages that earlier edits left in fragments; with --check, reports what
# is not formatted.
set -euo pipefail
cd "$(dirname "$0")/.."
mapfile -d '' -t tracked < <(git ls-files -z -- '*.h' '*.cc' '*.cu' '*.cuh')
files=()
for file in "${tracked[@]}"; do [ ! -f "$file" ] || files+=("$file"); done  # deleted, but not yet committed
[ ${#files[@]} -gt 0 ] || exit 0
if [ "${1:-}" != --check ]; then
  tools/join_literals.py "${files[@]}"
  clang-format -i "${files[@]}"
  exit 0
fi
tools/join_literals.py --check "${files[@]}" || { echo "format: run 'make format'"; exit 1; }
# clang-format prints one diagnostic per location; report the files.
if ! places=$(clang-format --dry-run --Werror "${files[@]}" 2>&1); then
  grep -oE '^[^: ]+:[0-9]+:[0-9]+: error' <<<"$places" | cut -d: -f1 | sort -u | sed 's/$/: not formatted/'
  echo "format: run 'make format' ($(clang-format --version))"
  exit 1
fi
# clang-format leaves comments alone (ReflowComments: false), so their width is checked here.
if ! awk 'length > 110 && /^[ \t]*\/\// { print FILENAME ":" FNR ": comment of " length " columns, at most 110"; bad = 1 }
    END { exit bad }' "${files[@]}"; then
  exit 1
fi
echo "format: ${#files[@]} files"
