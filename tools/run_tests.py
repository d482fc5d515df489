#!/usr/bin/env python3
"""Runs whole test programs of a build, one process each, for builds where a process per test costs more than the test.

  tools/run_tests.py --preset asan base comm    test_base and test_comm of build-asan
  tools/run_tests.py --preset asan fuzz         the corpus of every fuzz target
  tools/run_tests.py --self-test                a failing, a crashing, an empty and a hanging program must be reported

The environment is that of the test preset in CMakePresets.json. Tests listed in tests/too_slow_for_sanitizers.txt are
left out; the report counts them, and an entry that matches no test of its program is an error. Exit status 1
when a program failed, did not end in --timeout seconds, or ran no test.
"""
import argparse
import concurrent.futures
import fnmatch
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
LEFT_OUT = ROOT / "tests/too_slow_for_sanitizers.txt"


def environment(preset):
    """What ctest --preset would set, inherited presets included."""
    presets = {p["name"]: p for p in json.loads((ROOT / "CMakePresets.json").read_text())["testPresets"]}

    def of(name):
        parent = presets[name].get("inherits")
        return {**(of(parent) if parent else {}), **presets[name].get("environment", {})}

    return of(preset)


def left_out_tests(text):
    """Patterns by room, from lines 'room Suite.Test  # why'."""
    rooms = {}
    for line in text.splitlines():
        words = line.split("#")[0].split()
        if words:
            room, pattern = words
            rooms.setdefault(room, []).append(pattern)
    return rooms


class Result:
    """Of one program: its output, exit status (None when it was stopped), seconds and counts."""

    def __init__(self, name):
        self.name, self.output, self.status, self.cpu, self.wall = name, "", None, 0.0, 0.0
        self.passed, self.skipped, self.failed, self.left_out, self.unmatched = 0, 0, [], [], []
        self.times = []

    def good(self):
        return self.status == 0 and not self.failed and not self.unmatched and self.passed > 0

    def problem(self, timeout):
        if self.status is None:
            return f"did not end in {timeout} s"
        if self.failed:
            return "failed: " + " ".join(self.failed)
        if self.status:
            return f"exit status {self.status}"
        if self.unmatched:
            return f"has no test {' '.join(self.unmatched)}, which {LEFT_OUT.name} leaves out"
        return "ran no test"


def execute(result, command, env, timeout):
    begin = time.monotonic()
    with tempfile.TemporaryFile("w+", errors="replace") as out:
        process = subprocess.Popen(command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=out,
                                   stderr=subprocess.STDOUT, start_new_session=True)
        stopped = False
        while True:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                break
            if not stopped and time.monotonic() - begin > timeout:
                os.killpg(process.pid, signal.SIGKILL)  # with whatever it has started
                stopped = True
            time.sleep(0.05)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        result.output = out.read()
    result.status = None if stopped else process.returncode
    result.cpu, result.wall = usage.ru_utime + usage.ru_stime, time.monotonic() - begin


