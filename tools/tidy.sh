#!/usr/bin/env bash
# Runs clang-tidy (.clang-tidy) over source files, in the batches of the build (cmake/rooms.cmake): a third of the time.
#   tools/tidy.sh --all            every one
#   tools/tidy.sh --analyze        every one through clang-analyzer-*, which looks only at functions of the file itself,
#                                  so not in batches; hours
#   tools/tidy.sh --changed [REV]  the batches of files that differ from REV; a changed header is checked in the batch of
#                                  the file of the same name, or else of the first that includes it. REV is CI_BASE, or
#                                  where this branch left origin/main (main), or the commit before this one
# --changed looks for faults only: it leaves out performance-* and clang-analyzer-*. It begins no further batch once
# TIDY_SECONDS (default 480) have passed, and says how many were left out; make nightly checks the whole tree.
set -euo pipefail
cd "$(dirname "$0")/.."
mode=${1:-}
tidy=$(command -v clang-tidy-19 || command -v clang-tidy) || { echo "tidy: no clang-tidy; tools/setup.sh --tidy" >&2; exit 1; }
seconds=0  # no limit
options=(--quiet --extra-arg=-Wno-unknown-warning-option --extra-arg=-Wno-ignored-optimization-argument)  # known to GCC only
batches=ON
case $mode in
  --all) options+=('--checks=-clang-analyzer-*') ;;
  --analyze) options+=('--checks=-*,clang-analyzer-cplusplus.Move,clang-analyzer-cplusplus.NewDelete') batches=OFF ;;
  --changed) options+=('--checks=-clang-analyzer-*,-performance-*') seconds=${TIDY_SECONDS:-480} ;;
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

# All units, or those that contain one of the files named on standard input.
units_of() {
  python3 - "$build" "$1" 3<&0 <<'PY'
import json, os, re, sys
root, build = os.getcwd() + "/", os.path.abspath(sys.argv[1]) + "/"
members = {}  # of each unit: its sources, relative to the project
for command in json.load(open(build + "compile_commands.json")):
    path = os.path.normpath(os.path.join(command["directory"], command["file"]))
    if not path.startswith(root) or not path.endswith(".cc"):
        continue
    if not path.startswith(build):
        members[path[len(root):]] = [path[len(root):]]
    elif "/batches/" in path:
        members[path[len(root):]] = re.findall(r'#include "(.*)"', open(path).read())
if sys.argv[2] == "all":
    print("\n".join(members))
    sys.exit()
unit_of = {source: unit for unit, sources in members.items() for source in sources}
includes = {}  # of each header, as it is spelled: the first source that includes it
for source in sorted(unit_of):
    for header in re.findall(r'^#include "(.*)"', open(source).read(), re.M):
        includes.setdefault(header, source)
chosen = set()
for path in os.fdopen(3).read().split("\n"):
    if path.endswith((".h", ".inc")):
        same = path.rsplit(".", 1)[0] + ".cc"
        spelled = path.split("/", 1)[-1]  # src/ and tests/ are include folders
        path = same if same in unit_of else includes.get(spelled, "")
    if path in unit_of:
        chosen.add(unit_of[path])
print("\n".join(unit for unit in members if unit in chosen))
PY
}

if [ "$mode" = --changed ]; then
  base=$(base_of_change "$@")
  if [ -z "$base" ]; then
    echo "tidy: no commit to compare with (a clone of depth 1?); nothing checked"
    exit 0
  fi
  # Files of the working tree that differ from the base, also those not committed yet.
  mapfile -t units < <({ git diff --name-only --diff-filter=d "$base"; git ls-files --others --exclude-standard; } | units_of changed)
else
  mapfile -t units < <(units_of all </dev/null)
fi
[ -n "${units[*]}" ] || { echo "tidy: no changed units"; exit 0; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export TIDY_WORK=$work TIDY_END=$((seconds > 0 ? $(date +%s) + seconds : 0))
# One unit, unless time is up. What it prints is kept together.
check() {
  if [ "$TIDY_END" -gt 0 ] && [ "$(date +%s)" -ge "$TIDY_END" ]; then
    echo "$1" >>"$TIDY_WORK/left_out"
    return 0
  fi
  local unit=$1
  shift
  if ! "$@" "$unit" >"$TIDY_WORK/out.$$" 2>"$TIDY_WORK/err.$$"; then
    { cat "$TIDY_WORK/out.$$"; grep -vE '^[0-9]+ warnings?.* generated|^Suppressed |^Use -' "$TIDY_WORK/err.$$" || true; } >"$TIDY_WORK/both.$$"
    cat "$TIDY_WORK/both.$$"
    return 1
  fi
}
export -f check
status=0
printf '%s\0' "${units[@]}" | xargs -0 -P "$(nproc)" -I UNIT bash -c 'check "$@"' check UNIT "$tidy" -p "$build" "${options[@]}" \
  >"$work/log" || status=1
left=$(wc -l 2>/dev/null <"$work/left_out" || echo 0)
what="$((${#units[@]} - left)) of ${#units[@]} $([ "$mode" = --changed ] && echo "changed ")units"
[ "$left" -eq 0 ] || echo "tidy: $left units were not begun within $seconds s (TIDY_SECONDS); make nightly checks the whole tree"
if [ $status -ne 0 ]; then
  cat "$work/log"
  echo "tidy: $what, $(grep -cE ': (error|warning): ' "$work/log") findings ($("$tidy" --version | grep -o 'version [0-9.]*'))"
  exit 1
fi
echo "tidy: $what, no findings"
