#!/usr/bin/env python3
"""Mutation testing: finds code that can be wrong without a test failing.

  tools/mutate.py src/layout/mesh.cc src/layout/groups.cc --tests layout
  tools/mutate.py src/program/verify.cc --tests program:Verify* --sample 40 --seed 7

Every mutant is compiled into one build (build-mutate/tree, a copy of the repository) and selected at run time by an
environment variable, so that a mutant costs a run of the test program and no compilation. Mutants: a comparison or
arithmetic operator replaced, a condition negated, an integer constant increased, min and max exchanged, a statement
left out. For each one the named test programs run until one fails:

  killed     a test failed, crashed or ran too long
  survived   the mutated code ran, and every test passed: a test is missing, or the mutant changes nothing
  not run    no test reached the code

Survivors are listed with file, line, column and change. Exit status 1 when there are more than --allow (default: any number).
"""
import argparse
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TREE = ROOT / "build-mutate" / "tree"
ENV = {"OMP_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
       "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_mpi_yield_when_idle": "1"}

# Infix sites keep the precedence of the operator they stand for: a < b becomes (a < lt<3>) < b, where the first part
# is a proxy. Constant expressions always compute the original.
HEADER = r"""#pragma once
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <type_traits>
namespace quintet_mutate {
inline const int selected = [] { const char* s = std::getenv("QUINTET_MUTANT"); return s ? std::atoi(s) : -1; }();
inline void mark(const char* what) {
  static const bool once = [](const char* state) {
    if (const char* path = std::getenv("QUINTET_MUTANT_LOG"))
      if (std::FILE* f = std::fopen(path, "a")) std::fputs(state, f), std::fclose(f);
    return true;
  }(what);
  (void)once;
}
template <int N> constexpr bool on() {
  if (std::is_constant_evaluated()) return false;
  if (selected != N) return false;
  mark("run\n");
  return true;
}
#define QUINTET_INFIX(name, op, other)                                                              \
  template <int N, class A> struct name##_left { const A& a; };                                     \
  template <int N> struct name##_site {};                                                           \
  template <int N> inline constexpr name##_site<N> name{};                                          \
  template <class A, int N> constexpr name##_left<N, A> operator op(const A& a, name##_site<N>) {   \
    return {a};                                                                                     \
  }                                                                                                 \
  template <int N, class A, class B>                                                                \
  constexpr auto operator op(const name##_left<N, A>& l, const B& b) {                              \
    if constexpr (requires { requires std::is_same_v<decltype(l.a other b), decltype(l.a op b)>; }) \
      if (on<N>()) return l.a other b;                                                              \
    return l.a op b;                                                                                \
  }
QUINTET_INFIX(lt, <, <=)
QUINTET_INFIX(le, <=, <)
QUINTET_INFIX(gt, >, >=)
QUINTET_INFIX(ge, >=, >)
QUINTET_INFIX(eq, ==, !=)
QUINTET_INFIX(ne, !=, ==)
QUINTET_INFIX(plus, +, -)
QUINTET_INFIX(minus, -, +)
QUINTET_INFIX(times, *, +)
template <int N, class T> constexpr T constant(T v) { return on<N>() ? static_cast<T>(v + 1) : v; }
template <int N> constexpr bool flip(bool v) { return on<N>() ? !v : v; }
template <int N> constexpr bool keep() { return !on<N>(); }
template <int N, class T> constexpr T min(const T& a, const T& b) { return on<N>() ? std::max(a, b) : std::min(a, b); }
template <int N, class T> constexpr T max(const T& a, const T& b) { return on<N>() ? std::min(a, b) : std::max(a, b); }
}  // namespace quintet_mutate
"""
INFIX = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne", "+": "plus", "-": "minus", "*": "times"}
OTHER = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "+": "-", "-": "+", "*": "+"}
SKIPPED_LINE = re.compile(r"^\s*(#|template\b|using\b|typedef\b|static_assert\b|case\b|enum\b|friend\b|QUINTET_CHECK|"
                          r"namespace\b|constexpr\b|inline constexpr\b|static constexpr\b|throw\b|base::fail)|operator")


def mask(text):
    """The text with comments and literals of strings and characters blanked, of the same length."""
    out = list(text)
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.S)
    for m in pattern.finditer(text):
        if m.group().startswith("'") and re.match(r"[\w]", text[m.start() - 1:m.start()]):
            continue  # a digit separator
        for i in range(m.start(), m.end()):
            if out[i] != "\n":
                out[i] = " "
    return "".join(out)


