#!/usr/bin/env python3
"""Checks that CMakeLists.txt, CHANGELOG.md and git tags agree on the version.

A development version (suffix "-dev") is above the newest released one, and its changes stand under [Unreleased]. A
release (no suffix) has a dated heading of its own, first after an empty [Unreleased]. What was released does not change:
the sections of earlier versions have the checksums below. A commit tagged vX.Y.Z has that version and no suffix.
CONTRIBUTING.md says how to release. Prints one line per problem; exit status 1 if there is any.

  check_version.py                the repository
  check_version.py --self-test    wrong pairs must be found
"""

import hashlib
import pathlib
import re
import subprocess
import sys

# SHA-256 of the text between a released version's heading and the next one, first 16 digits.
RELEASED = {"0.1.0": "91f8c286722d47f5"}


def checksum(text):
    return hashlib.sha256(text.strip().encode()).hexdigest()[:16]


def changed_sections(changelog, released):
    parts = re.split(r"^## \[(\d+\.\d+\.\d+)\].*$", changelog, flags=re.MULTILINE)
    for version, text in zip(parts[1::2], parts[2::2]):
        if version not in released:
            yield f"tools/check_version.py: RELEASED lacks {version}, whose section has the checksum {checksum(text)}"
        elif released[version] != checksum(text):
            yield f"CHANGELOG.md: the section of {version} has changed since its release; new entries go under [Unreleased]"


def wrong_tags(tags, version, suffix):
    for tag in tags:
        if re.fullmatch(r"v\d.*", tag) and tag != f"v{version}{suffix}":
            yield f"CMakeLists.txt: this commit has the tag {tag}, but its version is {version}{suffix}"


def problems(cmake, changelog, tags=()):
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
    yield from wrong_tags(tags, version, suffix)


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
    for tags, wrong in [([], False), (["v0.2.0", "nightly"], False), (["v0.2.1"], True)]:
        if bool(list(problems(cmake.format("0.2.0", ""), log, tags))) != wrong:
            raise SystemExit(f"check_version.py --self-test: tags {tags} of version 0.2.0")
    text = "## [Unreleased]\n## [0.1.0] - 2026-10-01\n- a\n"
    known = {"0.1.0": checksum("- a")}
    for changelog, released, wrong in [(text, known, False), (text.replace("- a", "- a\n- b"), known, True), (text, {}, True)]:
        if bool(list(changed_sections(changelog, released))) != wrong:
            raise SystemExit(f"check_version.py --self-test: section {changelog!r}")
    print("version: self-test passed")


if __name__ == "__main__":
    if sys.argv[1:] == ["--self-test"]:
        self_test()
        sys.exit()
    root = pathlib.Path(__file__).resolve().parent.parent
    changelog = (root / "CHANGELOG.md").read_text()
    tags = subprocess.run(["git", "tag", "--points-at", "HEAD"], cwd=root, capture_output=True, text=True)  # none outside a clone
    found = [*problems((root / "CMakeLists.txt").read_text(), changelog, tags.stdout.split()), *changed_sections(changelog, RELEASED)]
    print("\n".join(found) if found else "version: agrees with CHANGELOG.md")
    sys.exit(bool(found))