def run_gtest(program, env, timeout, left_out):
    result = Result(program.name)
    with tempfile.TemporaryDirectory() as folder:
        names = []
        listing = subprocess.run([program, "--gtest_list_tests"], env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        for line in listing.stdout.splitlines():
            if line.startswith("  "):
                names.append(suite + line.split("#")[0].strip())
            elif line.split("#")[0].strip().endswith("."):
                suite = line.split("#")[0].strip()
        result.left_out = [n for n in names if any(fnmatch.fnmatchcase(n, pattern) for pattern in left_out)]
        result.unmatched = [pattern for pattern in left_out if not fnmatch.filter(names, pattern)]
        report = pathlib.Path(folder) / "report.json"
        execute(result, [program, "--gtest_brief=1", f"--gtest_output=json:{report}", "--gtest_filter=-" + ":".join(result.left_out)],
                env, timeout)
        if report.exists():
            for suite in json.loads(report.read_text())["testsuites"]:
                for test in suite["testsuite"]:
                    name = f"{suite['name']}.{test['name']}"
                    result.times.append((float(test["time"].rstrip("s")), name))
                    if "failures" in test:
                        result.failed.append(name)
                    elif test.get("result") == "SKIPPED":
                        result.skipped += 1
                    elif test.get("result") == "COMPLETED":
                        result.passed += 1
    return result


def run_fuzz(program, env, timeout):
    result = Result(program.name)
    execute(result, [program, ROOT / "tests/fuzz/corpus" / program.name.removeprefix("fuzz_")], env, timeout)
    result.passed = int(result.status == 0)
    return result


def run_all(programs, env, timeout, jobs, left_out):
    """Results in the order in which the programs end."""
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        pending = [pool.submit(run_fuzz, p, env, timeout) if p.name.startswith("fuzz_") else
                   pool.submit(run_gtest, p, env, timeout, left_out.get(p.name.removeprefix("test_"), [])) for p in programs]
        for done in concurrent.futures.as_completed(pending):
            yield done.result()


def report(results, timeout, slowest):
    """Prints a line per program, and the end of the output of those that failed. Returns the problems."""
    problems, times = [], []
    passed = skipped = left_out = 0
    cpu = 0.0
    for r in results:
        if not r.good():
            print(r.output[-20000:])
            problems.append(f"{r.name} {r.problem(timeout)}")
        print(f"run_tests: {r.name}: {r.passed} passed, {r.skipped} skipped, {len(r.left_out)} left out, {len(r.failed)} failed; "
              f"processor {r.cpu:.1f} s, wall {r.wall:.1f} s", flush=True)
        passed, skipped, left_out, cpu = passed + r.passed, skipped + r.skipped, left_out + len(r.left_out), cpu + r.cpu
        times += r.times
    for seconds, name in sorted(times, reverse=True)[:slowest]:
        print(f"run_tests: {seconds:8.2f} s  {name}")
    print(f"run_tests: {passed} tests passed, {skipped} skipped, {left_out} left out, {len(problems)} programs failed; processor {cpu:.0f} s")
    return problems


def self_test():
    """Programs that behave like GoogleTest's: what must be noticed is noticed."""
    body = """#!/usr/bin/env python3
import json, os, sys, time
names = {names!r}
if "--gtest_list_tests" in sys.argv:
    print("Some.\\n" + "\\n".join("  " + n for n in names)); sys.exit(0)
arguments = dict(a.split("=", 1) for a in sys.argv[1:])
left = arguments["--gtest_filter"][1:].split(":")
tests = [dict(name=n, time="0.1s", result="COMPLETED", **({{"failures": [1]}} if n == "Bad" else {{}})) for n in names
         if "Some." + n not in left]
open(arguments["--gtest_output"][5:], "w").write(json.dumps(dict(testsuites=[dict(name="Some", testsuite=tests)])))
{end}
"""
    cases = {  # names, end of the program, what the report must say (None: good)
        "good": (["A", "B"], "sys.exit(0)", None),
        "bad": (["A", "Bad"], "sys.exit(1)", "failed: Some.Bad"),
        "leaks": (["A"], "sys.exit(23)", "exit status 23"),
        "crashes": (["A"], "os.abort()", "exit status -6"),
        "empty": ([], "sys.exit(0)", "ran no test"),
        "hangs": (["A"], "time.sleep(60)", "did not end"),
        "all_left_out": (["Slow"], "sys.exit(0)", "ran no test"),
        "stale_list": (["A"], "sys.exit(0)", "has no test Some.Slow"),
    }
    with tempfile.TemporaryDirectory() as folder:
        for name, (tests, end, expected) in cases.items():
            program = pathlib.Path(folder) / f"test_{name}"
            program.write_text(body.format(names=tests, end=end))
            program.chmod(0o755)
            result = run_gtest(program, dict(os.environ), 1 if name == "hangs" else 30,
                               ["Some.Slow"] if name in ("all_left_out", "stale_list") else [])
            if result.good() != (expected is None) or (expected and expected not in result.problem(1)):
                sys.exit(f"run_tests: self-test: {name} was taken for {'good' if result.good() else result.problem(1)}")
    print(f"run_tests: self-test: {len(cases)} programs judged as they should be")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rooms", nargs="*", help="folders of tests/")
    parser.add_argument("--preset", help="asan, tsan, ...: the build is build-PRESET")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--timeout", type=int, default=1200, help="seconds for each program")
    parser.add_argument("--slowest", type=int, default=0, metavar="N", help="list the N slowest tests")
    parser.add_argument("--all", action="store_true", help="leave no test out")
    parser.add_argument("--self-test", action="store_true")
    a = parser.parse_args()
    if a.self_test:
        return self_test()
    if not a.preset or not a.rooms:
        parser.error("expected --preset and at least one room")
    tests = ROOT / f"build-{a.preset}" / "tests"
    programs = []
    for room in a.rooms:
        found = sorted(p for p in (tests / "fuzz").glob("fuzz_*") if p.is_file()) if room == "fuzz" else [tests / f"test_{room}"]
        if not found or not all(p.is_file() for p in found):
            sys.exit(f"run_tests: {found[0] if found else tests / 'fuzz'} does not exist: build it first (make {a.preset})")
        programs += found
    left_out = {} if a.all else left_out_tests(LEFT_OUT.read_text())
    env = {**os.environ, **environment(a.preset)}
    problems = report(run_all(programs, env, a.timeout, a.jobs, left_out), a.timeout, a.slowest)
    if problems:
        sys.exit("run_tests: " + "\nrun_tests: ".join(problems))


if __name__ == "__main__":
    main()