def close_of(text, opening):
    depth = 0
    for i in range(opening, len(text)):
        depth += {"(": 1, ")": -1}.get(text[i], 0)
        if depth == 0:
            return i
    return -1


class Site:
    """A place to mutate; edits are (begin, end, text), with %d in the text for the mutant's number."""

    def __init__(self, path, line, column, kind, edits, text):
        self.path, self.line, self.column, self.kind, self.edits = path, line, column, kind, edits
        self.text = text

    def __str__(self):
        return f"{self.path}:{self.line}:{self.column}: {self.kind}"


def sites_of(path):
    text = (ROOT / path).read_text()
    code = mask(text)
    found = []
    start = 0
    previous = ";"
    for number, line in enumerate(code.split("\n"), 1):
        begin, start = start, start + len(line) + 1
        stripped = line.strip()
        before, previous = previous, stripped or previous
        if not stripped or SKIPPED_LINE.search(line):
            continue

        def add(kind, *edits):
            found.append(Site(path, number, edits[0][0] + 1, kind, [(begin + a, begin + b, t) for a, b, t in edits],
                              text[begin:begin + len(line)].strip()))

        for m in re.finditer(r"(?<=[\w)\]] )(<=|>=|==|!=|<|>|\+|-|\*)(?= [\w(&*!\-\"])", line):
            op = m.group()
            if op in "<>" and "template" in line:
                continue
            add(f"{op} becomes {OTHER[op]}", (m.start(), m.end(), f"{op} quintet_mutate::{INFIX[op]}<%d> {op}"))
        for m in re.finditer(r"(?<![\w.'])(\d+)(?![\w.'])", line):
            if re.search(r"(<|\[|ids?\(|static_cast<|F)$", line[:m.start()]) and not line[:m.start()].endswith(" <"):
                continue
            add(f"{m.group()} becomes {int(m.group()) + 1}", (m.start(), m.end(), f"quintet_mutate::constant<%d>({m.group()})"))
        for m in re.finditer(r"\b(?:else )?if \(", line):
            opening = m.end() - 1
            closing = close_of(line, opening)
            inside = line[opening + 1:closing] if closing > 0 else ";"
            if ";" in inside or re.match(r"(const|auto)\b|.*[^=!<>]=[^=]", inside):
                continue
            add("condition negated", (opening + 1, opening + 1, "quintet_mutate::flip<%d>("), (closing, closing, ")"))
        for m in re.finditer(r"\breturn (true|false)\b", line):
            add(f"returns {'false' if m.group(1) == 'true' else 'true'}",
                (m.start(1), m.end(1), f"quintet_mutate::flip<%d>({m.group(1)})"))
        for m in re.finditer(r"\bstd::(min|max)\((?!\{)", line):
            add(f"{m.group(1)} becomes {'max' if m.group(1) == 'min' else 'min'}",
                (m.start(), m.end() - 1, f"quintet_mutate::{m.group(1)}<%d>"))
        m = re.match(r"(\s+)([a-z_][\w.\->\[\]]*(?:\(.*\)| (?:=|\+=|\|=) [^;{}]*));$", line)
        if m and before[-1:] in ";{})" and not re.match(r"(return|delete|goto|co_|else|do)\b", m.group(2)):
            statement = m.group(2)
            opening = statement.find("(")
            whole = "=" in statement.split("(")[0] or close_of(statement, opening) == len(statement) - 1
            if whole and "{" not in statement:
                add("statement left out", (m.start(2), m.start(2), "(quintet_mutate::keep<%d>() ? (void)("),
                    (m.end(2), m.end(2), ") : (void)0)"))
    return found


def instrument(path, sites, dropped):
    """Writes the file into the tree, with its sites."""
    text = (ROOT / path).read_text()
    edits = []
    for number, site in sites:
        if number not in dropped:
            edits += [(a, b, t % number if "%d" in t else t) for a, b, t in site.edits]
    # From the back; at one position a replacement before an insertion, which then precedes it in the text.
    for a, b, t in sorted(edits, key=lambda e: (e[0], e[1]), reverse=True):
        text = text[:a] + t + text[b:]
    (TREE / path).write_text('#include "quintet_mutate.h"\n#line 1\n' + text)


def sh(command, **kw):
    return subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **kw)


