#!/usr/bin/env python3
"""Checks the source tree against tools/layers.txt.

Includes between rooms and between parts of rooms, no cycles, CMake DEPS within the table, vendor headers and banned calls
only in the folders that own them, CUDA kernels that start as launch.cuh requires, no file over 800 lines, paths in the documentation exist, and
the room table of docs/architecture.md matches. Prints one line per problem; exit status 1 if there is any.

  check_layers.py [--root DIR]     check a tree (default: this repository)
  check_layers.py --self-test      check that one violation of each kind, in a temporary tree, is detected
"""

import pathlib
import re
import sys

import tree_check

MAX_LINES = 800
SOURCE_SUFFIXES = {".h", ".cc", ".cu", ".cuh"}
SIZED_FOLDERS = ("src", "tests", "tools", "bench", "cmake")
DOC_FOLDERS = ("src", "tests", "tools", "bench", "cmake", "docs", "recipes", ".ci")

# The start of an unqualified call: `abort(` and `; ::open(`, but not `void abort(`, `x.open(` or `File::open(`.
CALL_START = r"(?:^|[;{}()!&|?=,]|:\s+|\breturn\b|\belse\b)\s*"

# A kernel's name with its parameters, and the first statement of its body.
KERNEL = re.compile(r"__global__\b[^;{]*?(\w+)\s*\([^{;]*\)\s*\{\s*([^;]*;)")

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"\n]+)[>"]', re.MULTILINE)
STRING_OR_COMMENT = re.compile(
    r'R"(?P<tag>[^()\\\s]{0,16})\(.*?\)(?P=tag)"|"(?:\\.|[^"\\\n])*"|(?<!\w)\'(?:\\.|[^\'\\\n])+\''
    r"|//[^\n]*|/\*.*?\*/",
    re.DOTALL,
)


class Table:
    """The contents of layers.txt."""

    def __init__(self, text):
        self.rooms = {}  # room -> set of rooms it may include, except base
        self.vendors = []  # (header name prefix, owner folders)
        self.parts = []  # (folder of a room, folders that may include it)
        self.bans = []  # (name, owners, compiled pattern, what to do instead)
        for number, line in enumerate(text.splitlines(), 1):
            line = line.strip()
            if not line or line.startswith("#"):
                continue
            match = re.fullmatch(r"(room|part|vendor|ban) (\S+?):(?: (.*))?", line)
            if not match:
                raise SystemExit(f"tools/layers.txt:{number}: expected 'room|part|vendor|ban NAME: ...', got '{line}'")
            kind, name, rest = match.group(1), match.group(2), match.group(3) or ""
            if kind == "room":
                self.rooms[name] = set(rest.split())
            elif kind == "part":
                self.parts.append((name, rest.split()))
            elif kind == "vendor":
                self.vendors.append((name, rest.split()))
            else:
                owners, rest = rest.split(" | ", 1)
                pattern, advice = rest.rsplit(" | ", 1)
                compiled = re.compile(pattern.replace("{call}", CALL_START), re.MULTILINE)
                self.bans.append((name, owners.split(), compiled, advice))


def blank(text, keep_strings):
    """The text with comments (and strings) replaced by blanks; line numbers are kept."""

    def replace(match):
        found = match.group(0)
        if keep_strings and not found.startswith("/"):
            return found
        return re.sub(r"[^\n]", " ", found)

    return STRING_OR_COMMENT.sub(replace, text)


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


def owned(path, owners):
    """Whether path (relative to src, with '/') is in one of the folders, or is a file with one of the stems."""
    return any(path.startswith(owner + "/") or path.rsplit(".", 1)[0] == owner for owner in owners)


def check_table(table):
    for room, known in table.rooms.items():
        for other in sorted(known - table.rooms.keys()):
            yield f"tools/layers.txt: room {room} may include '{other}', which is not a room"
    state = {}

    def visit(room, trail):
        if state.get(room) == "done" or room not in table.rooms:
            return
        if room in trail:
            cycle = trail[trail.index(room):] + [room]
            yield f"tools/layers.txt: cycle {' -> '.join(cycle)}"
            return
        for other in sorted(table.rooms[room]):
            yield from visit(other, trail + [room])
        state[room] = "done"

    for room in table.rooms:
        yield from visit(room, [])


