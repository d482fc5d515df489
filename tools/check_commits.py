#!/usr/bin/env python3
"""Checks the subjects of commits: "area: what it does", at most 72 characters (CONTRIBUTING.md).

Commits up to BASE are older than the rule. In a shallow clone that does not reach back to BASE nothing is checked, and a line
says so; anywhere else an unknown BASE is a problem. Prints one line per problem; exit status 1 if there is any.

  check_commits.py                the commits between BASE and HEAD
  check_commits.py --self-test    wrong subjects must be found
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BASE = "f661c991d7f01d03ac7605147b74e85d7c055914"
LONGEST = 72
# One area or several, as "cuda/norm" or "checkpoint, train"; then what the commit does, in lower case unless it is a name.
FORM = re.compile(r"[A-Za-z0-9_./,+ -]+: \S.*")
# What is not an imperative, whatever the verb.
NOT_IMPERATIVE = re.compile(r": (?:added|fixed|removed|changed|updated|adds|fixes|removes|changes|updates|adding|fixing)\b")


def problem(subject):
    """What is wrong with a subject; None if nothing is."""
    if subject.startswith('Revert "'):
        return None
    if len(subject) > LONGEST:
        return f"{len(subject)} characters, at most {LONGEST}"
    if not FORM.fullmatch(subject):
        return "expected 'area: what it does'"
    if subject.endswith("."):
        return "ends with a full stop"
    if NOT_IMPERATIVE.search(subject):
        return "expected the imperative: 'fix', not 'fixed' or 'fixes'"
    return None


def git(*args):
    return subprocess.run(["git", "-C", str(ROOT), *args], capture_output=True, text=True)


def self_test():
    for good in ["zero: clear padding between parameters", "cuda/norm, ci: prefetch rows", 'Revert "x"', "CMake: use ccache"]:
        assert problem(good) is None, good
    for bad in ["clear padding", "zero: " + "x" * 70, "zero: fixed padding", "zero: clear padding.", "zero:clear padding", ": clear"]:
        assert problem(bad) is not None, bad
    print("commits: self-test passed")


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    if git("merge-base", "--is-ancestor", BASE, "HEAD").returncode != 0:
        if git("rev-parse", "--is-shallow-repository").stdout.strip() == "true":
            print(f"commits: not checked: this shallow clone does not reach back to {BASE[:12]}")
            return 0
        print(f"commits: BASE {BASE[:12]} is not in the history of HEAD")
        return 1
    log = git("log", "--no-merges", "--format=%h %s", f"{BASE}..HEAD").stdout.splitlines()
    wrong = [(line.partition(" ")[0], subject, why) for line in log if (why := problem(subject := line.partition(" ")[2]))]
    for commit, subject, why in wrong:
        print(f"commit {commit} '{subject}': {why}")
    print(f"commits: {len(log)} subjects, {len(wrong)} problems")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
