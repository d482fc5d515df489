#!/usr/bin/env python3
"""Checks recipe keys and links in the documentation.

Every recipe key that README.md, CONTRIBUTING.md or a page of docs/ names exists in the schema: in inline code, in
`--set KEY=...` and in blocks of recipes. On the pages of docs/coming-from, every name in a column headed Quintet is a key,
a verb or an option that exists, so that a misspelt section is found as well, and an id of docs/status.md says what is missing, so its row is not
"works". Every relative link leads to a file.
Decisions have numbers of their own, in the name of the file and in its heading. Prints one line per problem; exit status 1
if there is any.

  check_docs.py [--root DIR]     check a tree (default: this repository)
  check_docs.py --self-test      check that one fault of each kind, in a temporary tree, is detected
"""

import pathlib
import re
import sys
import tomllib

import tree_check
from check_status import ROW, SECTIONS, STATUS, Tree, read

FILES = ("run.json", "model.safetensors")  # look like keys, are files
# Keys whose value has names of its own.
OPEN_KEYS = ("optimizer.groups", "batch.ramp", "parallel.dims")
# A line may name a key that does not exist, if it says so; a command, if its comment says "exit code 2".
GONE = re.compile(r"earlier versions|not supported yet|is refused", re.IGNORECASE)

KEY = re.compile(rf"({SECTIONS})(\.[a-z_0-9]+)+")
SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
SET = re.compile(r"--set\s+['\"]?([\w.]+)=")
LINK = re.compile(r"!?\[[^\]\n]*\]\(([^)\s]+)\)")
BLOCK = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def known(key, keys):
    return key in keys or any(k.startswith(key + ".") for k in keys) or key.startswith(OPEN_KEYS)


def leaves(table, prefix=""):
    """The dotted names of a TOML table's values; lists of tables count as one value."""
    for name, value in table.items():
        if isinstance(value, dict) and prefix + name not in OPEN_KEYS:
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield prefix + name


def fault_of_name(name, tree):
    """The problem with a name in a column headed Quintet; None if it exists."""
    name = name.split(" = ")[0].removesuffix(".*")
    if KEY.fullmatch(name) or "." in name and "/" not in name and not name.startswith("-"):
        return None if known(name, tree.keys) else "no such recipe key"
    if name.startswith("--"):
        return None if name.split()[0].split("=")[0] in tree.options else "no such option"
    if name.startswith(("quintet ", "make ")):
        return tree.fault(" ".join(w for w in name.split() if w.islower() and "." not in w and "=" not in w))
    return None


def check_columns(text, tree):
    column = None
    for number, line in enumerate(text.splitlines(), 1):
        if not line.startswith("|"):
            column = None
            continue
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if column is None:
            column = cells.index("Quintet") if "Quintet" in cells else -1
        elif 0 <= column < len(cells):
            for span in SPAN.findall(cells[column]):
                if fault := fault_of_name(span, tree):
                    yield number, f"`{span}`: {fault}"


def check_missing(root, text):
    status = root / STATUS
    rows = ROW.finditer(read(status)) if status.is_file() else ()
    states = {f"{row.group(1)}-{row.group(2)}": row.group(3).split(" | ")[2] for row in rows}
    for match in re.finditer(r"\b[A-Z]{2}-\d+\b", text):
        if states.get(match.group(0), "").startswith("works"):
            yield text.count("\n", 0, match.start()) + 1, f"{match.group(0)} is cited as missing, and works by {STATUS}"


def check_page(root, path, tree):
    text = read(path)
    line_at = lambda position: text.count("\n", 0, position) + 1
    line_text = lambda position: text[text.rfind("\n", 0, position) + 1 : (text + "\n").find("\n", position)]
    prose = BLOCK.sub(lambda m: re.sub(r"[^\n]", " ", m.group(0)), text)
    coming_from = path.parent.name == "coming-from"
    # Tables of these pages also have the keys of other systems, some of which look like ours.
    ours = re.sub(r"^\|.*$", lambda m: " " * len(m.group(0)), prose, flags=re.MULTILINE) if coming_from else prose
    for match in SPAN.finditer(ours):
        key = re.split(r"\s*=", match.group(1))[0]
        if key in FILES or not KEY.fullmatch(key):
            continue
        if not known(key, tree.keys) and not GONE.search(line_text(match.start())):
            yield line_at(match.start()), f"`{key}`: no such recipe key"
    for match in SET.finditer(text):
        if not known(match.group(1), tree.keys) and "exit code 2" not in line_text(match.start()):
            yield line_at(match.start()), f"--set {match.group(1)}: no such recipe key"
    for block in BLOCK.finditer(text):
        if block.group(1) != "toml":
            continue
        try:
            table = tomllib.loads(block.group(2))
        except tomllib.TOMLDecodeError as error:
            yield line_at(block.start()), f"block of TOML: {error}"
            continue
        if re.search(rf"^\[({SECTIONS})[].]", block.group(2), re.MULTILINE):
            for key in leaves(table):
                if key != "name" and not known(key, tree.keys):
                    yield line_at(block.start()), f"`{key}` in a recipe: no such recipe key"
    for match in LINK.finditer(prose):
        target = match.group(1).split("#")[0]
        if target and not re.match(r"[a-z]+:", target) and not (path.parent / target).exists():
            yield line_at(match.start()), f"link to {target}: no such file"
    if coming_from:
        yield from check_columns(text, tree)
        yield from check_missing(root, text)


