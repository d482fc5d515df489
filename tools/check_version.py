#!/usr/bin/env python3
"""Checks that CMakeLists.txt and CHANGELOG.md agree on the version.

A development version (suffix "-dev") is above the newest released one, and its changes stand under [Unreleased]. A
release (no suffix) has a dated heading of its own, first after an empty [Unreleased]. Prints one line per problem; exit
status 1 if there is any.

  check_version.py                the repository
  check_version.py --self-test    wrong pairs must be found
"""

import pathlib
import re
import sys


def problems(cmake, changelog):
    version = re.search(r"project\(quintet VERSION (\d+\.\d+\.\d+)", cmake)
    suffix = re.search(r'set\(QUINTET_VERSION_SUFFIX "([^"]*)"\)', cmake)
    if not version or not suffix:
        yield "CMakeLists.txt: expected project(quintet VERSION X.Y.Z ...) and set(QUINTET_VERSION_SUFFIX ...)"
        return
    version, suffix = version.group(1), suffix.group(1)
    headings = re.findall(r"^## (.*)$", changelog, re.MULTILINE)
    if not headings or headings[0] != "[Unreleased]":
        yield "CHANGELOG.md: the first heading must be '## [Unreleased]'"
        return
    released = []
    for heading in headings[1:]:
        match = re.fullmatch(r"\[(\d+\.\d+\.\d+)\] - \d{4}-\d{2}-\d{2}", heading)
        if not match:
            yield f"CHANGELOG.md: '## {heading}' is not '## [X.Y.Z] - YYYY-MM-DD'"
            return
        released.append(match.group(1))
    number = lambda text: tuple(map(int, text.split(".")))
    if released != sorted(released, key=number, reverse=True):
        yield "CHANGELOG.md: versions are not in descending order"
    newest = released[0] if released else "0.0.0"
    if suffix == "-dev" and number(version) <= number(newest):
        yield f"CMakeLists.txt: version {version}-dev must be above the newest release, {newest}"
    elif suffix == "" and version != newest:
        yield f"CHANGELOG.md: version {version} has no heading '## [{version}] - YYYY-MM-DD'; the newest is {newest}"
    elif suffix not in ("", "-dev"):
        yield f"CMakeLists.txt: QUINTET_VERSION_SUFFIX must be empty or \"-dev\", is \"{suffix}\""


def self_test():
    cmake = 'project(quintet VERSION {} LANGUAGES CXX)\nset(QUINTET_VERSION_SUFFIX "{}")\n'
    log = "## [Unreleased]\n## [0.2.0] - 2026-11-01\n## [0.1.0] - 2026-10-01\n"
    good = [("0.3.0", "-dev", log), ("0.2.0", "", log), ("0.2.1", "-dev", log)]
    bad = [
        ("0.2.0", "-dev", log),
        ("0.3.0", "", log),
        ("0.3.0", "-rc1", log),
        ("0.3.0", "-dev", log.replace("## [Unreleased]\n", "")),
        ("0.3.0", "-dev", log.replace(" - 2026-10-01", "")),
        ("0.3.0", "-dev", log.replace("[0.1.0]", "[0.2.5]")),
    ]
    for case in good + bad:
        found = list(problems(cmake.format(*case[:2]), case[2]))
        if bool(found) != (case in bad):
            raise SystemExit(f"check_version.py --self-test: {case}: {found}")
    if not list(problems("", log)):
        raise SystemExit("check_version.py --self-test: no version was not found")
    print("version: self-test passed")


if __name__ == "__main__":
    if sys.argv[1:] == ["--self-test"]:
        self_test()
        sys.exit()
    root = pathlib.Path(__file__).resolve().parent.parent
    found = list(problems((root / "CMakeLists.txt").read_text(), (root / "CHANGELOG.md").read_text()))
    print("\n".join(found) if found else "version: agrees with CHANGELOG.md")
    sys.exit(bool(found))
