#!/usr/bin/env python3
"""Checks docs/status.md against the tree.

Every id occurs once and the ids of an area are numbered without gaps; every state is a known word; every row that claims
something names a test, file or make target, and all of these exist; recipe keys, verbs and options exist. Ids cited
anywhere else (`DP-4` in a comment, say) must have a row. Prints one line per problem; exit status 1 if there is any.

  check_status.py [--root DIR]     check a tree (default: this repository)
  check_status.py --self-test      check that one fault of each kind, in a temporary tree, is detected
"""

import collections
import pathlib
import re
import sys

import tree_check

STATUS = "docs/status.md"
STATES = ("works", "partial", "plan only", "not yet")
SECTIONS = "model|data|batch|parallel|precision|memory|optimizer|loss|eval|run|checkpoint"
# Suffixes of files in which a cited id must have a row; tables of published runs have ids of their own.
CITING = {".h", ".cc", ".cu", ".cuh", ".py", ".sh", ".md", ".toml", ".cmake", ".txt"}
CITING_FOLDERS = ("src", "tests", "tools", "bench", "cmake", "docs", "recipes", ".ci")

ROW = re.compile(r"^\| *([A-Z]+)-(\d+) *\|(.*)\|\s*$", re.MULTILINE)
TICKED = re.compile(r"`([^`]+)`")
TEST = re.compile(r"^(?:TYPED_)?TEST(?:_F|_P)?\(\s*(\w+)\s*,\s*(\w+)\s*\)", re.MULTILINE)


def read(path):
    return path.read_text(encoding="utf-8")


class Tree:
    """The names that a row may cite."""

    def __init__(self, root):
        self.root = root
        sources = [p for p in (root / "tests").rglob("*") if p.suffix in (".cc", ".cu")]
        self.tests = {match.groups() for path in sources for match in TEST.finditer(read(path))}
        self.suites = {suite for suite, _ in self.tests}
        makefile = root / "Makefile"
        self.targets = set(re.findall(r"^([\w-]+):", read(makefile), re.MULTILINE)) if makefile.is_file() else set()
        config = "".join(read(p) for p in sorted((root / "src" / "config").rglob("*.h")))
        self.keys = set(re.findall(rf'"((?:{SECTIONS})\.[a-z_0-9.]+)"', config))
        cli = "".join(read(p) for p in sorted((root / "src" / "cli").rglob("*.cc")))
        self.verbs = set(re.findall(r'add_subcommand\(\s*"(\w+)"', cli))
        self.options = set(re.findall(r'"(--[a-z-]+)', cli))

    def fault(self, name):
        """The problem with a cited name; None if it exists."""
        if re.fullmatch(r"[A-Z]\w*\.(\w+|\*)", name):
            suite, test = name.split(".")
            if test == "*":
                return None if suite in self.suites else "no such suite in tests/"
            return None if (suite, test) in self.tests else "no such test in tests/"
        if name.startswith("make "):
            return None if name[5:] in self.targets else "no such target in the Makefile"
        if name.startswith("quintet "):
            words = name.split()[1:]
            for word in words:
                if word.startswith("--") and word not in self.options:
                    return f"no option {word} in src/cli"
                if not word.startswith("-") and word not in self.verbs:
                    return f"no verb '{word}' in src/cli"
            return None
        if re.match(rf"({SECTIONS})\.", name):
            return None if name in self.keys else "no such recipe key"
        if "/" in name:
            return None if (self.root / name).exists() else "no such file"
        return "neither a test, a file, a make target, a recipe key nor a verb"


def check_rows(text, tree):
    seen = {}
    numbers = collections.defaultdict(list)
    for match in ROW.finditer(text):
        row = f"{match.group(1)}-{match.group(2)}"
        where = f"{STATUS}:{text.count(chr(10), 0, match.start()) + 1}: {row}"
        if row in seen:
            yield f"{where}: the id occurs twice, first in line {seen[row]}"
        seen.setdefault(row, text.count("\n", 0, match.start()) + 1)
        numbers[match.group(1)].append(int(match.group(2)))
        cells = [cell.strip() for cell in match.group(3).split(" | ")]
        if len(cells) != 4:
            yield f"{where}: expected id, feature, key, state and proof, got {len(cells) + 1} cells"
            continue
        feature, key, state, proof = cells
        word, _, rest = state.partition(":")
        if word not in STATES:
            yield f"{where}: state '{word}' is none of {', '.join(STATES)}"
        if word == "partial" and not rest.strip():
            yield f"{where}: 'partial' must say what is missing: 'partial: ...'"
        proofs = TICKED.findall(proof)
        if word != "not yet" and not proofs:
            yield f"{where}: '{word}' needs a test or command that shows it"
        for name in proofs + TICKED.findall(key) + TICKED.findall(rest):
            if fault := tree.fault(name):
                yield f"{where}: `{name}`: {fault}"
    for area, found in numbers.items():
        for missing in sorted(set(range(1, max(found) + 1)) - set(found)):
            yield f"{STATUS}: {area}-{missing} is missing"
    if not seen:
        yield f"{STATUS}: no rows"