def check_source(root, path, table):
    relative = path.relative_to(root / "src").as_posix()
    room = relative.split("/")[0]
    allowed = table.rooms.get(room, set()) | {room, "base"}
    text = path.read_text(encoding="utf-8")
    where = f"src/{relative}"
    code = blank(text, keep_strings=True)
    for match in INCLUDE.finditer(code):
        quote, header = match.groups()
        line = line_of(code, match.start())
        target = header.split("/")[0]
        if quote == '"' and target in table.rooms and target not in allowed:
            may = " ".join(sorted(allowed - {room}))
            yield f"{where}:{line}: {room} may not include {target} ({header}); it may include: {may}"
        elif quote == '"' and not (root / "src" / header).is_file():
            yield f'{where}:{line}: src/{header} does not exist; include as "room/file.h"'
        for part, owners in table.parts:
            if quote == '"' and header.startswith(part + "/") and not owned(relative, owners):
                yield f"{where}:{line}: {header} may only be included in {' '.join(owners)}"
        for vendor, owners in table.vendors:
            if quote == "<" and header.startswith(vendor) and not owned(relative, owners):
                yield f"{where}:{line}: <{header}> may only be included in {' '.join(owners)}"
    bare = blank(text, keep_strings=False)
    for name, owners, pattern, advice in table.bans:
        if not owned(relative, owners):
            for match in pattern.finditer(bare):
                found = match.group(0).strip(" \t\n;{}()!&|?=,:")
                yield f"{where}:{line_of(bare, match.end())}: '{found}' ({name}) is only allowed in {' '.join(owners)}: {advice}"
    for match in KERNEL.finditer(bare):
        if match.group(2) not in ("await_previous();", "allow_next();"):
            line = line_of(bare, match.start())
            yield f"{where}:{line}: a kernel must start with await_previous(); (src/kernels/cuda/support/launch.cuh)"


def check_cmake(root, room, table):
    path = root / "src" / room / "CMakeLists.txt"
    if not path.is_file():
        return
    text = re.sub(r"#[^\n]*", "", path.read_text(encoding="utf-8"))
    for match in re.finditer(r"quintet_room\s*\(\s*(\S+?)([\s)][^)]*)", text):
        words, deps, reading = match.group(2).replace(")", " ").split(), set(), False
        for word in words:
            if word in ("DEPS", "LIBS", "SEPARATE"):
                reading = word == "DEPS"
            elif reading:
                deps.add(word)
        for extra in sorted(deps - table.rooms[room] - {"base"}):
            yield f"src/{room}/CMakeLists.txt: DEPS names {extra}, which {room} may not include (tools/layers.txt)"


def check_rooms(root, table):
    for folder in sorted((root / "src").iterdir()):
        if not folder.is_dir():
            continue
        if folder.name not in table.rooms:
            yield f"src/{folder.name}: room not listed in tools/layers.txt"
            continue
        yield from check_cmake(root, folder.name, table)
        for path in sorted(folder.rglob("*")):
            if path.suffix in SOURCE_SUFFIXES:
                yield from check_source(root, path, table)


def check_sizes(root):
    for folder in SIZED_FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in SOURCE_SUFFIXES | {".py", ".sh", ".cmake"}:
                lines = path.read_text(encoding="utf-8").count("\n")
                if lines > MAX_LINES:
                    yield f"{path.relative_to(root)}: {lines} lines; the limit is {MAX_LINES}"


def check_documents(root, table):
    documents = [root / "README.md", root / "CONTRIBUTING.md", *sorted((root / "docs").glob("*.md"))]
    for document in documents:
        if not document.is_file():
            continue
        text = document.read_text(encoding="utf-8")
        prose = re.sub(r"^```.*?^```", lambda m: re.sub(r"[^\n]", " ", m.group(0)), text, flags=re.DOTALL | re.MULTILINE)
        for match in re.finditer(r"`([\w.{}<>*+-]+(?:/[\w.{}<>*+-]+)+/?)`", prose):
            name = match.group(1)
            first = name.split("/")[0]
            if first in table.rooms and first not in DOC_FOLDERS:
                pattern = f"src/{name}"
            elif first in DOC_FOLDERS:
                pattern = name
            else:
                continue
            pattern = re.sub(r"<[^>]*>|\{[^}]*\}", "*", pattern.rstrip("/"))
            if not any(root.glob(pattern)):
                line = line_of(text, match.start())
                yield f"{document.relative_to(root)}:{line}: `{name}` does not exist"


def check_architecture(root, table):
    path = root / "docs" / "architecture.md"
    if not path.is_file():
        yield "docs/architecture.md: missing; it must contain the room table"
        return
    drawn = {}
    for match in re.finditer(r"^\| `(\w+)` \|[^|]*\| ([^|]*) \|$", path.read_text(encoding="utf-8"), re.MULTILINE):
        drawn[match.group(1)] = set(match.group(2).split()) - {"-"}
    for room in sorted(table.rooms.keys() | drawn.keys()):
        if room not in drawn:
            yield f"docs/architecture.md: the room table lacks `{room}`"
        elif room not in table.rooms:
            yield f"docs/architecture.md: the room table has `{room}`, which tools/layers.txt lacks"
        elif drawn[room] != table.rooms[room]:
            want = " ".join(sorted(table.rooms[room])) or "-"
            have = " ".join(sorted(drawn[room])) or "-"
            yield f"docs/architecture.md: `{room}` may include '{want}' according to tools/layers.txt, but the room table says '{have}'"