def check_decisions(root):
    seen = {}
    for path in sorted((root / "docs/decisions").glob("[0-9]*.md")):
        number = path.name.split("-")[0]
        where = path.relative_to(root)
        if number in seen:
            yield f"{where}: decision {number} is also {seen[number]}"
        seen[number] = path.name
        if not read(path).startswith(f"# {number}: "):
            yield f"{where}: the heading must begin with '# {number}: '"


def check(root):
    tree = Tree(root)
    yield from check_decisions(root)
    pages = [root / name for name in ("README.md", "CONTRIBUTING.md")] + sorted((root / "docs").rglob("*.md"))
    for page in pages:
        if page.is_file():
            for line, problem in check_page(root, page, tree):
                yield f"{page.relative_to(root)}:{line}: {problem}"


GOOD = {
    "README.md": "`parallel.tp = 2`, `optimizer.groups`, [a](docs/coming-from/a.md#x), [b](https://x.test/y)\n"
    "```toml\n[parallel]\ntp = 2\n[optimizer]\ngroups = [{ match = 'x' }]\n```\n```sh\nquintet plan --set parallel.tp=2\n```\n",
    "docs/coming-from/a.md": "| theirs | Quintet |\n|---|---|\n| `x.y` | `parallel.tp = 2`, `quintet plan --search`, `--search` |\n",
    "src/config/schema.h": 'v("parallel.tp", p.tp); v("optimizer.groups", o.groups);\n',
    "src/cli/plan.cc": 'app.add_subcommand("plan", ""); add_flag("--search");\n',
    "docs/decisions/0001-a.md": "# 0001: a\n",
    "docs/status.md": "| DP-1 | averages | - | works | - |\n| DP-2 | more | - | partial: half | - |\n",
    "tests/a.cc": "\n",
}
# (fault, file, text, expected part of the message)
PLANTED = [
    ("a key", "README.md", "Set `parallel.gone`.\n", "README.md:1: `parallel.gone`: no such recipe key"),
    ("a key with a value", "README.md", "Set `parallel.gone = 2`.\n", "`parallel.gone`: no such recipe key"),
    ("--set", "README.md", "```sh\nquintet plan --set parallel.gone=2\n```\n", "README.md:2: --set parallel.gone"),
    ("a recipe", "docs/a.md", "```toml\n[parallel]\ngone = 2\n```\n", "docs/a.md:1: `parallel.gone` in a recipe"),
    ("broken TOML", "docs/a.md", "```toml\n[parallel\n```\n", "block of TOML"),
    ("a link", "docs/a.md", "See [b](b.md).\n", "docs/a.md:1: link to b.md: no such file"),
    ("a section", "docs/coming-from/b.md", "| a | Quintet |\n|---|---|\n| `x` | `paralel.tp` |\n", "b.md:3: `paralel.tp`"),
    ("an option", "docs/coming-from/b.md", "| a | Quintet |\n|---|---|\n| `x` | `--gone` |\n", "no such option"),
    ("a verb", "docs/coming-from/b.md", "| a | Quintet |\n|---|---|\n| `x` | `quintet gone` |\n", "no verb 'gone'"),
    ("a missing feature that works", "docs/coming-from/b.md", "Not yet (DP-2).\nNot yet (DP-1).\n", "b.md:2: DP-1 is cited as missing"),
    ("a number twice", "docs/decisions/0001-b.md", "# 0001: b\n", "0001-b.md: decision 0001 is also 0001-a.md"),
    ("another number in the heading", "docs/decisions/0002-b.md", "# 0001: b\n", "0002-b.md: the heading"),
]


if __name__ == "__main__":
    sys.exit(tree_check.main("docs", __doc__, check, lambda: GOOD, PLANTED))