def check_citations(root, text):
    rows = {f"{match.group(1)}-{match.group(2)}" for match in ROW.finditer(text)}
    areas = {row.split("-")[0] for row in rows} | {"R", "X"}
    cited = re.compile(rf"(?<![\w-])(?:{'|'.join(sorted(areas))})-\d+(?![\w-])")
    files = [root / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    for folder in CITING_FOLDERS:
        files += sorted(path for path in (root / folder).rglob("*") if path.suffix in CITING)
    for path in files:
        if not path.is_file() or path == root / STATUS or path.name == pathlib.Path(__file__).name:
            continue
        contents = read(path)
        for match in cited.finditer(contents):
            if match.group(0) not in rows:
                line = contents.count("\n", 0, match.start()) + 1
                yield f"{path.relative_to(root)}:{line}: '{match.group(0)}' has no row in {STATUS}"


def check(root):
    path = root / STATUS
    if not path.is_file():
        return [f"{STATUS}: missing"]
    text = read(path)
    return [*check_rows(text, Tree(root)), *check_citations(root, text)]


def tally(root):
    states = [re.split(r"[:|]", match.group(3).split(" | ")[2])[0].strip() for match in ROW.finditer(read(root / STATUS))]
    return ", ".join(f"{states.count(state)} {state}" for state in STATES)


GOOD = {
    "docs/status.md": "| DP-1 | averages | `parallel.tp`, `quintet plan --search` | works | `Suite.Name`, `make test` |\n"
    "| DP-2 | frozen | - | partial: `tools/a.py` | `Suite.*`, `tests/a.cc` |\n| DP-3 | more | - | not yet | - |\n",
    "tests/a.cc": "TEST(Suite, Name) {}\n// DP-1\n",
    "tools/a.py": "\n",
    "Makefile": "test: build\n",
    "src/config/schema.h": 'v("parallel.tp", p.tp);\n',
    "src/cli/plan.cc": 'app.add_subcommand("plan", ""); add_flag("--search");\n',
}
# (fault, file, text, expected part of the message)
PLANTED = [
    ("a test that does not exist", STATUS, "| DP-1 | a | - | works | `Suite.Gone` |\n", "`Suite.Gone`: no such test"),
    ("a suite that does not exist", STATUS, "| DP-1 | a | - | works | `Gone.*` |\n", "no such suite"),
    ("a file that does not exist", STATUS, "| DP-1 | a | - | works | `tests/gone.sh` |\n", "no such file"),
    ("a target that does not exist", STATUS, "| DP-1 | a | - | works | `make gone` |\n", "no such target"),
    ("a verb that does not exist", STATUS, "| DP-1 | a | `quintet gone` | not yet | - |\n", "no verb 'gone'"),
    ("an option that does not exist", STATUS, "| DP-1 | a | `quintet plan --gone` | not yet | - |\n", "no option --gone"),
    ("a key that does not exist", STATUS, "| DP-1 | a | `parallel.gone` | not yet | - |\n", "no such recipe key"),
    ("a word that is nothing", STATUS, "| DP-1 | a | - | works | `gone` |\n", "neither a test"),
    ("an id twice", STATUS, "| DP-1 | a | - | not yet | - |\n" * 2, "DP-1: the id occurs twice"),
    ("a gap", STATUS, "| DP-2 | a | - | not yet | - |\n", "DP-1 is missing"),
    ("an unknown state", STATUS, "| DP-1 | a | - | nearly | - |\n", "state 'nearly'"),
    ("partial without a reason", STATUS, "| DP-1 | a | - | partial | `make test` |\n", "must say what is missing"),
    ("no proof", STATUS, "| DP-1 | a | - | works | - |\n", "needs a test"),
    ("a cell too few", STATUS, "| DP-1 | a | works | - |\n", "got 4 cells"),
    ("an id without a row", "tests/b.cc", "// see DP-9\n", "tests/b.cc:1: 'DP-9' has no row"),
    ("an unexplained id", "docs/a.md", "As X-6 says.\n", "docs/a.md:1: 'X-6' has no row"),
]


if __name__ == "__main__":
    sys.exit(tree_check.main("status", __doc__, check, lambda: GOOD, PLANTED, lambda root: f"; {tally(root)}"))
