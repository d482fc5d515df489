#!/usr/bin/env bash
# Runs clang-tidy (.clang-tidy) over source files.
#   tools/tidy.sh --all            every one, in the batches of the build (cmake/rooms.cmake): a third of the time
#   tools/tidy.sh --analyze        every one through clang-analyzer-*, which looks only at functions of the file itself,
#                                  so not in batches; hours
#   tools/tidy.sh --changed [REV]  those that differ from REV: changed themselves, or next to a changed header of the
#                                  same name. REV is CI_BASE, or where this branch left origin/main (main), or the
#                                  commit before this one
# A change of more than TIDY_LIMIT units (default 60; a rename touches hundreds) is checked in part, which is reported;
# make nightly checks the whole tree. --changed looks for faults only: it leaves out performance-* and clang-analyzer-*.
set -euo pipefail
cd "$(dirname "$0")/.."
mode=${1:-}
tidy=$(command -v clang-tidy-19 || command -v clang-tidy) || { echo "tidy: no clang-tidy; tools/setup.sh --tidy" >&2; exit 1; }
limit=${TIDY_LIMIT:-60}
options=(--quiet --extra-arg=-Wno-unknown-warning-option --extra-arg=-Wno-ignored-optimization-argument)  # known to GCC only
batches=OFF
case $mode in
  --all) options+=('--checks=-clang-analyzer-*') batches=ON ;;
  --analyze) options+=('--checks=-*,clang-analyzer-cplusplus.Move,clang-analyzer-cplusplus.NewDelete') ;;
  --changed) options+=('--checks=-clang-analyzer-*,-performance-*') ;;
  *) echo "tidy: unknown mode '$mode'; expected --all, --analyze or --changed" >&2; exit 2 ;;
esac
# Configured, never built: a build of its own, without the warnings as errors of the preset ci, which are GCC's.
build=build-tidy
cmake -S . -B $build -G Ninja -DQUINTET_UNITY=$batches >/dev/null

base_of_change() {
  local candidate
  for candidate in "${2:-}" "${CI_BASE:-}" "$(git merge-base HEAD origin/main 2>/dev/null || true)" \
    "$(git merge-base HEAD main 2>/dev/null || true)"; do
    if [ -n "$candidate" ] && git rev-parse -q --verify "$candidate^{commit}" >/dev/null &&
      [ "$(git rev-parse "$candidate")" != "$(git rev-parse HEAD)" ]; then
      git rev-parse "$candidate"
      return
    fi
  done
  git rev-parse -q --verify HEAD~1 || true
}

mapfile -t units < <(python3 - "$build" <<'PY'
import json, os, sys
root = os.getcwd() + "/"
for command in json.load(open(f"{sys.argv[1]}/compile_commands.json")):
    path = os.path.normpath(os.path.join(command["directory"], command["file"]))
    generated = path.startswith(os.path.abspath(sys.argv[1]) + "/") and "/batches/" not in path
    if path.startswith(root) and not generated and path.endswith(".cc"):
        print(path[len(root):])
PY
)
if [ "$mode" = --changed ]; then
  base=$(base_of_change "$@")
  if [ -z "$base" ]; then
    echo "tidy: no commit to compare with (a clone of depth 1?); nothing checked"
    exit 0
  fi
  # Files of the working tree that differ from the base, also those not committed yet.
  changed=$({ git diff --name-only --diff-filter=d "$base"; git ls-files --others --exclude-standard; } | sort -u)
  stems=$(grep -E '\.(h|cc)$' <<<"$changed" | sed -E 's/\.(h|cc)$//' | sort -u || true)
  chosen=()
  for unit in "${units[@]}"; do
    ! grep -qxF "${unit%.cc}" <<<"$stems" || chosen+=("$unit")
  done
  units=("${chosen[@]:+${chosen[@]}}")
  if [ ${#units[@]} -gt "$limit" ]; then
    echo "tidy: ${#units[@]} units changed since ${base:0:9}; checking the first $limit (TIDY_LIMIT)"
    units=("${units[@]:0:$limit}")
  fi
fi
[ ${#units[@]} -gt 0 ] || { echo "tidy: no changed units"; exit 0; }
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! printf '%s\0' "${units[@]}" | xargs -0 -n 1 -P "$(nproc)" "$tidy" -p "$build" "${options[@]}" >"$log" 2>/dev/null; then
  cat "$log"
  echo "tidy: $(grep -cE ': (error|warning): ' "$log") findings in ${#units[@]} units ($("$tidy" --version | grep -o 'version [0-9.]*'))"
  exit 1
fi
echo "tidy: ${#units[@]} units, no findings"
