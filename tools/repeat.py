#!/usr/bin/env python3
"""Runs fast tests many times in random order, to find those that fail now and then or depend on their order.

  tools/repeat.py                    every test program of build/, 100 times each
  tools/repeat.py comm exec          only test_comm and test_exec
  tools/repeat.py --load             with twice as many busy processes as there are cores

A first run measures each test; those slower than --most-ms (default 50) are left out. Tests of a program then run in
one process, shuffled each time. Exit status 1 when a test failed in any run; its name and the seed are printed.
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent


def measure(program, scratch):
    """Milliseconds by test, or None when the program fails even once. A test that skips itself is left out."""
    report = scratch / f"{program.name}.json"
    out = subprocess.run([program, f"--gtest_output=json:{report}", "--gtest_brief=1"], stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    if out.returncode:
        print(out.stdout[-3000:])
        return None
    times = {}
    for suite in json.loads(report.read_text())["testsuites"]:
        for test in suite["testsuite"]:
            if test.get("result") == "COMPLETED":
                times[f"{suite['name']}.{test['name']}"] = 1000 * float(test["time"].rstrip("s"))
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", help="of tests/; default: all that are built")
    parser.add_argument("--build", default="build")
    parser.add_argument("--times", type=int, default=100)
    parser.add_argument("--most-ms", type=float, default=50)
    parser.add_argument("--seed", type=int, default=int(time.time()) % 99999 + 1)
    parser.add_argument("--load", action="store_true")
    a = parser.parse_args()
    tests = ROOT / a.build / "tests"
    programs = [tests / f"test_{f}" for f in a.folders] or sorted(tests.glob("test_*"))
    programs = [p for p in programs if p.is_file() and os.access(p, os.X_OK)]
    if not programs:
        sys.exit(f"repeat: no test programs in {tests}: run 'make build' first")
    busy = []
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        scratch = pathlib.Path(folder)
        measured = {program: measure(program, scratch) for program in programs}  # before there is load
        try:
            if a.load:
                busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * os.cpu_count())]
            for program, times in measured.items():
                if times is None:
                    print(f"repeat: {program.name} fails even once")
                    failed.append(program.name)
                    continue
                fast = [name for name, ms in times.items() if ms <= a.most_ms]
                if not fast:
                    print(f"repeat: {program.name}: none of {len(times)} tests took at most {a.most_ms:.0f} ms", flush=True)
                    continue
                flags = scratch / "flags"
                flags.write_text(f"--gtest_filter={':'.join(fast)}\n--gtest_repeat={a.times}\n--gtest_shuffle\n"
                                 f"--gtest_random_seed={a.seed}\n--gtest_brief=1\n")
                begin = time.monotonic()
                out = subprocess.run([program, f"--gtest_flagfile={flags}"], stdin=subprocess.DEVNULL,
                                     stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
                names = sorted(set(re.findall(r"^\[  FAILED  \] (\w[\w/]*\.[\w/]+)", out.stdout, re.M)))
                state = "passed"
                if out.returncode:
                    print(out.stdout[-6000:])
                    state = "FAILED " + (", ".join(names) or f"exit status {out.returncode}")
                    failed += names or [program.name]
                print(f"repeat: {program.name}: {len(fast)} of {len(times)} tests, {a.times} times, "
                      f"{time.monotonic() - begin:.0f} s: {state} (seed {a.seed})", flush=True)
        finally:
            for process in busy:
                process.kill()
    if failed:
        sys.exit("repeat: failed: " + " ".join(failed))


if __name__ == "__main__":
    main()