def prepare(paths):
    listed = sh(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT).stdout.split("\n")
    for name in filter(None, listed):
        source, target = ROOT / name, TREE / name
        if not source.is_file() or name in paths:
            continue
        if target.exists() and target.read_bytes() == source.read_bytes():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)
    (TREE / "src" / "quintet_mutate.h").write_text(HEADER)


def build(paths, sites, targets, jobs):
    """Compiles all mutants at once, leaving out those whose line does not compile. Returns their numbers."""
    dropped = set()
    for _ in range(8):
        for path in paths:
            instrument(path, [(n, s) for n, s in enumerate(sites) if s.path == path], dropped)
        if not (TREE / "build" / "build.ninja").exists():
            out = sh(["cmake", "-S", TREE, "-B", TREE / "build", "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release"])
            if out.returncode:
                sys.exit(out.stdout)
        out = sh(["ninja", "-C", TREE / "build", "-k0", f"-j{jobs}", *targets])
        if out.returncode == 0:
            return dropped
        bad = set()
        for name, line in re.findall(r"((?:src/)[\w/]+\.cc):(\d+):\d+: +(?:error|required from)", out.stdout):
            bad |= {n for n, s in enumerate(sites) if s.path == name and abs(s.line - int(line)) <= 1} - dropped
        if not bad:
            sys.exit(out.stdout[-4000:] + "\nmutate: the instrumented tree does not build")
        dropped |= bad
    sys.exit("mutate: the instrumented tree still does not build after 8 attempts")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="+", help=".cc files below src")
    parser.add_argument("--tests", required=True, help="folders of tests/, with an optional filter: layout,program:Verify*")
    parser.add_argument("--sample", type=int, default=0, help="number of random mutants (default: all)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2, help="of the build")
    parser.add_argument("--allow", type=int, default=None, help="fail when more mutants survive")
    parser.add_argument("--list", action="store_true", help="only list the mutants")
    a = parser.parse_args()
    paths = [os.path.relpath(p, ROOT) for p in a.sources]
    sites = [s for p in paths for s in sites_of(p)]
    if a.list:
        for n, s in enumerate(sites):
            print(f"{n:5} {s}")
        return
    tests = []
    for part in a.tests.split(","):
        folder, _, pattern = part.partition(":")
        tests.append((f"test_{folder}", pattern or "*"))
    TREE.mkdir(parents=True, exist_ok=True)
    prepare(paths)
    dropped = build(paths, sites, [name for name, _ in tests], a.jobs)
    log = ROOT / "build-mutate" / "reached"

    def run(mutant, limits):
        log.unlink(missing_ok=True)
        spent = []
        for (name, pattern), limit in zip(tests, limits):
            begin = time.monotonic()
            try:
                out = subprocess.run([TREE / "build/tests" / name, f"--gtest_filter={pattern}", "--gtest_brief=1",
                                      "--gtest_fail_fast"], env={**os.environ, **ENV, "QUINTET_MUTANT": str(mutant),
                                      "QUINTET_MUTANT_LOG": str(log)}, timeout=limit, stdin=subprocess.DEVNULL,
                                     stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
                failed = out.returncode != 0
                if failed and mutant < 0:
                    sys.exit(out.stdout[-3000:] + f"\nmutate: {name} fails without a mutant")
            except subprocess.TimeoutExpired:
                failed = True
            spent.append(time.monotonic() - begin)
            if failed:
                return "killed", spent
        return ("survived" if log.exists() else "not run"), spent

    _, base = run(-1, [600] * len(tests))
    limits = [20 + 10 * s for s in base]
    chosen = [n for n in range(len(sites)) if n not in dropped]
    if a.sample and a.sample < len(chosen):
        chosen = sorted(random.Random(a.seed).sample(chosen, a.sample))
    print(f"mutate: {len(sites)} sites in {len(paths)} files, {len(dropped)} that do not compile; "
          f"{len(chosen)} mutants, {sum(base):.1f} s of tests each", flush=True)
    counts = {"killed": 0, "survived": 0, "not run": 0}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the summary of what was done is printed
    try:
        for n in chosen:
            result, _ = run(n, limits)
            counts[result] += 1
            if result != "killed":
                s = sites[n]
                print(f"{result}: {s}: {s.text}", flush=True)
    finally:
        total = sum(counts.values())
        print(f"mutate: {total} of {len(chosen)} mutants: " + ", ".join(f"{v} {k}" for k, v in counts.items()) +
              f" (seed {a.seed})", flush=True)
    if a.allow is not None and counts["survived"] > a.allow:
        sys.exit(1)


if __name__ == "__main__":
    main()