def check(root):
    table = Table((root / "tools" / "layers.txt").read_text(encoding="utf-8"))
    problems = [*check_table(table), *check_rooms(root, table), *check_sizes(root)]
    return problems + [*check_documents(root, table), *check_architecture(root, table)]


# Beside tools/layers.txt, and docs/architecture.md with the same table.
CLEAN_TREE = {
    "README.md": "See `src/graph/op.h`, `graph/op.h`, `src/<room>/op.h` and `build/quintet`.\n",
    "src/base/clock.cc": "auto t = std::chrono::steady_clock::now();\n",
    "src/graph/op.h": "// printf( in a comment\nconst char* s = \"getenv(\"; void abort(int); int n = 1'000'000;\n",
    "src/graph/kernel.cu": "__global__ void __launch_bounds__(256) f(int* x) {\n  await_previous();\n  *x = 1;\n}\n",
    "src/graph/CMakeLists.txt": "quintet_room(graph)\n",
    "src/layout/mesh.cc": '#include "graph/op.h"\n#include <vector>\nvoid f() { file.open(1); File::open(2); snprintf(b); }\n',
    "src/layout/CMakeLists.txt": "quintet_room(layout DEPS graph LIBS xxhash)\n",
    "src/config/parse.cc": "#include <toml++/toml.h>\nauto home = std::getenv(\"HOME\");\n",
}

# (violation, file, text, expected part of the message)
PLANTED = [
    ("include upwards", "src/graph/bad.cc", '#include "layout/mesh.h"\n', "graph may not include layout"),
    ("include without a room", "src/graph/bad.cc", '#include "op.h"\n', "src/op.h does not exist"),
    ("part of a room", "src/kernels/cuda/bad.h", '#include "kernels/cpu/a.h"\n', "may only be included in kernels/cpu"),
    ("vendor header", "src/graph/bad.cc", "#include <mpi.h>\n", "may only be included in comm/mpi"),
    ("vendor header in a sibling", "src/comm/local/bad.cc", "#include <mpi.h>\n", "may only be included in comm/mpi"),
    ("getenv", "src/graph/bad.cc", 'auto x = std::getenv("A");\n', "(environment)"),
    ("clock", "src/base/bad.cc", "auto t = std::chrono::steady_clock::now();\n", "(clock)"),
    ("fstream", "src/graph/bad.cc", "std::ifstream in(path);\n", "(files)"),
    ("open", "src/graph/bad.cc", "int fd = ::open(path, 0);\n", "(files)"),
    ("printf", "src/graph/bad.cc", 'printf("x");\n', "(print)"),
    ("cout", "src/graph/bad.cc", "std::cout << 1;\n", "(print)"),
    ("exit", "src/graph/bad.cc", "if (x) std::exit(1);\n", "(exit)"),
    ("abort", "src/graph/bad.cc", "void f() {\n  abort();\n}\n", "bad.cc:2: 'abort' (exit)"),
    ("kernel", "src/graph/bad.cu", "__global__ void f(int* x) {\n  *x = 1;\n}\n", "must start with await_previous();"),
    ("unknown room", "src/attic/a.h", "\n", "src/attic: room not listed"),
    ("CMake DEPS", "src/graph/CMakeLists.txt", "quintet_room(graph DEPS layout)\n", "DEPS names layout"),
    ("long file", "src/graph/bad.cc", "\n" * (MAX_LINES + 1), "801 lines"),
    ("stale path", "README.md", "See `src/graph/gone.h`.\n", "`src/graph/gone.h` does not exist"),
    ("stale path in a room", "README.md", "See `graph/gone.h`.\n", "`graph/gone.h` does not exist"),
    ("cycle", "tools/layers.txt", "room base:\nroom graph: layout\nroom layout: graph\nroom config:\n", "cycle graph -> layout -> graph"),
    ("room table", "docs/architecture.md", "| `graph` | ops | layout |\n", "the room table says 'layout'"),
    ("room table lacks a room", "docs/architecture.md", "| `graph` | ops | - |\n", "the room table lacks `layout`"),
]


def clean_tree():
    layers = (pathlib.Path(__file__).parent / "layers.txt").read_text(encoding="utf-8")
    rows = (f"| `{room}` | job | {' '.join(sorted(known)) or '-'} |" for room, known in Table(layers).rooms.items())
    return {**CLEAN_TREE, "tools/layers.txt": layers, "docs/architecture.md": "\n".join(rows) + "\n"}


if __name__ == "__main__":
    sys.exit(tree_check.main("layers", __doc__, check, clean_tree, PLANTED))
